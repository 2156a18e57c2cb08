# How a Python of 3.11 or later is found, and how .venv is made from it. Sourced by setup.sh.
# shellcheck shell=bash

usable() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# Those that the tests run on come first. A name on the PATH may be a shim that does not work,
# so each is tried. Where PYTHON names one, it is that or none.
find_python() {
    local candidate candidates=(python3.11 python3.12 python3.13 python3 python)
    [[ -z "${PYTHON:-}" ]] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        if usable "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# Debian and Ubuntu deliver Python without what `python -m venv` needs.
can_make_environments() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

# An environment knows the place it was made in: one that came along in a copied folder is made once more.
environment_works() {
    usable .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1 &&
        grep -qF "$PWD/.venv" .venv/bin/activate
}

make_environment() {
    if environment_works; then
        return
    fi
    local python name
    if ! python="$(find_python)"; then
        [[ -z "${PYTHON:-}" ]] || die "PYTHON=$PYTHON is no Python of 3.11 or later: name another, or none"
        apt_install python3 python3-venv || true
        python="$(find_python)" ||
            die "no Python of 3.11 or later found: install one, or name it by PYTHON=/path/to/python"
    fi
    name="$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')"
    if ! can_make_environments "$python"; then
        apt_install "$name-venv" || true
        can_make_environments "$python" ||
            die "$python cannot make virtual environments: install its venv module" \
                "(Debian and Ubuntu: apt install $name-venv)"
    fi
    say "making .venv with $python ($("$python" --version))"
    rm -rf .venv
    "$python" -m venv .venv
}
