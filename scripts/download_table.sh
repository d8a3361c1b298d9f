#!/usr/bin/env bash
# download_table.sh: writes the bytes that an edge downloads of the bundled model into edge_client/README.md, as
# edge_client --plan computes them from a cloud_server's manifest. A test compares the two.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/build.sh
log=$(mktemp) table=$(mktemp)
build/bin/cloud_server --port 0 --device cpu 2> "$log" &
server=$!
trap 'kill $server; rm -f "$log" "$table"' EXIT
until url=$(grep -om1 'http://127.0.0.1:[0-9]*' "$log"); do
  kill -0 $server 2> /dev/null || { cat "$log" >&2; exit 1; }
  sleep 0.1
done
build/bin/edge_client --server "$url" --plan > "$table"
# Between the two marks.
sed -i -e '/^<!-- scripts\/download_table.sh -->$/,/^<!-- end -->$/{//!d}' \
  -e "/^<!-- scripts\/download_table.sh -->\$/r $table" edge_client/README.md
