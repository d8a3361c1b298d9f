#!/usr/bin/env bash
# fuzz.sh [--minutes N]: builds the libFuzzer targets with clang, AddressSanitizer and UBSan, and runs each for N minutes
# (1) from the hostile files that are kept. What it finds is left in build-fuzz/NAME/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minutes=1
if [ "${1-}" = --minutes ] && [[ ${2-} =~ ^[1-9][0-9]*$ ]]; then
  minutes=$2
elif [ $# -gt 0 ]; then
  sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
scripts/setup.sh --tests --fuzz
cmake -S . -B build-fuzz -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSPLIT_SANITIZE=asan \
  -DSPLIT_FUZZ=ON -DSPLIT_VULKAN=OFF > /dev/null
targets=(fuzz_safetensors)
cmake --build build-fuzz --parallel "$(nproc)" --target "${targets[@]}" > /dev/null
for target in "${targets[@]}"; do
  mkdir -p "build-fuzz/$target"
  echo "fuzz.sh: $target, $minutes min" >&2
  "build-fuzz/bin/$target" -max_total_time=$((minutes * 60)) -artifact_prefix="build-fuzz/$target/" -print_final_stats=1 \
    "build-fuzz/$target" tests/attacks 2>&1 | grep -E '^stat::(number_of_executed|slowest)|ERROR|SUMMARY' || :
  [ -z "$(find "build-fuzz/$target" -name 'crash-*' -o -name 'oom-*' -o -name 'timeout-*')" ] || exit 1
done
