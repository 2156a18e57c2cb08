"""`streamnb` whose kafka-python reads nothing while a file is there.

`python -m tests.endtoend.failing_client` has the file's name in a variable, CLIENT_FAILS_WHILE.
Behind it stands the command that it runs in its own process: `python -m consumers …`.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

from kafka.consumer.fetcher import Fetcher


def main() -> None:
    """Break the client, and become the command that is given."""
    handle, switch = Fetcher._handle_fetch_response, Path(os.environ["CLIENT_FAILS_WHILE"])

    def broken(self: Fetcher, *given: Any) -> Any:
        if switch.exists():
            raise ReferenceError("planted")
        return handle(self, *given)

    Fetcher._handle_fetch_response = broken
    _, _, module, *sys.argv[1:] = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
