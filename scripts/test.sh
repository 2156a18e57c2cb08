#!/usr/bin/env bash
# Run the linters and the tests that everybody runs: at the same time the linters, the tests in the
# browser (one after the other) and all other tests (in parallel). Tests marked `deep` are left to
# scripts/test_long.sh. They run in a random order, in CI in that of the latest seed of tests/seeds.txt.
# With arguments, run the linters and then pytest once, with these arguments and in one process.
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/test_steps.sh

if (($# > 0)); then
    scripts/lint.sh
    exec .venv/bin/pytest --durations=15 "$@"
fi
order=()
# What a commit shows does not hang on chance; whoever works on it meets another order each time.
if in_ci; then order=(--randomly-seed "$(tail -n 1 tests/seeds.txt)"); fi
aside "linters" scripts/lint.sh
say "compiling the kernels, or loading them"
.venv/bin/streamnb warm-up
aside "tests in the browser, one after the other" \
    .venv/bin/pytest --durations=15 "${order[@]}" tests/browser -m "alone and not deep"
step "tests in parallel" "${waiting[@]}" "${order[@]}" -m "not alone and not deep"
finish
