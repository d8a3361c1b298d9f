#!/usr/bin/env bash
# test.sh [--long]: installs what the tests need, builds everything, runs every test, checks the sources (check.sh) and runs
# each fuzz target for five seconds; says of each of these how long it takes, and ends with ctest's summary, whose status is 1
# when any of them failed.
#   --long   with full counts (SPLIT_LONG=1 tells the tests), two minutes for each fuzz target and every source checked;
#            also the same suite under AddressSanitizer and UBSan, the threaded parts under ThreadSanitizer, and the CPU's
#            kernels for aarch64 (test_aarch64.sh)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh

long=''
case ${1-} in
  '') ;;
  --long) long=1 ;;
  *) refuse "unknown option '$1'" ;;
esac
failed=()
# phase WORDS SECONDS COMMAND...: says before it what it takes (SECONDS are one processor's), and behind it what it took.
phase() {
  local begun=$SECONDS words=$1 about
  about=$(minutes "$2")
  shift 2
  say "test.sh: $words: about $about min on $(nproc) processors ..."
  if "$@"; then
    say "test.sh: $words: done in $((SECONDS - begun)) s"
  else
    failed+=("$words")
    say "test.sh: $words: FAILED after $((SECONDS - begun)) s"
  fi
}
# One more at a time than there are processors, since some tests wait for most of their time.
run() { ctest --test-dir "$1" --output-on-failure --timeout 900 -j "$(($(nproc) + 1))" "${@:2}"; }
tests() {
  {
    [ -z "$long" ] || export SPLIT_LONG=1
    run build
  } | tee "$log"
}
# The edge of a tab before the programs, which bring it.
build() {
  if command -v clang++-19 > /dev/null; then scripts/build.sh web web_tests || return; fi
  scripts/build.sh all
}
# The first lines of each failure again: a log is read from its end.
failures() {
  awk '/ Test +#[0-9]+: /{on = /\*\*\*(Failed|Timeout|Exception)/; left = 0; if (on) {print; left = -1}}
    on && left == -1 && /: Failure$|^ *not ok|^[Ee]rror|^FAIL|terminate called|Sanitizer:/ {left = 12}
    on && left > 0 {print substr($0, 1, 200); left--}' "$log"
}
sanitized() {  # NAME ARGUMENTS...
  scripts/build.sh "--$1" all && run "build-$1" "${@:2}"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
scripts/setup.sh --tests ${long:+--web}
phase 'building programs and tests' 1400 build
[ ${#failed[@]} = 0 ] || exit 1
if [ -z "$long" ]; then
  phase tests 1700 tests
  phase 'checks of the sources' 200 scripts/check.sh
  phase 'fuzz targets' 400 scripts/fuzz.sh --seconds 5
else
  phase tests 3000 tests
  phase 'checks of all sources' 1500 scripts/check.sh --all
  phase 'mistakes in the tensor library' 3000 tests/array/mutations.sh build/mutations
  phase 'mistakes in the prompt cache' 3000 tests/array/mutations.sh build/mutations tests/run/mutations.txt test_prefix_cache
  phase 'AddressSanitizer' 6000 sanitized asan
  phase 'ThreadSanitizer' 6000 sanitized tsan -R '^(Http|Cloud|Batcher|Blob|KvPages|Prefix|ThreadPool|Edge|Session)'
  phase 'aarch64' 3000 scripts/test_aarch64.sh
  phase 'fuzz targets' 2000 scripts/fuzz.sh --seconds 120
fi

failures
for each in "${failed[@]}"; do say "test.sh: failed: $each"; done
sed -n '/^[0-9]*% tests passed/,$p' "$log"
[ ${#failed[@]} = 0 ]
