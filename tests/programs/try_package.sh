#!/usr/bin/env bash
# try_package.sh CLOUD.deb EDGE.deb: as root in a Debian that may be spoilt: installs one package after the other, runs each unit's
# ExecStart as its user until it answers GET /readyz and ends it by SIGTERM, looks at the manual pages and the completions, and purges
# both. The first that goes takes nothing of the other's along; nothing may be left in the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/servers.sh
begin_servers
fail() { echo "try_package.sh: $*" >&2; exit 1; }
snapshot() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /root -o -path /home -o \
  -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache/apt -o -path /var/cache/debconf -o -path /var/log -o -path /var/cache/ldconfig \) -prune -o \
  -print | sort; }

[ $# = 2 ] || fail "expected CLOUD.deb EDGE.deb"
cp "$1" "$dir/cloud.deb" && cp "$2" "$dir/edge.deb"
chmod 755 "$dir"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# Their dependencies come first, so that only they are looked at.
for name in cloud edge; do
  # shellcheck disable=SC2046  # a list of names
  apt-get install -y -qq --no-install-recommends $(dpkg-deb -f "$dir/$name.deb" Depends | tr ',' '\n' | sed 's/[(|].*//') > /dev/null
done
snapshot > "$dir/before"
apt-get install -y -qq --no-install-recommends "$dir/cloud.deb" > /dev/null
[ ! -e /usr/bin/edge_client ] || fail "the cloud's package brings the edge"
apt-get install -y -qq --no-install-recommends "$dir/edge.deb" > /dev/null
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
for program in cloud_server edge_client; do
  [ -s /usr/share/man/man1/$program.1 ] || [ -s /usr/share/man/man1/$program.1.gz ] ||
    grep -qs path-exclude /etc/dpkg/dpkg.cfg.d/* || fail "no manual page of $program"
  bash -c "source /usr/share/bash-completion/completions/$program && complete -p $program" > /dev/null
done

apt-get purge -y -qq splitcompute-edge > /dev/null
id splitcompute > /dev/null || fail "the user of the cloud's service went with the edge"
[ -d /var/cache/splitcompute ] && [ -d /etc/splitcompute ] || fail "the cloud's folders went with the edge"
apt-get purge -y -qq splitcompute-cloud > /dev/null
! id splitcompute 2> /dev/null || fail "the user is still there"
snapshot > "$dir/after"
left=$(comm -13 "$dir/before" "$dir/after" | grep -vE '^/etc/(passwd|group|shadow|gshadow|subuid|subgid)-$|^/var/lib/systemd' || :)
[ -z "$left" ] || fail "left behind: $left"
echo "purged: nothing is left"
