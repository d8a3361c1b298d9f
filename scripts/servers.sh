# shellcheck shell=bash
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

# ask PORT METHOD PATH [BODY]: its answer is read from descriptor 3, which is then to be closed.
ask() {
  local length=''
  [ -z "${4-}" ] || length="Content-Length: ${#4}"$'\r\n'
  { exec 3<> "/dev/tcp/127.0.0.1/$1"; } 2> /dev/null || return 1
  printf '%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n%s' "$2" "$3" \
    "$length" "${4-}" >&3
}

# ready PORT: something there answers GET /readyz with 200.
ready() {
  local status
  ask "$1" GET /readyz || return 1
  read -r _ status _ <&3 || status=''
  exec 3>&-
  [ "$status" = 200 ]
}

# pause: 20 ms, without a process for it.
exec {silent}<> <(:)
pause() { read -r -t 0.02 -u "$silent" || :; }

# not_started LOG: what the server wrote, and why the script ends.
not_started() {
  cat "$1" >&2
  echo "${0##*/}: a server did not start" >&2
  return 1
}

# await LOG PID: until the server that writes LOG has said where it listens; $port is its port. The status is 1 when it ends
# instead, or takes a minute.
await() {
  local tries line
  for ((tries = 0; tries < 3000; ++tries)); do
    if [ -e "$1" ]; then  # it may not be there yet
      while read -r line; do
        [[ $line =~ (^|[0-9]\ )listening\ on\ http://[^\ ]*:([0-9]+) ]] || continue
        port=${BASH_REMATCH[2]}
        return 0
      done < "$1"
    fi
    kill -0 "$2" 2> /dev/null || break
    pause
  done
  not_started "$1"
}

# await_ready LOG PID: and until it would compute an answer.
await_ready() {
  local tries
  await "$1" "$2" || return 1
  for ((tries = 0; tries < 3000; ++tries)); do
    ! ready "$port" || return 0
    kill -0 "$2" 2> /dev/null || break
    pause
  done
  not_started "$1"
}
