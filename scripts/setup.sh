#!/usr/bin/env bash
# Set up all that `make run`, `make docs`, `make test` or `make benchmark` needs. A second call finds the stamps and
# does nothing.
#
#   scripts/setup.sh run     .venv with the locked requirements of the daemon, and the project in it
#   scripts/setup.sh docs    the same with what builds the documentation site
#   scripts/setup.sh test    the same with the tools of the tests, the real broker they talk to, the
#                            browser that they look at the page with, and a Prometheus
#   scripts/setup.sh bench   the same with the libraries that the benchmarks run beside
#
# PYTHON=/path/to/python chooses the interpreter of a new .venv.
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/python.sh

purpose="${1:-run}"
locked="requirements/$purpose.txt"
[[ -f "$locked" ]] || die "scripts/setup.sh knows 'run', 'docs', 'test' and 'bench', not '$purpose'"

stamp=".venv/.installed"       # "PURPOSE FINGERPRINT", written when all of it is installed
fingerprint="$(fingerprint requirements/*.txt pyproject.toml <(pwd))"

# Each purpose has all that those before it have.
rank() {
    case "$1" in run) echo 0 ;; docs) echo 1 ;; test) echo 2 ;; bench) echo 3 ;; esac
}

installed() {
    local had_purpose had_fingerprint
    [[ -x .venv/bin/python && -f "$stamp" ]] || return 1
    read -r had_purpose had_fingerprint <"$stamp"
    [[ "$had_fingerprint" == "$fingerprint" ]] || return 1
    (($(rank "$had_purpose") >= $(rank "$purpose")))
}

install_locked() {
    # Once the tests' tools, or the peers, are in, they stay in step with the daemon's requirements.
    local had_purpose
    if [[ -f "$stamp" ]] && had_purpose="$(cut -d ' ' -f 1 "$stamp")" &&
        (($(rank "$had_purpose") > $(rank "$purpose"))); then
        purpose="$had_purpose"
        locked="requirements/$purpose.txt"
    fi
    rm -f "$stamp"
    local pip=(.venv/bin/python -m pip --disable-pip-version-check install --quiet)
    say "installing $locked (a minute or two the first time)"
    # The lock is complete. Left to look for dependencies, pip 23 takes the newest release of one that
    # is asked for with an extra, and refuses it for want of a hash.
    "${pip[@]}" --require-hashes --no-deps --only-binary :all: --requirement "$locked"
    "${pip[@]}" --no-deps --no-build-isolation --no-index --editable .
    local missing
    missing="$(.venv/bin/python -m pip --disable-pip-version-check check)" ||
        die "$locked is not complete, scripts/lock.sh writes it again: $missing"
    printf '%s %s\n' "$purpose" "$fingerprint" >"$stamp"
}

is_new=false
if ! installed; then
    make_environment
    install_locked
    is_new=true
fi
if [[ "${1:-run}" == test || "${1:-run}" == bench ]]; then
    scripts/setup_broker.sh
    scripts/setup_browser.sh
    scripts/setup_prometheus.sh
    if $is_new; then
        # Else each pytest worker would, of all of them, as it collects: a quarter of a minute each.
        say "compiling the tests' modules"
        env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -m pytest --collect-only --quiet >/dev/null ||
            true # what cannot be collected, the tests will tell
    fi
fi
