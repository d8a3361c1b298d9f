#!/usr/bin/env bash
# test_aarch64.sh: cross-compiles the layers up to run/ for aarch64 and runs the tests of the CPU's kernels in qemu: every
# op and instruction set, the rows' bits, the quantiser. Without Debian's g++-aarch64-linux-gnu, qemu-user-static and
# googletest it says so and does nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
[ $# = 0 ] || refuse "unexpected '$1'"

for need in aarch64-linux-gnu-g++ qemu-aarch64-static /usr/src/googletest/googletest/CMakeLists.txt; do
  command -v "$need" > /dev/null || [ -f "$need" ] || { echo "test_aarch64.sh: off ($need not found)" >&2; exit 0; }
done
target=(-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64-static)
out=$PWD/build-aarch64 host=$(g++ -print-multiarch)
cmake -S /usr/src/googletest -B "$out/googletest" "${target[@]}" -DBUILD_GMOCK=OFF \
  -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_INSTALL_PREFIX="$out/root" > /dev/null
cmake --build "$out/googletest" --parallel "$(nproc)" --target install > /dev/null
# No OpenSSL for the target: none of these tests takes a SHA-256, so empty libraries do.
for name in crypto ssl; do ar rcs "$out/root/lib/lib$name.a"; done
cmake -S . -B "$out" "${target[@]}" -DSPLIT_VULKAN=OFF -DSPLIT_BENCH=OFF -DGTest_DIR="$out/root/lib/cmake/GTest" \
  -DOPENSSL_INCLUDE_DIR=/usr/include -DOPENSSL_CRYPTO_LIBRARY="$out/root/lib/libcrypto.a" \
  -DOPENSSL_SSL_LIBRARY="$out/root/lib/libssl.a" -DHTTPLIB_LIBRARY=OFF \
  -DCMAKE_CXX_FLAGS="-idirafter /usr/include/$host" \
  -DCMAKE_EXE_LINKER_FLAGS="-static -Wl,--unresolved-symbols=ignore-all" > /dev/null
cmake --build "$out" --parallel "$(nproc)" --target test_ops test_rows test_io > /dev/null
run() { qemu-aarch64-static "$out/bin/$1" --gtest_brief=1 --gtest_filter="$2"; }
run test_ops '*'
run test_rows '*rand*'
run test_io 'Quantize*:Blocks*:WeightFile*'
