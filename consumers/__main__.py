"""The way in: `streamnb`, or `python -m consumers`.

The library is installed without the daemon's packages. Where these are missing, no command can run,
and one line says what to install.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

from consumers.process import drop_empty_sizes, missing_packages, open_standard_streams, watch_early

EXIT_CONFIG = 78  # as `consumers.errors.ConfigError`, whose module may not be importable
EXIT_INTERRUPTED = 130  # as a shell shows a program that SIGINT ended


def main() -> None:
    """Run the command line, or say what it lacks."""
    open_standard_streams()
    if sys.argv[1:2] in (["run"], ["serve"]):  # what they import takes a second
        watch_early()
    drop_empty_sizes()
    # What is there at the end goes with the process; to look for what nobody needs among all that
    # was imported took `evaluate` 0.7 s.
    atexit.register(gc.freeze)
    missing = missing_packages()
    if missing and sys.argv[1:] == ["--version"]:
        from streamnb import __version__  # noqa: PLC0415 -- only asked for

        sys.stdout.write(f"streamnb {__version__}\n")
        return
    if missing:
        sys.stderr.write(
            "error: the command streamnb needs packages that are not installed "
            f"({', '.join(missing)}); install them: pip install 'streamnb[daemon]'\n"
        )
        raise SystemExit(EXIT_CONFIG)
    # numba imports it to be measured by it, whether or not anybody measures: a tenth of a second.
    sys.modules.setdefault("coverage", None)  # type: ignore[arg-type]
    # pydantic looks through all installed packages for plugins of its own.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        from consumers.cli.commands import main as run  # noqa: PLC0415 -- it imports what may be missing
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None

    run()


if __name__ == "__main__":
    main()
