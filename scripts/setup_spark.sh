#!/usr/bin/env bash
# Set up PySpark, by its locked requirements, for the tests of streamnb.spark: 456 MB to fetch and
# 491 MB in .venv, half a minute to some minutes the first time. scripts/setup.sh test must have run;
# the Java is that of the test broker.
#
# In CI whatever is missing is a failure. Elsewhere one line says what is missing, and these tests
# skip with that reason.
set -euo pipefail
source "$(dirname "$0")/common.sh"

locked=requirements/spark.txt
stamp=.venv/.spark             # the fingerprint of the requirements that are installed

give_up() {
    in_ci && die "$*"
    say "$*; until then the tests with Spark are skipped"
    exit 0
}

fingerprint="$(fingerprint "$locked" <(pwd))"
if [[ -f "$stamp" && "$(<"$stamp")" == "$fingerprint" ]]; then
    exit 0
fi
command -v java >/dev/null || give_up "no Java found for Spark: scripts/setup_broker.sh says how to install it"
say "installing $locked (half a minute to some minutes, 456 MB the first time)"
# PySpark is a source archive alone. setuptools, which builds it, is locked in test.txt.
.venv/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes \
    --no-build-isolation --no-deps --requirement "$locked" ||
    give_up "PySpark could not be installed; see the lines above"
printf '%s\n' "$fingerprint" >"$stamp"
