#!/usr/bin/env bash
# Set up the programs that the tests of deploy/ judge with: Prometheus, which scrapes a real daemon,
# with its promtool, and systemd's own reader of units. All are Debian's packages.
#
# In CI a missing one is a failure. Elsewhere one line says so, the tests that need it skip with that
# reason, and the rest runs.
set -euo pipefail
source "$(dirname "$0")/common.sh"

# A package would start its server; a policy of "no" (101) keeps it from that, where a machine has no
# policy yet.
install_quietly() {
    local policy=/usr/sbin/policy-rc.d made=false code=0
    if [[ "$(id -u)" == 0 && ! -e "$policy" ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made=true
    fi
    apt_install "$@" || code=$?
    if "$made"; then
        rm -f "$policy"
    fi
    return "$code"
}

# need PROGRAM PACKAGE: have the program, or say that it is missing.
need() {
    command -v "$1" >/dev/null || install_quietly "$2" || true
    command -v "$1" >/dev/null || {
        local missing="no $1 found (Debian and Ubuntu: apt install $2)"
        in_ci && die "$missing"
        say "$missing; until then the tests that need it are skipped"
    }
}

need prometheus prometheus
need promtool prometheus
need systemd-analyze systemd
