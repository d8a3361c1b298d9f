#!/usr/bin/env bash
# check_scripts.sh: --help of every script prints its usage and does nothing else; an option that there is not is one line and
# status 2; the demo starts no build tool where nothing has changed. Everything runs in a copy of scripts/ whose programs,
# build tools and packages are stand-ins that say they were called.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cp -r "$here/scripts" "$tree"
mkdir -p "$tree"/{common,cloud_server,edge_client,stand-ins}
touch "$tree"/{called,CMakeLists.txt,common/code.cpp,common/README.md}
cd "$tree"
fail() { echo "check_scripts.sh: $*" >&2 && exit 1; }

stand_in() {  # PATH LINES...: a program that says it was called
  printf '%s\n' '#!/usr/bin/env bash' "echo ${1##*/} >> $tree/called" "${@:2}" > "$1"
  chmod +x "$1"
}
for tool in cmake make ninja ctest g++ dpkg-query apt-get sudo curl npm haproxy nginx qemu-aarch64-static; do
  stand_in "stand-ins/$tool"
done
stand_in stand-ins/dpkg-query 'echo "install ok installed"'
export PATH=$tree/stand-ins:$PATH
state() { find . -type f ! -name called -exec sha256sum {} + | sort; }
before=$(state)
unused() { [ ! -s called ] || fail "$1 called $(sort -u called | tr '\n' ' ')"; }

asked=0
for script in scripts/*.sh scripts/*.py; do
  [ -x "$script" ] || continue  # sourced by others
  name=${script##*/}
  for flag in --help -h; do
    "$script" "$flag" > out 2> err < /dev/null || fail "$name $flag: status $?"
    [ ! -s err ] || fail "$name $flag wrote to stderr: $(head -n 3 err)"
    grep -q "$name" out || fail "$name $flag does not say how $name is used"
    ! grep -q '^#' out || fail "$name $flag prints comments as they are"
    rm out err
    unused "$name $flag"
    [ "$(state)" = "$before" ] || fail "$name $flag changed files"
  done
  case $name in demo.sh | demo_handoff.sh | demo_page.sh | *.py) continue ;; esac  # edge_client's options, or argparse's lines
  status=0
  "$script" --no-such-option > out 2> err < /dev/null || status=$?
  [ $status = 2 ] || fail "$name --no-such-option: status $status"
  [ "$(wc -l < err)" = 1 ] && [ ! -s out ] || fail "$name --no-such-option: expected one line, got $(cat out err)"
  rm out err
  unused "$name --no-such-option"
  asked=$((asked + 1))
done
[ $asked -ge 8 ] || fail "$asked scripts asked, expected 8 and more"

# The demo with programs that are there.
mkdir -p build/bin
stand_in build/bin/cloud_server 'echo "listening on http://127.0.0.1:1 (this machine only)" >&2' \
  'exec tail -f /dev/null'
stand_in build/bin/edge_client 'printf " a "' 'printf text' 'printf "\n  text 2 tokens\n" >&2'
stand_in build/bin/split_link
touch build/up-to-date
expect() {  # TOOLS: which the demo called, and whatever it was, the text came
  : > called
  [ "$(scripts/demo.sh Once 2> err)" = 'Once a text' ] || fail "the demo gave no text: $(cat err)"
  [ "$(grep -v -e cloud_server -e edge_client called | sort -u | tr '\n' ' ')" = "$1" ] || fail "the demo called $(sort -u called | tr '\n' ' ')"
}
[ ! -e /var/lib/dpkg/status ] || [ /var/lib/dpkg/status -ot build/up-to-date ] || fail "the clock is behind"
expect ''
touch common/README.md
expect ''
touch common/code.cpp
expect 'cmake dpkg-query '
grep -q 'Building what has changed' err || fail "the demo did not say that it builds"
expect ''
# The receipt stands behind the text, whoever reads them.
for _ in 1 2 3 4 5; do
  scripts/demo.sh Once 2>&1 | cat > out
  [ "$(tail -n 3 out)" = $'Once a text\n\n  text 2 tokens' ] || fail "the demo, piped, wrote $(cat out)"
  script -qec 'scripts/demo.sh Once' out > /dev/null < /dev/null
  [ "$(tr -d '\r' < out | grep -A 1 '^ a')" = $' a text\n  text 2 tokens' ] || fail "the demo, at a terminal, wrote $(cat out)"
done
rm build/bin/cloud_server
: > called
! scripts/demo.sh > /dev/null 2>&1 || fail "no server, and the demo went on"
grep -q cmake called || fail "the demo did not build what was missing"

# setup.sh counts packages with what they need, once the lists are there.
stand_in stand-ins/dpkg-query 'exit 1'
stand_in stand-ins/apt-get 'if [ "$1" = update ]; then touch lists; elif [ ! -e lists ]; then exit 100; fi' \
  '[ "$1" != -s ] || printf "Inst %s\n" {1..108}'
stand_in stand-ins/sudo '[ "$1" != env ] || exec "$@"'
scripts/setup.sh > out 2> err || fail "setup.sh: status $?: $(cat err)"
[ "$(sed 's/:.*//' err)" = "Reading Debian's lists of packages ..."$'\nInstalling 108 packages, about 1 min' ] || fail "setup.sh said: $(cat err)"
[ ! -s out ] || fail "setup.sh wrote to stdout: $(cat out)"
# A build of the tab's edge takes a compiler and no browser; those are for tests.
named() { scripts/setup.sh "$@" 2>&1 > /dev/null | sed 's/.* min: //; s/ and what they need.*//' | tr ' ' '\n'; }
named --web | grep -qx clang-19 || fail "setup.sh --web brings no compiler: $(named --web)"
! named --web | grep -E 'chromium|firefox' || fail "setup.sh --web brings a browser"
named --tests | grep -qx chromium || fail "setup.sh --tests brings no browser: $(named --tests)"
named --tests --web | grep -qx firefox-esr || fail "setup.sh --tests --web brings no second browser: $(named --tests --web)"

# test.sh: tests before the fuzz targets, a line for each phase, and ctest's summary at the end, whatever failed.
for script in setup build check fuzz; do stand_in "scripts/$script.sh"; done
summary=$'100% tests passed, 0 tests failed out of 2\n\nTotal Test time (real) =   1.00 sec'
stand_in stand-ins/ctest 'echo "1/2 Test #1: One ..... Passed"' "echo '$summary'"
tested() {  # STATUS FAILED: what test.sh ends with, and what it says of it
  : > called
  local status=0
  scripts/test.sh > out 2> err || status=$?
  [ $status = "$1" ] || fail "test.sh: status $status, expected $1"
  [ "$(tail -n 3 out)" = "$summary" ] || fail "test.sh does not end with ctest's summary: $(cat out)"
  [ "$(grep 'failed: ' err || :)" = "$2" ] || fail "test.sh said: $(cat err)"
  # The edge of a tab is built first where its compiler is there.
  [ "$(uniq called | tr '\n' ' ')" = 'setup.sh build.sh ctest check.sh fuzz.sh ' ] || fail "test.sh called $(tr '\n' ' ' < called)"
  [ "$(grep -cE ': about [0-9]+ min on ' err)" = 4 ] || fail "test.sh does not say what each phase takes: $(cat err)"
}
tested 0 ''
stand_in scripts/fuzz.sh 'exit 1'
tested 1 'test.sh: failed: fuzz targets'
summary=$'50% tests passed, 1 tests failed out of 2\n\nTotal Test time (real) =   1.00 sec'
stand_in scripts/fuzz.sh
stand_in stand-ins/ctest "echo '$summary'" 'exit 8'
tested 1 'test.sh: failed: tests'
stand_in scripts/build.sh 'exit 1'
: > called
! scripts/test.sh > out 2> err || fail "nothing was built, and test.sh is content"
[ ! -s out ] && [ "$(tr '\n' ' ' < called)" = 'setup.sh build.sh ' ] || fail "nothing was built, and test.sh went on: $(cat called out)"

# A build that takes long says how far it is, also where nobody sees it grow.
cat > slow.sh <<'EOF'
. scripts/shared.sh
{ echo '[ 37%] Building CXX object'; read -r _ < held; echo 'end'; } | progress Building
EOF
mkfifo held
. scripts/servers.sh
{ until [ -s err ]; do pause; done; echo; } > held &
bash slow.sh > out 2> err
wait $!
grep -qE '^Building: 37 %, ([0-9]|10) s$' err || fail "a slow build said: $(cat err)"
[ "$(cat out)" = $'[ 37%] Building CXX object\nend' ] || fail "what was built went lost: $(cat out)"
