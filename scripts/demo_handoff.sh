#!/usr/bin/env bash
# demo_handoff.sh [EDGE_CLIENT FLAGS...]: a text that the cloud begins and this machine ends. Simulates a line of
# 20 Mbit/s and 30 ms, with a cloud slowed to 15 tokens/s so that you can watch: the first word comes at once, the model's
# layers land here beside the text, the text moves here, the cloud is stopped, and the text goes on as if nothing happened.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
. scripts/servers.sh

programs
say "A simulated line of 20 Mbit/s and 30 ms, the cloud's stream slowed to 15 tokens/s; nothing is in the cache."
begin_servers
build/bin/cloud_server --port 0 2> "$dir/cloud" &
cloud=$!
pids+=("$cloud")
await "$dir/cloud" "$cloud"
build/bin/split_link --to "127.0.0.1:$port" --rate 20Mbit --rtt 30ms --events-per-s 15 2> "$dir/link" &
pids+=($!)
await "$dir/link" $!

prompt='Once upon a time there was'
[ -t 1 ] || printf '%s' "$prompt"  # at a terminal the client says it
mkfifo "$dir/events"
build/bin/edge_client --server "http://127.0.0.1:$port" --cut auto --cache "$dir/cache" --prompt "$prompt" \
  --max-tokens 400 --ignore-eos --seed 7 "$@" 2> "$dir/events" &
edge=$!
pids+=("$edge")
# Shows inside the text, in brackets, what happens beside it; and the receipt behind it. Words bring their spaces.
while IFS= read -r line; do
  case $line in
    '--cut auto: the text goes on here'*)
      kill "$cloud" && printf ' [%s; the cloud is stopped]' "${line#--cut auto: }" ;;
    '--cut auto: 0/'*) ;;
    '--cut auto: '*layers\ here*) printf ' [%s]' "${line#--cut auto: }" ;;
    '  '*) printf '\n%s' "$line" ;;
    edge_client:*) printf '\n' && say "$line" ;;
  esac
done < "$dir/events"
wait "$edge"
echo
