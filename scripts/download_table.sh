#!/usr/bin/env bash
# download_table.sh: writes the bytes that an edge downloads of the bundled model into edge_client/README.md, as
# edge_client --plan computes them from a cloud_server's manifest. A test compares the two.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
. scripts/servers.sh
[ $# = 0 ] || refuse "unexpected '$1'"

programs
begin_servers
build/bin/cloud_server --port 0 --device cpu 2> "$dir/cloud" &
pids+=($!)
await "$dir/cloud" $!
# The server makes one format after the other; a plan asks for none.
until build/bin/edge_client --server "http://127.0.0.1:$port" --plan > "$dir/table" \
  && grep -q 'q4_0' "$dir/table" && ! grep -q ' - ' "$dir/table"; do sleep 0.2; done
# Between the two marks.
sed -i -e '/^<!-- scripts\/download_table.sh -->$/,/^<!-- end -->$/{//!d}' \
  -e "/^<!-- scripts\/download_table.sh -->\$/r $dir/table" edge_client/README.md
