#!/usr/bin/env bash
# torture.sh BINARIES: one call of the system fails, once, at a random place (libfiu): in edge_client while it loads and writes, in
# cloud_server while it starts and serves. Each run ends in time, by itself: with the same text, or with one line that says why and
# nothing but the text's beginning on stdout. Three runs a kind of call, thirty with SPLIT_LONG. Exit 77 without fiu-run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bin=$1
command -v fiu-run > /dev/null || { echo "torture.sh: no fiu-run"; exit 77; }
runs=3
[ -z "${SPLIT_LONG-}" ] || runs=30
dir=$(mktemp -d)
pids=()
stop() {
  kill "${pids[@]}" 2> /dev/null || :
  wait 2> /dev/null || :
  rm -rf "$dir"
}
trap stop EXIT

kinds=('posix/io/oc/*' 'posix/io/rw/*' 'posix/io/sync/*' 'posix/io/dir/*' 'posix/io/stat/*' 'posix/io/net/*' 'posix/mm/mmap'
  'posix/proc/*')  # not libc/mm: nlohmann's values allocate in destructors, where nothing may be thrown
failed=0
wrong() { echo "torture.sh: $*"; failed=$((failed + 1)); }
# Runs a program so that one call fails: soon in the first run, further on in the later ones.
faulty() {  # KIND RUN
  by=(fiu-run -x -f '' -c "enable_random name=$1,probability=$(awk "BEGIN { print 0.3 / $2 / $2 }"),onetime")
}
edge() {  # URL [BY...]
  timeout 60 "${@:2}" "$bin/edge_client" --server "$1" --prompt Once --seed 1 --max-tokens 8 --device cpu --threads 1 --quiet \
    --retry-for 10 --timeout 5
}
address() { sed -n 's|^[-0-9: ]*listening on \(http://[^ ]*\).*|\1|p' "$1"; }
wait_for() {  # FILE PID: until the server that says so into FILE is ready; false when it has ended or said nothing
  for _ in $(seq 200); do
    if [ -n "$(address "$1")" ] && curl -sf "$(address "$1")/readyz" > /dev/null; then return; fi
    kill -0 "$2" 2> /dev/null || return 1
    sleep 0.05
  done
  return 1
}
check() {  # WHAT STATUS
  if [ "$2" = 0 ]; then
    cmp -s "$dir/text" "$dir/got" || wrong "$1: another text"
  elif [ "$2" -ge 124 ]; then
    wrong "$1: exit $2: $(tail -n 1 "$dir/err")"
  else
    grep -q '^edge_client: .' "$dir/err" || wrong "$1: exit $2 without a word"
    [ "$(head -c "$(stat -c %s "$dir/got")" "$dir/text")" = "$(cat "$dir/got")" ] || wrong "$1: exit $2 after another text"
  fi
}

export XDG_CACHE_HOME=$dir/cache
"$bin/cloud_server" --port 0 --device cpu --threads 1 2> "$dir/log" &
pids+=($!)
wait_for "$dir/log" $! || { cat "$dir/log"; exit 1; }
url=$(address "$dir/log")
edge "$url" > "$dir/text" 2> "$dir/err"

for kind in "${kinds[@]}"; do
  for run in $(seq "$runs"); do
    # Now with a cache that has all, now with an empty one.
    export XDG_CACHE_HOME=$dir/cache
    [ $((run % 2)) = 0 ] || { rm -rf "$dir/new" && export XDG_CACHE_HOME=$dir/new; }
    status=0
    faulty "$kind" "$run"
    edge "$url" "${by[@]}" > "$dir/got" 2> "$dir/err" || status=$?
    check "edge_client, $kind, run $run" $status
  done
done

export XDG_CACHE_HOME=$dir/cache
for kind in "${kinds[@]}"; do
  for run in $(seq "$runs"); do
    faulty "$kind" "$run"
    "${by[@]}" "$bin/cloud_server" --port 0 --device cpu --threads 1 2> "$dir/faulty" &
    server=$!
    pids+=("$server")
    if wait_for "$dir/faulty" "$server"; then
      for _ in 1 2; do
        status=0
        edge "$(address "$dir/faulty")" > "$dir/got" 2> "$dir/err" || status=$?
        check "cloud_server, $kind, run $run" $status
      done
    fi
    kill -TERM "$server" 2> /dev/null || :
    status=0
    wait "$server" || status=$?
    [ $status -lt 124 ] || wrong "cloud_server, $kind, run $run: exit $status: $(tail -n 1 "$dir/faulty")"
  done
done
echo "torture.sh: $((2 * runs * ${#kinds[@]})) runs with one failed call, $failed wrong"
[ "$failed" = 0 ]
