#!/usr/bin/env bash
# test.sh [--long]: installs what the tests need, builds everything, runs each fuzz target for ten seconds and every test;
# ends with ctest's summary.
#   --long   first the same suite under AddressSanitizer and UBSan and the threaded parts under ThreadSanitizer; each fuzz
#            target for two minutes; SPLIT_LONG=1 tells tests to use their full counts
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

long=''
case ${1-} in
  '') ;;
  --long) long=1 && export SPLIT_LONG=1 ;;
  *) sed -n '2,5s/^# //p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac
run() { ctest --test-dir "$1" --output-on-failure --timeout 900 -j "$(nproc)" "${@:2}"; }

scripts/setup.sh --tests --fuzz
if [ -n "$long" ]; then
  scripts/build.sh --asan all
  run build-asan
  scripts/build.sh --tsan all
  run build-tsan -R '^(Http|Cloud|Batcher|KvPages|ThreadPool|Edge|Session)'
fi
scripts/fuzz.sh --seconds "$([ -n "$long" ] && echo 120 || echo 10)"
scripts/build.sh all
run build
