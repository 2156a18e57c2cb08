#!/usr/bin/env bash
# Run what takes too long for every change: tests marked `deep` (those with Spark, and those that build
# the image, are among them; what they need is set up here), laws with new random examples, the kernels
# in plain Python with coverage, and all kernels with checked indices, their laws with new examples
# too.
#
#   scripts/test_long.sh          with a new random seed; in CI with the latest of tests/seeds.txt, so
#                                 that what a commit shows does not hang on chance
#   scripts/test_long.sh SEED     with this seed: it replays the examples of an earlier run
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/test_steps.sh

if in_ci; then
    new_seed="$(tail -n 1 tests/seeds.txt)"
else
    new_seed="$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')"
fi
seed="${1:-$new_seed}"
say "the seed is $seed; scripts/test_long.sh $seed replays this run"
seeds=(--hypothesis-seed "$seed" --randomly-seed "$seed")
say "compiling the kernels, or loading them"
.venv/bin/streamnb warm-up
# No other test imports what is installed here.
tests_with_spark() {
    scripts/setup_spark.sh && .venv/bin/pytest --durations=15 --randomly-seed "$seed" \
        tests/endtoend/test_spark.py -m "deep and alone"
}
aside "tests with Spark" tests_with_spark
aside "the image" bash -c "scripts/setup_image.sh && .venv/bin/python -m tests.deploy.built_image"
aside "deep tests in the browser" .venv/bin/pytest --durations=15 --randomly-seed "$seed" \
    tests/browser -m "deep and alone"
# With new examples for their laws, which are half of these tests' time. What River and scikit-learn
# ask of their models they have asked before.
checked_indices "${seeds[@]}" --hypothesis-profile=fresh --ignore=tests/library/adapters -m "not deep"
NUMBA_DISABLE_JIT=1 step "kernels in plain Python" "${parallel[@]}" tests/kernels \
    -m "not compiled" --cov=streamnb.kernels --cov-report=term
step "the daemon's laws with new examples" "${parallel[@]}" "${seeds[@]}" \
    --hypothesis-profile=fresh --ignore=tests/kernels --ignore=tests/library \
    -m "hypothesis and not alone and not deep"
wait_for "the image"
step "deep tests in parallel" "${waiting[@]}" --randomly-seed "$seed" -m "deep and not alone"
say "the seed was $seed"
finish
