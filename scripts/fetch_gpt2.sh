#!/usr/bin/env bash
# fetch_gpt2.sh gpt2|gpt2-medium|gpt2-large|gpt2-xl|distilgpt2 [--mirror URL] [--out DIR]
# Puts config.json, the tokenizer and model.safetensors into weights/NAME (or DIR). What the Hugging Face cache of this
# machine has ($HF_HUB_CACHE, or hub/ in $HF_HOME) is linked; the rest comes from {mirror}/{repo}/resolve/main/{file}, the
# mirror being --mirror, $HF_ENDPOINT or https://huggingface.co. A download that was cut goes on where it stopped. A file
# gets its name once its size, and its sha256 where the hub gives one, are right.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() { echo "fetch_gpt2.sh: $*" >&2 && exit "${code:-1}"; }
usage() { code=2 fail "$*; usage: $(sed -n '2s/^# //p' "${BASH_SOURCE[0]}")"; }

name='' out='' mirror=${HF_ENDPOINT:-https://huggingface.co}
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
    --mirror | --out) [ -n "${2-}" ] || usage "$1 needs a value" ;;&
    --mirror) mirror=$2 && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    gpt2 | gpt2-medium | gpt2-large | gpt2-xl) [ -z "$name" ] || usage "one model at a time"
      name=$1 repo=openai-community/$1 && shift ;;
    distilgpt2) [ -z "$name" ] || usage "one model at a time"
      name=$1 repo=distilbert/$1 && shift ;;
    *) usage "unknown argument '$1'" ;;
  esac
done
[ -n "$name" ] || usage "which model?"
mirror=${mirror%/}
case $mirror in  # a redirect never leads from https to http
  https://?*) protocols='=https' ;;
  http://?*) protocols='=http,https' ;;
  *) usage "--mirror: expected http://... or https://..., got '$mirror'" ;;
esac
out=${out:-$root/weights/$name}
reason=$(mkdir -p -- "$out" 2>&1) || fail "$reason"
exec 9> "$out/.fetching" && flock -n 9 || fail "$out: another fetch_gpt2.sh is at work there"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch" "$out/.fetching"' EXIT

sha256_of() { sha256sum < "$1" | cut -d ' ' -f 1; }

# The snapshot of `main`, else the only one there is.
hub=${HF_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-${HOME-}/.cache}/huggingface}/hub}
cached=$hub/models--${repo/\//--}
snapshot=''
if [ -f "$cached/refs/main" ]; then
  read -r revision < "$cached/refs/main" || [ -n "$revision" ]
  [[ $revision =~ ^[0-9a-f]+$ ]] && snapshot=$cached/snapshots/$revision
else
  snapshots=("$cached"/snapshots/*/)
  [ ${#snapshots[@]} -gt 1 ] || snapshot=${snapshots[0]%/}
fi

# link_cached FILE: false when the snapshot does not hold it whole. The cache names a large file by its sha256.
link_cached() {
  local from hash
  from=$(readlink -e -- "${snapshot:-/nonexistent}/$1") && [ -s "$from" ] || return 1
  hash=${from##*/}
  if [[ $hash =~ ^[0-9a-f]{64}$ ]] && [ "$(sha256_of "$from")" != "$hash" ]; then
    echo "fetch_gpt2.sh: $from is damaged: downloading $1 instead" >&2
    return 1
  fi
  ln -s -- "$from" "$out/$1"
  echo "fetch_gpt2.sh: $1: linked from $snapshot" >&2
}

# The value of a header of the last answer that has it, in the chain of redirects.
header() { tr -d '\r' < "$scratch/head" | sed -n "s/^$1: *//Ip" | tail -n 1; }

# download FILE: leaves a whole OUT/FILE.part. Returns 4 when the hub has no such file.
download() {
  local part=$out/$1.part url=$mirror/$repo/resolve/main/$1 status code before after attempt=0
  while true; do
    before=$(stat -c %s "$part" 2> /dev/null || echo 0)
    code=0
    status=$(curl -fsSL --max-redirs 10 --proto '=http,https' --proto-redir "$protocols" --connect-timeout 20 \
      --speed-limit 1024 --speed-time 60 -C - -D "$scratch/head" -o "$part" -w '%{http_code}' "$url" \
      2> "$scratch/error") || code=$?
    [ $code != 0 ] || return 0
    [ "$status" != 404 ] || return 4
    # 416: all of it is here already, or another file's beginning is.
    if [ "$status" = 416 ] && [ "$(header content-range)" = "bytes */$before" ]; then return 0; fi
    if [ "$before" != 0 ] && { [ "$status" = 416 ] || [ $code = 33 ]; }; then
      rm -f "$part"  # cannot go on from here
      continue
    fi
    after=$(stat -c %s "$part" 2> /dev/null || echo 0)
    case $code in  # what passes: no connection, cut, too slow, 5xx
      7 | 18 | 28 | 35 | 52 | 55 | 56 | 92) ;;
      22) [[ $status =~ ^(408|429|5..)$ ]] || fail "$url: HTTP $status" ;;
      *) fail "$url: $(tail -n 1 "$scratch/error")" ;;
    esac
    [ "$after" -gt "$before" ] || attempt=$((attempt + 1))
    [ $attempt -lt 5 ] || fail "$url: $(tail -n 1 "$scratch/error"); what has come is kept: start again to go on"
    [ "$after" -gt "$before" ] || sleep $attempt
  done
}

# right FILE: whether its .part has the size and the sha256 that the hub said; says what is wrong.
right() {
  local part=$out/$1.part size hash expected
  size=$(stat -c %s "$part")
  expected=$(header x-linked-size)
  [ -n "$expected" ] || expected=$(header content-range | sed -n 's|.*/||p')
  [ -n "$expected" ] || expected=$(header content-length)
  if [ -n "$expected" ] && [ "$size" != "$expected" ]; then
    wrong="$size bytes, expected $expected"
    return 1
  fi
  hash=$(header x-linked-etag | tr -d '"')
  [[ $hash =~ ^[0-9a-f]{64}$ ]] || return 0
  [ "$(sha256_of "$part")" = "$hash" ] || { wrong="its sha256 is not $hash" && return 1; }
}

# fetch FILE: returns 4 when the hub has no such file.
fetch() {
  local part=$out/$1.part resumed=''
  [ ! -s "$out/$1" ] || return 0
  rm -f "$out/$1"  # a link to a cache that is gone
  ! link_cached "$1" || return 0
  command -v curl > /dev/null || fail "needs curl: apt-get install curl"
  [ ! -s "$part" ] || resumed=1
  echo "fetch_gpt2.sh: $1: from $mirror/$repo" >&2
  download "$1" || return $?
  if ! right "$1"; then
    rm -f "$part"
    [ -n "$resumed" ] || fail "$1: $wrong"
    download "$1" || return $?  # the old beginning was of another file
    right "$1" || { rm -f "$part" && fail "$1: $wrong"; }
  fi
  mv -- "$part" "$out/$1"
}

for file in config.json vocab.json merges.txt model.safetensors; do
  fetch $file || fail "$mirror/$repo has no $file"
done
shown=$out
[ "$out" != "$root/weights/$name" ] || shown=weights/$name
echo "Serve it with: build/bin/cloud_server --model $shown"
