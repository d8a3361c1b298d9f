#!/usr/bin/env bash
# fuzz.sh [--seconds N]: builds the libFuzzer targets with clang, AddressSanitizer and UBSan, and runs each for N seconds
# (60) from the hostile files that are kept, as many at once as there are processors. What it finds is left in
# build-fuzz/NAME/, and a finding is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh

seconds=60
if [ "${1-}" = --seconds ] && [[ ${2-} =~ ^[1-9][0-9]*$ ]]; then
  seconds=$2
elif [ $# -gt 0 ]; then
  refuse "expected --seconds N, got '$*'"
fi
scripts/setup.sh --tests --fuzz
cmake -S . -B build-fuzz -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -gline-tables-only" \
  -DSPLIT_SANITIZE=asan -DSPLIT_FUZZ=ON -DSPLIT_VULKAN=OFF -DSPLIT_TESTS=OFF -DSPLIT_BENCH=OFF > /dev/null
cmake --build build-fuzz --parallel "$(nproc)" --target fuzz | progress 'Building the fuzz targets' > /dev/null

run() {  # NAME SECONDS
  local dir=build-fuzz/$1 status=0
  mkdir -p "$dir"
  rm -f "$dir"/{crash,oom,timeout,leak}-*
  local seeds=tests/attacks
  [ ! -d "tests/fuzz/seeds/${1#fuzz_}" ] || seeds=tests/fuzz/seeds/${1#fuzz_}
  "build-fuzz/bin/$1" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -artifact_prefix="$dir/" \
    -print_final_stats=1 "$dir" "$seeds" > "$dir.log" 2>&1 || status=$?
  echo "fuzz.sh: $1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$dir.log") inputs in $2 s" >&2
  [ $status = 0 ] || { grep -E 'ERROR|SUMMARY|Test unit written' "$dir.log" >&2; tail -n 20 "$dir.log" >&2; return 1; }
}
export -f run
find build-fuzz/bin -name 'fuzz_*' -printf '%f\n' | sort |
  xargs -P "$(nproc)" -I NAME bash -c "set -euo pipefail; run NAME $seconds"
