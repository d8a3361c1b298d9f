#!/usr/bin/env bash
# demo_page.sh [EDGE_CLIENT FLAGS...]: the page that shows the split at work. Installs what is missing, builds, starts a cloud_server
# with the bundled model and an edge_client that serves the page, at cut 6 unless a flag says another (--cut auto lets it choose), and
# says where it is; Ctrl-C ends both. PORT is the page's (8081).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
. scripts/servers.sh
cut=(--cut 6)  # a split to look at, as in demo.sh
for flag in "$@"; do
  case $flag in
    -h | --help) usage && exit ;;
    --cut* | --head* | --moves*) cut=() ;;
  esac
done

programs

begin_servers
trap 'exit 0' INT TERM

say "Starting the cloud server ..."
build/bin/cloud_server --port 0 2> "$dir/cloud" &
pids+=($!)
await "$dir/cloud" $!
say "Starting the edge, which loads its layers ..."
build/bin/edge_client --server "http://127.0.0.1:$port" --serve "127.0.0.1:${PORT:-8081}" "${cut[@]}" "$@" 2> "$dir/edge" &
pids+=($!)
await_ready "$dir/edge" $!
cat "$dir/cloud" "$dir/edge" >&2
printf '\nOpen http://127.0.0.1:%s in a browser. Ctrl-C ends.\n' "$port" >&2
wait -n "${pids[@]}" || :
