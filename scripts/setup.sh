#!/usr/bin/env bash
# setup.sh [--tests] [--fuzz] [--haproxy] [--nginx]: installs the Debian packages that are missing, and says which. Nothing is done
# when all are there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh

# The base: what a build needs.
packages=(cmake g++ make ccache nlohmann-json3-dev libvulkan-dev glslang-dev libssl-dev)
# Runs the Vulkan device where there is no GPU.
packages+=(mesa-vulkan-drivers)
for option in "$@"; do
  case $option in
    --tests) packages+=(libgtest-dev libpcre2-dev vulkan-validationlayers python3-numpy python3-yaml haproxy fiu-utils curl chromium)
      packages+=(libcpp-httplib-dev clang-format-14 clang-tidy-14 shellcheck git)
      # Debian's own are not wanted beside others.
      command -v npm > /dev/null || packages+=(nodejs npm) ;;
    --haproxy) packages+=(haproxy) ;;
    --nginx) packages+=(nginx-light) ;;
    --fuzz) packages+=(clang libclang-rt-14-dev) ;;
    *) refuse "unknown option '$option'" ;;
  esac
done

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
fi
say "Installing ${#missing[@]} packages (about a minute): ${missing[*]} ..."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" < /dev/null
}
install > "$log" 2>&1 || { "${sudo[@]}" apt-get update >> "$log" 2>&1 && install >> "$log" 2>&1; } || {
  tail -n 20 "$log" >&2
  echo "setup.sh: apt-get failed" >&2
  exit 1
}
