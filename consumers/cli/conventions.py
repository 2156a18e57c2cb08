"""The program, and what its commands share: options, JSON, exit codes, errors, reading a source.

Exit codes above 63 are those of sysexits.h, so that a supervisor can tell a wrong configuration,
which a restart does not mend, from a source that is away.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeVar

import typer
from rich.console import Console

from consumers.config.addresses import (
    BOUND_FORMS,
    SOURCE_FORMS,
    Bound,
    OutputAddress,
    SourceAddress,
    StreamRange,
)
from consumers.errors import ConfigError, MovedError, RegistryError, SourceError

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from consumers.config.settings import Settings
    from consumers.decode.decoder import Decoder
    from consumers.messages import Messages, Partition, RawColumns
    from consumers.sources.base import Source

Item = TypeVar("Item")

_REGISTRY_PATIENCE_S = 30.0
PIECE_MESSAGES = 50_000
_BATCH_BYTES = 16 << 20  # of a file, at least: each batch begins with a moment of reading alone
_POLL_TIMEOUT_S = 0.5
_READ_ONCE = {
    "evaluate",
    "compare",
    "predict",
}  # the others read the log of a checkpoint again, or twice
DEFAULT_CONFIG = Path("config.yaml")

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The configuration; without it config.yaml if there is one, else the defaults.",
        show_default=False,
    ),
]


def _checked_source(text: str | None) -> str | None:
    """Return a source's address unchanged; what is none is a mistake of the command line."""
    if text is None:
        return None
    try:
        SourceAddress.parse(text)
    except ValueError as error:
        from consumers.terminal import escaped  # noqa: PLC0415 -- Rich, for errors alone

        found = "" if "@" in text else f"; found {text!r}"  # before an @ may be a password
        raise typer.BadParameter(f"{escaped(str(error))}{found}") from None
    return text


SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help=f"{SOURCE_FORMS}.", callback=_checked_source)
]
SourceOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help=f"{SOURCE_FORMS}; wins over the file.",
        show_default=False,
        callback=_checked_source,
    ),
]
PresetOption = Annotated[
    Literal["jetstream", "jetstream-v2", "mastodon", "x-v2", "twitter-v1", "wikimedia"] | None,
    typer.Option(
        metavar="NAME",
        help="Read messages as of jetstream, jetstream-v2, mastodon, x-v2, twitter-v1 or wikimedia "
        "(message.preset); wins over the file's.",
        show_default=False,
    ),
]
MessageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--json-message",
        metavar="JSON",
        help="A whole message, as the stream brings it; may be repeated.",
        show_default=False,
    ),
]
PriorOption = Annotated[
    Literal["none", "model"] | None,
    typer.Option(
        help="Whether the mix of classes that was learned counts as evidence; by default only for "
        "the messages of a FILE or source.",
        show_default=False,
    ),
]
MaxMessagesOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Stop after N messages.", show_default=False)
]


def _begins_at(but: str) -> Any:
    """Return the option of where to begin; `but` says what it does not change."""
    text = f"Begin here: {BOUND_FORMS}. {but}"
    return typer.Option("--from", metavar="BOUND", help=text, show_default=False)


FromOption = Annotated[str | None, _begins_at("A checkpoint's positions win.")]
RecordFromOption = Annotated[str | None, _begins_at("Leave it out to go on with FILE.")]
BridgeFromOption = Annotated[str | None, _begins_at("The cursor's position wins.")]
PlayedFromOption = Annotated[
    str | None, _begins_at("The made-up stream always begins with its first message.")
]
ReplayFromOption = Annotated[  # of commands that read the log of a checkpoint again
    str | None,
    typer.Option(
        "--from", metavar="BOUND", help="As the run had it that read the log.", show_default=False
    ),
]
_END = "End before this, in the same forms, or with what is there now."
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="BOUND", help=_END, show_default=False)
]
UntilOption = Annotated[  # of `replay`, whose --to is a topic
    str | None, typer.Option("--until", metavar="BOUND", help=_END, show_default=False)
]
DurationOption = Annotated[
    str | None,
    typer.Option(
        "--for",
        metavar="DURATION",
        help="Stop after so long, such as 90s, 10m or 2h.",
        show_default=False,
    ),
]


def stream_range(begin: str | None, end: str | None, end_name: str = "--to") -> StreamRange:
    """Return the part of a stream that `--from` and `--to` ask for."""
    bounds: list[Bound | None] = []
    name = "--from"
    try:
        for name, text in (("--from", begin), (end_name, end)):  # noqa: B007 -- named below
            bounds.append(None if text is None else Bound.parse(text))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=name) from None
    try:
        return StreamRange(*bounds)
    except ValueError as error:
        raise typer.BadParameter(f"{end_name} {error}", param_hint=end_name) from None


def port_option(text: str) -> Any:
    """Return the option `--port`, of which `--help` says `text`."""
    return typer.Option(min=0, max=65_535, metavar="N", help=text, show_default=False)


def until_end_option(done: str) -> Any:
    """Return the option `--until-end`; `done` says what all messages are then."""
    return typer.Option("--until-end", help=f"Stop once all that is there now {done}.")


def seconds_of(duration: str | None) -> float | None:
    """Return the seconds that `--for` asks for."""
    from consumers.cli.record import duration_s  # noqa: PLC0415 -- heavy, as in `commands`

    try:
        return None if duration is None else duration_s(duration)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--for") from None


def target_topic(to: str, settings: Settings) -> tuple[tuple[str, ...], str]:
    """Return the brokers and the topic that `--to` names."""
    try:
        if to.startswith("kafka://"):
            address = SourceAddress.parse(to)
            return address.servers, address.topic or ""
        topic = OutputAddress.parse(to).topic if to.startswith("kafka:") else None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--to") from None
    if topic is None:
        what = f"must be kafka:TOPIC or kafka://HOST:PORT/TOPIC, not {to!r}"
        raise typer.BadParameter(what, param_hint="--to")
    if not settings.output_servers:
        raise ConfigError(
            f"--to {to}: needs brokers: set kafka.servers, or write kafka://HOST:PORT/{topic}"
        )
    return settings.output_servers, topic


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def find_config(config: Path | None) -> Path | None:
    """Return the file to read: the one named, else `config.yaml` if there is one, else None."""
    if config is not None:
        return config
    return DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None


def load_settings(config: Path | None, source: str | None, preset: str | None = None) -> Settings:
    """Return the settings, and have logs go to standard error."""
    from consumers.config.settings import load  # noqa: PLC0415 -- heavy, as in `commands`
    from consumers.monitoring import logs  # noqa: PLC0415 -- the same

    given = {"source": source, "message.preset": preset}
    settings = load(find_config(config), os.environ, given)
    logs.configure(None)
    return settings


def check_alerts(settings: Settings) -> None:
    """Raise the `ConfigError` that `run` would end with, if it cannot read the alerts' queries."""
    from consumers.features import learned_kinds  # noqa: PLC0415 -- heavy, as in `commands`
    from consumers.messages import KnownClasses  # noqa: PLC0415 -- the same
    from consumers.search.live_updater import check_queries  # noqa: PLC0415 -- the same
    from consumers.search.query_syntax import parse_with_classes  # noqa: PLC0415 -- the same

    if settings.alerts.queries:
        classes = KnownClasses(settings.model.classes, open=settings.model.new_classes)
        shown = {label: each.name or label for label, each in settings.page.classes.items()}
        read = partial(
            parse_with_classes, kinds=learned_kinds(settings), classes=classes, shown=shown
        )
        check_queries(settings.alerts.queries, read, classes)


def note_shared_model(settings: Settings, command: str) -> None:
    """Say on standard error that `per.field` has no part in what a command answers."""
    if settings.per.field is not None:
        what = (
            f"{command} looks at the shared model alone, not at those of each {settings.per.field}"
        )
        typer.echo(f"note: per.field: {what}", err=True)


def refused_note(n: int) -> str:
    """Return the end of a sentence: how many records were refused; empty if none were."""
    return f"; {n:,} were left out as too large" if n else ""


def print_json(value: Any) -> None:
    """Print a value as one line of JSON.

    JSON has no infinity, which a score is where no prior smooths it, and no nan: both become null.
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    print_data(json.dumps(json.loads(text, parse_constant=lambda _: None), ensure_ascii=False))


def print_data(text: str) -> None:
    """Print what another program reads: lines of UTF-8, whatever encoding the terminal has."""
    # Whoever runs us in a process of their own may read standard output as text alone.
    is_binary = hasattr(sys.stdout, "buffer")
    typer.echo(text.encode(errors="backslashreplace") if is_binary else text)


DEBUG_VARIABLE = "STREAMNB_DEBUG"
EXIT_DIFFERENT = 3
EXIT_UNEXPECTED = 70  # EX_SOFTWARE of sysexits.h
EXIT_READER_GONE = 141  # as a shell shows a program that SIGPIPE ended

EXIT_CODES = {
    0: "done; also after Ctrl-C, SIGTERM or SIGHUP, once the last checkpoint is safe",
    1: "it could not be done for another reason",
    2: "the command line is wrong",
    3: "verify: the checkpoint does not count what its log says",
    65: "data that cannot be used was given to a command",
    69: "the source cannot be read, and trying again does not help",
    70: "an unexpected error: a fault in streamnb itself, or in Kafka's client time after time",
    73: "checkpoint.folder was moved while run used it; it is saved where that is now",
    74: "a checkpoint, model or output cannot be read or written",
    75: "run was told to end a third time, and gave up saving: the checkpoint before it stands",
    78: "the configuration is wrong, or the checkpoint is another configuration's or another log's",
    130: "a command was interrupted; run, record and bridge only before they began",
    141: "nobody reads the output of a command other than run any more",
}

_EPILOG = "\n".join(
    [
        "[bold]Examples[/bold]",
        "  streamnb run",
        "  streamnb run --source kafka://127.0.0.1:9092/tweets",
        "  streamnb run --source file:tweets.jsonl --until-end --json",
        '  streamnb predict "what a lovely day"',
        "",
        "[bold]Exit codes[/bold]",
        *(f"  {code:>3}  {text}" for code, text in EXIT_CODES.items()),
        "",
        f"Set {DEBUG_VARIABLE}=1 to see the traceback of an error.",
    ]
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError  # noqa: PLC0415 -- only asked for
        from importlib.metadata import version as version_of  # noqa: PLC0415 -- the same

        try:
            typer.echo(f"streamnb {version_of('streamnb')}")
        except PackageNotFoundError:
            typer.echo("streamnb from its source folder, not installed")
        raise typer.Exit


app = typer.Typer(
    help="Naive Bayes that learns from a stream, one message at a time, and answers as it learns.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version; `streamnb version` prints more.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def fail(error: BaseException) -> NoReturn:
    """Print an error and end with its exit code."""
    from consumers.cli.output import print_error  # noqa: PLC0415 -- Rich, for errors alone

    code = getattr(error, "exit_code", None)
    text = str(error)
    if not isinstance(code, int):
        code = EXIT_UNEXPECTED
        text = f"{type(error).__name__}: {error} (unexpected; {DEBUG_VARIABLE}=1 shows where)"
    # Where it cannot be said, the exit code still tells. Rich ends with 1 if nobody reads it.
    with contextlib.suppress(OSError, SystemExit):
        print_error(Console(stderr=True), text)
        sys.stderr.flush()
    if isinstance(error, MovedError):
        # Python would close the store of recent messages, and SQLite then removes the log of the
        # file that has that name now: another daemon's.
        os._exit(code)
    raise SystemExit(code) from error


# ---- reading a source ---------------------------------------------------------------------------


def source_apart(settings: Settings, what: str, part: StreamRange | None = None) -> Source:
    """Return the source of the settings for a command, `what`, that reads it by itself.

    It takes no partition away from a running daemon, and ends where the stream ends.
    """
    from consumers.factories import build_source  # noqa: PLC0415 -- heavy, as in `commands`

    address = settings.source_address
    if what not in _READ_ONCE and (address.kind == "stdin" or address.urls):
        raise ConfigError(
            f"source: {settings.source} cannot be read again; name a file that holds it, or a topic"
        )
    group_id = f"{settings.kafka.group_id}-{what}-{uuid.uuid4().hex[:8]}"
    batch_bytes = max(settings.file.batch_bytes, _BATCH_BYTES)
    own = {
        "file": settings.file.model_copy(update={"batch_bytes": batch_bytes}),
        "kafka": settings.kafka.model_copy(update={"group_id": group_id, "start_from": "earliest"}),
        "generator": settings.generator.model_copy(update={"rate_per_s": 0}),
    }
    part = None if part is None or part.begin is None else StreamRange(part.begin, None)
    return build_source(settings.model_copy(update=own), until_end=True, part=part)


_RECORDED = {".jsonl", ".csv", ".gz", ".xz", ".zst", ".bz2"}


def recorded_file(texts: Sequence[str]) -> str | None:
    """Return the source in the recorded file that stands alone in the place of texts, if any.

    An address of such a file is one, be the file there or not; a mere name of none is refused, and
    so is a file that stands beside other texts.
    """
    if len(texts) > 1:
        _refuse_files(texts)
        return None
    if not texts:
        return None
    text = texts[0]
    path = Path(text.removeprefix("file:").removeprefix("recording:"))
    is_address = text.startswith(("file:", "recording:"))
    try:
        is_file = path.is_file()
    except OSError:  # a text may be longer than any file's name
        return None
    if path.suffix not in _RECORDED:
        # A link is a text of its own, and ":-/" has no name at its end.
        is_path = is_file or ("/" in text and "://" not in text and text[-1].isalnum())
        if is_path and not any(map(str.isspace, text)):
            way = f"to judge the messages of a file: --source file:{text}"
            typer.echo(f"note: {text!r} is judged as a text; {way}", err=True)
        return None
    if not is_file:
        if is_address or any(map(str.isspace, text)):
            return text if is_address else None
        as_text = f"--json-message '{json.dumps({'text': text})}'"
        raise typer.BadParameter(
            f"there is no file {text!r}; check its path, or judge it as a text: {as_text}"
        )
    from consumers.sources.recording import is_recording  # noqa: PLC0415 -- heavy, as in `commands`

    return f"{'recording' if is_recording(path) else 'file'}:{path}"


def _refuse_files(texts: Sequence[str]) -> None:
    """Refuse texts that are recorded files, as `*.jsonl` gives them: a text each is not meant."""
    for text in texts:
        path = Path(text)
        with contextlib.suppress(OSError):  # as above
            if path.suffix in _RECORDED and path.is_file():
                as_text = f"--json-message '{json.dumps({'text': text})}'"
                raise typer.BadParameter(
                    f"{text!r} is a file; judge each file by itself, or as a text: {as_text}"
                )


def polls(
    source: Source,
    targets: Mapping[Partition, int] | None,
    begins: Mapping[Partition, int] | None,
    tell: Callable[[str], object],
    over: threading.Event | None = None,
) -> Iterator[RawColumns]:
    """Yield all of a source up to the targets, and close it; a log without all is a `SourceError`.

    `targets` is None to read on to the source's end, whatever of it is left; `begins` is where to
    begin, None for where the source does by itself. Once `over` is set, it reads no more.
    """
    places = targets or {}
    reached = dict.fromkeys(places, -1) if begins is None else {p: begins[p] for p in places}
    try:
        source.open(lambda each: None if begins is None else begins.get(each))
        while targets is None or any(reached[each] < at for each, at in targets.items()):
            batches = source.poll(_POLL_TIMEOUT_S)
            if targets is not None and source.lost_messages:
                raise SourceError(
                    f"{source.name}: {source.lost_messages} messages from the beginning on are no "
                    "longer there, so that their counts cannot be verified. Give the topic a longer"
                    " retention, or verify against a recording of it"
                )
            for raw in batches:
                n = len(raw)
                if targets is not None:
                    n = int(raw.offsets.searchsorted(targets.get(raw.partition, 0)))
                if n:
                    yield raw.head(n)
                if raw.partition in reached:
                    reached[raw.partition] = max(reached[raw.partition], raw.next_offset)
            if over is not None and over.is_set():
                return
            tell(f"{source.name}{f' ({source.trouble()})' if source.trouble() else ''}")
            if not batches and source.at_end():
                break
    finally:
        source.close()
    short = {each: at for each, at in places.items() if reached[each] < at}
    if short and source.name != "kafka":  # there the last offsets may be no messages
        raise SourceError(
            f"{source.name}: ends before offset {next(iter(short.values()))} of"
            f" {next(iter(short))}, up to which the checkpoint has read; name the whole of it"
        )


def progress_bar(*columns: ProgressColumn, show: bool) -> Progress:
    """Return a bar of progress, shown at the terminal of standard error: output is for results.

    `columns` stand behind its text in the place of how much is done and how long it takes.
    """
    from rich import progress  # noqa: PLC0415 -- heavy, as in `commands`
    from rich.text import Text  # noqa: PLC0415 -- the same

    from consumers.terminal import plain  # noqa: PLC0415 -- the same

    class Description(progress.TextColumn):
        """Names of files, and what servers say: neither markup nor anything to obey."""

        def render(self, task: progress.Task) -> Text:
            return Text(plain(task.description))

    usual = (
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    return progress.Progress(
        progress.SpinnerColumn(),
        Description("{task.description}"),
        *(columns or usual),
        console=Console(stderr=True),
        redirect_stdout=False,  # what a command prints meanwhile would go to the terminal too
        disable=not show,
    )


def decoded(raw: RawColumns, decoder: Decoder) -> Iterator[Messages]:
    """Yield a batch decoded, piece by piece.

    A schema registry is asked for up to half a minute more; then it is a `RegistryError`.
    """
    for piece in raw.pieces(PIECE_MESSAGES):
        until_s, messages = time.monotonic() + _REGISTRY_PATIENCE_S, None
        while messages is None:
            try:
                messages = decoder.decode(piece)
            except RegistryError as error:
                if time.monotonic() > until_s:
                    raise
                time.sleep(error.pause_s)
        yield messages


def ahead(items: Generator[Item], over: threading.Event | None = None) -> Generator[Item]:
    """Yield what a generator does, while a thread makes the next one: reading beside learning.

    All of the generator runs on that thread; it is closed with this one. `over` is set once nobody
    takes any more, so that a generator which waits for its next item can end.
    """
    # A future waits with locks that Ctrl-C can leave taken, for the other thread to wait for.
    asked: SimpleQueue[bool] = SimpleQueue()
    made: SimpleQueue[tuple[Item | None, BaseException | None]] = SimpleQueue()

    def make() -> None:
        while asked.get():
            try:
                made.put((next(items, None), None))
            except BaseException as error:  # noqa: BLE001 -- raised where it is taken
                made.put((None, error))

    thread = threading.Thread(target=make, name="ahead")
    with closing(items):
        try:
            thread.start()
            asked.put(True)
            while True:
                item, error = _taken(made)
                if error is not None:
                    raise error
                if item is None:
                    return
                asked.put(True)
                yield item
        finally:
            if over is not None:
                over.set()
            asked.put(False)
            if thread.ident is not None:
                thread.join()


def _taken(made: SimpleQueue[Item]) -> Item:
    while True:
        # A signal that comes just before an endless wait begins would not end that.
        with contextlib.suppress(Empty):
            return made.get(timeout=_POLL_TIMEOUT_S)
