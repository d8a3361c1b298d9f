#!/usr/bin/env bash
# try_package.sh < FILE.deb: as root in a Debian that may be spoilt: installs the package, runs each unit's ExecStart as its user until
# it answers GET /readyz and ends it by SIGTERM, looks at the manual page and the completion, and purges it. Nothing may be left.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/servers.sh
begin_servers
fail() { echo "try_package.sh: $*" >&2; exit 1; }
snapshot() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /root -o -path /home -o \
  -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache/apt -o -path /var/cache/debconf -o -path /var/log -o -path /var/cache/ldconfig \) -prune -o \
  -print | sort; }

cat > "$dir/splitcompute.deb"
chmod 755 "$dir"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# Its dependencies come first, so that only it is looked at.
# shellcheck disable=SC2046  # a list of names
apt-get install -y -qq --no-install-recommends $(dpkg-deb -f "$dir/splitcompute.deb" Depends | tr ',' '\n' | sed 's/[(|].*//') > /dev/null
snapshot > "$dir/before"
apt-get install -y -qq --no-install-recommends "$dir/splitcompute.deb" > /dev/null
id splitcompute > /dev/null || fail "no user splitcompute"

run_unit() {  # NAME VARIABLES...: $port is where it answers
  local unit=/usr/lib/systemd/system/splitcompute-$1.service command user
  command=$(sed -n 's/^ExecStart=//p' "$unit")
  user=$(sed -n 's/^User=//p' "$unit")
  install -d -o "$user" -m 750 /var/cache/splitcompute  # CacheDirectory=
  # shellcheck disable=SC2086,SC2046  # words
  (cd / && exec setpriv --reuid "$user" --regid "$user" --init-groups --no-new-privs --bounding-set=-all \
    env -i PATH=/usr/local/bin:/usr/bin:/bin $(sed -n 's/^Environment=//p' "$unit") "${@:2}" $command 2> "$dir/$1.log") &
  pids+=($!)
  await_ready "$dir/$1.log" "${pids[-1]}"
  [ "$(stat -c %U "/proc/${pids[-1]}")" = "$user" ] || fail "$1 runs as $(stat -c %U "/proc/${pids[-1]}")"
  echo "splitcompute-$1: ready on port $port as $user"
}
run_unit cloud SPLIT_PORT=0
run_unit edge SPLIT_SERVER="http://127.0.0.1:$port" SPLIT_SERVE=127.0.0.1:0
for pid in "${pids[1]}" "${pids[0]}"; do
  kill -TERM "$pid"
  wait "$pid" || fail "SIGTERM: status $?"
done
echo "both ended on SIGTERM with status 0"
pids=()
[ -s /usr/share/man/man1/cloud_server.1 ] || [ -s /usr/share/man/man1/cloud_server.1.gz ] ||
  grep -qs path-exclude /etc/dpkg/dpkg.cfg.d/* || fail "no manual page"
bash -c 'source /usr/share/bash-completion/completions/cloud_server && complete -p cloud_server' > /dev/null

apt-get purge -y -qq splitcompute > /dev/null
! id splitcompute 2> /dev/null || fail "the user is still there"
snapshot > "$dir/after"
left=$(comm -13 "$dir/before" "$dir/after" | grep -vE '^/etc/(passwd|group|shadow|gshadow|subuid|subgid)-$|^/var/lib/systemd' || :)
[ -z "$left" ] || fail "left behind: $left"
echo "purged: nothing is left"
