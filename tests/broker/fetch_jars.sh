#!/bin/sh
# Bring the test broker's jars into libs/, beside this file. Needs Maven and a Java of 17 or later; run it once.
set -eu
cd "$(dirname "$0")"
for program in mvn java; do
    command -v "$program" >/dev/null || { echo "fetch_jars.sh: no '$program' on the PATH" >&2; exit 1; }
done
mvn -q -B -f pom.xml dependency:copy-dependencies -DoutputDirectory=libs
echo "libs/ holds $(find libs -name '*.jar' | wc -l) jars"
