#!/usr/bin/env bash
# setup.sh [--tests] [--web] [--fuzz] [--haproxy] [--nginx]: installs the Debian packages that are missing, and says which. Nothing is done
# when all are there. --web alone brings what builds the edge of a browser's tab, and no browser; the tests of it take Firefox too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh

# The base: what a build needs.
packages=(cmake g++ make ccache nlohmann-json3-dev libvulkan-dev glslang-dev libssl-dev)
# Reads the Markdown of a chat on the edge's page.
packages+=(libjs-marked)
# Runs the Vulkan device where there is no GPU.
packages+=(mesa-vulkan-drivers)
tests='' web=''
for option in "$@"; do
  case $option in
    --tests) tests=1 packages+=(libgtest-dev libpcre2-dev vulkan-validationlayers python3-numpy python3-yaml haproxy fiu-utils curl chromium)
      packages+=(libcpp-httplib-dev clang-format-14 clang-tidy-14 shellcheck git)
      # Debian's own are not wanted beside others.
      command -v npm > /dev/null || packages+=(nodejs npm) ;;
    # The compiler and the C and C++ libraries of the edge in a browser's tab.
    --web) web=1 packages+=(clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32 libc++-19-dev-wasm32 libc++abi-19-dev-wasm32 zopfli) ;;
    --haproxy) packages+=(haproxy) ;;
    --nginx) packages+=(nginx-light) ;;
    --fuzz) packages+=(clang libclang-rt-14-dev) ;;
    *) refuse "unknown option '$option'" ;;
  esac
done
[ "$tests$web" != 11 ] || packages+=(firefox-esr)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

sudo=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo > /dev/null || {
    echo "setup.sh: missing packages, and neither root nor sudo: ${missing[*]}" >&2
    exit 1
  }
  sudo=(sudo)
  sudo true  # asks for its password now, while nothing else is written
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "$@" < /dev/null >> "$log" 2>&1; }
failed() {
  tail -n 20 "$log" >&2
  echo "setup.sh: apt-get failed" >&2
  exit 1
}
# A trial of apt-get says how many they are with what they need, once it has the lists.
named() { apt-get -s install -y --no-install-recommends "${missing[@]}" 2> /dev/null; }
would=$(named) || { say "Reading Debian's lists of packages ..." && apt update && would=$(named); } || failed
count=$(grep -c '^Inst ' <<< "$would" || :)
say "Installing $count packages, about $(((count / 3 + 60) / 60)) min: ${missing[*]} and what they need ..."
install() { apt install -y --no-install-recommends "${missing[@]}"; }
{ install || { apt update && install; } || failed; } | progress Installing
