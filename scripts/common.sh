# What the other scripts share: a voice, one way to fail, and help from the system's packages.
# shellcheck shell=bash

# The project's root is where everything happens.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

say() { printf 'streamnb: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit 1
}

in_ci() { [[ "${CI:-}" == true || "${CI:-}" == 1 ]]; }

# apt_install PACKAGE...: install by apt where we may (as root, on Debian or Ubuntu); fail elsewhere.
# The lists of packages are fetched only where the installation does not work without.
apt_install() {
    [[ "$(id -u)" == 0 ]] && command -v apt-get >/dev/null || return 1
    say "installing by apt: $*"
    local -x DEBIAN_FRONTEND=noninteractive
    local install=(apt-get -qq -y --no-install-recommends install "$@")
    "${install[@]}" >/dev/null 2>&1 || { apt-get -qq update >/dev/null && "${install[@]}" >/dev/null; }
}

# fingerprint FILE...: one word that changes when a file does.
fingerprint() { cat -- "$@" | sha256sum | cut -d ' ' -f 1; }
