"""Daemons that share a topic, each with a state of its own, and a folder with their parts."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

from consumers.config.settings import Settings
from consumers.http.client import Client
from tests.consumers.kafka.topics import fill
from tests.consumers.pipeline.revised_log import Said, expected
from tests.endtoend.daemon_process import PATIENCE_S, Daemon, write_config
from tests.endtoend.expected_counts import WORDS, Counts, examples

SESSION_S = 6  # the least that brokers allow: so long a member's partitions wait after it died
_EVERY = 50  # messages of a partition there is a delete and an update of earlier ones


class RevisedTopic:
    """A topic that grows by examples, in turn over its partitions, with deletes and updates.

    What these take back is spread over all that the partition had before. Behind each stand new
    examples, so no part of the log leaves as many of them as all of it.
    """

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        self.logs: list[list[Said]] = [[] for _ in range(partitions)]
        self._address, self._topic = address, topic
        self._n = 0  # examples that were written

    def grow(self, n: int) -> None:
        """Write the next examples, and what they bring with them."""
        before = [len(log) for log in self.logs]
        for i, (text, label) in enumerate(examples(n, self._n), self._n):
            row, number = divmod(i, len(self.logs))
            log, at = self.logs[number], row % _EVERY
            if at == _EVERY // 3:
                log.append(Said("delete", f"m{row * 7 // 10 * len(self.logs) + number}"))
            elif at == _EVERY // 2:
                again = row * 3 // 10 * len(self.logs) + number
                log.append(Said("update", f"m{again}", f"{text} again", label))
            log.append(Said("create", f"m{i}", text, label))
        self._n += n
        for number, log in enumerate(self.logs):
            values = [each.value() or b"" for each in log[before[number] :]]
            fill(self._address, self._topic, values, number)

    def counts(self) -> tuple[Counts, int]:
        """Return what one undisturbed process counts, and how many examples that leaves."""
        counts, _ = expected([each for log in self.logs for each in log], Settings())
        return counts, int(sum(counts[0]))


class DaemonGroup:
    """Members of a group, each with a state of its own, and a folder that they share."""

    def __init__(
        self,
        folder: Path,
        source: str,
        stack: ExitStack,
        corrections: str = "none",
        sections: Mapping[str, object] = MappingProxyType({}),
        **kafka: object,
    ) -> None:
        self.daemons: dict[str, Daemon] = {}
        self.paused: set[str] = set()
        self._stack = stack
        self._folder = folder
        self._sections = {
            "source": source,
            "kafka": {"session_timeout_s": SESSION_S, "max_poll_messages": 500, **kafka},
            "group": {"folder": str(folder / "shared"), "interval_s": 0.2},
            "corrections": {"to": corrections},
            **sections,
        }

    def state(self, name: str) -> Path:
        """Return the folder of a member's own state."""
        return self._folder / name / "state"

    def start(self, name: str, checkpoint_s: float = 0.3) -> Daemon:
        """Start a member where it stood."""
        (self._folder / name).mkdir(exist_ok=True)
        checkpoint = {"folder": str(self.state(name)), "interval_s": checkpoint_s}
        config = write_config(
            self._folder / name / "config.yaml", **self._sections, checkpoint=checkpoint
        )
        daemon = self.daemons[name] = self._stack.enter_context(Daemon(config))
        return daemon

    def until_it_knows(self, name: str, n: int) -> None:
        """Wait until the model behind a member's answers has learned so many examples."""
        daemon = self.daemons[name]
        daemon.until(lambda: n_examples(daemon) >= n, f"{name} knows {n}")

    def until_it_counts(self, name: str, class_counts: list[float]) -> None:
        """Wait until the model behind a member's answers has so many examples of each class."""
        daemon = self.daemons[name]

        def counts() -> list[float]:
            status, text = daemon.get("/v1/model")
            rows = json.loads(text).get("classes", []) if status == 200 else []
            return [row["count"] for row in rows]

        daemon.until(lambda: counts() == class_counts, f"{name} counts {class_counts}")

    def until_all_answer_alike(self) -> None:
        """Wait until all members that run say the same of some texts, to the bit."""
        daemons = [each for name, each in self.daemons.items() if name not in self.paused]
        texts = [*WORDS, *(f"{a} {b}" for a in WORDS for b in WORDS)]

        def answer(daemon: Daemon) -> str:
            return json.dumps(Client(daemon.address, timeout_s=PATIENCE_S).predict_many(texts))

        daemons[0].until(lambda: len(set(map(answer, daemons))) == 1, "all answer alike")

    def begun(self, n: int) -> bool:
        """Return whether the group knows where so many partitions begin."""
        return len(list((self._folder / "shared").rglob("*.nb"))) == n

    def resume(self, name: str) -> None:
        """Let a member that was paused go on."""
        self.paused.discard(name)
        self.daemons[name].send(signal.SIGCONT)


def n_examples(daemon: Daemon) -> int:
    """Return how many examples the model behind a member's answers has learned."""
    status, text = daemon.get("/v1/model")
    return int(json.loads(text)["n_examples"] or 0) if status == 200 else 0
