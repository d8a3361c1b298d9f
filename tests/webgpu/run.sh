#!/usr/bin/env bash
# run.sh BINARIES FOLDER: the op table, models' tapes and all kernels in WGSL on SwiftShader, by npm's Dawn for Node, which is installed
# into FOLDER. Exits with 77 where there is no npm or no SwiftShader (chromium brings it).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binaries=$1 folder=$2
driver=/usr/lib/chromium/vk_swiftshader_icd.json
[ -e "$driver" ] || { echo "webgpu: skipped, no $driver (scripts/setup.sh --tests installs chromium)"; exit 77; }
"$here/../support/npm_ci.sh" "$here" "$folder"
mkdir -p "$folder/texts" "$folder/page"
cp "$here"/../../edge_client/web/page/*.js "$binaries/../web/kernels.js" "$folder/page"
for kernels in rows tapes products kernels; do "$binaries/print_$kernels" "$folder/texts"; done
XDG_RUNTIME_DIR=$folder VK_DRIVER_FILES=${WEBGPU_DRIVER-$driver} MODULES=$folder PAGE=$folder/page TEXTS=$folder/texts node --test "$here/texts.test.mjs"
