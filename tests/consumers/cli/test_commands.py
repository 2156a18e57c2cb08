"""Commands in one process with the tests: help, answers, mistakes, and how each command ends."""

from __future__ import annotations

import bz2
import gzip
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from rich.console import Console
from typer.core import TyperGroup
from typer.main import get_command

import consumers.errors
import streamnb.errors
from consumers.cli import commands as cli
from consumers.cli.conventions import DEBUG_VARIABLE, EXIT_CODES, EXIT_UNEXPECTED, fail
from consumers.cli.output import print_summary
from consumers.config.addresses import SOURCE_FORMS
from consumers.config.message import PRESETS
from consumers.config.model import ModelSettings
from consumers.errors import ConfigError, ConsumerError
from consumers.features import build_model
from consumers.monitoring.status import Summary
from streamnb import Dirichlet, Multinomial, NaiveBayes, Words, load, save
from tests.consumers.cli.test_report import run_unread

ROOT = Path(__file__).parents[3]
COMMANDS = [
    "run", "serve", "predict", "inspect", "check-config", "replay", "record",
    "bridge", "verify", "evaluate", "compare", "warm-up", "version", "model",
]  # fmt: skip
EXAMPLES = [("lovely sun", "positive"), ("sad rain", "negative"), ("lovely day", "positive")]


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Return a function that runs one command in an empty folder, as at a pipe of 100 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv(DEBUG_VARIABLE, raising=False)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["streamnb", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        captured = capsys.readouterr()
        return Done(ended.value.code, unstyled(captured.out), unstyled(captured.err))

    return run


def unstyled(text: str) -> str:
    """Return a text without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def model_file(folder: Path, alpha: float = 1.0, positive: str = "positive") -> Path:
    """Save a small model, and return its file."""
    classes = ("negative", positive)
    model = NaiveBayes(classes, features={"text": Words(Multinomial(Dirichlet(alpha)))})
    for text, label in EXAMPLES:
        model.learn_one({"text": text}, positive if label == "positive" else label)
    save(model, folder / "model.nb", keep=2)
    return folder / "model.nb"


def group() -> TyperGroup:
    """Return the whole command line."""
    whole = get_command(cli.app)
    assert isinstance(whole, TyperGroup)
    return whole


def test_help_names_every_command_and_exit_code(command: Command) -> None:
    """`--help` lists the commands, and each exit code with its meaning."""
    done = command("--help")
    assert (done.code, done.err) == (0, "")
    assert list(group().commands) == COMMANDS
    for name in COMMANDS:
        assert name in done.out
    told = " ".join(done.out.split())
    for code, meaning in EXIT_CODES.items():
        assert f" {code} {meaning}" in told


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_teaches_by_example(command: Command, name: str) -> None:
    """Each command's help shows examples of itself, which the command line understands."""
    done = command(name, "--help")
    assert (done.code, done.err) == (0, "")
    lines = [line.strip() for line in done.out.splitlines()]
    shown = [line for line in lines if re.search(rf"(^|\| )streamnb {name}\b", line)]
    assert shown
    for line in shown:
        words = shlex.split(line.rpartition(" | ")[2].partition(" > ")[0])
        group().commands[name].make_context(name, words[2:]).close()


def test_check_config_prints_good_settings(command: Command, tmp_path: Path) -> None:
    """A good file ends with 0 and is printed whole, as YAML with every default."""
    (tmp_path / "own.yaml").write_text("source: stdin\nlearning: {window: 77}\n")
    done = command("check-config", "-c", "own.yaml")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("# own.yaml: no mistakes\n")
    printed = yaml.safe_load(done.out)
    assert (printed["source"], printed["learning"]["window"]) == ("stdin", 77)
    assert printed["model"]["classes"] == ["negative", "positive"]


def test_check_config_finds_its_file(command: Command, tmp_path: Path) -> None:
    """Without a name it takes config.yaml if there is one, else the built-in defaults."""
    assert command("check-config").out.startswith("# the built-in defaults: no mistakes\n")
    (tmp_path / "config.yaml").write_text("source: stdin\n")
    assert command("check-config").out.startswith("# config.yaml: no mistakes\nsource: stdin\n")


def test_check_config_lists_all_mistakes(command: Command, tmp_path: Path) -> None:
    """A wrong file ends with 78, all its mistakes on standard error and nothing on the other."""
    (tmp_path / "wrong.yaml").write_text("learning: {windw: 3}\nview: [blink]\nhttp: {port: -1}\n")
    done = command("check-config", "-c", "wrong.yaml")
    assert (done.code, done.out) == (78, "")
    assert done.err.startswith("error: ")
    for part in ("wrong.yaml", "learning.windw", "view", "blink", "http.port", "-1"):
        assert part in done.err
    assert "Traceback" not in done.err


def test_check_config_reads_the_queries_of_alerts_as_a_run_does(
    command: Command, tmp_path: Path
) -> None:
    """What `run` would end with is told here too, of all queries; what it takes is taken."""
    (tmp_path / "in.jsonl").write_text("")
    settings: dict[str, Any] = {
        "source": "file:in.jsonl", "http": {"port": 0}, "message": {"fields": ["stars"]},
        "model": {"classes": ["negative", "it's 42"]},
        "page": {"classes": {"it's 42": {"name": "forty"}}},
    }  # fmt: skip
    for queries, wrong in (
        (["x*", "label:mixed", "label:>1", "stars:>4", "", "-"], ("x*", "mixed", "stars", "'-'")),
        (["", "goal", "label:forty", "lang:en goal"], ()),
    ):
        config = settings | {"alerts": {"queries": queries}}
        (tmp_path / "config.yaml").write_text(json.dumps(config))
        checked, ran = command("check-config"), command("run", "--until-end")
        assert (checked.code, ran.code) == ((78, 78) if wrong else (0, 0)), ran.err
        if wrong:
            assert checked.err == ran.err[ran.err.index("error: ") :]
        assert all(each in checked.err for each in wrong)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "given.yaml cannot be read"),
        (b"source: [", "given.yaml is no YAML"),
        (b"source: \xff", "given.yaml is not UTF-8 at byte 8"),
        (b"- a\n- b\n", "must be keys and values"),
    ],
)
def test_check_config_of_no_configuration(
    command: Command, tmp_path: Path, content: bytes | None, said: str
) -> None:
    """A file that is missing or no configuration at all ends with 78 and says what it is."""
    if content is not None:
        (tmp_path / "given.yaml").write_bytes(content)
    done = command("check-config", "-c", "given.yaml")
    assert (done.code, done.out) == (78, "")
    assert said in done.err


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("run --source WRONG -c given.yaml", "--source"),
        ("predict --source WRONG", "--source"),
        ("evaluate WRONG -c given.yaml", "SOURCE"),
        ("compare WRONG given.yaml --peer sklearn", "SOURCE"),
    ],
)
def test_a_wrong_source_is_a_mistake_of_the_command_line(
    command: Command, tmp_path: Path, arguments: str, name: str
) -> None:
    """A source of no known kind names its option, what is allowed, what was found, and no file."""
    (tmp_path / "given.yaml").write_text("source: generator\n", encoding="utf-8")
    for wrong, found in (("pigeon:loft", "; found 'pigeon:loft'"), ("kafka://secret@b:1/t", "")):
        done = command(*arguments.replace("WRONG", wrong).split())
        assert (done.code, done.out) == (2, "")
        said = " ".join(done.err.replace("│", " ").split())
        assert f"Invalid value for '{name}': must " in said
        assert found in said
        assert "yaml" not in said
        assert "secret" not in said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("generator", "r.txt"), 2, "must end with .gz or .zst"),
        (("generator", "r.gz", "--for", "soon"), 2, "ms, s, m, h or d"),
        (("pigeon:loft", "r.gz"), 2, f"must be {SOURCE_FORMS}"),
        (("own.jsonl", "r.gz"), 2, "must say what it is: file:own.jsonl, or recording:own.jsonl"),
    ],
)
def test_a_wrong_recording_is_refused_before_it_begins(
    command: Command, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """A wrong name, duration or source ends with its code, and no file is made."""
    done = command("record", *arguments)
    assert (done.code, done.out) == (code, "")
    assert said in " ".join(done.err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["run", "record", "replay", "bridge"])
def test_a_range_is_refused_by_the_names_of_its_options(command: Command, name: str) -> None:
    """`--until` ends what `replay` and `bridge` read: their `--to` is a topic, and not at fault."""
    to = ("--to", "kafka://127.0.0.1:1/t")
    arguments, end = {
        "run": (("--source", "generator"), "--to"),
        "record": (("generator", "r.gz"), "--to"),
        "replay": (("generator", *to), "--until"),
        "bridge": (("generator", *to), "--until"),
    }[name]
    told = command(name, *arguments, "--from", "2026-11-03", end, "2026-11-02")
    said = " ".join(told.err.replace("│", " ").split())
    assert told.code == 2
    assert f"{end} 2026-11-02T00:00:00.000Z must lie behind --from 2026-11-03T00" in said
    assert "--to" not in said or end == "--to"
    told = command(name, *arguments, "--from", "2026-11-03")
    assert told.code == 78
    assert "has no past to begin in" in told.err
    assert "--to" not in told.err


def test_predict_answers_from_a_model_file(command: Command, tmp_path: Path) -> None:
    """`predict` says label, probabilities and weighty words, as text and as a line of JSON each."""
    name = str(model_file(tmp_path))
    texts = ["lovely [b]day[/b]", "unheard-of"]
    done = command("predict", "--model", name, *texts)
    assert (done.code, done.err) == (0, "")
    first = done.out.splitlines()[:3]
    assert re.match(r"positive +negative 0\.\d{4} +positive 0\.\d{4}", first[0])
    assert first[1].strip() == texts[0]
    assert re.search(r"lovely \+\d\.\d\d", first[2])
    assert "none of its words is known" in done.out
    done = command("predict", "--model", name, "--json", *texts)
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert [answer["text"] for answer in answers] == texts
    assert answers[0]["label"] == "positive"
    assert sum(answers[0]["probabilities"].values()) == pytest.approx(1.0)
    assert {row["word"] for row in answers[0]["words"]} >= {"lovely", "day"}
    assert answers[1]["words"] == []


def test_predict_is_asked_by_fields_and_messages(command: Command, tmp_path: Path) -> None:
    """`--set` and `--json-message` ask a model of fields; with a text the fields go beside it."""
    kinds = {"size": {"kind": "numbers"}, "open": {"kind": "flags"}, "text": {}}
    made = build_model(ModelSettings.model_validate({"features": kinds}))
    made.learn_one({"size": 1.0, "open": True, "text": "a fine day"}, "positive")
    made.learn_one({"size": 9.0, "open": False, "text": "a sad day"}, "negative")
    save(made, tmp_path / "model.nb")
    ask = ("predict", "--model", str(tmp_path / "model.nb"))
    done = command(*ask, "--set", "size=1", "--set", "open=true")
    assert re.match(r"positive +negative 0\.\d{4} +positive", done.out)
    assert "size 1 · open true" in done.out
    assert re.search(r"open=true \+\d\.\d\d", done.out)
    message = '{"size": 9, "text": "sad"}'
    done = command(*ask, "--json", "fine", "--set", "open=true", "--json-message", message)
    text, whole = (json.loads(line) for line in done.out.splitlines())
    assert (text["label"], text["fields"]) == ("positive", {"open": True, "text": "fine"})
    assert (whole["label"], whole["fields"]) == ("negative", {"size": 9, "text": "sad"})
    unread = command(*ask, "--set", "zzz=1").err
    assert "the model reads no field 'zzz'; set --set" in unread
    for wrong, code in {"--set size=big": 65, "--json-message {": 65, "": 2}.items():
        assert command(*ask, *wrong.split()).code == code


@pytest.mark.parametrize("how", ["plain", "gz", "bz2", "source"])
def test_predict_judges_a_recorded_file(command: Command, tmp_path: Path, how: str) -> None:
    """Each message has its line, labelled or not; what is unusable its reason; nothing is learned.

    A name of no file is refused, with the way to judge it as a text; an address of none is a source
    that is not there. Where a text could be meant as a path, a note says what was done.
    """
    model = model_file(tmp_path)
    before = model.read_bytes()
    lines = [
        '{"id": "a", "text": "lovely sun"}', '{"id": "b", "text": "sad rain", "label": "positive"}',
        '{"id": "c", "text": "sun", "label": "purple"}', "{broken",
        '{"id": "a", "operation": "delete"}',
    ]  # fmt: skip
    data = ("\n".join(lines) + "\n").encode()
    packs: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress}
    pack = packs.get(how)
    path = tmp_path / ("stream.jsonl" if pack is None else f"stream.jsonl.{how}")
    path.write_bytes(data if pack is None else pack(data))
    asked = ["--source", f"file:{path}"] if how == "source" else [str(path)]
    done = command("predict", "--model", str(model), *asked)
    assert (done.code, done.err) == (0, "3 messages judged, 1 rejected, 1 deletions not judged\n")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [each.get("id") for each in found] == ["a", "b", "c", None]
    assert [each.get("label") for each in found] == ["positive", "negative", "positive", None]
    saved = load(model)
    for each in found[:3]:
        assert each["probabilities"] == pytest.approx(saved.predict_proba_one(each))
    assert (found[3]["reason"], found[3]["value"]) == ("not_json", "{broken")
    plain = saved.without_prior()
    without = command("predict", "--model", str(model), "--prior", "none", *asked).out.splitlines()
    for each in map(json.loads, without[:3]):
        assert each["probabilities"] == pytest.approx(plain.predict_proba_one(each))
    assert model.read_bytes() == before
    assert command("predict", "--model", str(model), str(path), "--set", "a=b").code == 2
    mistyped = command("predict", "--model", str(model), "no.jsonl")
    assert (mistyped.code, mistyped.out) == (2, "")
    said = " ".join(mistyped.err.replace("│", " ").split())
    assert "there is no file 'no.jsonl'; check its path, or judge it as a text" in said
    by_way_out = command("predict", "--model", str(model), "--json-message", '{"text": "no.jsonl"}')
    assert by_way_out.code == 0
    beside = command("predict", "--model", str(model), "a text", str(path))
    assert (beside.code, beside.out) == (2, "")
    assert "is a file; judge each file by itself" in " ".join(beside.err.replace("│", " ").split())
    assert command("predict", "--model", str(model), "a text", "no.jsonl").code == 0
    for text, is_noted in {"data/no": True, ":-/": False, "see no.jsonl": False}.items():
        judged = command("predict", "--model", str(model), "--json", text)
        assert json.loads(judged.out)["text"] == text
        assert judged.err.startswith(f"note: {text!r} is judged as a text") == is_noted
        assert is_noted or judged.err == ""
    missing = command("predict", "--model", str(model), f"file:{tmp_path / 'no.jsonl'}")
    assert (missing.code, missing.out) == (69, "")


def test_predict_reads_as_the_format_says(command: Command, tmp_path: Path) -> None:
    """Of plain text each line is judged, also one that looks like JSON or a table's head."""
    model, path = model_file(tmp_path), tmp_path / "lines.txt"
    lines = ["text,label", "lovely sun", '{"text": "sad rain"}']
    path.write_text("\n".join([*lines, ""]))
    (tmp_path / "config.yaml").write_text("message: {format: text}\n")
    done = command(
        "predict", "-c", "config.yaml", "--model", str(model), "--source", f"file:{path}"
    )
    assert done.err == "3 messages judged, 0 rejected, 0 deletions not judged\n"
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [each["text"] for each in found] == lines
    want = [load(model).predict_one({"text": each}) for each in lines]
    assert [each["label"] for each in found] == want


def test_json_stays_json_without_smoothing(command: Command, tmp_path: Path) -> None:
    """A word that only one class has, without a prior, has an infinite score: null in JSON."""

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    name = str(model_file(tmp_path, alpha=0.0))
    done = command("predict", "--model", name, "--json", "lovely")
    answer: dict[str, Any] = json.loads(done.out, parse_constant=refuse)
    assert answer["words"] == [{"word": "lovely", "score": None, "unseen": False}]
    assert answer["probabilities"] == {"negative": 0.0, "positive": 1.0}


def test_inspect_describes_a_model_file(command: Command, tmp_path: Path) -> None:
    """`inspect` shows examples, classes with counts and priors, and words, as text and as JSON."""
    name = str(model_file(tmp_path))
    done = command("inspect", name, "--words", "1")
    assert (done.code, done.err) == (0, "")
    assert "3 examples" in done.out
    assert f"counts' digest {load(name).digest()}" in done.out
    assert re.search(r"^negative +1 +0\.4", done.out, flags=re.MULTILINE)
    assert re.search(r"^lovely +0 +2 ", done.out, flags=re.MULTILINE)
    done = command("inspect", name, "--word", "sad", "--json")
    found = json.loads(done.out)
    assert (found["n_examples"], found["path"]) == (3, name)
    assert found["digest"] == load(name).digest()
    assert [row["prior"] for row in found["classes"]] == pytest.approx([0.4, 0.6])
    (row,) = found["words"]
    assert (row["word"], row["counts"]) == ("sad", {"negative": 1.0, "positive": 0.0})


def test_a_damaged_model_is_warned_of(command: Command, tmp_path: Path) -> None:
    """Where the newest file is damaged, the older one answers, and standard error says so."""
    model_file(tmp_path)
    path = model_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    done = command("predict", "--model", str(path), "--json", "sad rain")
    assert done.code == 0
    assert json.loads(done.out)["label"] == "negative"
    assert done.err.startswith("warning: ")
    assert "model.nb" in done.err


def test_nothing_shown_is_obeyed_by_a_terminal(command: Command, tmp_path: Path) -> None:
    """Escape sequences in texts, classes and names of files reach no terminal."""
    name = str(model_file(tmp_path, positive="pos\x1b]0;x\x07"))
    for arguments in (
        ("predict", "--model", name, "lovely \x1b[2J\x9b5n"),
        ("inspect", name),
        ("inspect", "no\x1b]0;x\x07where.nb"),
        ("check-config", "-c", "no\x1b]0;x\x07where.yaml"),
        ("run", "--source", "\x1b]0;x\x07"),
    ):
        done = command(*arguments)
        shown = done.out + done.err
        assert shown.replace("\n", "").isprintable(), ascii(shown)


def summary_lines(**own: object) -> list[str]:
    """Return what is printed of a run that did nothing, but for `own`."""
    nothing: dict[str, Any] = dict.fromkeys(Summary.__struct_fields__, 0)
    nothing |= {"source": "x", "exit_reason": "told to stop", "rejected": {}, "ignored": {}}
    file = io.StringIO()
    of = Summary(**nothing | {"classes": (), "class_counts": ()} | own)
    print_summary(Console(file=file, width=200), of, "none")
    return file.getvalue().splitlines()


def test_a_summary_says_what_its_time_and_its_rate_are_of() -> None:
    """Seconds are those of the whole run, and the rate is that of the messages: no quotient."""
    lines = summary_lines(messages=1_000, seconds=4.0, messages_per_s=500.0)
    line = "time        4.0 s from start to end; from the first message to the last 500 a second"
    assert line in lines
    assert "model       0 words" in lines  # a run that ended before it learned anything


def test_a_summary_counts_what_is_missing() -> None:
    """Messages that were never read come beside those that were; without any nothing is said."""
    lines = summary_lines(gaps=2, lost=1_234)
    assert "lost        1,234 besides, never read; the log says where (messages_lost)" in lines
    assert "gaps        2; the log says where (stream_gap)" in lines
    assert not any(line.startswith(("gaps", "lost")) for line in summary_lines())


def test_before_the_first_checkpoint_predict_says_what_to_do(command: Command) -> None:
    """Without a checkpoint `predict` ends with 74, and names `streamnb run` and --model."""
    done = command("predict", "text")
    assert (done.code, done.out) == (74, "")
    assert "streamnb run" in done.err
    assert "--model" in done.err


@pytest.mark.parametrize("name", ["run", "bridge", "evaluate"])
def test_an_unknown_preset_is_refused_with_those_there_are(command: Command, name: str) -> None:
    """It is a mistake of the command line, and the names are those of the configuration."""
    done = command(name, *(["stdin"] if name != "run" else []), "--preset", "threads")
    assert done.code == 2
    assert re.findall(r"'([a-z0-9-]+)'", done.err)[2:] == list(PRESETS), done.err


def test_version_names_what_it_stands_on(command: Command) -> None:
    """`version` prints a line each for streamnb, numpy, numba, kafka-python and Python."""
    done = command("version")
    assert done.code == 0
    names = [line.split()[0] for line in done.out.splitlines()]
    assert names == ["streamnb", "numpy", "numba", "kafka-python", "python"]


def test_a_start_imports_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    """What other packages import only to have it, in a tenth of the time to the first message."""
    code = (
        "import atexit, sys\n"
        "from consumers.__main__ import main\n"
        "unused = ['attr', 'coverage', 'pygments', 'rich.pretty', 'scipy', 'snappy']\n"
        "found = lambda: print([each for each in unused if sys.modules.get(each)])\n"
        "atexit.register(found)\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "--max-messages", "1", "--port", "0", "--json"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_ctrl_c_while_it_imports_is_quiet() -> None:
    """Within the first half of a second no command has begun: there is nothing to end."""
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name == 'consumers.cli.commands': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted)\n"
        "from consumers.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run"], check=False, capture_output=True, cwd=ROOT
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_exit_codes_are_documented_as_they_are() -> None:
    """The guide's table of exit codes is that of the program, word by word."""
    guide = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    table = guide.partition("| exit code | when |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", table, flags=re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == EXIT_CODES


def test_every_error_has_a_documented_exit_code() -> None:
    """Each class of the two trees of errors ends its command with a code of the table."""
    codes: dict[str, int] = {
        name: vars(module)[name].exit_code
        for module in (consumers.errors, streamnb.errors)
        for name, each in inspect.getmembers(module, inspect.isclass)
        if each.__module__ == module.__name__
    }
    assert len(codes) >= 12
    assert {name: code for name, code in codes.items() if code not in EXIT_CODES} == {}
    assert EXIT_UNEXPECTED in EXIT_CODES


def test_fail_prints_the_text_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """An error of ours ends with its code and its text as it is, its brackets and lines kept."""
    with pytest.raises(SystemExit) as ended:
        fail(ConsumerError("the [bold]place[/bold]\n  and the way out"))
    assert ended.value.code == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert unstyled(captured.err) == "error: the [bold]place[/bold]\n  and the way out\n"


def test_an_unexpected_error_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """An error that is not ours ends with 70, its kind, and how to see where it came from."""
    with pytest.raises(SystemExit) as ended:
        fail(ZeroDivisionError("division by zero"))
    assert ended.value.code == 70
    said = capsys.readouterr().err
    assert "ZeroDivisionError: division by zero" in said
    assert f"{DEBUG_VARIABLE}=1" in said
    assert "Traceback" not in said


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With STREAMNB_DEBUG=1 an error leaves as it is, for Python to print with its traceback."""
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    missing = tmp_path / "nowhere.yaml"
    monkeypatch.setattr(sys, "argv", ["streamnb", "check-config", "-c", str(missing)])
    with pytest.raises(ConfigError, match=r"nowhere\.yaml cannot be read"):
        cli.main()


@pytest.mark.parametrize("arguments", [["check-config"], ["version"], ["--help"]], ids=str)
def test_a_closed_pipe_is_quiet(tmp_path: Path, arguments: list[str]) -> None:
    """Where nobody reads the output any more, a command ends as after SIGPIPE and says nothing."""
    assert run_unread(tmp_path, arguments) == (141, b"")


def test_commands_that_ask_the_shared_model_alone_say_so(command: Command, tmp_path: Path) -> None:
    """With `per.field` the daemon answers by other models as well: a note says what is compared."""
    model = str(model_file(tmp_path))
    (tmp_path / "per.yaml").write_text("per: {field: lang}\n", encoding="utf-8")
    (tmp_path / "none.yaml").write_text("{}\n", encoding="utf-8")
    lines = [json.dumps({"text": text, "label": label}) for text, label in EXAMPLES]
    (tmp_path / "stream.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, *arguments in (
        ("predict", "--json-message", '{"text": "sun", "lang": "de"}', "--model", model),
        ("predict", "stream.jsonl", "--model", model),
        ("evaluate", "file:stream.jsonl"),
    ):
        noted = command(name, *arguments, "-c", "per.yaml")
        note = f"note: per.field: {name} looks at the shared model alone, not at those of each lang"
        assert (noted.code, note in noted.err.splitlines()) == (0, True)
        assert "note:" not in command(name, *arguments, "-c", "none.yaml").err
    shutil.copy(tmp_path / "per.yaml", tmp_path / "same.yaml")
    compared = command("compare", "file:stream.jsonl", "none.yaml", "per.yaml", "same.yaml")
    assert (compared.code, compared.err.count("note: per.field: compare looks")) == (0, 1)
