#!/usr/bin/env bash
# demo_page.sh [EDGE_CLIENT FLAGS...]: the page that shows the split at work. Installs what is missing, builds, starts a cloud_server
# with the bundled model and an edge_client that serves the page, at cut 6 unless a flag says another (--cut auto lets it choose), and
# says where it is; the page can stop the cloud, to show what its texts do then. Ctrl-C ends both. PORT is the page's (8081).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
. scripts/servers.sh
cut=(--cut 6)  # a split to look at, as in demo.sh
stops=1        # the page may stop the cloud, where this machine alone reaches it
for flag in "$@"; do
  case $flag in
    -h | --help) usage && exit ;;
    --cut* | --head* | --moves*) cut=() ;;
    --serve*) stops= ;;
  esac
done

programs

begin_servers
trap 'exit 0' INT TERM

say "Starting the cloud server ..."
build/bin/cloud_server --port 0 2> "$dir/cloud" &
cloud=$!
pids+=("$cloud")
await "$dir/cloud" "$cloud"
say "Starting the edge, which loads its layers ..."
build/bin/edge_client --server "http://127.0.0.1:$port" --serve "127.0.0.1:${PORT:-8081}" ${stops:+--stops-cloud "$cloud"} "${cut[@]}" "$@" 2> "$dir/edge" &
edge=$!
pids+=("$edge")
await_ready "$dir/edge" "$edge"
cat "$dir/cloud" "$dir/edge" >&2
printf '\nOpen http://127.0.0.1:%s in a browser. Ctrl-C ends.\n' "$port" >&2
{ wait -n "${pids[@]}" || :; } 2> /dev/null
if kill -0 "$edge" 2> /dev/null; then
  say "The cloud has ended; the page goes on. Ctrl-C ends it."
  wait "$edge" || :
fi
