#!/usr/bin/env bash
# Set up the real Kafka broker of the integration tests: Java 17 or later, Maven, and the jars.
#
# In CI whatever is missing is a failure. Elsewhere one line says what is missing, the
# integration tests skip with that reason, and the rest runs.
set -euo pipefail
source "$(dirname "$0")/common.sh"

jars=tests/broker/libs
stamp="$jars/.fetched"         # the fingerprint of the pom.xml that the jars were fetched by

give_up() {
    in_ci && die "$*"
    say "$*; until then the tests with a real broker are skipped"
    exit 0
}

java_is_new_enough() {
    local version
    version="$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')" || return 1
    [[ -n "$version" ]] && ((version >= 17))
}

java_is_new_enough || {
    apt_install openjdk-17-jre-headless || apt_install default-jre-headless || true
    java_is_new_enough || give_up "no Java of 17 or later found (Debian and Ubuntu: apt install openjdk-17-jre-headless)"
}
fingerprint="$(fingerprint tests/broker/pom.xml)"
if ! [[ -f "$stamp" && "$(<"$stamp")" == "$fingerprint" ]]; then
    command -v mvn >/dev/null || apt_install maven ||
        give_up "no Maven found to fetch the broker's jars with (Debian and Ubuntu: apt install maven)"
    say "fetching the test broker's jars (44 MB the first time)"
    rm -rf "$jars"
    tests/broker/fetch_jars.sh >&2 || give_up "the test broker's jars could not be fetched; see the lines above"
    printf '%s\n' "$fingerprint" >"$stamp"
fi
if [[ ! -f "$jars/classes.jsa" ]]; then
    say "archiving the broker's classes, for quicker starts"
    .venv/bin/python -m tests.broker.broker || say "they could not be archived: the brokers start as ever"
fi
