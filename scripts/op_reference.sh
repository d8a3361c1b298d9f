#!/usr/bin/env bash
# Writes the reference page of the tensor library's operations, one HTML file: their rows or lines,
# types, plots drawn by this machine's CPU, and how many cases of PyTorch's check them.
#   scripts/op_reference.sh [FILE]   (build/op_reference.html)
set -euo pipefail
cd "$(dirname "$0")/.."
file=${1:-build/op_reference.html}
cmake --build build --target split_ops -j"$(nproc)" > /dev/null
build/bin/split_ops reference --html "$file"
echo "$file"
