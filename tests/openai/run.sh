#!/usr/bin/env bash
# run.sh BINARIES FOLDER: OpenAI's client for Node, as npm has it, against edge_client --serve and a cloud_server, both on
# free ports. The client is installed into FOLDER. Exits with 77 where there is no npm.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binaries=$1 folder=$2

command -v npm > /dev/null && command -v node > /dev/null || {
  echo "openai client: skipped, npm or node is not installed (scripts/setup.sh --tests installs both)"
  exit 77
}
mkdir -p "$folder"
cp "$here"/package.json "$here"/package-lock.json "$here"/test.mjs "$folder"
# Again only when another version is asked for.
cmp -s "$folder/package-lock.json" "$folder/node_modules/.installed" || {
  npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error
  cp "$folder/package-lock.json" "$folder/node_modules/.installed"
}

cloud='' edge=''
stop() {
  for pid in $edge $cloud; do kill "$pid" 2> /dev/null || :; done
  wait
}
trap stop EXIT
# start NAME COMMAND...: runs it in the background; $url is where it says that it listens, $pid its process.
start() {
  local log=$folder/$1.log
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
start edge "$binaries/edge_client" --server "$url" --serve 127.0.0.1:0 --device cpu --cache "$folder/cache"
edge=$pid
cd "$folder"
node test.mjs "$url"
