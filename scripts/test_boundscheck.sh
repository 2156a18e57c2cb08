#!/usr/bin/env bash
# Run the tests of the kernels, of the library and of what of the daemon has kernels of its own, with
# every index of the compiled code checked. The machine code is kept apart from that of all other
# runs. Arguments go to pytest.
set -euo pipefail
source "$(dirname "$0")/common.sh"
source scripts/test_steps.sh

checked_indices "$@"
finish
