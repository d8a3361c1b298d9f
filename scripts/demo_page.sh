#!/usr/bin/env bash
# demo_page.sh [EDGE_CLIENT FLAGS...]: the page that shows the split at work. Installs what is missing, builds, starts a cloud_server
# with the bundled model and an edge_client that serves the page, and says where it is; Ctrl-C ends both. PORT is the page's (8081).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/servers.sh

scripts/setup.sh
[ -x build/bin/edge_client ] || echo "demo_page.sh: building, some minutes the first time" >&2
scripts/build.sh

begin_servers
trap 'exit 0' INT TERM

build/bin/cloud_server --port 0 2> "$dir/cloud" &
pids+=($!)
await "$dir/cloud" $!
build/bin/edge_client --server "http://127.0.0.1:$port" --serve "127.0.0.1:${PORT:-8081}" "$@" 2> "$dir/edge" &
pids+=($!)
await "$dir/edge" $!
cat "$dir/cloud" "$dir/edge" >&2
printf '\nOpen http://127.0.0.1:%s in a browser. Ctrl-C ends.\n' "$port" >&2
wait -n "${pids[@]}" || :
