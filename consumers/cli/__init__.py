"""The `streamnb` command."""

from consumers.cli.commands import main

__all__ = ["main"]
