"""The commands as a user types them, and every exit code that can be provoked."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from consumers.config.message import EmoticonLabels
from consumers.kernels import json_scan
from streamnb.kernels import categorical
from streamnb.storage import read
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import Reader
from tests.endtoend.daemon_process import PATIENCE_S, Daemon, command, environment, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, messages

NewTopic = Callable[..., str]
SIGNS = EmoticonLabels().signs


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which a model was learned: `config.yaml`, `in.jsonl` and `state`."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "in.jsonl").write_bytes(b"\n".join(messages(examples(500))) + b"\n")
    write_config(folder / "config.yaml", source="file:in.jsonl", checkpoint={"folder": "state"})
    done = command("run", "--until-end", folder=folder)
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode()
    assert re.search(r"^ended +end of source$", said, flags=re.MULTILINE)
    assert re.search(r"^messages +500 ", said, flags=re.MULTILINE)
    return folder


def test_predict(trained: Path) -> None:
    """`predict` answers each text on a line of JSON, from the configuration's checkpoint."""
    texts = ["love the sun", "💩 nobody knows", "", "--", "[bold]not markup[/bold]"]
    done = command("predict", "--json", "--", *texts, folder=trained)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["text"] for line in lines] == texts
    for line in lines:
        assert sum(line["probabilities"].values()) == pytest.approx(1.0)
    assert lines[0]["words"]
    assert lines[1]["words"] == []
    shown = command("predict", "--model", "state/model.nb", "--", *texts, folder=trained)
    assert shown.returncode == 0
    assert "[bold]not markup[/bold]" in shown.stdout.decode()


def test_a_preset_reads_a_well_known_stream_without_a_configuration(tmp_path: Path) -> None:
    """`run --preset` reads its messages, and `evaluate` does; without it they have no text."""
    tweets = [
        {"id_str": str(n), "full_text": f"love the sun &amp; {n}", "label": "positive"}
        for n in range(20)
    ]
    lines = [*tweets, {"delete": {"status": {"id_str": "3"}}}, {"limit": {"track": 7}}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    write_config(tmp_path / "config.yaml", checkpoint={"folder": "state"})
    named = ["--preset", "twitter-v1"]
    run = ["run", "--source", "file:in.jsonl", "--until-end", "--json"]
    done = json.loads(command(*run, *named, folder=tmp_path).stdout)
    assert (done["learned"], done["deletions"], done["rejected"]) == (20, 1, {})
    assert done["ignored"] == {"id_str": 1}
    assert "amp" not in read(tmp_path / "state" / "model.nb").model.words("text")
    evaluate = ["evaluate", "file:in.jsonl", "--json"]
    judged = json.loads(command(*evaluate, *named, folder=tmp_path).stdout)
    assert (judged["messages"], judged["deletions"], judged["rejected"]) == (22, 1, {})
    assert command(*evaluate, folder=tmp_path).returncode == 65  # nothing to judge


def test_inspect(trained: Path) -> None:
    """`inspect` shows classes, words and sections; asked for a word, exactly that one's counts."""
    done = command(
        "inspect", "state/model.nb", "--word", "sun", "--word", "unheard", "--json", folder=trained
    )
    assert (done.returncode, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    classes, words = counts_of(examples(500))
    assert [each["count"] for each in found["classes"]] == classes
    assert [tuple(each["counts"].values()) for each in found["words"]] == [words["sun"], (0, 0)]
    assert found["sections"][0]["name"] == "file:in.jsonl/0"
    assert found["sections"][0]["position"] == (trained / "in.jsonl").stat().st_size
    shown = command("inspect", "state/model.nb", "--words", "3", folder=trained)
    assert shown.returncode == 0
    assert b"500 examples" in shown.stdout


@pytest.mark.parametrize("there", ["all but one of each folder", "the library's"])
@pytest.mark.deep
def test_warm_up_compiles_once(there: str, tmp_path: Path) -> None:
    """`warm-up` keeps the machine code where it says, and finds all of it there the next time.

    To compile all kernels takes most of two minutes, so some are there: with the library's alone,
    the daemon's folder is made anew.
    """
    where = {"STREAMNB_CACHE_DIR": str(tmp_path / "cache")}
    kernels: dict[str, Any] = {
        "the library's": categorical.learn_flags, "the daemon's": json_scan.find_byte
    }  # fmt: skip
    for name, kernel in kernels.items():
        kept_at = Path(kernel.dispatcher.stats.cache_path)
        copy = tmp_path / "cache" / kept_at.parent.name / kept_at.name
        if there in {"all but one of each folder", name}:
            shutil.copytree(kept_at, copy)
        if there != name:
            for compiled in copy.glob(f"*.{kernel.dispatcher.__name__}-*"):
                compiled.unlink()
    first = command("warm-up", "--json", folder=tmp_path, env=where)
    assert (first.returncode, first.stderr) == (0, b"")
    said = json.loads(first.stdout)
    assert said["compiled"]
    kept = [Path(folder) for folder in said["folders"]]
    assert {folder.parent for folder in kept} == {tmp_path / "cache"}
    assert sum(len(list(folder.rglob("*.nbc"))) for folder in kept) == said["kernels"]
    again = command("warm-up", folder=tmp_path, env=where)
    assert (again.returncode, again.stderr) == (0, b"")
    assert f"{said['kernels']} kernels loaded in" in again.stdout.decode()
    assert all(str(folder) in again.stdout.decode() for folder in kept)


@pytest.mark.deep
def test_warm_up_fails_where_nothing_can_be_kept(tmp_path: Path) -> None:
    """A folder that cannot be written, or a compiler that is off, is told with exit code 1."""
    (tmp_path / "file").write_bytes(b"")
    for variable, value in (
        ("STREAMNB_CACHE_DIR", str(tmp_path / "file")),
        ("NUMBA_DISABLE_JIT", "1"),
    ):
        done = command("warm-up", folder=tmp_path, env={variable: value})
        assert (done.returncode, done.stdout) == (1, b"")
        assert variable in done.stderr.decode()
        assert b"Traceback" not in done.stderr


def test_check_config_prints_what_run_would_take(trained: Path) -> None:
    """What `check-config` prints is YAML, and a configuration that says the same again."""
    first = command("check-config", folder=trained)
    assert (first.returncode, first.stderr) == (0, b"")
    assert yaml.safe_load(first.stdout)["source"] == "file:in.jsonl"
    (trained / "printed.yaml").write_bytes(first.stdout)
    second = command("check-config", "-c", "printed.yaml", folder=trained)
    assert second.stdout.splitlines()[1:] == first.stdout.splitlines()[1:]


@pytest.mark.integration
def test_replay_and_run_over_it(broker: Broker, new_topic: NewTopic, tmp_path: Path) -> None:
    """A CSV replayed into a topic and learned from there gives what the file itself gives."""
    topic = new_topic(2)
    found = examples(400)
    rows = "".join(f'{i},"{text}",{label}\n' for i, (text, label) in enumerate(found))
    (tmp_path / "in.csv").write_text("id,text,label\n" + rows)
    address = f"kafka://{broker.address}/{topic}"
    done = command("replay", "in.csv", "--to", address, "--speed", "max", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sent"] == 400
    write_config(
        tmp_path / "config.yaml",
        kafka={"group_id": f"group-of-{topic}"},
        checkpoint={"folder": "state"},
    )
    done = command("run", "--source", address, "--until-end", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"] == 400
    assert counts_at(tmp_path / "state") == counts_of(found)


Case = tuple[int, list[str], str]
CASES: dict[str, Case] = {
    "unknown option": (2, ["run", "--sauce", "generator"], "No such option"),
    "no messages": (2, ["run", "--max-messages", "0"], "max-messages"),
    "no command": (2, ["learn"], "No such command"),
    "replay to nowhere": (2, ["replay", "in.jsonl", "--to", "here"], "/TOPIC, not 'here'"),
    "replay of an address": (
        2,
        ["replay", "file:in.jsonl", "--to", "kafka://127.0.0.1:1/t"],
        "is a path, without file: in.jsonl",
    ),
    "bridge to a file": (
        2,
        ["bridge", "file:in.jsonl", "--to", "file:out.jsonl"],
        "must be kafka:TOPIC or",
    ),
    "bridge to a name": (2, ["bridge", "file:in.jsonl", "--to", "here"], "must be kafka:TOPIC or"),
    "bridge of a recording": (
        78,
        ["bridge", "recording:in.gz", "--to", "kafka://127.0.0.1:1/t"],
        "with `streamnb replay FILE --to kafka://HOST:PORT/TOPIC`",
    ),
    "replay at no speed": (
        2,
        ["replay", "in.jsonl", "--to", "kafka://127.0.0.1:1/t", "--speed", "slow"],
        "must be recorded, max or a number",
    ),
    "file that is not there": (
        69,
        ["run", "--source", "file:nowhere.jsonl", "-c", "anew.yaml"],
        "nowhere.jsonl: cannot be opened",
    ),
    "recording that is not there": (
        69,
        ["replay", "nowhere.jsonl", "--to", "kafka://127.0.0.1:1/t"],
        "nowhere.jsonl: cannot be opened",
    ),
    "no model": (74, ["predict", "-c", "anew.yaml", "text"], "there is no checkpoint yet"),
    "model that is none": (74, ["inspect", "in.jsonl"], "in.jsonl: not a streamnb model"),
    "model that is not there": (74, ["inspect", "nowhere.nb"], "nowhere.nb: cannot be read"),
    "output into a folder": (74, ["run", "-c", "folder.yaml"], "cannot be opened (Is a directory)"),
    "wrong configuration": (78, ["check-config", "-c", "wrong.yaml"], "learning.windw"),
    "run by a wrong one": (78, ["run", "-c", "wrong.yaml"], "learning.windw"),
    "no configuration": (78, ["run", "-c", "nowhere.yaml"], "nowhere.yaml cannot be read"),
    "wrong source": (2, ["run", "--source", "kafka:tweets"], "kafka://HOST:PORT"),
    "CSV from a pipe": (78, ["run", "--source", "stdin", "-c", "csv.yaml"], "file.format"),
}


@pytest.mark.parametrize("name", CASES)
def test_mistakes_have_their_exit_codes(trained: Path, name: str) -> None:
    """Each mistake ends with its documented code and a sentence; standard output stays empty."""
    write_config(trained / "anew.yaml", checkpoint={"folder": "anew"})
    write_config(trained / "wrong.yaml", learning={"windw": 3})
    write_config(trained / "csv.yaml", file={"format": "csv"}, checkpoint={"folder": "anew"})
    write_config(
        trained / "folder.yaml", predictions={"to": "file:state"}, checkpoint={"folder": "anew"}
    )
    code, arguments, said = CASES[name]
    done = command(*arguments, folder=trained)
    text = done.stderr.decode(errors="replace")
    assert done.returncode == code, text
    assert said in re.sub(r"[\s│]+", " ", text)
    assert "Traceback" not in text
    assert done.stdout == b""


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    """A second daemon on the same port ends with 78 and names the setting."""
    first = write_config(tmp_path / "first.yaml", checkpoint={"folder": None})
    with Daemon(first) as daemon:
        port = int(daemon.until_line("serving")["address"].rpartition(":")[2])
        second = write_config(
            tmp_path / "second.yaml", http={"port": port}, checkpoint={"folder": None}
        )
        done = command("run", "-c", second, folder=tmp_path)
        assert done.returncode == 78
        assert b"http.port" in done.stderr


def test_nobody_reads_the_output(trained: Path) -> None:
    """`inspect | head` ends quietly once head has gone, as if SIGPIPE had ended it."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "consumers", "inspect", "state/model.nb", "--words", "5000"],
            stdout=closed,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=trained,
            env=environment(),
            check=False,
            timeout=PATIENCE_S,
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.deep
@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "file:in.jsonl", "--json"],
        ["predict", "in.jsonl"],
        ["record", "file:in.jsonl", "made.jsonl.gz", "--until-end", "--json"],
    ],
)
def test_progress_stays_out_of_the_output(trained: Path, arguments: list[str]) -> None:
    """From a terminal into a file: the bar goes to the terminal, and the file holds JSON alone."""
    code, out, shown = _at_a_terminal(arguments, trained)
    assert code == 0, shown
    lines = [json.loads(line) for line in out.splitlines()]
    assert len(lines) == (500 if arguments[0] == "predict" else 1)
    assert "in.jsonl" in shown.decode()
    if arguments[0] != "record":  # which nobody knows the end of
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
        assert re.search(r"\d% +\d:\d\d:\d\d +(-:--:--|\d:\d\d:\d\d)", plain)


def _at_a_terminal(arguments: list[str], folder: Path) -> tuple[int, bytes, bytes]:
    """Run a command whose errors alone go to a terminal; return code, output and what it shows."""
    terminal, end = pty.openpty()
    with (folder / "out").open("w+b") as out, os.fdopen(terminal, "rb", 0) as read:
        process = subprocess.Popen(
            [sys.executable, "-m", "consumers", *arguments],
            stdin=subprocess.DEVNULL, stdout=out, stderr=end,
            cwd=folder, env=environment(TERM="xterm", COLUMNS="200"),
        )  # fmt: skip
        os.close(end)
        shown = bytearray()
        with suppress(OSError):  # so ends a terminal that nobody writes to any more
            while some := read.read(65_536):
                shown += some
        code = process.wait(PATIENCE_S)
        out.seek(0)
        return code, out.read(), bytes(shown)


OUTPUTS = {
    "a version": ["--version"],
    "help": ["predict", "--help"],
    "a prediction as JSON": ["predict", "--json", "love the sun"],
    "predictions of a file": ["predict", "in.jsonl"],
    "a model beyond the buffer": ["inspect", "state/model.nb", "--words", "5000"],
    "figures": ["evaluate", "file:in.jsonl", "--json"],
    "a summary": ["run", "--until-end"],
    "a summary as JSON": ["run", "--until-end", "--json"],
}


@pytest.mark.deep
@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_without_room_is_told(trained: Path, name: str) -> None:
    """What cannot be printed ends a command with 74; a sentence says where, why, and what to do."""
    done = _printed_to_full_disk("stdout", *OUTPUTS[name], folder=trained)
    said = [line for line in done.stderr.decode().splitlines() if not line.startswith("{")]
    assert "\n".join(said) == (
        "error: standard output cannot be written (No space left on device); what was printed is "
        "not whole: make room where it goes, or send it elsewhere"
    )
    assert done.returncode == 74


@pytest.mark.deep
@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (0, ["predict", "--json", "love the sun"]),
        (74, ["inspect", "nowhere.nb"]),
        (78, ["check-config", "-c", "nowhere.yaml"]),
        (74, ["predict", "--modle", "state/model.nb"]),  # what is wrong with it was not said
    ],
)
def test_errors_without_room_keep_their_exit_code(
    trained: Path, code: int, arguments: list[str]
) -> None:
    """An error that cannot be told is an error of the same kind, and none of streamnb itself."""
    done = _printed_to_full_disk("stderr", *arguments, folder=trained)
    assert done.returncode == code
    assert bool(done.stdout) == (code == 0)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_with_too_little_room_is_told(trained: Path, unbuffered: str) -> None:
    """What is printed up to a limit is not taken for all of it, without a buffer either."""
    command = f"ulimit -f 1; exec {sys.executable} -m consumers check-config"
    with (trained / "printed.txt").open("wb") as printed:
        done = subprocess.run(
            ["bash", "-c", command],
            stdout=printed,
            stderr=subprocess.PIPE,
            cwd=trained,
            env=environment() | {"PYTHONUNBUFFERED": unbuffered, "PYTHONDONTWRITEBYTECODE": "1"},
            check=False,
            timeout=PATIENCE_S,
        )
    assert (trained / "printed.txt").stat().st_size == 1024
    assert done.returncode == 74
    assert b"standard output cannot be written (File too large)" in done.stderr


def test_an_error_that_nobody_reads_keeps_its_exit_code(trained: Path) -> None:
    """Rich would end with 1."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "consumers", "check-config", "-c", "nowhere.yaml"],
        stdout=subprocess.PIPE,
        stderr=writer,
        cwd=trained,
        env=environment(),
        check=False,
        timeout=PATIENCE_S,
    )
    os.close(writer)
    assert (done.returncode, done.stdout) == (78, b"")


def _printed_to_full_disk(
    stream: str, *arguments: str, folder: Path
) -> subprocess.CompletedProcess[bytes]:
    """Run `streamnb` with one of its outputs on a disk without room."""
    outputs: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Path("/dev/full").open("wb") as full:
        return subprocess.run(
            [sys.executable, "-m", "consumers", *arguments],
            **outputs | {stream: full},
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=environment(),
            check=False,
            timeout=PATIENCE_S,
        )


# A shell has what it runs in the background ignore Ctrl-C, and all that comes of it inherits that:
# so that the command hears it wherever the tests run.
HEEDING = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("consumers", run_name="__main__", alter_sys=True)
"""


@pytest.mark.deep
@pytest.mark.integration
def test_a_replay_can_be_interrupted(broker: Broker, new_topic: NewTopic, tmp_path: Path) -> None:
    """Ctrl-C ends a replay that waits for its next message with 130, and without a traceback."""
    lines = [b'{"created_at":"2020-01-01T00:00:00Z","text":"a"}'] * 600
    (tmp_path / "in.jsonl").write_bytes(
        b"\n".join([*lines, b'{"created_at":"2020-01-01T20:00:00Z","text":"b"}'])
    )
    topic = new_topic()
    with subprocess.Popen(
        [sys.executable, "-c", HEEDING, "replay", "in.jsonl", "--to",
         f"kafka://{broker.address}/{topic}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
        env=environment(),
    ) as process:  # fmt: skip
        with Reader(broker.address, topic) as reader:
            reader.until(lambda: reader.n_values >= 1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert b"Traceback" not in said


def raw_tweets() -> Iterator[dict[str, Any]]:
    """Yield made-up raw tweets: every sign alone in all its places, and signs of both classes."""
    every = [(label, sign) for label in SIGNS for sign in SIGNS[label]]
    frames = (
        "{} what a day",
        "what a {} day",
        "what a day {}",
        "day{}",
        "so{0} much {0}{0}",
        "it {}!",
    )
    for number, (frame, (label, sign)) in enumerate(product(frames, every)):
        yield {"id": f"{label}-{number}", "text": frame.format(sign)}
    for number, (good, bad) in enumerate(product(SIGNS["positive"], SIGNS["negative"])):
        yield {"id": f"both-{number}", "text": f"{bad} torn {good} day"}
    for good, bad in product(SIGNS["positive"], SIGNS["negative"]):
        yield {"id": "positive-glued", "text": f"{good}great day{good}never {good}"}
        yield {"id": "negative-glued", "text": f"{bad}awful day{bad}never {bad}"}
        yield {
            "id": "both-nested",
            "text": f"{good[0]}{bad}{good[1:]} and {bad[0]}{good}{bad[1:]} {good}",
        }
    yield {"id": "link", "text": "see http://x.org/:) and www.y.org/:("}
    yield {"id": "inside", "text": "it is 8:Dublin"}
    yield {"id": "none", "text": "nothing here"}


def test_emoticons_are_labels_and_never_words(tmp_path: Path) -> None:
    """No sign that labels is counted as a word, and what contradicts itself is not learned."""
    tweets = list(raw_tweets())
    (tmp_path / "raw.jsonl").write_text("\n".join(map(json.dumps, tweets)))
    write_config(
        tmp_path / "config.yaml",
        source="file:raw.jsonl",
        labels={"kind": "emoticons"},
        checkpoint={"folder": "state"},
        predictions={"to": "file:predictions.jsonl"},
    )
    done = command("run", "--until-end", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    kinds = [tweet["id"].split("-")[0] for tweet in tweets]
    # Nested signs can be read in more than one way; whatever they are taken for, see below.
    assert 45 <= summary["ambiguous"] <= kinds.count("both") == 90
    found = dict(zip(summary["classes"], summary["class_counts"], strict=True))
    assert all(found[label] >= kinds.count(label) for label in SIGNS)
    assert summary["learned"] + summary["ambiguous"] == len(tweets) - 3
    lines = (tmp_path / "predictions.jsonl").read_bytes().splitlines()
    predicted = {json.loads(line)["id"].split("-")[0] for line in lines}
    assert predicted == {"both", "link", "inside", "none"}
    words = read(tmp_path / "state" / "model.nb").model.words()
    folded = {sign.lower() for own in SIGNS.values() for sign in own}
    for word in words:
        assert not folded.intersection(re.split(r"[ _\x1f]", word.lower())), word
        assert not any(sign in word.lower() for sign in folded), word
