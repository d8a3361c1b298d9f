#!/usr/bin/env bash
# test.sh [--long]: installs what the tests need, builds everything, checks the sources (check.sh), runs each fuzz target
# for ten seconds and every test; ends with ctest's summary.
#   --long   with full counts (SPLIT_LONG=1 tells the tests), two minutes for each fuzz target and every source checked;
#            first the same suite under AddressSanitizer and UBSan, the threaded parts under ThreadSanitizer, and the
#            CPU's kernels for aarch64 (test_aarch64.sh)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh

long=''
case ${1-} in
  '') ;;
  --long) long=1 ;;
  *) refuse "unknown option '$1'" ;;
esac
# One more at a time than there are processors, since some tests wait for most of their time.
run() { ctest --test-dir "$1" --output-on-failure --timeout 900 -j "$(($(nproc) + 1))" "${@:2}"; }

scripts/setup.sh --tests --fuzz
if [ -n "$long" ]; then
  scripts/build.sh --asan all
  run build-asan
  scripts/build.sh --tsan all
  run build-tsan -R '^(Http|Cloud|Batcher|Blob|KvPages|ThreadPool|Edge|Session)'
  scripts/test_aarch64.sh
fi
scripts/fuzz.sh --seconds "$([ -n "$long" ] && echo 120 || echo 10)"
scripts/build.sh all
scripts/check.sh ${long:+--all}
[ -z "$long" ] || export SPLIT_LONG=1
run build
