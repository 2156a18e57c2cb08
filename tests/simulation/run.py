"""Carries out a plan: puts simulated ends to the real daemon, and says what came of it."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import secrets
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog

from consumers import daemon, factories
from consumers.config.settings import Settings
from consumers.kafka import producers
from consumers.kafka.group_source import GroupSource
from consumers.messages import Messages
from consumers.pipeline.loop import Pipeline
from tests.simulation import bugs
from tests.simulation.broker import BrokerClient, TopicLog
from tests.simulation.plan import Plan
from tests.simulation.scheduler import activate
from tests.simulation.world import TOPIC, World
from tests.system_calls import hooked

_DESCRIPTORS = Path("/proc/self/fd")


@contextlib.contextmanager
def replaced(world: World) -> Iterator[None]:
    """Let daemons reach the simulated broker, and no network."""

    def source(settings: Settings, **_: object) -> GroupSource:
        process = world.running().process
        assert process is not None
        client = BrokerClient(world.broker, TOPIC, settings.kafka, process)
        return GroupSource(client, settings.kafka)

    def label_source(settings: Settings, topic: str, *_: object) -> GroupSource:
        process = world.running().process
        assert process is not None
        kafka = settings.kafka.model_copy(update={"start_from": "earliest"})
        client = BrokerClient(world.broker, topic, kafka, process, is_alone=True)
        return GroupSource(client, kafka, is_shared=settings.group.folder is not None)

    def topic_log(_servers: object, topic: str, *_: object, **_options: object) -> TopicLog:
        process = world.running().process
        assert process is not None
        return TopicLog(world.broker, topic, process)

    def serve(_settings: Settings, components: Any, **_: object) -> tuple[None, Callable[[], None]]:
        if components.corrections is not None:
            world.running().service = components.corrections.correction_service
        return None, lambda: None

    real_build, real_process = daemon.Daemon.build_pipeline, Pipeline._process

    def build_pipeline(self: daemon.Daemon) -> Pipeline:
        pipeline = world.running().pipeline = real_build(self)
        return pipeline

    def process(self: Pipeline, messages: Messages) -> None:
        what = world.running(), messages.partition, messages.offsets.tolist()
        world.recent.note_begun(*what)
        real_process(self, messages)
        world.recent.note_handled(*what)

    def note(_logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        task = world.scheduler.current
        who = "" if task is None else f"{task.process.name}/{task.name}"
        world.note_gap(event)
        world.recent.note_event(event)
        world.said.append(f"{world.scheduler.now_s:9.4f} {who} {method} {event}")
        raise structlog.DropEvent

    keys = random.Random(f"keys {world.plan.seed}")
    with contextlib.ExitStack() as stack:
        for where, name, value in (
            (daemon, "build_source", source),
            (factories, "whole_topic_source", label_source),
            (producers, "KafkaLog", topic_log),
            (daemon, "serve", serve),
            (daemon, "raise_priority", lambda: None),
            (daemon, "short_pauses", contextlib.nullcontext),
            (daemon.Daemon, "compile_kernels", lambda _self, _stack: True),
            (daemon.Daemon, "build_pipeline", build_pipeline),
            (Pipeline, "_process", process),
            (secrets, "randbits", keys.getrandbits),
            (secrets, "token_hex", lambda n: keys.randbytes(n).hex()),
        ):
            stack.enter_context(patch.object(where, name, value))
        structlog.configure(processors=[note], cache_logger_on_first_use=False)
        yield


@dataclass(frozen=True)
class Outcome:
    """What came of a run; `report` counts what it met, `trace` is of who took each step."""

    failure: str | None
    report: Counter[str]
    n_comparisons: int
    log: list[str]
    n_steps: int
    trace: int


def carry_out(plan: Plan, root: Path, bug: str | None = None) -> Outcome:
    """Run a plan in an empty folder."""
    world = World(plan, root)
    activate(world.scheduler)
    failure = None
    try:
        with replaced(world), bugs.planted(bug, world), hooked(root, world.on_call):
            try:
                world.run()
            except Exception as error:  # noqa: BLE001 -- whatever it is, the seed has failed
                failure = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
            finally:
                world.end()
    finally:
        activate(None)
        _close_files(root)
    world.report["rebalances"] += world.broker.n_rebalances if plan.n_daemons > 1 else 0
    world.report["members expelled"] += world.broker.n_expelled
    scheduler = world.scheduler
    return Outcome(
        failure, +world.report, world.n_comparisons, list(world.said), scheduler.n_steps,
        scheduler.trace,
    )  # fmt: skip


def _close_files(root: Path) -> None:
    """Close what killed processes left open; whatever Python holds goes first."""
    gc.collect()
    for each in list(_DESCRIPTORS.iterdir()):
        with contextlib.suppress(OSError):
            if each.readlink().is_relative_to(root):
                os.close(int(each.name))
