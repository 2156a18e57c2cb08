"""The commands `evaluate`, `compare` and those of `model`, and `predict` of a source.

`evaluation` does the judging.

Heavy imports are made inside the command, as in `commands`.
"""

# ruff: noqa: PLC0415 -- imports inside the command, see above

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from consumers.cli.conventions import (
    EXIT_DIFFERENT,
    ConfigOption,
    JsonOption,
    MaxMessagesOption,
    PresetOption,
    ReplayFromOption,
    SourceArgument,
    SourceOption,
    find_config,
    load_settings,
    note_shared_model,
    print_json,
    stream_range,
)
from consumers.config.addresses import SourceAddress, is_own_file

HELP = (
    "Judge every labelled message of a source by a model that has not learned it, and say how well "
    "that went: accuracy, precision and recall, areas under curves, log-loss, calibration, each "
    "with a 95 % interval. By default each message is judged and then learned. Nothing is written. "
    "It needs scikit-learn, by the extra `evaluation`."
)
EPILOG = (
    "  streamnb evaluate file:tweets.jsonl\n"
    "  streamnb evaluate file:tweets.jsonl --delay 10000 --json\n"
    "  streamnb evaluate file:tweets.jsonl --report report.html\n"
    "  streamnb evaluate file:tweets.jsonl --hold-out 0.2\n"
    "  streamnb evaluate file:tweets.jsonl --folds 10\n"
    "  streamnb evaluate file:labelled.jsonl --model state/model.nb"
)
COMPARE_HELP = (
    "Judge a source by the models of several configurations at once, each message before it is "
    "learned: all figures side by side, McNemar's test and the difference of each pair, and the "
    "messages on which they disagree, with what speaks for each answer. How messages are read and "
    "labelled is the first configuration's. Models of other libraries may be judged beside them. "
    "Nothing is written. "
    "Needs the extra `evaluation`."
)
COMPARE_EPILOG = (
    "  streamnb compare file:tweets.jsonl words.yaml pairs.yaml\n"
    "  streamnb compare file:tweets.jsonl words.yaml pairs.yaml --report compared.html --json\n"
    "  streamnb compare file:tweets.jsonl config.yaml --peer sklearn --peer vw"
)
REVERT_HELP = (
    "Let the model answer again whose place a challenger took. The state folder is changed, so no "
    "daemon may run on it. The challenger goes on learning, and is not promoted again."
)
REVERT_EPILOG = "  streamnb model revert -c tweets.yaml"
SUBTRACT_HELP = (
    "Write the newest checkpoint's model without what one slice of its log teaches: a day of "
    "the messages' time (UTC), or a value of a field. The log is read from its beginning for it; "
    "the checkpoint stays as it is. First they are compared, as by `streamnb verify`: what the "
    "model never learned must not be taken out of it."
)
SUBTRACT_EPILOG = (
    "  streamnb model subtract --slice 2026-11-02 --to without.nb\n"
    "  streamnb model subtract --slice en --by lang --to without-english.nb\n"
    '  streamnb predict --model without.nb "what a lovely day"'
)


DelayOption = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="Learn a message once N more have been judged after it."),
]
HoldOutOption = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Learn the beginning, and judge this last share of the stream.",
        show_default=False,
    ),
]
FoldsOption = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=1000,
        metavar="K",
        help="Judge each of K folds by a model of the others.",
        show_default=False,
    ),
]
SavedModelOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Judge by this saved model; learn nothing.", show_default=False
    ),
]
UncalibratedOption = Annotated[
    bool,
    typer.Option(
        "--uncalibrated", help="Judge by what the model itself states, without a calibrator."
    ),
]
JointOption = Annotated[
    bool,
    typer.Option("--joint", help="Learn a hybrid's counts by themselves too, for their joint NLL."),
]
WindowOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Messages for each point of the curve; a fiftieth of all by default.",
        show_default=False,
    ),
]
FadingOption = Annotated[
    float | None,
    typer.Option(
        metavar="F",
        help="Weigh a message F times what the next one weighs, in the curve.",
        show_default=False,
    ),
]
PeerOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[vw|river|sklearn]",
        help="A model of Vowpal Wabbit, River or scikit-learn beside ours, of words and pairs; may "
        "be repeated.",
        show_default=False,
    ),
]
SeedOption = Annotated[
    int, typer.Option(min=0, metavar="N", help="Of the intervals, and of the folds.")
]
ReportOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write figures and plots as one HTML file too; it needs matplotlib.",
        show_default=False,
    ),
]


def evaluate(  # noqa: PLR0913, PLR0917 -- each is an option
    source: SourceArgument,
    preset: PresetOption = None,
    delay: DelayOption = 0,
    hold_out: HoldOutOption = None,
    folds: FoldsOption = None,
    model: SavedModelOption = None,
    uncalibrated: UncalibratedOption = False,
    joint: JointOption = False,
    window: WindowOption = None,
    fading: FadingOption = None,
    seed: SeedOption = 0,
    max_messages: MaxMessagesOption = None,
    report: ReportOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a model on a source."""
    given = {"--delay": delay or None, "--hold-out": hold_out, "--folds": folds, "--model": model}
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) > 1:
        raise typer.BadParameter(f"{' and '.join(chosen)} exclude each other; give one of them")
    _check_shares({"--hold-out": hold_out, "--fading": fading})
    _check_end(source, max_messages)
    gc.disable()  # all that is imported stays; reading the source turns it on again
    from consumers.cli import evaluation
    from consumers.cli.figures import figures, require_scikit_learn
    from consumers.cli.model_report import saved_model
    from consumers.cli.output import evaluation_facts, print_evaluation, training_facts
    from consumers.cli.report import check_report, write_report

    require_scikit_learn()
    settings = load_settings(config, source, preset)
    note_shared_model(settings, "evaluate")
    if report is not None:
        check_report(report, settings.source_address.path, find_config(config), model)
    saved: dict[str, Any] = {}
    if model is not None:
        saved = saved_model(model, settings, calibrated=not uncalibrated)._asdict()
    method = evaluation.Method(
        delay, hold_out, folds, messages_max=max_messages, seed=seed,
        calibrated=not uncalibrated, joint=joint, **saved,
    )  # fmt: skip
    judged = evaluation.judge(settings, method, show=sys.stderr.isatty())
    found: dict[str, Any] = {
        "source": source,
        "method": chosen[0].lstrip("-") if chosen else "prequential",
        "delay": delay, "hold_out": hold_out, "folds": folds,
        "model": None if model is None else str(model),
        "messages": judged.messages, "unlabelled": judged.unlabelled,
        "deletions": judged.deletions, "rejected": dict(sorted(judged.rejected.items())),
        "ignored": dict(sorted(judged.ignored.items())),
    } | figures(judged, seed=seed, window=window, fading=fading)  # fmt: skip
    try:
        if as_json:
            print_json(found)
        else:
            print_evaluation(Console(), found)
    finally:  # last, so that a full disk leaves what was printed; and also if nobody reads that
        if report is not None:
            facts = [evaluation_facts(found), *training_facts(found), *found["notes"]]
            write_report(report, f"How good is it? {source}", facts, {"value": found})


def compare(  # noqa: PLR0913, PLR0917 -- each is an option
    source: SourceArgument,
    configs: Annotated[
        list[Path],
        typer.Argument(metavar="CONFIG...", help="Configurations; two or more without --peer."),
    ],
    peer: PeerOption = None,
    delay: DelayOption = 0,
    window: WindowOption = None,
    fading: FadingOption = None,
    seed: SeedOption = 0,
    disagreements: Annotated[
        int, typer.Option(min=0, metavar="N", help="Messages to show on which they disagree.")
    ] = 10,
    max_messages: MaxMessagesOption = None,
    report: ReportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare models on a source."""
    peers = list(dict.fromkeys(peer or ()))
    if len(configs) + len(peers) < 2:
        raise typer.BadParameter(
            "give two configurations or more, or one and --peer", param_hint="CONFIG..."
        )
    _check_shares({"--fading": fading})
    _check_end(source, max_messages)
    gc.disable()  # as above
    from consumers.cli import compare as comparing
    from consumers.cli.evaluation import Method
    from consumers.cli.figures import figures, require_scikit_learn
    from consumers.cli.output import evaluation_facts, models_facts, peer_facts, print_comparison
    from consumers.cli.report import check_report, comparison_sections, write_report

    _check_models(configs, peers)
    require_scikit_learn()
    names = comparing.names_of(configs)
    settings = {
        name: load_settings(path, source) for name, path in zip(names, configs, strict=True)
    }
    for each in {each.per.field: each for each in settings.values()}.values():
        note_shared_model(each, "compare")
    if report is not None:
        check_report(report, settings[names[0]].source_address.path, *configs)
    method = Method(delay=delay, messages_max=max_messages)
    done = comparing.compare(settings, method, disagreements, peers, show=sys.stderr.isatty())
    models = {
        name: figures(each, seed=seed, window=window, fading=fading)
        for name, each in done.judged.items()
    }
    first = next(iter(done.judged.values()))
    found: dict[str, Any] = {
        "source": source, "method": "prequential", "delay": delay,
        "examples": len(first.labels), "messages": first.messages,
        "unlabelled": first.unlabelled, "deletions": first.deletions,
        "rejected": dict(sorted(first.rejected.items())),
        "ignored": dict(sorted(first.ignored.items())),
        "peers": {name: comparing.PEERS[name][1] for name in peers},
        "models": models, "pairs": comparing.pairs(done.judged, seed=seed),
        "disagreements": done.n_disagreements, "shown": done.disagreements,
    }  # fmt: skip
    try:
        if as_json:
            print_json(found)
        else:
            print_comparison(Console(), found)
    finally:  # as above
        if report is not None:
            facts = [evaluation_facts(found), *peer_facts(found), *models_facts(models)]
            parts = comparison_sections(found)
            write_report(report, f"Which is better? {source}", facts, models, parts)


def predict_source(
    source: str, model: Path | None, config: Path | None, beside: Sequence[str], *, has_prior: bool
) -> None:
    """Print a line of JSON for each message of a source; `beside` it nothing may be asked."""
    if beside:
        raise typer.BadParameter(f"a file or source is judged alone, without {beside[0]!r}")
    if source == "generator":  # a live stream is judged until Ctrl-C, as each line is printed
        raise typer.BadParameter("the made-up stream has no end: name a file or a topic")
    from consumers.cli import evaluation, model_report
    from consumers.cli.output import print_warning

    settings = load_settings(config, source)
    note_shared_model(settings, "predict")
    stored, troubles = model_report.read_model(model or model_report.newest_checkpoint(settings))
    for text in troubles:
        print_warning(Console(stderr=True), text)
    judge = model_report.answering(stored, settings)
    done = evaluation.predict_all(
        settings, judge, judge if has_prior else judge.without_prior(),
        partial(typer.echo, nl=False), show=sys.stderr.isatty(),
    )  # fmt: skip
    ignored = f", {done['ignored']:,} ignored" if done["ignored"] else ""
    typer.echo(
        f"{done['judged']:,} messages judged, {done['rejected']:,} rejected, {done['deletions']:,}"
        f" deletions not judged{ignored}",
        err=True,
    )


def _check_shares(shares: dict[str, float | None]) -> None:
    for name, share in shares.items():
        if share is not None and not 0.0 < share < 1.0:
            raise typer.BadParameter(f"must lie between 0 and 1, got {share}", param_hint=name)


def _check_models(configs: Sequence[Path], peers: Sequence[str]) -> None:
    from consumers.cli import compare as comparing

    for name in peers:
        if name not in comparing.PEERS:
            raise typer.BadParameter(
                f"{name!r} is none of {', '.join(comparing.PEERS)}", param_hint="--peer"
            )
    same = comparing.same_file(configs)
    if same is not None:
        raise typer.BadParameter(
            f"{same[0]} and {same[1]} are the same file; give each configuration once",
            param_hint="CONFIG...",
        )


def _check_end(source: str, max_messages: int | None) -> None:
    if max_messages is not None:
        return
    if source == "generator":
        raise typer.BadParameter("the made-up stream has no end: give --max-messages")
    if SourceAddress.parse(source).urls:
        raise typer.BadParameter("a live stream has no end: give --max-messages")


def revert(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Go back to the model that served before."""
    from consumers.pipeline.challengers import revert as go_back

    before, now = go_back(load_settings(config, None).checkpoint)
    if as_json:
        print_json({"before": before, "now": now})
    else:
        typer.echo(f"{now} answers from the next start on, in the place of {before}")


def _check_target(to: Path, folder: Path) -> None:
    """Refuse to write a model over anything else, or over what is in the checkpoint's `folder`."""
    from consumers.errors import ConfigError
    from streamnb.errors import StoreError
    from streamnb.storage import positions_of

    if not to.parent.is_dir():
        raise ConfigError(f"--to {to}: there is no folder {to.parent}; make it first")
    if is_own_file(to, folder):
        what = "the daemon's files and checkpoints have such names there"
        raise ConfigError(f"--to {to}: {what}; name another file")
    if not to.exists():
        return
    if folder.resolve() in to.resolve().parents:
        raise ConfigError(f"--to {to}: is there, in the daemon's own folder; name another file")
    try:
        positions_of(to)
    except StoreError as error:
        what = "is no model of streamnb, and would be lost; name another file"
        raise ConfigError(f"--to {to}: {what}") from error


def subtract_slice(
    name: Annotated[
        str, typer.Option("--slice", metavar="NAME", help="The slice, such as 2026-11-02.")
    ],
    to: Annotated[Path, typer.Option(metavar="FILE", help="Where the model is written.")],
    by: Annotated[
        str, typer.Option(metavar="day|FIELD", help="What it is a slice by: user, lang, a field.")
    ] = "day",
    config: ConfigOption = None,
    source: SourceOption = None,
    begin: ReplayFromOption = None,
    is_verified: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify", help="Whether model and log are compared before that."
        ),
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Write a model without a slice."""
    from consumers.cli import model_report as answers
    from consumers.cli.output import print_verified, print_warning
    from consumers.cli.verify import verify, without_slice
    from consumers.private_files import FILE_MODE, sync_folder
    from streamnb import save

    settings, stored, troubles = answers.read_newest(config, source)
    for text in troubles:
        print_warning(Console(stderr=True), text)
    newest = answers.newest_checkpoint(settings, takes_model=False)
    _check_target(to, newest.parent)
    part, show = stream_range(begin, None), sys.stderr.isatty()
    if is_verified and not (done := verify(settings, stored, part, show=show)).is_equal:
        errors = Console(stderr=True)
        print_verified(errors, done)
        errors.print(
            f"--slice {name}: nothing was written, as the log may hold of it what the model never"
            " learned; --no-verify takes out what the log says",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(EXIT_DIFFERENT)
    model, n = without_slice(settings, stored, by, name, part, show=show)
    made = to.with_name(f".{to.name}.made")  # what `save` writes loses any FILE.1 beside it
    save(model, made, mode=FILE_MODE)
    made.replace(to)
    sync_folder(to.absolute().parent)
    digest = model.digest()
    left = model.n_examples
    if as_json:
        print_json({"path": str(to), "taken": n, "n_examples": left, "digest": digest})
    else:
        typer.echo(f"{n:,} examples taken, {left:,} left; counts' digest {digest}; {to}")
