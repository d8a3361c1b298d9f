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
# The prompt goes out with the first byte of the text, below what is said about the download.
with_prompt() {
  local first=''
  IFS= LC_ALL=C read -r -N 1 first || return 0  # no text: the reason is on stderr
  printf '%s%s' "$prompt" "$first"
  cat
  echo
}
cut=(--cut 6)  # a split to look at; a short text would end before the cut moves by itself
for flag in "$@"; do
  case $flag in
    --cut* | --head* | --moves* | --embed) cut=() ;;
  esac
  case $flag in
    -h | --help) usage && exit ;;
    --json | --embed | --quiet | --version | --list-devices) with_prompt() { cat; } ;;
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
build/bin/edge_client --server "http://127.0.0.1:$port" --prompt "$prompt" "${cut[@]}" "$@" | with_prompt
