#!/usr/bin/env bash
# Run the tests of kernels and library with every index of the compiled code checked: one that is
# out of its array is an IndexError, where otherwise it reads or writes foreign memory. The machine
# code is kept apart from that of all other runs. Arguments go to pytest.
set -euo pipefail
source "$(dirname "$0")/common.sh"

say "kernels and library, with checked indices"
export NUMBA_BOUNDSCHECK=1
exec .venv/bin/pytest tests/kernels tests/library "$@"
