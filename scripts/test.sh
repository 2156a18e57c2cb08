#!/usr/bin/env bash
# Run the tests that everybody runs, in two steps: most of them in parallel, then those that need the
# machine to themselves. Tests marked `deep` are left to scripts/test_long.sh. With arguments, run
# pytest once with these, in one process.
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/test_steps.sh

if (($# > 0)); then
    exec .venv/bin/pytest --durations=15 "$@"
fi
say "compiling the kernels, or loading them"
.venv/bin/streamnb warm-up
step "tests in parallel" "${parallel[@]}" -m "not alone and not deep"
step "tests in the browser, one after the other" -m "alone and not deep"
finish
