#!/usr/bin/env bash
# bench.sh AREA [--json FILE] [--size demo|gpt2|gpt2-medium|gpt2-large|gpt2-xl] [--runs N] [--threads N]
# Measures one area and prints a table; fails only when something does not work, never for slow figures.
#   kernels [--device NAME]  matrix products and attention
#   cpu                      whole-model steps on the CPU device
#   gpu [--device vulkan:N]  loading and whole-model steps on a GPU, logits checked
#   http                     a session's step over loopback HTTP
#   cloud                    cloud_server with 4,000 connections, 32 and 200 sessions, killed under 32
#   store [--device NAME]    an edge's cold and warm start per format: bytes, seconds, MB/s
#   pair                     cloud and edge over loopback HTTP, beside the whole model
# Weights are random and made in the process: nothing is downloaded. `bench.sh AREA --help` has the rest.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

case ${1-} in
  kernels | cpu | gpu | http | cloud | store | pair) area=$1 && shift ;;
  -h | --help) sed -n '2,11s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
  *) echo "bench.sh: unknown area '${1-}', expected kernels, cpu, gpu, http, cloud, store or pair" >&2 && exit 2 ;;
esac
"$root/scripts/build.sh" "bench_$area" >&2
exec "$root/build/bin/bench_$area" "$@"
