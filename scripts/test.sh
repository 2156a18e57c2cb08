#!/usr/bin/env bash
# Run the tests, twice over the kernels: once in plain Python, where coverage sees every line of
# them, then everything as it runs in earnest. Arguments go to pytest, and then only the second
# run takes place.
set -euo pipefail
source "$(dirname "$0")/common.sh"

if (($# == 0)); then
    say "the kernels in plain Python, with coverage"
    NUMBA_DISABLE_JIT=1 .venv/bin/pytest tests/kernels --quiet --cov=streamnb.kernels --cov-report=term
fi
say "everything, compiled"
exec .venv/bin/pytest "$@"
