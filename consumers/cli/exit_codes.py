"""How commands end: the exit codes, the last words of an error, and silence where nobody listens.

Codes above 63 are those of sysexits.h, so that a supervisor can tell a wrong configuration, which a
restart does not mend, from a source that is away.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from rich.console import Console

DEBUG_VARIABLE = "STREAMNB_DEBUG"
EXIT_UNEXPECTED = 70  # EX_SOFTWARE of sysexits.h

EXIT_CODES = {
    0: "done; also after Ctrl-C or SIGTERM, once the last checkpoint is safe",
    1: "it could not be done for another reason, or nobody reads its output any more",
    2: "the command line is wrong",
    65: "data that cannot be used was given to a command",
    69: "the source cannot be read, and trying again does not help",
    70: "an unexpected error: a fault in streamnb itself",
    74: "a checkpoint, model or output cannot be read or written",
    78: "the configuration is wrong, or the checkpoint is another configuration's",
    130: "a command other than run was interrupted",
}


def fail(error: BaseException) -> NoReturn:
    """Print an error and end with its exit code."""
    from consumers.cli.output import print_error  # noqa: PLC0415 -- Rich, for errors alone

    code = getattr(error, "exit_code", None)
    text = str(error)
    if not isinstance(code, int):
        code = EXIT_UNEXPECTED
        text = f"{type(error).__name__}: {error} (unexpected; {DEBUG_VARIABLE}=1 shows where)"
    print_error(Console(stderr=True), text)
    raise SystemExit(code) from error


def hush() -> None:
    """Let Python's own last flush go nowhere: who read our output has closed it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
