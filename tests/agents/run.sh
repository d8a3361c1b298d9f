#!/usr/bin/env bash
# run.sh BINARIES FOLDER: agents that people use, of npm's, with the files of edge_client/README.md, against edge_client --serve
# on a model that calls one of their tools: each makes its first request, runs the tool and gives the result back. They are
# large, 830 MB in FOLDER: this is for SPLIT_LONG, else it exits with 77, as it does where there is no npm. They run in a
# network of their own, in which there is nothing but this.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binaries=$1 folder=$2 closed=${3:-}

if [ -z "$closed" ]; then
  [ -n "${SPLIT_LONG:-}" ] || { echo "agents: skipped, SPLIT_LONG is not set (scripts/test.sh --long sets it)"; exit 77; }
  "$here/../support/npm_ci.sh" "$here" "$folder"
  for alone in "unshare --net" "unshare --user --map-root-user --net"; do
    # shellcheck disable=SC2086
    if $alone true 2> /dev/null; then exec $alone "$0" "$binaries" "$folder" closed; fi
  done
  echo "agents: this system gives no network of its own; proxies that are not there stand for it"
  export http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 no_proxy=127.0.0.1,localhost
  export HTTP_PROXY=$http_proxy HTTPS_PROXY=$https_proxy NO_PROXY=$no_proxy
else
  # Its loopback is down at first; ip is not everywhere.
  python3 -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP'
fi
# shellcheck source=tests/support/serving.sh
. "$here/../support/serving.sh"
words="It is sunny in Paris."
for agent in codex:exec_command:cmd opencode:bash:command qwen:run_shell_command:command; do
  IFS=: read -r name tool argument <<< "$agent"
  node "$here/../openai/saying.mjs" "$folder/$name/demo" "$tool" "$argument" "cat weather.txt" "$words"
  serve "$name" 1 --model "$folder/$name/demo"
  node "$here/agents.mjs" "$name" "$folder" "$url" "$words"
done
