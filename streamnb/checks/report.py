"""What came of checking a model: one finding a law, and the error that says which law is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamnb.checks.case import Example
from streamnb.errors import StreamnbError


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one law.

    Attributes
    ----------
    law : str
        Its name.
    says : str
        What it says, in a sentence.
    passed : bool or None
        None where the law does not speak of such a model.
    why : str
        Why it is broken or does not apply; empty where it holds.
    seed : int
        The seed that everything random in the check was drawn with.
    examples : tuple of Example
        Of a broken law: the shortest stream that was found to break it.
    """

    law: str
    says: str
    passed: bool | None
    why: str
    seed: int
    examples: tuple[Example, ...] = ()

    def __str__(self) -> str:
        mark = {True: "holds", False: "BROKEN", None: "n/a"}[self.passed]
        text = f"{mark:<7}{self.law}"
        if self.why:
            text += f": {self.why}"
        if self.passed is False:
            shown = "".join(f"\n           {_shown(example)}" for example in self.examples)
            text += f"\n         says: {self.says}\n         seed {self.seed}, examples:{shown}"
        return text


def _shown(example: Example) -> str:
    more: dict[str, Any] = {}
    if example.weight != 1.0:
        more["weight"] = example.weight
    if example.time_s is not None:
        more["time_s"] = example.time_s
    extra = "".join(f", {name}={value!r}" for name, value in more.items())
    return f"{dict(example.x)!r}, {example.y!r}{extra}"


@dataclass(frozen=True, slots=True)
class Report:
    """What came of all laws.

    Attributes
    ----------
    findings : tuple of Finding
        In the order of `LAWS`.
    """

    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether no law is broken."""
        return not self.broken

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The laws that are broken."""
        return tuple(each for each in self.findings if each.passed is False)

    def __str__(self) -> str:
        counts = [sum(each.passed is verdict for each in self.findings) for verdict in _VERDICTS]
        heading = "{} laws hold, {} are broken, {} do not apply".format(*counts)
        return "\n".join([heading, *map(str, self.findings)])


_VERDICTS: Sequence[bool | None] = (True, False, None)


class LawBroken(StreamnbError, AssertionError):  # noqa: N818 -- a finding, named for what it says
    """A model breaks laws; the message names each, with the seed and a short example.

    Attributes
    ----------
    report : Report
    """

    exit_code = 70  # EX_SOFTWARE of sysexits.h

    def __init__(self, report: Report) -> None:
        super().__init__("\n".join(map(str, report.broken)))
        self.report = report
