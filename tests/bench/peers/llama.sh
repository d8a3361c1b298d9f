#!/usr/bin/env bash
# llama.sh FOLDER cpu|cuda: makes llama-bench and llama-batched-bench once, FOLDER/llama.cpp/cpu/bin or cuda/bin, of the
# source that npm's node-llama-cpp ships. On the CPU they are linked with the libraries that npm ships too, which choose the
# code of this processor: what is compiled here with -march=native is slower for several sequences. CUDA's are compiled.
set -euo pipefail
cd "$1"
version=3.22.1
[ -x "llama.cpp/$2/bin/llama-bench" ] && [ -x "llama.cpp/$2/bin/llama-batched-bench" ] && exit
unpack() {  # PACKAGE FILE: of npm
  tar -xz "package/$2" < "$(npm pack --silent "$1@$version")"
}
if [ ! -d llama.cpp ]; then
  rm -rf package llama.part
  unpack node-llama-cpp llama/gitRelease.bundle
  git -c advice.detachedHead=false clone -q package/llama/gitRelease.bundle llama.part
  rm -r package node-llama-cpp-*.tgz
  mv llama.part llama.cpp
fi
if [ "$2" = cuda ]; then
  command -v nvcc > /dev/null || { echo "llama.sh: llama.cpp on this GPU needs CUDA's compiler, nvcc, which is not there" >&2 && exit 1; }
  cmake -S llama.cpp -B llama.cpp/cuda -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF \
    -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native -DGGML_CUDA_FA_QUANTS=f16-f16
  exec cmake --build llama.cpp/cuda -j"$(nproc)" --target llama-bench llama-batched-bench
fi
case $(uname -m) in
  x86_64) shipped=linux-x64 ;;
  aarch64) shipped=linux-arm64 ;;
  *) echo "llama.sh: npm's node-llama-cpp has no libraries for $(uname -m), expected x86_64 or aarch64" >&2 && exit 1 ;;
esac
rm -rf package cpu.part
unpack "@node-llama-cpp/$shipped" "bins/$shipped"
mkdir -p llama.cpp/cpu
mv "package/bins/$shipped" cpu.part
rm -r package node-llama-cpp-*.tgz
libraries=(cpu.part/libllama-common.so cpu.part/libllama.v*.so cpu.part/libggml.v*.so cpu.part/libggml-base.so)
for tool in llama-bench:llama-bench batched-bench:llama-batched-bench; do
  from=llama.cpp/tools/${tool%:*}
  "${CXX:-g++}" -O2 -DNDEBUG -std=c++17 -Illama.cpp/include -Illama.cpp/ggml/include -Illama.cpp/common -Illama.cpp/vendor -I"$from" \
    "$from/${tool%:*}.cpp" "$from/main.cpp" -o "cpu.part/${tool#*:}" "${libraries[@]}" -Wl,-rpath,"\$ORIGIN" -pthread
done
rm -rf llama.cpp/cpu/bin
mv cpu.part llama.cpp/cpu/bin
