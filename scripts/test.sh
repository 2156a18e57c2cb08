#!/usr/bin/env bash
# Run the linters and the tests that everybody runs: at the same time the linters, the tests in the
# browser (one after the other) and all other tests (in parallel). Tests marked `deep` are left to
# scripts/test_long.sh. With arguments, run the linters and then pytest once, with these arguments and
# in one process.
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/test_steps.sh

if (($# > 0)); then
    scripts/lint.sh
    exec .venv/bin/pytest --durations=15 "$@"
fi
say "compiling the kernels, or loading them"
.venv/bin/streamnb warm-up
aside "linters" scripts/lint.sh
aside "tests in the browser, one after the other" \
    .venv/bin/pytest --durations=15 tests/browser -m "alone and not deep"
step "tests in parallel" "${waiting[@]}" -m "not alone and not deep"
finish
