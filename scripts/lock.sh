#!/usr/bin/env bash
# Write new requirements/*.txt from pyproject.toml: every package, version and hash that is installed.
#
#   scripts/lock.sh              keep what is locked, where pyproject.toml still allows it
#   scripts/lock.sh --upgrade    take the newest of everything
#
# test.txt is run.txt with the tests', the linters' and the site's tools added, at the same versions;
# bench.txt is test.txt with the peers that the benchmarks run beside. docs.txt is run.txt with the
# site's tools, and the extras whose modules the reference shows, at the versions of test.txt. spark.txt is the extra `spark` alone, less
# what test.txt has.
set -euo pipefail
source "$(dirname "$0")/common.sh"

uv=.venv/bin/uv
if [[ ! -x "$uv" ]]; then
    say "installing uv into .venv"
    .venv/bin/python -m pip --disable-pip-version-check install --quiet "uv>=0.8"
fi
compile=("$uv" pip compile pyproject.toml --quiet --universal --python-version 3.11
    --generate-hashes --no-header --no-annotate --extra daemon --extra codecs --group build)
"${compile[@]}" "$@" --output-file requirements/run.txt
"${compile[@]}" "$@" --group test --group docs --group lint --constraint requirements/run.txt \
    --output-file requirements/test.txt
"${compile[@]}" "$@" --group bench --group docs --group lint --constraint requirements/test.txt \
    --output-file requirements/bench.txt
"${compile[@]}" "$@" --group docs --extra arrow --extra river --extra sklearn \
    --constraint requirements/test.txt --output-file requirements/docs.txt
# Of what the extra needs PySpark and its bridge to Java alone are not in test.txt.
"$uv" pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
    --no-header --no-annotate --extra spark --constraint requirements/test.txt "$@" |
    awk '/^[a-z]/ { own = /^py(spark|4j)==/ } own' >requirements/spark.txt
say "requirements/{run,docs,test,bench,spark}.txt are written; run make test with them"
