#!/usr/bin/env bash
# demo.sh [PROMPT] [EDGE_CLIENT FLAGS...]: the whole thing on this machine. Installs what is missing, builds, starts a
# cloud_server with the bundled model, lets edge_client finish PROMPT in view of you, and stops the server.
#   scripts/demo.sh "Once upon a time" --max-tokens 100 --cut 2
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/servers.sh

prompt='Once upon a time there was'
if [ $# -gt 0 ] && [ "${1:0:2}" != -- ]; then
  prompt=$1
  shift
fi

scripts/setup.sh
[ -x build/bin/edge_client ] || echo "demo.sh: building, some minutes the first time" >&2
scripts/build.sh

log=$(mktemp)
build/bin/cloud_server --port 0 2> "$log" &
server=$!
stop() {
  kill "$server" 2> /dev/null && wait "$server" 2> /dev/null
  rm -f "$log"
}
trap stop EXIT

await "$log" "$server"
cat "$log" >&2
echo >&2

# The prompt goes out with the first byte of the text, below what is said about the download.
with_prompt() {
  local first=''
  IFS= LC_ALL=C read -r -N 1 first || return 0  # no text: the reason is on stderr
  printf '%s%s' "$prompt" "$first"
  cat
  echo
}
for flag in "$@"; do
  case $flag in --json | --embed | --quiet | --help | --version | --list-devices) with_prompt() { cat; } ;; esac
done
build/bin/edge_client --server "http://127.0.0.1:$port" --prompt "$prompt" "$@" | with_prompt
