"""The commands that ask a checkpoint: `predict` and `inspect`.

As in `cli`, heavy imports are made inside the commands.
"""

# ruff: noqa: PLC0415 -- imports inside commands, see above

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from consumers.cli.options import ConfigOption, JsonOption, find_config, print_json
from consumers.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from streamnb import NaiveBayes


def predict(
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts to judge.", show_default=False),
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
    message: Annotated[
        list[str] | None,
        typer.Option(
            "--json-message",
            metavar="JSON",
            help="A whole message, as the stream brings it; may be repeated.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A model file instead.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge texts, fields and messages."""
    if not (texts or given or message):
        raise typer.BadParameter("give a TEXT, fields by --set NAME=VALUE, or a --json-message")
    from consumers.cli import model_report as answers
    from consumers.cli.output import print_prediction

    stored, troubles = answers.read_model(model or _newest_checkpoint(config))
    _warn(troubles)
    console = Console()
    for example, text in _examples(stored.model, texts or [], given or [], message or [], config):
        answer = answers.predict(stored.model, example, text)
        if as_json:
            print_json(answer)
        else:
            print_prediction(console, answer)


def _examples(
    model: NaiveBayes,
    texts: list[str],
    given: list[str],
    messages: list[str],
    config: Path | None,
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
        settings = load(find_config(config), os.environ).message
        for message in messages:
            yield questions.of_message(model, settings, message), None


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


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.command(
        help="Judge texts, fields or messages by the newest checkpoint: label, probabilities, and "
        "the words and other features that weigh most (in nats: above 0 for the label, below 0 "
        "against it).",
        epilog='  streamnb predict "what a lovely day" "my head hurts"\n'
        "  streamnb predict --model state/model.nb --json -- ':-)'\n"
        "  streamnb predict -c docs/examples/loan.yaml --set income=high --set amount=9000\n"
        '  streamnb predict --json-message \'{"text": "my head hurts"}\'',
    )(predict)
    app.command(
        help="Show what is in a checkpoint: classes with counts and priors, words with counts and "
        "likelihoods, values, flags and numbers by class, sections with their positions.",
        epilog="  streamnb inspect state/model.nb\n"
        "  streamnb inspect state/model.nb --word love --word hate --json",
    )(inspect)


def _newest_checkpoint(config: Path | None) -> Path:
    from consumers.config.settings import load
    from consumers.pipeline.checkpoint import FILE_NAME

    folder = load(find_config(config), os.environ).checkpoint.folder
    if folder is None:
        raise ConfigError("checkpoint.folder is null: name a model with --model FILE")
    path = folder / FILE_NAME
    if not any(folder.glob(f"{FILE_NAME}*")):
        raise CheckpointError(
            f"{path}: there is no checkpoint yet; let `streamnb run` learn first, or name a model "
            "with --model FILE"
        )
    return path


def _warn(texts: list[str]) -> None:
    from consumers.cli.output import print_warning

    for text in texts:
        print_warning(Console(stderr=True), text)
