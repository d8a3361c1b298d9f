# serving.sh: for scripts that source it with $binaries and $folder set. serve() starts both programs on free ports; they end
# with the script.
# shellcheck shell=bash
: "${binaries:?}" "${folder:?}"
pids=()
stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || :; done
  wait
}
trap stop EXIT
# start NAME COMMAND...: runs it in the background; $url is where it says that it listens.
start() {
  local log=$folder/$1.log
  : > "$log"  # not what an earlier run left
  "${@:2}" > "$log" 2>&1 &
  pids+=($!)
  until url=$(grep -o 'listening on http://[^ ]*' "$log"); do
    kill -0 "${pids[-1]}" 2> /dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.1
  done
  url=${url#listening on }
}
# serve NAME CUT FLAGS...: a cloud and an edge at that cut; $cloud and $url are where they listen.
serve() {
  start "$1-cloud" "$binaries/cloud_server" --port 0 --device cpu --blob-cache "$folder/blobs" "${@:3}"
  cloud=$url
  start "$1-edge" "$binaries/edge_client" --server "$cloud" --serve 127.0.0.1:0 --cut "$2" --device cpu \
    --cache "$folder/cache"
}
