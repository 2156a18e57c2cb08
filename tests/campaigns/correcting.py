"""Kill a daemon again and again while people correct it, and count what it has learned."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.broker.broker import Broker
from tests.campaigns.campaign import Run
from tests.campaigns.daemons import CLIENTS, PARTITIONS, started_broker
from tests.campaigns.instants import FreshFile, kill_amid_a_checkpoint
from tests.consumers.corrections.stepped_daemon import JOURNAL_PART
from tests.consumers.kafka.topics import Reader, fill
from tests.endtoend.correction_clients import People, check_model, expected
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import Example, examples, message, messages

N = 6_000
KILLS = 20
CORRECTIONS = 12_000
PEOPLE = 8
DELETED = 0.03  # so that messages are left that can be labelled
PATIENCE_S = 10.0

Said = list[tuple[dict[str, Any], str]]  # corrections of a log, each with the part that it teaches


def corrections(run: Run) -> None:
    """Corrections that people make amid kills are learned once, by a journal or a label topic."""
    found = examples(N)
    # The last but those that show that all are read; after a kill, corrections wait for them.
    corrected = range(N * 2 // 3, N - PARTITIONS)
    with started_broker() as broker:
        for chance, folder in run.steps():
            by_topic = run.step % 2 == 1
            names = (f"stream-{run.step}", f"labels-{run.step}") if by_topic else None
            sections = _sections(folder, found, broker, names)
            answered = Counter[tuple[str, ...]]()
            for life in range(KILLS):
                # Without a checkpoint all is learned again, and the corrections wait for it.
                interval_s = chance.choice((1e6, 0.05, 0.05))
                config = _config(folder, sections, life, chance, interval_s)
                fresh = FreshFile(folder / "state")
                with Daemon(config) as daemon:
                    for number in range(N - PARTITIONS, N):
                        daemon.until_page(f"/v1/messages/m{number}", 200)
                    daemon.until_it_takes_corrections()
                    people = People(daemon, corrected, PEOPLE, run.step * KILLS + life, DELETED)
                    least = CORRECTIONS / KILLS
                    daemon.until(lambda: len(people.answered) >= least, "corrections")  # noqa: B023
                    if interval_s < 1:
                        kill_amid_a_checkpoint(daemon, fresh, chance, PATIENCE_S)
                    daemon.kill()
                people.join()
                run.figures["kills"] += 1
                run.figures["kills amid a checkpoint"] += fresh.is_there()
                assert {status for status, _ in people.refused} <= {404}, people.refused[:3]
                answered.update(_named(kind, receipt) for kind, receipt in people.answered)
            with Daemon(_config(folder, sections, KILLS, chance, 1e6), "--until-end") as daemon:
                assert daemon.wait() == 0, daemon.lines[-3:]
                assert daemon.count("correction_refused") == 0
            log = "the label topic" if names else "the journal"
            said = (
                _of_topic(broker, names[1], answered.total())
                if names
                else _of_journal(folder / "state" / "corrections.jsonl")
            )
            assert not answered - Counter(_named(each["kind"], each) for each, _ in said)
            source, partitions = (names[0], PARTITIONS) if names else ("file:in.jsonl", 1)
            check_model(folder / "state", expected(found, partitions, source, said))
            run.figures[f"corrections in {log}"] += len(said)
            run.figures["deletions among them"] += sum(each["kind"] == "delete" for each, _ in said)


def _sections(
    folder: Path, found: list[Example], broker: Broker, names: tuple[str, str] | None
) -> dict[str, Any]:
    """Write the stream, and return what the configuration of each life has in common."""
    recent = {"rate_max_per_s": 1e6, "processor_share_max": 1.0}  # all can be corrected
    if names is None:
        (folder / "in.jsonl").write_bytes(b"\n".join(messages(found)) + b"\n")
        return {"source": "file:in.jsonl", "file": {"batch_bytes": 1 << 14}, "recent": recent}
    for name in names:
        broker.create_topic(name, PARTITIONS)
    for number in range(PARTITIONS):
        own = [message(found[i], i) for i in range(number, N, PARTITIONS)]
        fill(broker.address, names[0], own, number)
    source, labels = f"kafka://{broker.address}/{names[0]}", f"kafka:{names[1]}"
    return {"source": source, "corrections": {"to": labels}, "recent": recent}


def _config(
    folder: Path, sections: Mapping[str, Any], life: int, chance: random.Random, interval_s: float
) -> Path:
    own: dict[str, Any] = {"checkpoint": {"folder": "state", "interval_s": interval_s}}
    if "corrections" in sections:
        # Nobody waits for the dead member.
        own["kafka"] = {"group_id": f"{folder.name}-{life}", "client": chance.choice(CLIENTS)}
    return write_config(folder / "config.yaml", **sections, **own)


def _named(kind: str, said: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what an answer and its line of the log have in common."""
    return kind, said["id"], str(said["was"])


def _of_journal(path: Path) -> Said:
    return [(json.loads(line), JOURNAL_PART) for line in path.read_text().splitlines()]


def _of_topic(broker: Broker, labels: str, least: int) -> Said:
    def lines(reader: Reader) -> Iterator[tuple[dict[str, Any], str]]:
        for number, values in reader.values.items():
            for value in values:
                yield json.loads(value or b""), f"{labels}/{number}"

    with Reader(broker.address, labels) as reader:
        reader.until(lambda: reader.n_values >= least and reader.source.at_end())
        return list(lines(reader))
