"""`streamnb verify`: the counts of a checkpoint against its log without what that took back."""

from __future__ import annotations

import io
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from consumers import daemon
from consumers.cli.conventions import EXIT_DIFFERENT, source_apart
from consumers.cli.verify import verify, without_slice
from consumers.config.addresses import Bound, StreamRange
from consumers.config.model import READING
from consumers.config.settings import Settings
from consumers.corrections.model import Correction, encode
from consumers.decode.rows import RecordFormat
from consumers.errors import ConfigError, MismatchError, SourceError
from consumers.features import build_model
from consumers.messages import Partition
from consumers.monitoring import logs
from consumers.sources.base import LogFacts
from consumers.sources.recording import RecordingHead, RecordingWriter
from consumers.sources.records import from_parts
from consumers.terminal import make_view
from streamnb import NaiveBayes
from streamnb.storage import Stored, read, save
from tests.consumers.cli.test_commands import Command, command

__all__ = ["command"]
LABELS = ("negative", "positive")
MODEL: dict[str, Any] = {
    "classes": list(LABELS),
    "features": {
        "text": {"kind": "words"} | dict.fromkeys(READING, False),
        "lang": {"kind": "categories", "fields": ["lang"]},
        "reply": {"kind": "flags", "fields": ["reply"]},
        "age": {"kind": "numbers", "fields": ["age"]},
    },
}


def entries(n: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield messages over few ids: created, created again, updated, deleted, some too early."""
    chance = random.Random(seed)
    for number in range(n):
        name = f"m{chance.randrange(n // 3)}"
        operation = chance.choices(("create", "update", "delete"), (6, 2, 2))[0]
        message: dict[str, Any] = {"id": name, "operation": operation}
        if chance.random() < 0.1:
            del message["id"]
        if operation != "delete":
            words = (f"w{chance.randrange(60)}" for _ in range(chance.randrange(1, 6)))
            message |= {"text": " ".join([*words, f"only{number}"])}
            message |= {"lang": chance.choice(("en", "de")), "reply": chance.random() < 0.5}
            message |= {"age": chance.randrange(80)} if chance.random() < 0.9 else {}
        if operation != "delete" and chance.random() < 0.8:
            message |= {"label": chance.choice(LABELS)}
        yield message


def settings_for(folder: Path, source: str, **own: Any) -> Settings:
    """Return settings of a daemon without a page; its state is in the folder."""
    everything = {
        "source": source,
        "labels": {"kind": "field", "field": "label", "mapping": {each: each for each in LABELS}},
        "model": MODEL,
        "checkpoint": {"folder": folder / "state"},
        "http": {"enabled": False},
    }
    return Settings.model_validate({**everything, **own})


def run(settings: Settings, max_messages: int | None = None, **own: Any) -> None:
    """Let a daemon read on to the end, or so many messages further."""
    logs.configure(io.StringIO())
    view = make_view("log", Console(file=io.StringIO()), lambda: 0.0)
    daemon.run(settings, view, until_end=True, max_messages=max_messages, **own)


def stored(folder: Path) -> Stored:
    """Return the newest checkpoint."""
    return read(folder / "state" / "model.nb")


def write_lines(path: Path, messages: list[dict[str, Any]]) -> list[int]:
    """Write messages as JSON lines; return where each begins."""
    lines = [json.dumps(each).encode() + b"\n" for each in messages]
    path.write_bytes(b"".join(lines))
    return [0, *itertools.accumulate(map(len, lines))]


@pytest.mark.parametrize("first", [False, None])
def test_a_folder_goes_on_with_its_reading(tmp_path: Path, first: bool | None) -> None:
    """What is not named is as the folder has it, for learning, verifying and slices alike."""
    words = [f"t{number} isn&#39;t it {'!' * (number % 3)}" for number in range(40)]
    write_lines(
        tmp_path / "in.jsonl",
        [
            {"text": text, "label": LABELS[i % 2], "lang": "ab"[i % 2]}
            for i, text in enumerate(words)
        ],
    )

    def reading(value: bool | None) -> Settings:
        group = {"kind": "words"} | dict.fromkeys(READING, value)
        model = MODEL | {"features": MODEL["features"] | {"text": group}}
        return settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}", model=model)

    run(reading(first), 20)
    run(reading(None))
    found = stored(tmp_path)
    is_on = first is None
    alone = build_model(reading(is_on).model)
    alone.learn_many({"text": words}, [LABELS[i % 2] for i in range(40)])
    assert found.model.n_examples == 40
    assert set(found.model.words("text")) == set(alone.words("text"))
    assert ("! $" in found.model.words("text")) is is_on
    assert verify(reading(None), found).is_equal
    less, n = without_slice(reading(None), found, "lang", "a")
    assert (less.n_examples, n) == (20, 20)
    with pytest.raises(MismatchError, match=r"features\.text\.punctuation.*configuration"):
        run(reading(not is_on))
    with pytest.raises(MismatchError, match=r"features\.text\.punctuation"):
        verify(reading(not is_on), found)


@pytest.mark.parametrize("seed", range(4))
def test_what_the_log_took_back_is_not_counted(tmp_path: Path, seed: int) -> None:
    """Deletes, updates and restarts amid them: the checkpoint counts what the log says."""
    write_lines(tmp_path / "in.jsonl", list(entries(600, seed)))
    settings = settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}")
    run(settings, 150 + 50 * seed)
    first = verify(settings, stored(tmp_path))
    run(settings)
    done = verify(settings, stored(tmp_path))
    for each in (first, done):
        assert each.is_equal, each.differences
        assert each.digest == each.replayed_digest
    assert (first.messages, done.messages) == (150 + 50 * seed, 600)
    assert done.taken_back > 20
    assert done.examples == stored(tmp_path).model.n_examples > 100


@pytest.mark.parametrize("seed", range(2))
def test_the_model_holds_what_the_conditions_keep(tmp_path: Path, seed: int) -> None:
    """As if creates that they leave out were not in the log, and such updates were deletions."""
    chance, wanted = random.Random(f"conditions {seed}"), []
    log = [
        {"lang": "de"} | each | {"user": f"u{chance.randrange(4)}"} for each in entries(800, seed)
    ]
    for each in log:
        leaves = each["lang"] == "de" or each["user"] == "u0"
        if each["operation"] == "delete" or (leaves and each["operation"] == "update"):
            wanted.append({key: each[key] for key in ("id", "operation") if key in each})
            wanted[-1]["operation"] = "delete"
        elif not leaves:
            wanted.append(each)
    message = {"keep": {"lang": ["en"]}, "ignore": {"user": ["u0"]}}
    found = []
    for name, lines, own in (("with", log, message), ("without", wanted, {})):
        (tmp_path / name).mkdir()
        write_lines(tmp_path / name / "in.jsonl", lines)
        source = f"file:{tmp_path / name / 'in.jsonl'}"
        settings = settings_for(tmp_path / name, source, message=own)
        run(settings)
        found.append(verify(settings, stored(tmp_path / name)))
    assert all(each.is_equal for each in found)
    assert found[0].digest == found[1].digest
    assert found[0].taken_back > 10
    assert found[0].examples > 50


@pytest.mark.parametrize("seed", range(3))
def test_what_an_account_took_along_is_not_counted(tmp_path: Path, seed: int) -> None:
    """The rules are written there a second time, and people say more in between."""
    chance = random.Random(f"accounts {seed}")
    log = [each | {"user": f"u{chance.randrange(5)}"} for each in entries(600, seed)]
    for at in sorted(chance.sample(range(600), 25)):
        log[at] = {"user": f"u{chance.randrange(6)}", "operation": "gone"}
    operations = {each: each for each in ("create", "update", "delete")}
    message = {"id": ["user", "id"], "operations": operations | {"gone": "delete_account"}}
    write_lines(tmp_path / "in.jsonl", log)
    settings = settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}", message=message)
    run(settings, 150 + 50 * seed)
    first = verify(settings, stored(tmp_path))
    run(settings)
    done = verify(settings, stored(tmp_path))
    for each in (first, done):
        assert each.is_equal, each.differences
    assert done.taken_back > 150
    assert done.examples == stored(tmp_path).model.n_examples > 10


def said(journal: Path, lines: list[Correction]) -> None:
    """Write what people said, as the daemon's own service does."""
    journal.parent.mkdir(exist_ok=True)
    journal.write_bytes(b"".join(encode(each) + b"\n" for each in lines))


@pytest.mark.parametrize("seed", range(3))
def test_what_people_said_stands_in_the_place_of_labels(tmp_path: Path, seed: int) -> None:
    """Labels, deletions and examples of people count as the journal has them."""
    chance = random.Random(seed)
    found = [
        {"id": f"m{i}", "text": f"w{i % 7} only{i}", "lang": "en", "reply": True, "age": i}
        | ({} if i % 3 == 0 else {"label": LABELS[i % 2]})
        for i in range(90)
    ]
    places = write_lines(tmp_path / "in.jsonl", found)
    settings = settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}")
    teaches: dict[int, str | None] = {i: each.get("label") for i, each in enumerate(found)}  # type: ignore[misc]
    lines, gone = [], set[int]()
    for time_ms in range(60):
        i = chance.randrange(90)
        if i in gone:
            continue
        label = None if chance.random() < 0.3 else chance.choice(LABELS)
        example = {name: found[i][name] for name in ("text", "lang", "reply", "age")}
        was = teaches[i]
        part = None if was is None else "file:in.jsonl/0"
        lines.append(
            Correction(
                "delete" if label is None else "label", f"m{i}", time_ms, example, label, was,
                part, ("file:in.jsonl", 0), places[i],
            )
        )  # fmt: skip
        teaches[i] = label
        gone |= {i} if label is None else set()
    own = {"text": "by itself", "lang": True, "reply": True}
    lines.append(Correction("label", "own", 61, own, "positive"))
    said(tmp_path / "state" / "corrections.jsonl", lines)
    run(settings)
    done = verify(settings, stored(tmp_path))
    assert done.is_equal, done.differences
    assert done.corrections == len(lines)
    assert done.examples == 1 + sum(label is not None for label in teaches.values())
    assert done.taken_back > 10


LATE_LABELS = {
    "an update without a label": (["create one positive", "update two -"], 1, ["two"]),
    "one that found nothing": (["update two -", "create three positive"], 0, ["two"]),
    "deleted since": (["create one -", "delete"], 0, []),
    "deleted after an update": (["create one positive", "update two -", "delete"], 0, []),
    "used again and deleted": (["create one -", "create two positive", "delete"], 0, []),
}


@pytest.mark.parametrize("case", LATE_LABELS)
def test_a_label_of_a_person_counts_as_if_given_at_once(tmp_path: Path, case: str) -> None:
    """Read again after a kill, the journal is behind the stream: no deleted message comes back."""
    log, labelled, words = LATE_LABELS[case]
    messages: list[dict[str, Any]] = [{"id": "b", "text": "four", "label": "positive"}]
    for entry in log:
        operation, text, label = (*entry.split(), "", "-")[:3]
        message = {"id": "a", "operation": operation, "text": text}
        messages.append(message | ({} if label == "-" else {"label": label}))
    places = write_lines(tmp_path / "in.jsonl", messages)
    settings = settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}")
    example, place = {"text": messages[1 + labelled]["text"]}, ("file:in.jsonl", 0)
    line = Correction("label", "a", 1, example, "negative", None, None, place, places[1 + labelled])
    said(tmp_path / "state" / "corrections.jsonl", [line])
    run(settings)
    done = verify(settings, stored(tmp_path))
    assert done.is_equal, done.differences
    assert sorted(stored(tmp_path).model.words()) == sorted([*words, "four"])


def test_no_id_names_a_message_without_one(tmp_path: Path) -> None:
    """An id may hold any character, as keys of Kafka do: its deletion takes its own alone."""
    messages: list[dict[str, Any]] = [
        {"text": "one", "label": "positive"},
        {"id": "\x000", "operation": "delete"},
        {"id": "b", "text": "two", "label": "positive"},
    ]
    write_lines(tmp_path / "in.jsonl", messages)
    settings = settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}")
    place = ("file:in.jsonl", 0)
    line = Correction(
        "label", "file:in.jsonl-0-0", 1, {"text": "one"}, "negative", "positive",
        "file:in.jsonl/0", place, 0,
    )  # fmt: skip
    said(tmp_path / "state" / "corrections.jsonl", [line])
    run(settings)
    assert sorted(stored(tmp_path).model.words()) == ["one", "two"]
    done = verify(settings, stored(tmp_path))
    assert done.is_equal, done.differences


@pytest.mark.parametrize("label", ["negative", None])
@pytest.mark.parametrize("was", ["negative", None])
def test_earlier_messages_of_a_deleted_id_are_not_counted(
    tmp_path: Path, label: str | None, was: str | None
) -> None:
    """Whether the message that a person deletes taught something itself."""
    texts = {"b": "four", "a": "one"}
    messages: list[dict[str, Any]] = [
        {"id": name, "text": text, "label": "positive"} for name, text in texts.items()
    ]
    messages += [{"id": "a", "text": "two", "label": label}, {"id": "a", "text": "three"}]
    messages[-1]["label"] = "positive"
    places = write_lines(tmp_path / "in.jsonl", messages)
    settings = settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}")
    part = None if was is None else "file:in.jsonl/0"
    line = Correction(
        "delete", "a", 1, {"text": "two"}, None, was, part, ("file:in.jsonl", 0), places[2]
    )
    said(tmp_path / "state" / "corrections.jsonl", [line])
    run(settings)
    done = verify(settings, stored(tmp_path))
    assert done.is_equal, done.differences
    assert done.taken_back == 1 + (label is not None)
    assert sorted(stored(tmp_path).model.words()) == ["four", "three"]


def tamper(folder: Path, change: Callable[[NaiveBayes], object]) -> None:
    """Change a checkpoint's counts by hand."""
    old = stored(folder)
    change(old.model)
    notes = old.header["notes"]
    save(old.model, old.path, positions=old.positions, notes=notes, extras=old.extras)


def test_a_count_changed_by_hand_is_named(command: Command, tmp_path: Path) -> None:
    """The command ends with 3, and prints the word, the class and both counts."""
    write_lines(tmp_path / "in.jsonl", list(entries(200, 5)))
    source = f"file:{tmp_path / 'in.jsonl'}"
    settings = settings_for(tmp_path, source)
    run(settings)
    config = tmp_path / "config.yaml"
    config.write_text(settings.model_dump_json(exclude_unset=True, exclude={"predictions"}))
    told = command("verify", "-c", str(config), "--json")
    assert (told.code, json.loads(told.out)["is_equal"]) == (0, True)
    word = next(each for each in stored(tmp_path).model.words() if each.startswith("only"))
    before = stored(tmp_path).model.word_counts([word])[0].tolist()

    def change(model: NaiveBayes) -> None:
        group = model.state.groups["text"]
        place = int(group.find([word])[0])  # type: ignore[attr-defined]
        for part in model.state.parts.values():
            part.groups["text"].counts.by_word[place, 1] += 1.0

    tamper(tmp_path, change)
    told = command("verify", "-c", str(config), "--json")
    assert told.code == EXIT_DIFFERENT
    found = json.loads(told.out)
    assert found["digest"] != found["replayed_digest"]
    assert found["differences"] == [
        {"group": "text", "statistic": "by_word", "name": word, "label": '"positive"',
         "first": before[1] + 1, "second": before[1]}
    ]  # fmt: skip
    told = command("verify", "-c", str(config))
    assert told.code == EXIT_DIFFERENT
    assert word in told.out
    assert "does NOT count" in told.out
    assert told.out.count("(without means and variances)") == 2  # as `inspect` prints another


def test_a_moment_changed_by_hand_is_named(tmp_path: Path) -> None:
    """Means are compared to rounding, beside the digest of what is counted."""
    write_lines(tmp_path / "in.jsonl", list(entries(200, 6)))
    settings = settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}")
    run(settings)

    def change(model: NaiveBayes) -> None:
        for part in model.state.parts.values():
            part.groups["age"].counts.mean[1, 0] += 1e-3

    tamper(tmp_path, change)
    done = verify(settings, stored(tmp_path))
    assert done.digest == done.replayed_digest
    assert not done.is_equal
    assert {(each.group, each.statistic, each.name) for each in done.differences} == {
        ("age", "mean", "age")
    }


def recorded(path: Path, messages: list[dict[str, Any]], first: int = 0) -> str:
    """Record messages as a topic of two partitions had them; return the source."""
    head = RecordingHead(stream={"source": "kafka", "topic": "t"}, format=RecordFormat())
    writer = RecordingWriter(path, head)
    writer.begin({Partition("t", p): LogFacts(first, "the-id") for p in (0, 1)})
    for p in (0, 1):
        own = [json.dumps(each).encode() for each in messages[p::2]][first:]
        offsets = range(first, first + len(own))
        keys = [None] * len(own)
        times = [1_000 + offset for offset in offsets]
        raw = from_parts(Partition("t", p), keys, own, offsets, times, first + len(own), None)
        writer.add(raw)
    writer.flush()
    writer.close()
    return f"recording:{path}"


def test_a_recording_stands_for_its_topic(tmp_path: Path) -> None:
    """Partitions are logs of their own; a recording without the beginning verifies nothing."""
    messages = list(entries(400, 7))
    source = recorded(tmp_path / "whole.jsonl.gz", messages)
    settings = settings_for(tmp_path, source)
    run(settings, 250)
    assert verify(settings, stored(tmp_path)).is_equal
    run(settings)
    done = verify(settings, stored(tmp_path))
    assert done.is_equal
    assert done.messages == 400
    headless = settings_for(tmp_path, recorded(tmp_path / "late.jsonl.gz", messages, 3))
    with pytest.raises(SourceError, match="6 messages from the beginning on"):
        verify(headless, stored(tmp_path))
    short = settings_for(tmp_path, recorded(tmp_path / "short.jsonl.gz", messages[:100]))
    with pytest.raises(SourceError, match="ends before offset 200"):
        verify(short, stored(tmp_path))


def test_a_part_of_a_stream_is_verified_as_it_was_run(tmp_path: Path) -> None:
    """With the `--from` of the run the same messages count; without it they differ."""
    source = recorded(tmp_path / "r.jsonl.gz", list(entries(300, 8)))
    settings = settings_for(tmp_path, source)
    part = StreamRange(Bound("offset", 40), Bound("offset", 120))
    run(settings, part=part)
    done = verify(settings, stored(tmp_path), part)
    assert done.is_equal, done.differences
    assert done.messages == 160
    assert not verify(settings, stored(tmp_path)).is_equal


def test_without_a_memory_nothing_is_taken_back(tmp_path: Path) -> None:
    """With `learned.messages_max: 0` each labelled message is an example, and so it verifies."""
    write_lines(tmp_path / "in.jsonl", list(entries(300, 9)))
    source = f"file:{tmp_path / 'in.jsonl'}"
    settings = settings_for(tmp_path, source, learned={"messages_max": 0})
    run(settings)
    done = verify(settings, stored(tmp_path))
    assert done.is_equal
    assert done.taken_back == 0
    assert not verify(settings_for(tmp_path, source), stored(tmp_path)).is_equal


def test_words_that_left_a_full_vocabulary_are_noted(tmp_path: Path) -> None:
    """The counts of such words depend on when they left: it is said beside the result."""
    model = {**MODEL, "features": {"text": {"kind": "words", "max_words": 50}}}
    write_lines(tmp_path / "in.jsonl", list(entries(300, 10)))
    settings = settings_for(tmp_path, f"file:{tmp_path / 'in.jsonl'}", model=model)
    run(settings)
    (note,) = verify(settings, stored(tmp_path)).notes
    assert "have left the full vocabulary" in note


def test_what_cannot_be_verified_is_refused(tmp_path: Path) -> None:
    """Another configuration's checkpoint, and a stream that cannot be read again."""
    write_lines(tmp_path / "in.jsonl", list(entries(20, 11)))
    source = f"file:{tmp_path / 'in.jsonl'}"
    run(settings_for(tmp_path, source))
    model = {**MODEL, "features": {"text": {"kind": "words", "ngrams": [1, 2]}}}
    other = r"made by another configuration[\s\S]*--config, and the log that it reads, .* --source"
    with pytest.raises(MismatchError, match=other):
        verify(settings_for(tmp_path, source, model=model), stored(tmp_path))
    piped = settings_for(tmp_path, "stdin")
    with pytest.raises(MismatchError, match="stdin"):
        verify(piped, stored(tmp_path))
    for gone in ("stdin", "jetstream", "wss://127.0.0.1:1/stream", "lines+https://127.0.0.1:1/x"):
        with pytest.raises(ConfigError, match="cannot be read again; name a file"):
            source_apart(settings_for(tmp_path, gone), "verify")
    off = {"learned": {"messages_max": 0}, "corrections": {"to": "none"}}
    decays = settings_for(tmp_path, source, model={**MODEL, "half_life_s": 60}, **off)
    with pytest.raises(ConfigError, match="decayed counts round"):
        verify(decays, stored(tmp_path))


@pytest.mark.parametrize("folder", ["state", None])
def test_without_a_checkpoint_no_option_is_named_that_is_not_there(
    command: Command, tmp_path: Path, folder: str | None
) -> None:
    """`verify` and `subtract` take a configuration and no model."""
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"checkpoint": {"folder": folder}}), encoding="utf-8")
    for arguments in (("verify",), ("model", "subtract", "--slice", "x", "--to", "out.nb")):
        told = command(*arguments, "-c", str(config))
        assert (told.code, told.out) == (78 if folder is None else 74, "")
        assert "the daemon's configuration by --config" in told.err
        assert "--model" not in told.err


@pytest.mark.parametrize(
    "arguments", [("verify",), ("model", "subtract", "--slice", "x", "--to", "o.nb"), ("predict",)]
)
def test_a_source_that_is_named_wins_wherever_the_configuration_is_asked(
    command: Command, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """A file whose outputs need the brokers of `--source` is refused by no command with that."""
    config = tmp_path / "config.yaml"
    config.write_text('{"predictions": {"to": "kafka:preds"}}', encoding="utf-8")
    told = command(*arguments, "-c", str(config), "--source", "kafka://127.0.0.1:1/t")
    assert (told.code, told.out) == (74, "")
    assert "there is no checkpoint yet" in told.err
