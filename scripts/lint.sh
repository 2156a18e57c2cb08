#!/usr/bin/env bash
# Check style, formatting, types and import contracts, all at once. What a check says is printed when
# it is done, so that no two mix.
set -euo pipefail
source "$(dirname "$0")/common.sh"

checks=(
    ".venv/bin/ruff check --quiet ."
    ".venv/bin/ruff format --check --quiet ."
    ".venv/bin/mypy"
    ".venv/bin/lint-imports --no-logo"
)
logs="$(mktemp -d)"
trap 'rm -rf "$logs"' EXIT
processes=()
for i in "${!checks[@]}"; do
    ${checks[i]} >"$logs/$i" 2>&1 &
    processes+=($!)
done
n_failed=0
for i in "${!checks[@]}"; do
    status=0
    wait "${processes[i]}" || status=$?
    say "${checks[i]} (exit code $status)"
    cat "$logs/$i"
    ((status == 0)) || n_failed=$((n_failed + 1))
done
((n_failed == 0)) || die "$n_failed of ${#checks[@]} checks failed"
