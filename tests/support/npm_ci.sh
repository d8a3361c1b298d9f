#!/usr/bin/env bash
# npm_ci.sh SOURCE FOLDER: what SOURCE/package-lock.json names is in FOLDER/node_modules, installed again only when another
# version is asked for. Exits with 77 where there is no npm, or where it cannot reach its registry.
set -euo pipefail
source=$1 folder=$2
command -v npm > /dev/null && command -v node > /dev/null || {
  echo "$(basename "$source"): skipped, npm or node is not installed (scripts/setup.sh --tests installs both)"
  exit 77
}
mkdir -p "$folder"
cp "$source"/package.json "$source"/package-lock.json "$folder"
cmp -s "$folder/package-lock.json" "$folder/node_modules/.installed" || {
  errors=$folder/npm.log
  npm_with() { npm "$1" --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error 2> "$errors"; }
  # Some versions' ci wants the packages of all other platforms in the lock file; install takes the same versions and hashes.
  npm_with ci || { grep -q 'Missing: .* from lock file' "$errors" && npm_with install; } || {
    if grep -qE 'ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT' "$errors"; then
      echo "$(basename "$source"): skipped, npm's registry cannot be reached"
      exit 77
    fi
    cat "$errors" >&2
    exit 1
  }
  cp "$folder/package-lock.json" "$folder/node_modules/.installed"
}
