#!/usr/bin/env bash
# run.sh BINARIES FOLDER: the edge's page in headless Chromium, driven by playwright-core, which is installed into FOLDER;
# screenshots are left in FOLDER/shots. Exits with 77 where there is no npm or no Chromium.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binaries=$1 folder=$2
chromium=$(command -v chromium) || { echo "page: skipped, no chromium (scripts/setup.sh --tests installs it)"; exit 77; }
"$here/../support/npm_ci.sh" "$here" "$folder"
CLOUD_SERVER=$binaries/cloud_server EDGE_CLIENT=$binaries/edge_client SPLIT_LINK=$binaries/split_link PAGE_MODULES=$folder PAGE_SHOTS=$folder/shots \
  CHROMIUM=$chromium node --test "$here/page.test.mjs" "$here/chat.test.mjs" "$here/tail.test.mjs" "$here/app.test.mjs"
