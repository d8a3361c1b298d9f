# For scripts that start cloud_server or edge_client --serve: sourced, not run. Bash's own sockets, since a bare system has no curl.

# begin_servers: a folder $dir for what they write; with the script end it and the processes that it adds to $pids.
begin_servers() {
  dir=$(mktemp -d)
  pids=()
  trap end_servers EXIT
}
end_servers() {
  kill "${pids[@]}" 2> /dev/null || :
  wait "${pids[@]}" 2> /dev/null || :
  rm -rf "$dir"
}

# ready PORT: something there answers GET /readyz with 200.
ready() {
  local status
  { exec 3<> "/dev/tcp/127.0.0.1/$1"; } 2> /dev/null || return 1
  printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
  read -r _ status _ <&3 || status=''
  exec 3>&-
  [ "$status" = 200 ]
}

# await LOG PID: until the server that writes LOG has said where it listens and is ready; $port is its port. When it ends, or takes
# a minute, what it wrote goes to stderr and the status is 1.
await() {
  for _ in $(seq 600); do
    port=$(sed -n 's|^listening on http://[^ ]*:\([0-9]*\).*|\1|p' "$1" 2> /dev/null) || port=''  # it may not be there yet
    [ -z "$port" ] || ! ready "$port" || return 0
    kill -0 "$2" 2> /dev/null || break
    sleep 0.1
  done
  cat "$1" >&2
  echo "$(basename "$0"): a server did not start" >&2
  return 1
}
