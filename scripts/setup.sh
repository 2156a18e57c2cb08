#!/usr/bin/env bash
# Set up all that `make run` or `make test` needs. A second call finds the stamps and does nothing.
#
#   scripts/setup.sh run     .venv with the locked requirements of the daemon, and the project in it
#   scripts/setup.sh test    the same with the tools of the tests, and the real broker they talk to
#
# PYTHON=/path/to/python chooses the interpreter of a new .venv.
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/python.sh

purpose="${1:-run}"
locked="requirements/$purpose.txt"
[[ -f "$locked" ]] || die "scripts/setup.sh knows 'run' and 'test', not '$purpose'"

stamp=".venv/.installed"       # "PURPOSE FINGERPRINT", written when all of it is installed
fingerprint="$(fingerprint requirements/run.txt requirements/test.txt pyproject.toml <(pwd))"

installed() {
    local had_purpose had_fingerprint
    [[ -x .venv/bin/python && -f "$stamp" ]] || return 1
    read -r had_purpose had_fingerprint <"$stamp"
    [[ "$had_fingerprint" == "$fingerprint" ]] || return 1
    [[ "$had_purpose" == "$purpose" || "$had_purpose" == test ]]
}

install_locked() {
    # Once the tests' tools are in, they stay in step with the daemon's requirements.
    if [[ -f "$stamp" && "$(cut -d ' ' -f 1 "$stamp")" == test ]]; then
        purpose='test'
        locked=requirements/test.txt
    fi
    rm -f "$stamp"
    local pip=(.venv/bin/python -m pip --disable-pip-version-check install --quiet)
    say "installing $locked (a minute or two the first time)"
    "${pip[@]}" --require-hashes --only-binary :all: --requirement "$locked"
    "${pip[@]}" --no-deps --no-build-isolation --no-index --editable .
    printf '%s %s\n' "$purpose" "$fingerprint" >"$stamp"
}

if ! installed; then
    make_environment
    install_locked
fi
if [[ "${1:-run}" == test ]]; then
    scripts/setup_broker.sh
fi
