"""`streamnb model subtract --slice`: a model without what one slice of its log taught."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from consumers.cli.conventions import EXIT_DIFFERENT
from consumers.cli.verify import without_slice
from consumers.errors import QuestionError
from consumers.features import build_model
from streamnb import NaiveBayes, load
from streamnb.storage import save
from tests.consumers.cli.test_commands import Command, command
from tests.consumers.cli.test_verify import (
    LABELS,
    MODEL,
    entries,
    run,
    settings_for,
    stored,
    tamper,
    write_lines,
)

__all__ = ["command"]


def days(n: int, seed: int) -> tuple[list[dict[str, Any]], list[tuple[str, str, dict[str, Any]]]]:
    """Return messages of three days, and day, language and message of those that teach at last."""
    chance = random.Random(seed)
    messages: list[dict[str, Any]] = []
    alive: dict[str, tuple[str, str, dict[str, Any]]] = {}
    for number in range(n):
        what = chance.random()
        name = f"m{number}" if what < 0.7 or not alive else chance.choice(list(alive))
        day, lang = f"2026-11-0{1 + 3 * number // n}", chance.choice(("en", "de"))
        message: dict[str, Any] = {"id": name, "created_at": f"{day}T23:59:59Z"}
        if what >= 0.85 and name in alive:
            messages.append(message | {"operation": "delete"})
            del alive[name]
            continue
        message |= {"text": f"w{chance.randrange(30)} o{number}", "lang": lang, "age": number % 50}
        message |= {"label": chance.choice(LABELS), "reply": chance.random() < 0.5}
        message |= {"source": ("web", "phone")[number % 2], "user": ("ann", "bob")[number // 2 % 2]}
        alive[name] = day, lang, message
        messages.append(message | ({"operation": "update"} if what >= 0.7 else {}))
    return messages, list(alive.values())


@pytest.mark.parametrize(
    ("by", "name"), [("day", "2026-11-02"), ("lang", "en"), ("source", "web"), ("user", "ann")]
)
def test_a_slice_is_subtracted_by_name(
    command: Command, tmp_path: Path, by: str, name: str
) -> None:
    """What is left has the digest of a model that never learned the slice; the file answers."""
    messages, alive = days(300, 3)
    write_lines(tmp_path / "in.jsonl", messages)
    # The field `source` is no part of the model: a slice may go by what teaches nothing.
    read_too = {"fields": ["lang", "reply", "age", "source"]}
    settings = settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}", message=read_too)
    run(settings)
    config = tmp_path / "config.yaml"
    config.write_text(settings.model_dump_json(exclude_unset=True))
    rest = [
        message
        for day, lang, message in alive
        if name not in {day, lang, message["source"], message["user"]}
    ]
    assert 20 < len(rest) < len(alive) - 20
    never = build_model(settings.model)
    for each in rest:
        fields = {field: each[field] for field in ("text", "lang", "age", "reply")}
        never.learn_one(fields, each["label"])
    before = stored(tmp_path).model.digest()
    arguments = ("-c", str(config), "--slice", name, "--by", by, "--to", "rest.nb")
    told = command("model", "subtract", *arguments, "--json")
    assert told.code == 0, told.err
    assert json.loads(told.out)["taken"] == len(alive) - len(rest)
    left = load(tmp_path / "rest.nb")
    assert left.digest(moments=False) == never.digest(moments=False)
    assert stored(tmp_path).model.digest() == before
    assert (tmp_path / "rest.nb").stat().st_mode & 0o777 == 0o600
    told = command("model", "subtract", *arguments)
    assert f"{len(alive) - len(rest)} examples taken, {len(rest)} left" in told.out
    for to, said in (
        (tmp_path / "state" / "model.nb", "checkpoints have such names there"),
        (tmp_path / "state" / "." / "model.nb.1", "checkpoints have such names there"),
        (tmp_path / "nowhere" / "rest.nb", "nowhere; make it first"),
    ):
        told = command("model", "subtract", *arguments[:-1], str(to))
        assert told.code == 78
        assert said in told.err
    assert stored(tmp_path).model.digest() == before


def test_what_was_never_learned_is_not_taken_out(command: Command, tmp_path: Path) -> None:
    """A line that was read in two halves is whole when the log is read again."""
    path = tmp_path / "in.jsonl"
    messages = [
        {"id": str(n), "text": "cat dog", "lang": "de" if n == 9 else "en", "label": LABELS[n % 2]}
        for n in range(10)
    ]
    begin = write_lines(path, messages)[-2]
    data = path.read_bytes()
    path.write_bytes(data[: begin + 25])
    text = MODEL | {"features": {"text": MODEL["features"]["text"]}}
    settings = settings_for(tmp_path, f"file:{path}", message={"fields": ["lang"]}, model=text)
    run(settings)
    path.write_bytes(data)
    run(settings)
    assert stored(tmp_path).model.n_examples == 9
    config = tmp_path / "config.yaml"
    config.write_text(settings.model_dump_json(exclude_unset=True))
    arguments = ("model", "subtract", "-c", str(config), "--slice", "de", "--by", "lang", "--to")
    told = command(*arguments, "rest.nb")
    assert (told.code, told.out) == (EXIT_DIFFERENT, "")
    assert "does NOT count what its log says" in told.err
    assert "--no-verify takes out what the log says" in told.err
    assert not (tmp_path / "rest.nb").exists()
    told = command(*arguments, "rest.nb", "--no-verify")
    assert (told.code, told.err) == (0, "")
    assert load(tmp_path / "rest.nb").n_examples == 8


def test_a_slice_is_written_over_no_file_but_a_model(command: Command, tmp_path: Path) -> None:
    """What is read, what the daemon keeps and any other file stay, and so do files beside it."""
    write_lines(tmp_path / "in.jsonl", list(entries(60, 3)))
    settings = settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}")
    run(settings)
    config = tmp_path / "config.yaml"
    config.write_text(settings.model_dump_json(exclude_unset=True))
    (tmp_path / "notes.txt").write_text("notes", encoding="utf-8")
    save(stored(tmp_path).model, tmp_path / "state" / "other.nb")
    arguments = ("model", "subtract", "-c", str(config), "--slice", "en", "--by", "lang", "--to")
    for name in ("in.jsonl", "config.yaml", "notes.txt", "state/recent.db", "state/other.nb", "."):
        before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
        told = command(*arguments, str(tmp_path / name))
        assert (told.code, told.out) == (78, "")
        assert "name another file" in told.err
        assert all(each.read_bytes() == was for each, was in before.items())
    assert command(*arguments, "state/corrections.jsonl.old").code == 78
    save(stored(tmp_path).model, tmp_path / "rest.nb")
    (tmp_path / "rest.nb.1").write_text("notes", encoding="utf-8")
    assert command(*arguments, "rest.nb").code == 0
    assert load(tmp_path / "rest.nb").n_examples < stored(tmp_path).model.n_examples
    assert (tmp_path / "rest.nb.1").read_text(encoding="utf-8") == "notes"


def test_messages_without_a_time_are_a_slice_of_their_own(tmp_path: Path) -> None:
    """They belong to no day, the last one before 1970 least of all."""
    messages: list[dict[str, Any]] = [
        {"id": "a", "text": "sun", "label": "positive", "created_at": "1969-12-31T23:00:00Z"},
        {"id": "b", "text": "rain", "label": "negative"},
    ]
    write_lines(tmp_path / "in.jsonl", messages)
    settings = settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}")
    run(settings)
    for name, left in (("none", {"sun"}), ("1969-12-31", {"rain"})):
        model, n_taken = without_slice(settings, stored(tmp_path), "day", name)
        assert n_taken == 1
        assert {word for word in ("sun", "rain") if word in model.words()} == left


@pytest.mark.parametrize(
    ("name", "word"),
    [("true", "sun"), ("1", "rain"), ("none", "fog"), ("1.5", "hail"), ('["a"]', "snow")],
)
def test_a_slice_is_named_as_json_has_it(tmp_path: Path, name: str, word: str) -> None:
    """JSON's `true` is `true`, 1.0 is 1, and what is missing is `none`."""
    values: dict[str, Any] = {
        "sun": True, "rain": 1.0, "fog": None, "hail": 1.5, "snow": ["a"]
    }  # fmt: skip
    messages = [
        {"id": word, "text": word, "label": "positive", "kind": value}
        for word, value in values.items()
    ]
    write_lines(tmp_path / "in.jsonl", messages)
    own = {"message": {"fields": ["kind"]}}
    settings = settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}", **own)
    run(settings)
    model, n_taken = without_slice(settings, stored(tmp_path), "kind", name)
    assert n_taken == 1
    assert set(values).difference(model.words()) == {word}


def test_a_slice_that_is_none_is_refused(tmp_path: Path) -> None:
    """One of nothing, by a field that no message has, or that the model did not learn."""
    write_lines(tmp_path / "in.jsonl", days(60, 4)[0])
    own = {"message": {"fields": ["id"]}}
    settings = settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}", **own)
    run(settings)
    there = "it has '2026-11-01', '2026-11-02', '2026-11-03'$"
    with pytest.raises(QuestionError, match=f"the log has no example of it by day; {there}"):
        without_slice(settings, stored(tmp_path), "day", "2026-12-24")
    with pytest.raises(QuestionError, match=r"of it by id; it has ('m\d+', ){20}others$"):
        without_slice(settings, stored(tmp_path), "id", "x")

    def change(model: NaiveBayes) -> None:
        for part in model.state.parts.values():
            part.groups["text"].counts.by_word[:] = 0.0

    tamper(tmp_path, change)
    with pytest.raises(QuestionError, match="`streamnb verify` shows where"):
        without_slice(settings, stored(tmp_path), "day", "2026-11-02")
    (tmp_path / "in.jsonl").unlink()  # what can be no slice is refused before the log is read
    with pytest.raises(QuestionError, match="--by hour: name one of day, user, lang"):
        without_slice(settings, stored(tmp_path), "hour", "12")
    for name in ("02.11.2026", "20261102", "2026-11-31", "en"):
        with pytest.raises(QuestionError, match=f"--slice {name}: must be a day as 2026-11-02"):
            without_slice(settings, stored(tmp_path), "day", name)
