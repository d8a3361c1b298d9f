#!/usr/bin/env bash
# run.sh BINARIES: the edge in a browser's tab, built by scripts/build.sh web, in Chromium and in Firefox ESR, as far as they
# are there. Exits with 77 where there is no compiler for it or no browser.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binaries=$1
skip() { echo "web: skipped, $1"; exit 77; }
command -v clang++-19 > /dev/null || skip "no clang 19 (scripts/setup.sh --web installs it)"
command -v node > /dev/null || skip "no node (scripts/setup.sh --tests installs it)"
chromium=$(command -v chromium || :) firefox=$(command -v firefox-esr || :)
[ -n "$chromium$firefox" ] || skip "no browser (scripts/setup.sh --tests installs them)"
"$here/../../scripts/build.sh" web web_tests
CLOUD_SERVER=$binaries/cloud_server EDGE_CLIENT=$binaries/edge_client SPLIT_LINK=$binaries/split_link PRINT_BITS=$binaries/print_bits BUILD_WEB=$here/../../build-web \
  KERNELS_JS=$binaries/../web/kernels.js \
  CHROMIUM=$chromium FIREFOX=$firefox node --test "$here/web.test.mjs"
