#!/usr/bin/env bash
# op_reference.sh [FILE]: the reference of the tensor library's operations as one HTML page in FILE (build/op_reference.html):
# their rows or lines, types, plots that this machine's CPU drew, and how many cases of PyTorch's hold each. Builds what it needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
case ${1-} in -*) refuse "unknown option '$1'" ;; esac
[ $# -le 1 ] || refuse "expected one file"
file=$(realpath -m "${1:-build/op_reference.html}")
scripts/build.sh split_ops
build/bin/split_ops reference --html "$file"
say "Look at $file"
