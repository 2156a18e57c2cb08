#!/usr/bin/env bash
# Run what takes too long for every change: tests marked `deep`, laws with new random examples, the
# kernels in plain Python with coverage, and kernels and library with checked indices.
#
#   scripts/test_long.sh          with a new random seed
#   scripts/test_long.sh SEED     with this seed: it replays the examples of an earlier run
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/test_steps.sh

seed="${1:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}"
say "the seed is $seed; scripts/test_long.sh $seed replays this run"
seeds=(--hypothesis-seed "$seed" --randomly-seed "$seed")
say "compiling the kernels, or loading them"
.venv/bin/streamnb warm-up
step "deep tests, one after the other" --randomly-seed "$seed" -m deep
if in_ci; then
    # A change should not fail or pass by the examples that happen to be drawn for it.
    say "laws with new examples: not in CI; run make test-all"
else
    step "laws with new examples" "${parallel[@]}" "${seeds[@]}" \
        --hypothesis-profile=fresh -m "hypothesis and not alone and not deep"
fi
NUMBA_DISABLE_JIT=1 step "kernels in plain Python" "${parallel[@]}" tests/kernels \
    --cov=streamnb.kernels --cov-report=term
checked_indices
say "the seed was $seed"
finish
