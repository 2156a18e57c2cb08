"""The `streamnb` command.

Heavy imports (the library with its compiled kernels, Kafka) are made inside the commands that need
them, so that `streamnb --help` answers at once. An error is one block of red text and an exit code;
a traceback is shown where STREAMNB_DEBUG is set to 1.
"""

# ruff: noqa: PLC0415 -- imports inside commands are this file's point, see above

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec.structs import asdict
from rich.console import Console

from consumers.cli import evaluate
from consumers.cli.conventions import (
    DEBUG_VARIABLE,
    EXIT_DIFFERENT,
    EXIT_READER_GONE,
    BridgeFromOption,
    ConfigOption,
    DurationOption,
    FromOption,
    JsonOption,
    MaxMessagesOption,
    MessageOption,
    PlayedFromOption,
    PresetOption,
    PriorOption,
    RecordFromOption,
    ReplayFromOption,
    SourceArgument,
    SourceOption,
    ToOption,
    UntilOption,
    app,
    check_alerts,
    fail,
    find_config,
    load_settings,
    note_shared_model,
    port_option,
    print_data,
    print_json,
    recorded_file,
    refused_note,
    seconds_of,
    stream_range,
    target_topic,
    until_end_option,
)
from consumers.process import READER_GONE, hush, left_out, watch_signals

if TYPE_CHECKING:
    from consumers.monitoring.status import Summary
    from streamnb import NaiveBayes

__all__ = ["app", "main"]


@app.command(
    help="Read the source, learn from what is labelled, judge the rest. Runs until it is stopped "
    "(Ctrl-C or SIGTERM), writes a last checkpoint, and says what it did.",
    epilog="  streamnb run --source generator --max-messages 100000\n"
    "  streamnb run --source jetstream --preset jetstream --open\n"
    "  streamnb run -c tweets.yaml --view log\n"
    "  streamnb run -c tweets.yaml --from 2026-11-02T10:00+01:00 --to 2026-11-02T11:00+01:00\n"
    "  streamnb run --source file:tweets.csv.xz --until-end --json > summary.json\n"
    "  cat tweets.jsonl | streamnb run --source stdin --until-end",
)
def run(  # noqa: PLR0913, PLR0917 -- each is an option
    config: ConfigOption = None,
    source: SourceOption = None,
    preset: PresetOption = None,
    until_end: Annotated[bool, until_end_option("has been read")] = False,
    max_messages: MaxMessagesOption = None,
    begin: FromOption = None,
    end: ToOption = None,
    view: Annotated[
        Literal["auto", "live", "log"] | None,
        typer.Option(help="What to show meanwhile; wins over the file.", show_default=False),
    ] = None,
    port: Annotated[
        int | None, port_option("Serve the page here, 0 for any free port; wins over the file.")
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser once it answers.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as one JSON object.")
    ] = False,
) -> None:
    """Run the daemon."""
    stop = watch_signals()
    gc.disable()  # all that a start imports stays; the daemon turns it on again
    # structlog draws tracebacks with Rich where it has the choice, and `logs` leaves it none; numba
    # looks at SciPy's version. Prometheus' client, below, has a use for snappy that we have not.
    with left_out("rich.pretty", "rich.traceback", "scipy"):
        import structlog

        from consumers.config.settings import load
    from consumers.monitoring import logs
    from consumers.terminal import LiveView, make_view

    part = stream_range(begin, end)
    path = find_config(config)
    given = {"source": source, "message.preset": preset, "view": view, "http.port": port}
    settings = load(path, os.environ, given)
    # With --json standard output belongs to the summary alone.
    console = Console(stderr=as_json)
    shown = make_view(settings.view, console, time.monotonic)
    held = logs.HeldLines(sys.stderr) if isinstance(shown, LiveView) else None
    logs.configure(held if held is not None and sys.stderr.isatty() else None)
    structlog.get_logger("streamnb").info("configuration", file=_name_of(path))
    try:
        with left_out("snappy"):
            from consumers import daemon

        summary = daemon.run(
            settings, shown, stop, until_end=until_end, max_messages=max_messages,
            open_page=open_page, part=part,
        )  # fmt: skip
    finally:
        gc.enable()
        shown.stop()
        if held is not None:
            held.release()
    _show(summary, console, settings.rejects.to, as_json=as_json)


@app.command(
    help="Answer by a model that a daemon learns, in a process of its own: a replica, which reads "
    "no stream and keeps nothing. It follows the newest checkpoint of a state folder, or what the "
    "daemon at a URL hands out (http.snapshots: true). Runs until it is stopped.",
    epilog="  streamnb serve --follow http://127.0.0.1:8100 --port 8101\n"
    "  streamnb serve -c tweets.yaml --follow state",
)
def serve(
    follow: Annotated[
        str,
        typer.Option(metavar="FOLDER|URL", help="A daemon's checkpoint.folder, or its address."),
    ],
    config: ConfigOption = None,
    port: Annotated[
        int | None, port_option("Serve here, 0 for any free port; wins over the file.")
    ] = None,
) -> None:
    """Run a replica."""
    stop = watch_signals()
    from consumers import replica
    from consumers.config.settings import load
    from consumers.monitoring import logs

    settings = load(find_config(config), os.environ, {"http.port": port})
    logs.configure(None)
    replica.run(settings, follow, stop)


def _name_of(config: Path | None) -> str:
    return "the built-in defaults" if config is None else str(config)


def _show(summary: Summary, console: Console, rejects_to: str, *, as_json: bool) -> None:
    """Print a summary; if nobody reads it, the run was as good, and its exit code says so."""
    import structlog

    from consumers.cli.output import print_summary

    is_unread = False
    try:
        if as_json:
            print_json(asdict(summary))
        else:
            print_summary(console, summary, rejects_to)
    except (OSError, SystemExit) as error:
        cause = error.__context__ if isinstance(error, SystemExit) else error  # it is Rich's way
        if getattr(cause, "errno", None) not in READER_GONE:
            raise
        is_unread = True
    if hush(sys.stdout) or is_unread:
        structlog.get_logger("streamnb").warning("summary_not_read")


@app.command(
    help="Judge texts, fields or messages by the newest checkpoint: label, probabilities, and "
    "the words and other features that weigh most (in nats: above 0 for the label, below 0 against "
    "it). Of a recorded FILE or a source all messages are judged, as a line of JSON each.",
    epilog='  streamnb predict "what a lovely day" "my head hurts"\n'
    "  streamnb predict --model state/model.nb --json -- ':-)'\n"
    "  streamnb predict tweets.jsonl > predictions.jsonl\n"
    "  streamnb predict -c docs/examples/loan.yaml --set income=high --set amount=9000\n"
    '  streamnb predict --json-message \'{"text": "my head hurts"}\'',
)
def predict(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts to judge, or a FILE.", show_default=False),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A field of the example, for models of fields; may be repeated.",
            show_default=False,
        ),
    ] = None,
    message: MessageOption = None,
    model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A model file instead.", show_default=False)
    ] = None,
    source: SourceOption = None,
    prior: PriorOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge texts, fields and messages."""
    if address := source or recorded_file(texts or []):
        beside = [*(given or []), *(message or []), *((texts or []) if source else [])]
        evaluate.predict_source(address, model, config, beside, has_prior=prior != "none")
        return
    if not (texts or given or message):
        raise typer.BadParameter("give a TEXT, fields by --set NAME=VALUE, or a --json-message")
    from consumers.cli import model_report as answers
    from consumers.cli.output import print_prediction

    stored, troubles = answers.read_model(model or answers.newest_checkpoint(config))
    _warn(troubles)
    console, answering = Console(), answers.answering(stored, config)
    reader = answering if prior == "model" else answering.without_prior()
    for example, text in _examples(stored.model, texts or [], given or [], message or [], config):
        answer = answers.predict(answering, example, text, reader)
        if as_json:
            print_json(answer)
        else:
            print_prediction(console, answer)


def _examples(
    model: NaiveBayes, texts: list[str], given: list[str], messages: list[str], config: Path | None
) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Yield what is to be judged: each text with the given fields, or those alone; each message."""
    from consumers.config.settings import load
    from consumers.decode import example_input as questions

    kinds = questions.kinds_in(model)
    fields = questions.with_fields(kinds, given)
    for text in texts:
        yield fields | questions.with_text(kinds, text), text
    if fields and not texts:
        yield fields, None
    if messages:
        settings = load(find_config(config), os.environ)
        note_shared_model(settings, "predict")
        for message in messages:
            yield questions.of_message(model, settings.message, message), None


@app.command(
    help="Show what is in a checkpoint: classes with counts and priors, words with counts and "
    "likelihoods, values, flags and numbers by class, sections with their positions.",
    epilog="  streamnb inspect state/model.nb\n"
    "  streamnb inspect state/model.nb --word love --word hate --json",
)
def inspect(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="The file.")],
    words: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="How many of the most frequent words, and of the values of each field.",
        ),
    ] = 20,
    word: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="Show this word; may be repeated.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Describe a checkpoint."""
    from consumers.cli import model_report as answers
    from consumers.cli.output import print_inspection

    stored, troubles = answers.read_model(checkpoint)
    _warn(troubles)
    found = answers.inspect(stored, words, word or ())
    if as_json:
        print_json(found)
    else:
        print_inspection(Console(), found)


def _warn(texts: list[str]) -> None:
    from consumers.cli.output import print_warning

    for text in texts:
        print_warning(Console(stderr=True), text)


@app.command(
    "check-config",
    help="Check the configuration and print it whole, with every default. Exit code 78 where it "
    "is wrong; all mistakes are listed, contradictions once the others are mended.",
    epilog="  streamnb check-config -c tweets.yaml",
)
def check_config(config: ConfigOption = None) -> None:
    """Check the configuration and print the settings in force."""
    from consumers.config.settings import load, to_yaml

    path = find_config(config)
    settings = load(path, os.environ)
    check_alerts(settings)
    print_data(f"# {_name_of(path)}: no mistakes\n{to_yaml(settings).rstrip()}")


@app.command(
    help="Write a recorded stream into a Kafka topic: what `streamnb record` wrote, with keys, "
    "headers and partitions; or JSON lines or CSV, also packed; or the made-up one, at its own "
    "rate, until it is stopped.",
    epilog="  streamnb replay tweets.csv.xz --to kafka://127.0.0.1:9092/tweets --speed 60\n"
    "  streamnb replay tweets.jsonl.gz --to kafka://127.0.0.1:9092/again --speed max\n"
    "  streamnb replay generator --to kafka://127.0.0.1:9092/tweets",
)
def replay(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The recording; generator for the made-up stream."),
    ],
    to: Annotated[str, typer.Option(metavar="kafka://HOST:PORT/TOPIC", help="Where to.")],
    speed: Annotated[
        str,
        typer.Option(
            metavar="recorded|max|N", help="Its own pace, as fast as it goes, or N times as fast."
        ),
    ] = "recorded",
    max_messages: MaxMessagesOption = None,
    begin: PlayedFromOption = None,
    end: UntilOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a recording into a topic."""
    from consumers.config.addresses import SourceAddress

    part = stream_range(begin, end, "--until")
    settings = load_settings(config, None)
    prefix, colon, path = str(file).partition(":")
    if colon and prefix in {"file", "recording"} and not file.exists():
        raise typer.BadParameter(f"is a path, without {prefix}: {path}", param_hint="FILE")
    if not to.startswith("kafka://"):
        what = f"must be kafka://HOST:PORT/TOPIC, not {to!r}"
        raise typer.BadParameter(what, param_hint="--to")
    try:
        address = SourceAddress.parse(to)
        assert address.topic is not None
        pace = speed if speed in {"recorded", "max"} else float(speed)
    except ValueError as error:
        name = "--speed" if str(error).startswith("could not convert") else "--to"
        what = "must be recorded, max or a number above 0" if name == "--speed" else str(error)
        raise typer.BadParameter(what, param_hint=name) from None
    from consumers.cli.replay import replay as replay_file
    from consumers.features import learned_kinds

    done = replay_file(
        settings.generator if str(file) == "generator" else file,
        address.servers,
        address.topic,
        pace,  # type: ignore[arg-type]
        max_messages=max_messages,
        kafka=settings.kafka, file=settings.file, message=settings.message, labels=settings.labels,
        kinds=learned_kinds(settings), part=part, show=sys.stderr.isatty(),
    )  # fmt: skip
    if as_json:
        print_json(asdict(done))
    else:
        said = (
            f"{done.sent - done.refused:,} records written to {address.topic}, "
            f"{done.unreadable:,} of them as they were because they could not be read"
        )
        typer.echo(f"{said}{refused_note(done.refused)}")


@app.command(
    help="Record a stream into a file that anybody can read (FILE.jsonl.gz, `zcat FILE | head`; or "
    "FILE.jsonl.zst, faster and smaller): keys, values, headers, times, offsets and partitions, "
    "byte for byte. Run again on the same file it goes on where the file ends. Runs until it is "
    "stopped (Ctrl-C or SIGTERM) or a limit is reached.",
    epilog="  streamnb record kafka://127.0.0.1:9092/tweets tweets.jsonl.gz --for 10m\n"
    "  streamnb record kafka://127.0.0.1:9092/tweets tweets.jsonl.zst --until-end\n"
    "  streamnb run --source recording:tweets.jsonl.gz --until-end\n"
    "  zcat tweets.jsonl.gz | head",
)
def record(  # noqa: PLR0913, PLR0917 -- each is an option
    source: SourceArgument,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to; its name ends with .gz or .zst.")
    ],
    max_messages: MaxMessagesOption = None,
    begin: RecordFromOption = None,
    end: ToOption = None,
    duration: DurationOption = None,
    until_end: Annotated[bool, until_end_option("is recorded")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record a stream."""
    from consumers.cli.record import RecordLimits
    from consumers.cli.record import record as record_stream
    from consumers.sources.recording import SUFFIXES

    if file.suffix not in SUFFIXES:
        raise typer.BadParameter(f"must end with {' or '.join(SUFFIXES)}", param_hint="FILE")
    part = stream_range(begin, end)
    seconds_max = seconds_of(duration)
    settings = load_settings(config, source)
    limits = RecordLimits(until_end, max_messages, seconds_max, part)
    done = record_stream(settings, file, limits, watch_signals(), show=sys.stderr.isatty())
    if as_json:
        print_json(asdict(done))
    else:
        typer.echo(
            f"{done.messages - done.refused:,} messages recorded ({done.reason}); {file} has "
            f"{done.file_bytes:,} bytes{refused_note(done.refused)}"
        )


@app.command(
    help="Write a source into a Kafka topic as it comes, so that a live stream has a log.\n\n"
    "Keys, values and times go along, with the headers streamnb-source and streamnb-cursor "
    "(PARTITION:OFFSET). A message whose source knows no key gets its id as one (message.id), or "
    "its author where the id begins with that, as on Bluesky; its partition follows from it.\n\n"
    "What the brokers have acknowledged stands in the cursor file, and a bridge that is started "
    "again goes on there: nothing is left out that the source still has; after a kill, up to a "
    "second of messages comes twice. Brokers that are away are waited for. Runs until it is "
    "stopped (Ctrl-C or SIGTERM) or a limit is reached.",
    epilog="  streamnb bridge jetstream --to kafka://127.0.0.1:9092/posts\n"
    "  streamnb bridge sse+https://stream.wikimedia.org/v2/stream/recentchange --to kafka:edits\n"
    "  streamnb bridge file:tweets.csv.xz --to kafka:tweets --until-end --json\n"
    "  streamnb run --source kafka://127.0.0.1:9092/posts",
)
def bridge(  # noqa: PLR0913, PLR0917 -- each is an option
    source: SourceArgument,
    to: Annotated[
        str,
        typer.Option(
            metavar="kafka:TOPIC",
            help="Where to: a topic of kafka.servers, or kafka://HOST:PORT/TOPIC.",
        ),
    ],
    cursor: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="How far the topic has got; without it TOPIC.cursor in this folder.",
            show_default=False,
        ),
    ] = None,
    preset: PresetOption = None,
    max_messages: MaxMessagesOption = None,
    begin: BridgeFromOption = None,
    end: UntilOption = None,
    duration: DurationOption = None,
    until_end: Annotated[bool, until_end_option("is written")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a source into a topic."""
    from consumers.cli.record import RecordLimits, bridge_stream

    part = stream_range(begin, end, "--until")
    seconds_max = seconds_of(duration)
    settings = load_settings(config, source, preset)
    servers, topic = target_topic(to, settings)
    limits = RecordLimits(until_end, max_messages, seconds_max, part)
    cursor = cursor or Path(f"{topic}.cursor")
    stop, show = watch_signals(), sys.stderr.isatty()
    done = bridge_stream(settings, servers, topic, cursor, limits, stop, show=show)
    if as_json:
        print_json(asdict(done))
        return
    said = f"{done.messages - done.refused:,} messages written to {topic} ({done.reason})"
    said += f"; cursor in {done.cursor}{refused_note(done.refused)}"
    if done.unsafe:
        said += "; what was read after them is not acknowledged, and is sent by the next run"
    typer.echo(said)


@app.command(
    help="Read the log of the newest checkpoint once more from its beginning, without what was "
    "deleted, updated and corrected, and compare what that teaches with the checkpoint's counts: "
    "by their digest, and where that differs word by word. The daemon may be running.",
    epilog="  streamnb verify\n  streamnb verify -c tweets.yaml --json",
)
def verify(
    config: ConfigOption = None,
    source: SourceOption = None,
    begin: ReplayFromOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare a checkpoint with its log."""
    from consumers.cli import model_report as answers
    from consumers.cli.output import print_verified
    from consumers.cli.verify import verify as verify_log

    settings, stored, troubles = answers.read_newest(config, source)
    _warn(troubles)
    done = verify_log(settings, stored, stream_range(begin, None), show=sys.stderr.isatty())
    if as_json:
        named = [each._asdict() for each in done.differences]
        print_json({"is_equal": done.is_equal} | asdict(done) | {"differences": named})
    else:
        print_verified(Console(), done)
    if not done.is_equal:
        raise typer.Exit(EXIT_DIFFERENT)


app.command(help=evaluate.HELP, epilog=evaluate.EPILOG)(evaluate.evaluate)
app.command(help=evaluate.COMPARE_HELP, epilog=evaluate.COMPARE_EPILOG)(evaluate.compare)
models = typer.Typer(help="Make a model of a checkpoint, or go back to one.", no_args_is_help=True)
app.add_typer(models, name="model", epilog="  streamnb model subtract --slice 2026-11-02 --to FILE")

models.command("revert", help=evaluate.REVERT_HELP, epilog=evaluate.REVERT_EPILOG)(evaluate.revert)
models.command("subtract", help=evaluate.SUBTRACT_HELP, epilog=evaluate.SUBTRACT_EPILOG)(
    evaluate.subtract_slice
)


@app.command(
    "warm-up",
    help="Compile every kernel, or load what was compiled before, and say where the machine code "
    "is kept: for images, whose first start is then as quick as any. STREAMNB_CACHE_DIR moves it. "
    "Exit code 1 where it cannot be kept.",
    epilog="  streamnb warm-up",
)
def warm_up(as_json: JsonOption = False) -> None:
    """Compile the kernels."""
    from consumers.warm_up import warm

    done = warm()
    if as_json:
        print_json(asdict(done))
    else:
        how = "compiled" if done.compiled else "loaded"
        typer.echo(f"{done.kernels} kernels {how} in {done.seconds:.1f} s; kept in")
        typer.echo("\n".join(f"  {folder}" for folder in done.folders))


@app.command(
    help="Print the versions of streamnb and of what it stands on.", epilog="  streamnb version"
)
def version() -> None:
    """Print versions."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    python = ".".join(map(str, sys.version_info[:3]))
    for name in ("streamnb", "numpy", "numba", "kafka-python"):
        try:
            typer.echo(f"{name} {version_of(name)}")
        except PackageNotFoundError:
            typer.echo(f"{name} from its source folder, not installed")
    typer.echo(f"python {python}")


def main() -> None:
    """Run the command line; the entry point of `streamnb`."""
    try:
        try:
            app()
        except SystemExit as end:
            # So end Typer and Rich where they print to a pipe without a reader.
            if hush(sys.stdout) or isinstance(end.__context__, BrokenPipeError):
                raise SystemExit(EXIT_READER_GONE) from None
            raise
    except Exception as error:
        # The last line of defence: whatever it is, its reader is a person at a terminal.
        if os.environ.get(DEBUG_VARIABLE) == "1":
            raise
        fail(error)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                hush(stream)
