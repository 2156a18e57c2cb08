"""Write configurations that nobody means, and read them."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import yaml

from consumers.config.settings import Settings, load, to_yaml
from consumers.errors import ConfigError
from tests.campaigns.campaign import ROOT, Run
from tests.campaigns.watchdog import watched_steps

_A_STEP = 100
_SECONDS_MAX = 5.0  # of one file; an honest one takes a hundredth of that
_SECRET = "marked-secret-of-the-environment"
# Nine lists, each of ten times the one before: a billion entries if anything spells them out.
_BOMB = "".join(f"x{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'a'] * 10)}]\n" for i in range(9))
_VALUES = (
    "null", "true", "-1", "0", "1e400", ".nan", ".inf", "9" * 400, "1:2:3", "2001-99-99", "''",
    "[]", "{}", "[[]]", "{a: {b: c}}", "'\\0'", '"\\0"', '"\\ud800"', "text", "${SECRET}",
    "${NONE}", "${", "$${a}", "!!binary aGk=", "!!python/object:os.system {}", "&a [*a]", "*a8",
    "file:/dev/null", "kafka://h:1/t", "kafka://a:${SECRET}@h:1/t", "[" * 300, "x" * 5_000,
)  # fmt: skip


def odd_configurations(run: Run) -> None:
    """Any text is a whole configuration or a list of its mistakes, soon, and shows no secret."""
    lines = re.sub(r" *#.*", "", (ROOT / "config.yaml").read_text(encoding="utf-8")).splitlines()
    lines = [line for line in lines if line.strip()]
    for chance, folder in watched_steps(run):
        for _ in range(_A_STEP):
            run.figures["configurations"] += 1
            run.figures["refused"] += not _is_taken(folder / "config.yaml", _odd(chance, lines))


def _odd(chance: random.Random, lines: list[str]) -> bytes:
    """Return a configuration with some of its lines changed, or bytes that are none."""
    changed = lines[:]
    for _ in range(chance.choice((0, 1, 1, 2, 5, 20))):
        at = chance.randrange(len(changed))
        key = changed[at].partition(":")[0]
        change = chance.choice(("value", "value", "value", "gone", "twice", "indent", "moved"))
        if change == "value":
            changed[at] = f"{key}: {chance.choice(_VALUES)}"
        elif change == "moved":
            changed.insert(chance.randrange(len(changed)), changed.pop(at))
        else:
            new = {"gone": [], "twice": [changed[at]] * 2, "indent": [f"  {changed[at]}"]}
            changed[at : at + 1] = new[change]
    data = bytearray((chance.choice(("", "", _BOMB)) + "\n".join(changed)).encode())
    for _ in range(chance.choice((0, 0, 0, 1, 3))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def _is_taken(path: Path, content: bytes) -> bool:
    """Return whether a configuration is taken; one that is can be written and read again."""
    path.write_bytes(content)
    began_s = time.process_time()
    mistakes, found = "", None
    try:
        found = load(path, {"SECRET": _SECRET})
    except ConfigError as error:
        mistakes = str(error)
    assert time.process_time() - began_s < _SECONDS_MAX
    assert _SECRET not in mistakes  # of a variable its name is shown
    if found is None:
        return False
    if not found.http.token and not found.kafka.sasl_password:
        assert Settings.model_validate(yaml.safe_load(to_yaml(found))) == found
    return True
