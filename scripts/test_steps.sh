# What the test scripts share: steps that are announced and timed, what runs beside them, a summary.
# shellcheck shell=bash

# Compiled modules are kept, whatever the caller's environment says: the tests start hundreds of
# processes, each of which would compile the daemon's modules again, and each pytest worker those of
# the tests.
unset PYTHONDONTWRITEBYTECODE

# One pytest worker for each core, and no more than eight: each has a Kafka broker of its own. Many
# tests wait for a broker or a daemon, so one worker more keeps the cores busy with those.
n_workers="$(nproc)"
((n_workers > 8)) && n_workers=8
parallel=(--numprocesses "$n_workers" --dist worksteal)
waiting=(--numprocesses "$((n_workers + 1))" --dist worksteal)

color=()
[[ -t 1 ]] && color=(--color=yes)  # pytest writes into a pipe, and would leave colours out

results=()
failures=()
n_failed=0

# remember NAME STATUS LOG: keep the closing line of a step, and the names of the tests that failed, for
# `finish` to print again: whoever sees only the end of a long output sees them too.
remember() {
    local failure
    (($2 == 0)) || n_failed=$((n_failed + 1))
    results+=("$(printf '%s (exit code %d): %s' "$1" "$2" "$(tail -n 1 "$3")")")
    while IFS= read -r failure; do
        failures+=("$1: $failure")
    done < <(sed -e 's/\x1b\[[0-9;]*m//g' "$3" | grep -E '^(FAILED|ERROR) ' | cut -c 1-300)
}

# step NAME PYTEST-ARGUMENT...: run pytest, and remember its closing line. A step that fails does not
# keep the next from running.
step() {
    local name="$1" log status=0
    shift
    say "$name: pytest $*"
    log="$(mktemp)"
    .venv/bin/pytest --durations=15 "${color[@]}" "$@" 2>&1 | tee "$log" || status=$?
    remember "$name" "$status" "$log"
    rm -f "$log"
}

# aside NAME COMMAND...: run a command while the next steps run. Its output waits until `finish`, where
# it is printed whole. Whatever ends the script ends the command too.
aside_names=()
aside_logs=()
aside_processes=()
aside() {
    local name="$1" log
    shift
    say "$name, meanwhile: $*"
    log="$(mktemp)"
    "$@" >"$log" 2>&1 &
    aside_names+=("$name")
    aside_logs+=("$log")
    aside_processes+=($!)
    trap 'kill "${aside_processes[@]}" 2>/dev/null || true' EXIT
}

# wait_for NAME: wait until what runs aside under this name has ended, for the next step to use.
wait_for() {
    local i
    for i in "${!aside_processes[@]}"; do
        [[ "${aside_names[i]}" != "$1" ]] || tail --pid="${aside_processes[i]}" -f /dev/null
    done
}

# Wait for what runs aside, print what it said, and remember its closing line.
collect() {
    local i status
    for i in "${!aside_processes[@]}"; do
        status=0
        wait "${aside_processes[i]}" || status=$?
        say "${aside_names[i]}, meanwhile:"
        cat "${aside_logs[i]}"
        remember "${aside_names[i]}" "$status" "${aside_logs[i]}"
        rm -f "${aside_logs[i]}"
    done
    aside_processes=()
    trap - EXIT
}

# checked_indices PYTEST-ARGUMENT...: test kernels, library, and what of the daemon calls kernels of its
# own, with every index of the compiled code checked: one outside its array is an IndexError, where
# otherwise it touches foreign memory.
checked_indices() {
    local -x NUMBA_BOUNDSCHECK=1
    say "compiling the kernels with checked indices, or loading them"
    .venv/bin/streamnb warm-up
    step "checked indices" "${parallel[@]}" tests/kernels tests/library \
        tests/consumers/decode tests/consumers/pipeline/test_learned_records.py \
        tests/consumers/pipeline/test_revision.py tests/consumers/pipeline/test_late_labels.py \
        tests/consumers/pipeline/test_erasure.py tests/consumers/pipeline/test_group_parts.py \
        tests/consumers/sources/test_records.py tests/consumers/kafka/test_columns.py "$@"
}

# CI waits for so long, from when make began to set things up; a script without make from its own start.
ci_max_s=2700

# finish: print again each test that failed and each step's closing line, and fail if a step did. In CI,
# fail also if all of it took longer than CI waits.
finish() {
    local result took_s
    collect
    took_s=$SECONDS
    [[ -z "${STREAMNB_BEGAN_S:-}" ]] || took_s=$((EPOCHSECONDS - STREAMNB_BEGAN_S))
    for result in "${failures[@]}"; do say "$result"; done
    for result in "${results[@]}"; do say "$result"; done
    ((n_failed == 0)) || die "$n_failed of ${#results[@]} steps failed"
    say "it took $took_s s"
    if in_ci && ((took_s > ci_max_s)); then
        die "CI waits for $ci_max_s s: make a step shorter, or mark tests as what runs less often"
    fi
}
