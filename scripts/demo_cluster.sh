#!/usr/bin/env bash
# demo_cluster.sh [--nginx] [--stop] [--edges N] [--tokens N]: three cloud_servers behind HAProxy (or nginx), and N edges (6), each of
# which writes TOKENS (200) tokens through it over a line of 50 ms, at cut 4. In the middle of their answers a fourth server joins, one is
# told to drain (behind HAProxy), and of the others the one that carries most texts is ended by SIGKILL (with --stop by SIGTERM, without a
# time to drain). Each text must be what the same edge writes undisturbed. Behind HAProxy a join and a drain move none, and the end of a
# server its own: another number fails. nginx hashes, so that a join moves some. PORT is the balancer's (8080 or the next free one; 0:
# any); SPLIT_BINARIES says where built programs are.
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

# free FROM: the first port from there on at which nobody listens is $port. Below those that connections are given, if 0.
free() {
  port=$1
  [ "$port" != 0 ] || port=$((10000 + RANDOM % 20000))
  while (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do port=$((port + 1)); done
}

declare -A port_of pid_of
server() {  # NAME PORT [FLAGS...]
  "$bin/cloud_server" --port "$2" --threads 1 --trusted-proxy 127.0.0.1 "${@:3}" 2> "$dir/$1.log" &
  pid_of[$1]=$!
  pids+=($!)
}
server a 0
server b 0 --drain-timeout 120
server c 0
for name in a b c; do
  await_ready "$dir/$name.log" "${pid_of[$name]}"
  port_of[$name]=$port
done
free 0
port_of[d]=$port
export REPLICA_A=127.0.0.1:${port_of[a]} REPLICA_B=127.0.0.1:${port_of[b]} REPLICA_C=127.0.0.1:${port_of[c]} REPLICA_D=127.0.0.1:${port_of[d]}

free "${PORT:-8080}"
[ "${PORT:-0}" = 0 ] || [ "$port" = "$PORT" ] || fail "port $PORT is taken"
through=$port
export LISTEN=127.0.0.1:$port
nginx_conf() {  # MORE: into the list of replicas
  sed -e "s/127.0.0.1:8080/$LISTEN/; s/127.0.0.1:8081/$REPLICA_A/; s/127.0.0.1:8082/$REPLICA_B/; s/127.0.0.1:8083\(.*\)/$REPLICA_C\1$1/" \
    scripts/cluster/nginx.conf > "$dir/nginx.conf"
}
if [ "$balancer" = haproxy ]; then
  haproxy -db -f scripts/cluster/haproxy.cfg > "$dir/balancer.log" 2>&1 &
else
  nginx_conf ''
  nginx -p "$dir" -c nginx.conf -g "daemon off; user $(id -un) $(id -gn);" 2> "$dir/balancer.log" &
fi
balancing=$!
pids+=("$balancing")
for _ in $(seq 1500); do ! ready "$through" || break; pause; done
kill -0 "$balancing" 2> /dev/null || { cat "$dir/balancer.log" >&2; fail "$balancer did not start"; }
"$bin/split_link" --to "127.0.0.1:$through" --rtt 50ms 2> "$dir/link" &
pids+=($!)
await "$dir/link" $!
line=$port
say "three servers behind http://127.0.0.1:$through"

edge() {  # NUMBER PORT OUTPUT: the same text each time; its process becomes the edge
  exec "$bin/edge_client" --server "http://127.0.0.1:$2" --prompt "Chapter $1. " --seed "$1" --ignore-eos --max-tokens "$tokens" \
    --cut 4 --cache "$dir/cache" --device cpu --threads 1 --json > "$3" 2> "$3.said"
}
write() {  # PORT OUTPUT: all edges at once, into OUTPUT.NUMBER; their processes are $running
  running=()
  local i
  for i in $(seq "$edges"); do
    edge "$i" "$1" "$dir/$2.$i" &
    running+=($!)
  done
  pids+=("${running[@]}")
}
written() {  # OUTPUT
  local i
  for i in $(seq "$edges"); do wait "${running[i - 1]}" || { cat "$dir/$1.$i.said" >&2; fail "edge $i failed"; }; done
}
# all_run: no edge has come to its end, so that what is said next is said in the middle of the answers.
all_run() {
  local pid
  for pid in "${running[@]}"; do kill -0 "$pid" 2> /dev/null || fail "a text ended before $1; more --tokens make it last"; done
}
# metric NAME SERVER: what that server says.
metric() {
  local name value
  ask "${port_of[$2]}" GET /metrics || return 1
  while read -r name value; do [ "$name" != "$1" ] || echo "${value%$'\r'}"; done <&3
  exec 3>&-
}
# carried NAME: how many sessions that server has.
carried() { metric split_sessions "$1"; }
# count NAMES...: $carries of each, $all of them.
declare -A carries
count() {
  all=0
  for name in "$@"; do
    carries[$name]=$(carried "$name")
    all=$((all + carries[$name]))
  done
}
begun() { count a b c && [ "$all" -ge "$edges" ]; }
# joined: a new session comes to the fourth server.
joined() {
  local id new=''
  for _ in 1 2 3 4; do new+=$(printf '%04x%04x' $RANDOM $RANDOM); done
  id=/v1/sessions/$new
  ask "$through" PUT "$id" '{"model":"demo","cut":4}' && cat <&3 > /dev/null && exec 3>&-
  new=$(carried d) || return 1
  ask "$through" DELETE "$id" && cat <&3 > /dev/null && exec 3>&-
  [ "$new" -gt 0 ]
}

write "$through" undisturbed
written undisturbed
say "$edges texts of $tokens tokens written undisturbed"

write "$line" text
for _ in $(seq 1500); do ! begun || break; pause; done
all_run "all had begun"
say "$edges texts run: a carries ${carries[a]}, b ${carries[b]}, c ${carries[c]}"

server d "${port_of[d]}"
await_ready "$dir/d.log" "${pid_of[d]}"
if [ "$balancer" = nginx ]; then
  nginx_conf "\\n        server $REPLICA_D max_fails=1 fail_timeout=2s max_conns=240;"
  kill -HUP "$balancing"
fi
for _ in $(seq 1500); do ! joined || break; pause; done
all_run "the fourth server joined"
count a b c d
came=${carries[d]}
say "a fourth server joined: $came texts moved"

others=(b c d)
if [ "$balancer" = haproxy ]; then
  all_run "a server could drain"
  kill -TERM "${pid_of[b]}"
  others=(c d)
fi

most=a
for name in "${others[@]}"; do [ "${carries[$name]}" -le "${carries[$most]}" ] || most=$name; done
all_run "a server could be ended"
kill "-$signal" "${pid_of[$most]}"
if wait "${pid_of[$most]}" 2> /dev/null; then status=0; else status=$?; fi
[ $signal = KILL ] || [ $status = 0 ] || fail "server $most: status $status, expected 0"
say "server $most, which carried ${carries[$most]}, ended by SIG$signal in the middle of the answers"

written text
same=0 moved=0
for i in $(seq "$edges"); do
  text=$(< "$dir/text.$i") undisturbed=$(< "$dir/undisturbed.$i")
  replays=0
  [[ ! $text =~ \"replays\":([0-9]+) ]] || replays=${BASH_REMATCH[1]}
  [ "$replays" = 0 ] || moved=$((moved + 1))
  # Behind the text comes how it went.
  if [ "${text%%'","finish_reason":'*}" = "${undisturbed%%'","finish_reason":'*}" ]; then
    same=$((same + 1)) verdict='the same text'
  else
    verdict='ANOTHER TEXT'
  fi
  say "edge $i: $([ "$replays" = 0 ] && echo stayed || echo moved), $verdict"
done
say "$same of $edges texts equal the undisturbed ones; edges that moved to another server: $moved"
[ "$same" = "$edges" ] || fail "a text was changed"
if [ "$balancer" = haproxy ]; then
  wait "${pid_of[b]}" || fail "server b: status $?, expected 0"
  [[ $(< "$dir/b.log") =~ \ drained:\ ([0-9]+)\ sessions ]] || { cat "$dir/b.log" >&2; fail "server b did not drain"; }
  say "b drained: ${BASH_REMATCH[1]} sessions moved"
  [ "${BASH_REMATCH[1]}" = 0 ] || fail "server b ended before the texts that it carried"
  again=0
  for name in a c d; do [ "$name" = "$most" ] || again=$((again + $(metric 'split_sessions_moved_total{model="demo"}' "$name"))); done
  [ "$again" = "$moved" ] || fail "$again sessions say that they moved, $moved edges do"
  [ "$moved" -gt 0 ] || [ "${carries[$most]}" = 0 ] || fail "no edge moved, though server $most was ended"
  [ "$came" = 0 ] || fail "$came texts moved when a server joined, expected none"
  [ "$moved" -le "${carries[$most]}" ] || fail "$moved edges moved, though server $most carried ${carries[$most]}"
fi
