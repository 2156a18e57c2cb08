#!/usr/bin/env bash
# Run the tests of kernels and library with every index of the compiled code checked. The machine code
# is kept apart from that of all other runs. Arguments go to pytest.
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/test_steps.sh

checked_indices "$@"
finish
