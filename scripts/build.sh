#!/usr/bin/env bash
# build.sh [--asan|--tsan|--debug] [TARGET...]: builds build/bin/cloud_server and build/bin/edge_client (Release), or
# the same under build-asan, build-tsan or build-debug.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dir=build options=(-DCMAKE_BUILD_TYPE=Release)
case ${1-} in
  --asan) dir=build-asan options=(-DCMAKE_BUILD_TYPE=RelWithDebInfo -DSPLIT_SANITIZE=asan) && shift ;;
  --tsan) dir=build-tsan options=(-DCMAKE_BUILD_TYPE=RelWithDebInfo -DSPLIT_SANITIZE=tsan) && shift ;;
  --debug) dir=build-debug options=(-DCMAKE_BUILD_TYPE=Debug) && shift ;;
  -*) sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
esac
tests=OFF
for target in "$@"; do [ "$target" != all ] || tests=ON; done
# Silent when there is nothing to do; everything when something fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
targets=()
[ $# = 0 ] || targets=(--target "$@")
[ $# -gt 0 ] || targets=(--target cloud_server edge_client)
{
  # A folder that has the tests keeps them: building without them is for machines that cannot.
  grep -qs "SPLIT_TESTS:BOOL=\($tests\|ON\)" "$dir/CMakeCache.txt" ||
    cmake -S . -B "$dir" "${options[@]}" -DSPLIT_TESTS=$tests
  cmake --build "$dir" --parallel "$(nproc)" "${targets[@]}"
} > "$log" 2>&1 || { cat "$log" >&2; echo "build.sh: the build failed" >&2; exit 1; }
grep -E '^-- (Vulkan|PCRE2|oneDNN):' "$log" || :
