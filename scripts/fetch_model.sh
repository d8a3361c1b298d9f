#!/usr/bin/env bash
# fetch_model.sh NAME|ORG/REPO [--mirror URL] [--out DIR]: puts a model's configuration, tokenizer and safetensors into weights/NAME
# (or DIR), and nothing else that its repository has. NAME is one of --list, or any repository of the hub.
# Files in the Hugging Face cache of this machine ($HF_HUB_CACHE, or hub/ in $HF_HOME) are linked; the rest comes from
# {mirror}/{repo}/resolve/main/{file}, the mirror being --mirror, $HF_ENDPOINT or https://huggingface.co, with $HF_TOKEN for models
# that ask for one. A download that was cut goes on where it stopped. A file gets its name once its size, and its sha256 where the hub
# gives one, are right.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() { echo "fetch_model.sh: $*" >&2 && exit "${code:-1}"; }
usage() { code=2 fail "$*; usage: $(sed -n '2s/^# \(.*\]\):.*/\1/p' "${BASH_SOURCE[0]}")"; }

# Short names, as people say them.
models='
gpt2                      openai-community/gpt2
gpt2-medium               openai-community/gpt2-medium
gpt2-large                openai-community/gpt2-large
gpt2-xl                   openai-community/gpt2-xl
distilgpt2                distilbert/distilgpt2
smollm2-135m              HuggingFaceTB/SmolLM2-135M
smollm2-135m-instruct     HuggingFaceTB/SmolLM2-135M-Instruct
smollm2-360m-instruct     HuggingFaceTB/SmolLM2-360M-Instruct
smollm2-1.7b-instruct     HuggingFaceTB/SmolLM2-1.7B-Instruct
tinyllama-1.1b            TinyLlama/TinyLlama-1.1B-Chat-v1.0
qwen2.5-0.5b              Qwen/Qwen2.5-0.5B
qwen2.5-0.5b-instruct     Qwen/Qwen2.5-0.5B-Instruct
qwen2.5-1.5b-instruct     Qwen/Qwen2.5-1.5B-Instruct
qwen3-0.6b                Qwen/Qwen3-0.6B
qwen3.5-0.8b              Qwen/Qwen3.5-0.8B
qwen3.5-2b                Qwen/Qwen3.5-2B
qwen3.5-4b                Qwen/Qwen3.5-4B
llama-3.2-1b              meta-llama/Llama-3.2-1B
llama-3.2-1b-instruct     meta-llama/Llama-3.2-1B-Instruct
mistral-7b                mistralai/Mistral-7B-v0.3
gemma-2-2b                google/gemma-2-2b
gemma-3-1b                google/gemma-3-1b-pt
gemma-4-e2b               google/gemma-4-E2B
gemma-4-e2b-it            google/gemma-4-E2B-it
gemma-4-e4b-it            google/gemma-4-E4B-it
all-minilm-l6-v2          sentence-transformers/all-MiniLM-L6-v2
bge-small-en-v1.5         BAAI/bge-small-en-v1.5
bge-base-en-v1.5          BAAI/bge-base-en-v1.5
e5-small-v2               intfloat/e5-small-v2
e5-base-v2                intfloat/e5-base-v2
gte-small                 thenlper/gte-small
gte-base                  thenlper/gte-base
all-mpnet-base-v2         sentence-transformers/all-mpnet-base-v2
paraphrase-multilingual-minilm-l12-v2 sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2
multilingual-e5-small     intfloat/multilingual-e5-small
modernbert-embed-base     nomic-ai/modernbert-embed-base
embeddinggemma-300m       google/embeddinggemma-300m
bge-reranker-base         BAAI/bge-reranker-base
ms-marco-minilm-l6-v2     cross-encoder/ms-marco-MiniLM-L6-v2
'
name='' out='' mirror=${HF_ENDPOINT:-https://huggingface.co}
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,7s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
    --list) sed '/^$/d' <<< "$models" && exit 0 ;;
    --mirror | --out) [ -n "${2-}" ] || usage "$1 needs a value" ;;&
    --mirror) mirror=$2 && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    -*) usage "unknown argument '$1'" ;;
    *) [ -z "$name" ] || usage "one model at a time"
      name=$1 && shift ;;
  esac
done
[ -n "$name" ] || usage "which model?"
if [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$ ]]; then
  repo=$name name=${name#*/}
else
  repo=$(awk -v name="$name" '$1 == name { print $2 }' <<< "$models")
  [ -n "$repo" ] || usage "no model is called '$name' here (--list, or ORG/REPO)"
fi
token=${HF_TOKEN-}
unset HF_TOKEN  # for curl alone, and in no command line
[[ $token =~ ^[A-Za-z0-9_.-]*$ ]] || usage "HF_TOKEN: expected letters, digits, '_', '.' and '-'"
mirror=${mirror%/}
case $mirror in  # a redirect never leads from https to http
  https://?*) protocols='=https' ;;
  http://?*) protocols='=http,https' ;;
  *) usage "--mirror: expected http://... or https://..., got '$mirror'" ;;
esac
out=${out:-$root/weights/$name}
reason=$(mkdir -p -- "$out" 2>&1) || fail "$reason"
exec 9> "$out/.fetching" && flock -n 9 || fail "$out: another fetch_model.sh is at work there"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch" "$out/.fetching"' EXIT
# curl sends it to the mirror alone, and to nobody that this leads to.
(umask 077 && printf '%s' "${token:+header = \"Authorization: Bearer $token\"}" > "$scratch/curl")

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
  [ -n "${snapshot-}" ] && from=$(readlink -e -- "$snapshot/$1") && [ -s "$from" ] || return 1
  hash=${from##*/}
  if [[ $hash =~ ^[0-9a-f]{64}$ ]] && [ "$(sha256_of "$from")" != "$hash" ]; then
    echo "fetch_model.sh: $from is damaged: downloading $1 instead" >&2
    return 1
  fi
  ln -s -- "$from" "$out/$1"
  echo "fetch_model.sh: $1: linked from $snapshot" >&2
}

# The value of a header of the last answer that has it, in the chain of redirects.
header() { tr -d '\r' < "$scratch/head" | sed -n "s/^$1: *//Ip" | tail -n 1; }

# download FILE: leaves a whole OUT/FILE.part. Returns 4 when the hub has no such file.
download() {
  local part=$out/$1.part url=$mirror/$repo/resolve/main/$1 status code before after attempt=0
  while true; do
    before=0 code=0
    [ ! -e "$part" ] || before=$(stat -c %s "$part")
    status=$(curl -K "$scratch/curl" -fsSL --max-redirs 10 --proto '=http,https' --proto-redir "$protocols" --connect-timeout 20 \
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
      22) [[ ! $status =~ ^40[13]$ ]] || code=1 fail "$url: HTTP $status: accept its terms at https://huggingface.co/$repo, and set HF_TOKEN"
        [[ $status =~ ^(408|429|5..)$ ]] || code=1 fail "$url: HTTP $status" ;;
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

# here FILE: it is in OUT, or was linked to there.
here() {
  [ ! -s "$out/$1" ] || return 0
  # A link to a cache that is gone. A process for each of some twenty files would take seconds.
  if [ -e "$out/$1" ] || [ -L "$out/$1" ]; then rm -f -- "$out/$1"; fi
  [[ $1 != */* ]] || mkdir -p -- "$out/${1%/*}"
  link_cached "$1"
}

# fetch FILE: returns 4 when the hub has no such file.
fetch() {
  local part=$out/$1.part resumed=''
  ! here "$1" || return 0
  command -v curl > /dev/null || fail "needs curl: apt-get install curl"
  [ ! -s "$part" ] || resumed=1
  [ -n "${optional-}" ] || echo "fetch_model.sh: $1: from $mirror/$repo" >&2
  download "$1" || return $?
  if ! right "$1"; then
    rm -f "$part"
    [ -n "$resumed" ] || fail "$1: $wrong"
    download "$1" || return $?  # the old beginning was of another file
    right "$1" || { rm -f "$part" && fail "$1: $wrong"; }
  fi
  mv -- "$part" "$out/$1"
}

pieces() { grep -oE '"[A-Za-z0-9][A-Za-z0-9._-]*\.safetensors"' "$out/model.safetensors.index.json" | tr -d '"' | sort -u; }
has() { local file; for file; do [ -e "$out/$file" ] || return 1; done; }
has_tokenizer() { has tokenizer.json || has vocab.json merges.txt || has vocab.txt || has tokenizer.model; }
small=(config.json generation_config.json tokenizer_config.json special_tokens_map.json added_tokens.json chat_template.jinja
  chat_template.json tokenizer.json vocab.json merges.txt vocab.txt tokenizer.model modules.json sentence_bert_config.json
  config_sentence_transformers.json)

# whole: all of it was here before, or is in the cache. The weights come last.
whole() {
  local file
  for file in "${small[@]}"; do here "$file" || :; done
  has config.json && has_tokenizer && ! has modules.json || return 1
  ! here model.safetensors || return 0
  here model.safetensors.index.json || return 1
  while read -r file; do here "$file" || return 1; done < <(pieces)
}

# fetch_if_there FILE: none is no error.
fetch_if_there() { optional=1 fetch "$1" || [ $? = 4 ]; }

fetch_all() {
  local file
  fetch config.json || fail "$mirror/$repo has no config.json"
  for file in "${small[@]}"; do fetch_if_there "$file"; done
  has_tokenizer ||
    fail "$mirror/$repo has no tokenizer: tokenizer.json, vocab.json and merges.txt, vocab.txt or tokenizer.model"
  # The modules of an encoder for sentences, behind the model itself: pooling, perhaps a dense layer.
  ! has modules.json || while read -r file; do
    [[ $file =~ ^[0-9]+_[A-Za-z]+$ ]] || continue
    fetch_if_there "$file/config.json"
    [[ $file != *_Dense ]] || fetch_if_there "$file/model.safetensors"
  done < <(grep -oE '"path"[[:space:]]*:[[:space:]]*"[^"]*"' "$out/modules.json" | sed 's/"$//; s/.*"//')
  if ! fetch model.safetensors; then  # there is none: in pieces, then
    fetch model.safetensors.index.json || fail "$mirror/$repo has no model.safetensors, nor one in pieces"
    while read -r file; do fetch "$file" || fail "$mirror/$repo has no $file"; done < <(pieces)
  fi
}
whole || fetch_all
shown=$out
[ "$out" != "$root/weights/$name" ] || shown=weights/$name
echo "Serve it with: build/bin/cloud_server --model $shown"
