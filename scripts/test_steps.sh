# What the test scripts share: steps that are announced and timed, and a summary at the end.
# shellcheck shell=bash

# One pytest worker for each core, and no more than eight: each has a Kafka broker of its own.
n_workers="$(nproc)"
((n_workers > 8)) && n_workers=8
parallel=(--numprocesses "$n_workers" --dist worksteal)

color=()
[[ -t 1 ]] && color=(--color=yes)  # pytest writes into a pipe, and would leave colours out

results=()
n_failed=0

# step NAME PYTEST-ARGUMENT...: run pytest, and remember its closing line. A step that fails does not
# keep the next from running.
step() {
    local name="$1" log status=0
    shift
    say "$name: pytest $*"
    log="$(mktemp)"
    .venv/bin/pytest --durations=15 "${color[@]}" "$@" 2>&1 | tee "$log" || status=$?
    ((status == 0)) || n_failed=$((n_failed + 1))
    results+=("$(printf '%s (exit code %d): %s' "$name" "$status" "$(tail -n 1 "$log")")")
    rm -f "$log"
}

# checked_indices PYTEST-ARGUMENT...: test kernels and library with every index of the compiled code
# checked: one outside its array is an IndexError, where otherwise it touches foreign memory.
checked_indices() {
    local -x NUMBA_BOUNDSCHECK=1
    say "compiling the kernels with checked indices, or loading them"
    .venv/bin/streamnb warm-up
    step "checked indices" "${parallel[@]}" tests/kernels tests/library "$@"
}

# finish: print each step's closing line again, and fail if a step did.
finish() {
    local result
    for result in "${results[@]}"; do say "$result"; done
    ((n_failed == 0)) || die "$n_failed of ${#results[@]} steps failed"
}
