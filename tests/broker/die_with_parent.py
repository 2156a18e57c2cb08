"""Become another program that ends when its parent does, however the parent ends.

Called as `python die_with_parent.py PARENT_PID PROGRAM [ARGUMENT ...]`. A pytest that is killed has
no chance to stop its broker; the kernel does it instead.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def main() -> None:
    """Ask the kernel for SIGKILL at the parent's death, then run the program in this process."""
    parent, *command = sys.argv[1:]
    if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit("die_with_parent: the kernel refused PR_SET_PDEATHSIG")
    if os.getppid() != int(parent):
        sys.exit("die_with_parent: the parent ended first")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
