#!/usr/bin/env bash
# check_install.sh BUILD: what cmake --install puts into a folder works there: the programs find the bundled model, the manual pages
# and the completions are read by the programs that read such, and the units pass systemd's own checks. A .deb for each program and the
# tarball hold the same.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/servers.sh
begin_servers
build=$1
fail() { echo "check_install.sh: $*" >&2; exit 1; }

cmake --install "$build" --prefix "$dir/usr" > "$dir/log" || { cat "$dir/log"; fail "cmake --install"; }
share=$dir/usr/share
for program in cloud_server edge_client; do
  "$dir/usr/bin/$program" --version > /dev/null
  page=$share/man/man1/$program.1
  ! command -v groff > /dev/null || [ -z "$(groff -man -Tutf8 -ww -z "$page" 2>&1)" ] || fail "$page: $(groff -man -Tutf8 -ww -z "$page" 2>&1)"
  grep -q 'SH EXIT STATUS' "$page" || fail "$page has no exit codes"
  bash -n "$share/bash-completion/completions/$program"
  ! command -v zsh > /dev/null || zsh -n "$share/zsh/site-functions/_$program"
  ! command -v fish > /dev/null || fish -n "$share/fish/vendor_completions.d/$program.fish"
  # Each flag of --help is in all four.
  for flag in $("$dir/usr/bin/$program" --help | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p'); do
    grep -qF -- "${flag//-/\\-}" "$page" || fail "$page lacks $flag"
    for file in bash-completion/completions/$program zsh/site-functions/_$program; do
      grep -qF -- "$flag" "$share/$file" || fail "$file lacks $flag"
    done
    grep -q -- " -l ${flag#--} " "$share/fish/vendor_completions.d/$program.fish" || fail "fish lacks $flag"
  done
done

"$dir/usr/bin/edge_client" train --help | grep -q -- --lora || fail "edge_client train does not find edge_train"

# The model beside the program, whoever calls it from where.
start() {
  rm -f "$dir/cloud.log"
  (cd / && exec env -i XDG_CACHE_HOME="$dir/cache" "$@" --port 0 --threads 1 2> "$dir/cloud.log") &
  pids+=($!)
  await_ready "$dir/cloud.log" "${pids[-1]}"
  grep -q 'demo' "$dir/cloud.log" || fail "no bundled model: $(cat "$dir/cloud.log")"
  kill "${pids[-1]}"
  wait "${pids[-1]}" || fail "SIGTERM: status $?"
}
start "$dir/usr/bin/cloud_server"

# The C library, as a program of somebody else's finds it.
pkgconfig=$(dirname "$(find "$dir/usr" -name splitcompute.pc)")
if command -v pkg-config > /dev/null; then
  flags=$(PKG_CONFIG_PATH=$pkgconfig pkg-config --cflags --libs splitcompute)
  libdir=$(PKG_CONFIG_PATH=$pkgconfig pkg-config --variable=libdir splitcompute)
  [ "$(realpath "$libdir")" = "$(realpath "$(dirname "$pkgconfig")")" ] || fail "splitcompute.pc: libdir is '$libdir'"
else
  flags="-I$dir/usr/include -L$(dirname "$pkgconfig") -lsplitcompute"
fi
# shellcheck disable=SC2086  # flags
cc -std=c11 -Wall -Wextra -Wpedantic -Werror -o "$dir/story" edge_client/api/examples/story.c $flags
LD_LIBRARY_PATH=$(dirname "$pkgconfig") "$dir/story" http://127.0.0.1:1 2> "$dir/log" && fail "story without a server: status 0"
visible=$(nm -D --defined-only "$(dirname "$pkgconfig")/libsplitcompute.so" | awk '$3 !~ /^sc_/')
[ -z "$visible" ] || fail "the library shows $visible"

if command -v systemd-analyze > /dev/null; then
  for unit in cloud edge; do
    file=$dir/usr/lib/systemd/system/splitcompute-$unit.service
    # As it would be with the programs where systemd looks for them.
    sed "s|^ExecStart=|ExecStart=$dir/usr/bin/|" "$file" > "$dir/splitcompute-$unit.service"
    said=$(systemd-analyze verify --man=no "$dir/splitcompute-$unit.service" 2>&1) || fail "splitcompute-$unit: $said"
    exposure=$(systemd-analyze security --offline=yes "$dir/splitcompute-$unit.service" | sed -n 's/.*exposure level for [^:]*: \([0-9.]*\).*/\1/p')
    awk "BEGIN { exit !($exposure <= 3.0) }" || fail "splitcompute-$unit: exposure $exposure, expected 3.0 at most"
    echo "splitcompute-$unit.service: exposure $exposure"
  done
else
  echo "units: not checked, no systemd-analyze"
fi

if command -v dpkg-deb > /dev/null; then
  # gzip here: xz packs the same files in 100 s of a processor.
  (cd "$dir" && cpack --config "$build/CPackConfig.cmake" -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip -B "$dir/packages" > "$dir/log" 2>&1) || { cat "$dir/log"; fail "cpack"; }
  [ "$(cd "$dir/packages" && echo ./*.deb | wc -w)" = 2 ] || fail "expected a .deb for each program, got $(ls "$dir/packages")"
  for name in cloud edge; do
    deb=$(echo "$dir/packages/splitcompute-$name"_*.deb)
    dpkg-deb --info "$deb" > "$dir/info"
    dpkg-deb --contents "$deb" > "$dir/contents.$name"
    grep -q 'Depends:.*libc6' "$dir/info" || fail "$name: no dependencies: $(cat "$dir/info")"
    ! grep -vE ' root/root ' "$dir/contents.$name" | grep . || fail "$name: the .deb has files of others than root"
    [ "$(dpkg-deb --info "$deb" conffiles)" = "/etc/default/splitcompute-$name" ] || fail "$name: the .deb keeps other files: $(dpkg-deb --info "$deb" conffiles)"
    for file in postinst prerm postrm; do
      dpkg-deb --info "$deb" "$file" | sh -n || fail "$name: $file"
      ! dpkg-deb --info "$deb" "$file" | grep -n '@' || fail "$name: $file has names that nobody replaced"
    done
  done
  holds() {  # NAME FILES...: and the other one has none of them
    local file other=edge
    [ "$1" = cloud ] || other=cloud
    for file in "${@:2}"; do
      grep -q " \./$file" "$dir/contents.$1" || fail "$1: the .deb lacks $file"
      ! grep -q " \./$file" "$dir/contents.$other" || fail "$other: the .deb has $file"
    done
  }
  holds cloud usr/bin/cloud_server usr/share/splitcompute/demo/config.json usr/share/man/man1/cloud_server.1 etc/default/splitcompute-cloud \
    usr/share/zsh/vendor-completions/_cloud_server usr/lib/systemd/system/splitcompute-cloud.service
  holds edge usr/bin/edge_client usr/libexec/splitcompute/edge_train usr/include/splitcompute.h usr/share/man/man1/edge_client.1 etc/default/splitcompute-edge \
    usr/share/zsh/vendor-completions/_edge_client usr/lib/systemd/system/splitcompute-edge.service
  # One machine may have both.
  both=$(sed -n 's|.* \(\./.*[^/]\)$|\1|p' "$dir/contents.cloud" "$dir/contents.edge" | sort | uniq -d)
  [ -z "$both" ] || fail "both .debs have $both"
  mkdir "$dir/tree" && tar -C "$dir/tree" --strip-components=1 -xzf "$dir"/packages/*.tar.gz
  start "$dir/tree/bin/cloud_server"
else
  echo "packages: not made, no dpkg-deb"
fi
