#!/usr/bin/env bash
# build.sh [--asan|--tsan|--debug] [TARGET...]: builds build/bin/cloud_server, build/bin/edge_client and build/bin/split_link
# (Release), or the same under build-asan, build-tsan or build-debug.
# build.sh web: builds the edge of a browser's tab, build-web/app/edge-HASH.wasm.gz and edge-plain-HASH.wasm.gz, and the page of
# the tensor library's operations, build-web/ops, a folder that any host can serve (scripts/setup.sh --web installs the compiler).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh

dir=build options=(-DCMAKE_BUILD_TYPE=Release)
case ${1-} in
  --asan) dir=build-asan options=(-DCMAKE_BUILD_TYPE=RelWithDebInfo -DSPLIT_SANITIZE=asan) && shift ;;
  --tsan) dir=build-tsan options=(-DCMAKE_BUILD_TYPE=RelWithDebInfo -DSPLIT_SANITIZE=tsan) && shift ;;
  web)
    command -v clang++-19 > /dev/null || { say "build.sh: no clang 19; scripts/setup.sh --web installs it" && exit 1; }
    dir=build-web options=(-DCMAKE_BUILD_TYPE=Release --toolchain edge_client/web/wasm.cmake) ;;
  --debug) dir=build-debug options=(-DCMAKE_BUILD_TYPE=Debug) && shift ;;
esac
tests=OFF
for target in "$@"; do
  case $target in
    -*) refuse "unknown option '$target'" ;;
    all) tests=ON ;;
  esac
done
# Silent when there is nothing to do, how far it is when it takes longer; everything when something fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
targets=()
[ $# = 0 ] || targets=(--target "$@")
[ $# -gt 0 ] || targets=(--target programs)
mkdir -p "$dir"
touch "$dir/begun"  # a source that changes during the build is newer
# A folder that has the tests keeps them: building without them is for machines that cannot.
! grep -qs SPLIT_TESTS:BOOL=ON "$dir/CMakeCache.txt" || tests=ON
{
  # A target that is new is known once cmake has run.
  { grep -qs SPLIT_TESTS:BOOL=$tests "$dir/CMakeCache.txt" && [ "$dir/Makefile" -nt CMakeLists.txt ]; } ||
    cmake -S . -B "$dir" "${options[@]}" -DSPLIT_TESTS=$tests ${SPLIT_REVISION:+"-DSPLIT_REVISION=$SPLIT_REVISION"}
  cmake --build "$dir" --parallel "$(jobs)" "${targets[@]}"
} 2>&1 | progress Building > "$log" || { cat "$log" >&2; say "build.sh: the build failed"; exit 1; }
[ $# -gt 0 ] || mv "$dir/begun" "$dir/up-to-date"  # the programs are there (shared.sh)
grep -E '^-- (Vulkan|PCRE2|oneDNN):' "$log" || :
