#!/usr/bin/env bash
# demo_cluster.sh [--nginx] [--stop] [--edges N] [--tokens N]: three cloud_servers behind HAProxy (or nginx), N edges (6) that each
# write TOKENS (200) tokens through it. In the middle of their answers one server is ended by SIGKILL (with --stop by SIGTERM, as an
# orchestrator does); every text must be what the same edge writes undisturbed. PORT is the balancer's (8080 or the next free one; 0: any); SPLIT_BINARIES says where built
# programs are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
. scripts/servers.sh

edges=6 tokens=200 balancer=haproxy signal=KILL
while [ $# -gt 0 ]; do
  [ "$1" != --nginx ] || { balancer=nginx && shift && continue; }
  [ "$1" != --stop ] || { signal=TERM && shift && continue; }
  case $1 in -h | --help) usage && exit ;; --edges | --tokens) ;; *) refuse "unknown option '$1'" ;; esac
  [[ ${2-} =~ ^[1-9][0-9]{0,2}$ ]] || refuse "$1: expected a number from 1 to 999, got '${2-}'"
  case $1 in --edges) edges=$2 ;; --tokens) tokens=$2 ;; esac
  shift 2
done

bin=${SPLIT_BINARIES-}
if [ -z "$bin" ]; then
  scripts/setup.sh "--$balancer"
  programs
  bin=build/bin
fi
PATH=$PATH:/usr/sbin
command -v "$balancer" > /dev/null || { echo "demo_cluster.sh: no $balancer" >&2; exit 77; }

begin_servers
fail() { echo "demo_cluster.sh: $*" >&2; exit 1; }

for name in a b c; do
  "$bin/cloud_server" --port 0 --threads 1 --trusted-proxy 127.0.0.1 2> "$dir/$name.log" &
  pids+=($!)
done
ports=()
for i in 0 1 2; do
  name=abc
  await_ready "$dir/${name:i:1}.log" "${pids[i]}"
  ports+=("$port")
done

port=${PORT:-8080}
[ "$port" != 0 ] || port=$((10000 + RANDOM % 20000)) PORT=''  # below those that connections are given
while (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do
  [ -z "${PORT-}" ] || fail "port $port is taken"
  port=$((port + 1))
done
export LISTEN=127.0.0.1:$port
export REPLICA_A=127.0.0.1:${ports[0]} REPLICA_B=127.0.0.1:${ports[1]} REPLICA_C=127.0.0.1:${ports[2]}
if [ "$balancer" = haproxy ]; then
  haproxy -db -f scripts/cluster/haproxy.cfg > "$dir/balancer.log" 2>&1 &
else
  sed -e "s/127.0.0.1:8080/$LISTEN/; s/127.0.0.1:8081/$REPLICA_A/; s/127.0.0.1:8082/$REPLICA_B/; s/127.0.0.1:8083/$REPLICA_C/" \
    scripts/cluster/nginx.conf > "$dir/nginx.conf"
  nginx -p "$dir" -c nginx.conf -g 'daemon off;' 2> "$dir/balancer.log" &
fi
pids+=($!)
for _ in $(seq 1500); do ! ready "$port" || break; pause; done
kill -0 "${pids[-1]}" 2> /dev/null || { cat "$dir/balancer.log" >&2; fail "$balancer did not start"; }
echo "three servers behind http://127.0.0.1:$port" >&2

edge() {  # NUMBER OUTPUT: the same text each time
  "$bin/edge_client" --server "http://127.0.0.1:$port" --prompt "Chapter $1. " --seed "$1" --ignore-eos \
    --max-tokens "$tokens" --device cpu --threads 1 > "$2" 2> "$2.receipt"
}
for i in $(seq "$edges"); do edge "$i" "$dir/undisturbed.$i" || { cat "$dir/undisturbed.$i.receipt" >&2; fail "edge $i"; }; done
echo "$edges texts of $tokens tokens written undisturbed" >&2

running=()
for i in $(seq "$edges"); do
  edge "$i" "$dir/text.$i" &
  running+=($!)
done
pids+=("${running[@]}")
# When each has begun and none has ended: which replica holds most is the hash's to say, so the first is as good as any.
begun() { for i in $(seq "$edges"); do [ -s "$dir/text.$i" ] || return 1; done; }
for _ in $(seq 1500); do ! begun || break; pause; done
kill "-$signal" "${pids[0]}"
if wait "${pids[0]}" 2> /dev/null; then status=0; else status=$?; fi
[ $signal = KILL ] || [ $status = 0 ] || fail "server a: status $status, expected 0"
echo "server a ended by SIG$signal in the middle of the answers" >&2

same=0 moved=0
for i in $(seq "$edges"); do
  wait "${running[i - 1]}" || { cat "$dir/text.$i.receipt" >&2; fail "edge $i failed"; }
  replays=$(sed -n 's/.*; \([0-9]*\) replays.*/\1/p' "$dir/text.$i.receipt")
  [ "${replays:-0}" = 0 ] || moved=$((moved + 1))
  if cmp -s "$dir/text.$i" "$dir/undisturbed.$i"; then
    same=$((same + 1)) verdict='the same text'
  else
    verdict='ANOTHER TEXT'
  fi
  echo "edge $i: ${replays:-0} replays, $verdict" >&2
done
echo "$same of $edges texts equal the undisturbed ones; edges that moved to another server: $moved" >&2
[ "$same" = "$edges" ]
