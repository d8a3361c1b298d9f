#!/usr/bin/env bash
# bench.sh AREA [--json FILE] [--size SIZE] [--runs N] [--threads N]
# Measures one area and prints a table; fails only when something does not work, never for slow figures.
#   kernels [--device NAME]  matrix products and attention
#   cpu                      whole-model steps on the CPU device
#   gpu [--device vulkan:N] [--model DIR|SIZE] [--context N]  loading and whole-model steps on a GPU, logits checked
#   http                     a session's step over loopback HTTP
#   cloud                    cloud_server with 4,000 connections, 32 and 200 sessions, killed under 32
#   states                   snapshots of states beside their prompt; a token of a block with one behind 1,024 and 65,536
#   split [--device NAME]    sessions a cloud carries at one p99: all of the model, half, four depths; twice too many
#   store [--device NAME]    an edge's cold and warm start per format: bytes, seconds, MB/s
#   train [--device NAME] [--torch SCRIPT]  a step of training, in turn with PyTorch's where a script measures that
#   pair                     cloud and edge over loopback HTTP, beside the whole model
#   web [--only LIST]        the edge in a tab of Chromium: its page, its steps beside a native edge's and beside wllama's and
#                            ONNX Runtime Web's (by npm), same weights; LIST of page, native, peers,
#                            qwen (0.5 B beside wllama), words (each one's first at 20 Mbit/s)
#   webgpu [--device vulkan:N] [--sizes LIST] [--formats LIST]  the edge of a tab on WebGPU (npm's Dawn under Node) beside
#                            Vulkan on the same GPU, same weights, in turn
#   agent [--cut K] [--model DIR] [--prompt-cache on|off]  an agent's session of 20 turns: rows computed,
#                            rows from the cache, first tokens
#   peers [--formats LIST] [--device vulkan:N]  steps in turn with llama.cpp's own benchmarks (with the libraries that npm
#                            ships; compiled for CUDA beside vulkan:N) and ONNX Runtime's (by npm), same weights
# Sizes: demo, tiny, gpt2, gpt2-medium, gpt2-large, gpt2-xl, smollm2-135m, qwen2.5-0.5b, tinyllama-1.1b, llama-3.2-1b,
#   qwen3.5-0.8b, for peers also gemma-4-e2b; of encoders, for cpu, pair and peers, minilm-l6 and bge-base, for peers
#   also mpnet, e5-small, bge-m3, modernbert-base and embeddinggemma.
# Weights are random and made on the spot: none are downloaded. `bench.sh AREA --help` has the rest.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

case ${1-} in
  kernels | cpu | gpu | http | cloud | states | split | store | train | pair | web | webgpu | agent | peers) area=$1 && shift ;;
  -h | --help) sed -n '2,28s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
  *) echo "bench.sh: unknown area '${1-}', expected kernels, cpu, gpu, http, cloud, states, split, store, train, pair, web, webgpu, agent or peers" >&2 && exit 2 ;;
esac
if [ "$area" = agent ]; then
  "$root/scripts/build.sh" cloud_server edge_client >&2
  exec python3 "$root/scripts/bench_agent.py" "$@"
fi
if [ "$area" = train ]; then
  "$root/scripts/build.sh" bench_train >&2
  exec python3 "$root/scripts/bench_train.py" "$@"
fi
if [ "$area" = webgpu ]; then
  "$root/scripts/build.sh" cloud_server edge_client kernels_js >&2
  exec "$root/tests/webgpu/run.sh" "$root/build/bin" "$root/build/bench-webgpu" bench "$@"
fi
if [ "$area" = peers ] || [ "$area" = web ]; then
  folder=$root/build/bench-$area
  mkdir -p "$folder"
  if [ "$area" = peers ]; then  # wrong flags and missing packages are told before anything is fetched or made
    case " $* " in *" --help "* | *" -h "*) exec /usr/bin/python3 "$root/tests/bench/peers/run.py" --help ;; esac
    /usr/bin/python3 "$root/tests/bench/peers/run.py" --check - "$folder" "$@"
  fi
  cp "$root/tests/bench/$area"/* "$folder"
  # Without the optional packages, which are its builds for GPUs and other systems (1 GB).
  npm install --prefix "$folder" --ignore-scripts --omit=optional --no-audit --no-fund --loglevel=error >&2
  if [ "$area" = peers ]; then
    case " $* " in *" --device vulkan"* | *" --device=vulkan"*) kind=cuda ;; *) kind=cpu ;; esac
    "$root/tests/bench/peers/llama.sh" "$folder" "$kind" >&2
    "$root/scripts/build.sh" bench_player >&2
    exec /usr/bin/python3 "$root/tests/bench/peers/run.py" "$root/build/bin/bench_player" "$folder" "$@"
  fi
  "$root/scripts/build.sh" web >&2
  "$root/scripts/build.sh" >&2
  exec node "$root/tests/bench/web/run.mjs" "$root/build/bin" "$folder" "$@"
fi
"$root/scripts/build.sh" "bench_$area" >&2
exec "$root/build/bin/bench_$area" "$@"
