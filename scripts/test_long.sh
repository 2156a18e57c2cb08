#!/usr/bin/env bash
# Run what takes too long for every change: tests marked `deep` (those with Spark, which is set up
# here, are among them), laws with new random examples, the kernels in plain Python with coverage, and
# kernels and library with checked indices.
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
scripts/setup_spark.sh
say "compiling the kernels, or loading them"
.venv/bin/streamnb warm-up
step "deep tests in parallel" "${waiting[@]}" --randomly-seed "$seed" -m "deep and not alone"
step "deep tests in the browser and with Spark, one after the other" --randomly-seed "$seed" -m "deep and alone"
step "laws with new examples" "${parallel[@]}" "${seeds[@]}" \
    --hypothesis-profile=fresh -m "hypothesis and not alone and not deep"
NUMBA_DISABLE_JIT=1 step "kernels in plain Python" "${parallel[@]}" tests/kernels \
    -m "not compiled" --cov=streamnb.kernels --cov-report=term
checked_indices
say "the seed was $seed"
finish
