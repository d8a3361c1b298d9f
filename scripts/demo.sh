#!/usr/bin/env bash
# demo.sh [PROMPT] [EDGE_CLIENT FLAGS...]: the whole thing on this machine. Installs what is missing, builds, starts a
# cloud_server with the bundled model, lets edge_client finish PROMPT in view of you, at cut 6 unless a flag says another,
# and stops the server.
#   scripts/demo.sh "Once upon a time" --max-tokens 100 --cut 2
# build/bin/edge_client --help lists the flags.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
. scripts/servers.sh

prompt='Once upon a time there was'
if [ $# -gt 0 ] && [ "${1:0:1}" != - ]; then
  prompt=$1
  shift
fi
cut=(--cut 6)  # a split to look at; a short text would end before the cut moves by itself
# At a terminal the client says the prompt itself, and elsewhere the script does, but for these flags.
[ -t 1 ] && plain=1 || plain=''
for flag in "$@"; do
  case $flag in
    --cut* | --head* | --moves* | --embed) cut=() ;;
  esac
  case $flag in
    -h | --help) usage && exit ;;
    --json | --embed | --quiet | --version | --list-devices) plain=1 ;;
  esac
done

programs

begin_servers
say "Starting the cloud server ..."
build/bin/cloud_server --port 0 2> "$dir/cloud" &
pids+=($!)
await "$dir/cloud" $!
cat "$dir/cloud" >&2
echo >&2
edge() { build/bin/edge_client --server "http://127.0.0.1:$port" --prompt "$prompt" "${cut[@]}" "$@"; }
if [ -n "$plain" ]; then
  edge "$@"
  exit
fi
# The prompt goes out with the first byte of the text, below what is said about the download, and the receipt, which begins with an
# empty line, behind the last byte.
mkfifo "$dir/said" "$dir/written"
with_prompt() {
  local first=''
  if IFS= LC_ALL=C read -r -N 1 first; then
    printf '%s%s' "$prompt" "$first"
    cat
    echo
  fi
  : > "$dir/written"
}
if sed -u '/^$/Q1'; then cat "$dir/written"; else cat "$dir/written" && echo && cat; fi < "$dir/said" >&2 &
status=0
edge "$@" 2> "$dir/said" | with_prompt || status=$?
wait $!
exit $status
