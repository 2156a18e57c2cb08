"""What several commands share: which configuration they read, and how they print JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def find_config(config: Path | None) -> Path | None:
    """Return the file to read: the one named, else `config.yaml` if there is one, else None."""
    if config is not None:
        return config
    return DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None


def print_json(value: Any) -> None:
    """Print a value as one line of JSON.

    JSON has no infinity, which a score is where no prior smooths it, and no nan: both become null.
    """
    text = json.dumps(value, ensure_ascii=False, default=str)
    typer.echo(json.dumps(json.loads(text, parse_constant=lambda _: None), ensure_ascii=False))
