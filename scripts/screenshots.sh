#!/usr/bin/env bash
# screenshots.sh [FOLDER]: pictures of the edge's page in FOLDER (build/screenshots), to be looked at after it was changed: light,
# dark, phone, greyscale, a move in mid-answer, a slow line, a chat, the base beside a tail, a lost cloud. Installs what is missing and builds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
case ${1-} in -*) refuse "unknown option '$1'" ;; esac
[ $# -le 1 ] || refuse "expected one folder"
folder=$(realpath -m "${1:-build/screenshots}")
programs
chromium=$(command -v chromium) || { say "No chromium: scripts/setup.sh --tests installs it."; exit 1; }
tests/support/npm_ci.sh tests/page build/page
CLOUD_SERVER=build/bin/cloud_server EDGE_CLIENT=build/bin/edge_client SPLIT_LINK=build/bin/split_link CHROMIUM=$chromium PAGE_MODULES=$PWD/build/page \
  PAGE_SHOTS=$folder node tests/page/screenshots.mjs
say "Look at each in $folder:"
ls "$folder"
