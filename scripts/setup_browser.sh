#!/usr/bin/env bash
# Set up the browser of the tests: the system's own Chromium. Nothing else is downloaded.
#
# In CI a missing one is a failure. Elsewhere one line says what is missing, the browser tests skip
# with that reason, and the rest runs. STREAMNB_CHROMIUM=/path/to/it chooses another one.
set -euo pipefail
source "$(dirname "$0")/common.sh"

# The tests look by the same program, so that both find the same.
missing_part() { ! .venv/bin/python -m tests.browser.browser_path; }

missing="$(missing_part)" || exit 0
if [[ -z "${STREAMNB_CHROMIUM:-}" ]]; then
    apt_install chromium || true
fi
missing="$(missing_part)" || exit 0
in_ci && die "$missing"
say "$missing; until then the tests in a browser are skipped"
