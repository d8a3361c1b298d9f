#!/usr/bin/env bash
# run.sh BINARIES FOLDER: OpenAI's client for Node and others of npm's against edge_client --serve and a cloud_server, both
# on free ports. The clients are installed into FOLDER. Exits with 77 where there is no npm.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binaries=$1 folder=$2

"$here/../support/npm_ci.sh" "$here" "$folder"
cp "$here/test.mjs" "$here/clients.mjs" "$folder"

cloud='' edge=''
stop() {
  for pid in $edge $cloud; do kill "$pid" 2> /dev/null || :; done
  wait
}
trap stop EXIT
# start NAME COMMAND...: runs it in the background; $url is where it says that it listens, $pid its process.
start() {
  local log=$folder/$1.log
  : > "$log"  # not what an earlier run left
  "${@:2}" > "$log" 2>&1 &
  pid=$!
  until url=$(grep -o 'listening on http://[^ ]*' "$log"); do
    kill -0 "$pid" 2> /dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.1
  done
  url=${url#listening on }
}
start cloud "$binaries/cloud_server" --port 0 --device cpu --blob-cache "$folder/blobs"
cloud=$pid
start edge "$binaries/edge_client" --server "$url" --serve 127.0.0.1:0 --cut 6 --device cpu --cache "$folder/cache"
edge=$pid
cd "$folder"
node test.mjs "$url"
node clients.mjs "$url"
