#!/usr/bin/env bash
# npm_ci.sh SOURCE FOLDER: what SOURCE/package-lock.json names is in FOLDER/node_modules, installed again only when another
# version is asked for. Exits with 77 where there is no npm.
set -euo pipefail
source=$1 folder=$2
command -v npm > /dev/null && command -v node > /dev/null || {
  echo "$(basename "$source"): skipped, npm or node is not installed (scripts/setup.sh --tests installs both)"
  exit 77
}
mkdir -p "$folder"
cp "$source"/package.json "$source"/package-lock.json "$folder"
cmp -s "$folder/package-lock.json" "$folder/node_modules/.installed" || {
  npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error
  cp "$folder/package-lock.json" "$folder/node_modules/.installed"
}
