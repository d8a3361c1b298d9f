#!/usr/bin/env bash
# test.sh [--long]: installs what the tests need, builds everything, runs every test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ "${1-}" != --long ] || export SPLIT_LONG=1
scripts/setup.sh --tests
scripts/build.sh all
ctest --test-dir build --output-on-failure --timeout 600 -j "$(nproc)"
