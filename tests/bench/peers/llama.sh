#!/usr/bin/env bash
# llama.sh FOLDER cpu|cuda: makes llama-bench and llama-batched-bench once, of the source that npm's node-llama-cpp ships:
# FOLDER/llama.cpp/cpu/bin or cuda/bin.
set -euo pipefail
cd "$1"
[ -x "llama.cpp/$2/bin/llama-bench" ] && [ -x "llama.cpp/$2/bin/llama-batched-bench" ] && exit
if [ ! -d llama.cpp ]; then
  rm -rf package llama.part
  tar -xz package/llama/gitRelease.bundle < "$(npm pack --silent node-llama-cpp@3.22.1)"
  git -c advice.detachedHead=false clone -q package/llama/gitRelease.bundle llama.part
  rm -r package node-llama-cpp-3.22.1.tgz
  mv llama.part llama.cpp
fi
more=()
if [ "$2" = cuda ]; then
  command -v nvcc > /dev/null || { echo "llama.sh: llama.cpp on this GPU needs CUDA's compiler, nvcc, which is not there" >&2 && exit 1; }
  more=(-DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native -DGGML_CUDA_FA_QUANTS=f16-f16)
fi
cmake -S llama.cpp -B "llama.cpp/$2" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF "${more[@]}"
cmake --build "llama.cpp/$2" -j"$(nproc)" --target llama-bench llama-batched-bench
