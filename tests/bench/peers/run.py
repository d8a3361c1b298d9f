#!/usr/bin/env python3
"""run.py PLAYER FOLDER: `bench.sh peers`. Times this project's steps in turn with llama.cpp's (llama-bench and
llama-batched-bench in FOLDER) or ONNX Runtime's (f32 of GPT-2, and encoders) on the same random weights, which FOLDER gets,
and prints medians and the medians of the rounds' ratios; above 1 ours is faster.

PLAYER is build/bin/bench_player. Formats are those of the profiles, q4_k (the same file on both sides), and one of these
with _int8 or _int8_decode behind it: that profile, multiplying such blocks. On a GPU a batch is timed to all logits as
llama.cpp's are, to the 64 largest (_top), and both on a --wide shard."""
import argparse
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import time
from statistics import median

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
# The architecture and the size of make_random_model.py; encoders are those that ONNX Runtime has beside us.
ARCHS = {"gpt2": "gpt2", "llama|smollm|agent": "llama", "qwen2": "qwen2", "qwen3[.]5": "qwen35", "qwen3": "qwen3",
         "gemma-4": "gemma4", "bge-m3|e5": "xlm-roberta",
         "minilm|bge": "bert", "modernbert": "modernbert", "mpnet": "mpnet", "embeddinggemma": "embeddinggemma"}
ENCODERS = "minilm|bge|e5|modernbert|mpnet|embeddinggemma"
SIZES = {"mpnet": "mpnet-base", "embeddinggemma": "300m"}  # sizes that the names do not say
KEYS = 128  # that each sequence of a batch sees, as bench/steps.h has it
# Kinds of steps: how many make one time, and how many times make that of a round.
CPU = {"decode": (12, 1), "prefill": (1, 1), "batch": (6, 1), "embed": (1, 1)}
GPU = {"decode": (64, 3), "prefill": (1, 20), "batch": (32, 5)}


class Lines:
    """A program that answers each line by seconds."""

    ends = "", " top"

    def __init__(self, *command):
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        print(f"# {self.child.stdout.readline().strip()}", flush=True)

    def ask(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline()
        if not answer:
            sys.exit(f"run.py: a side ended before its answer to '{line}'")
        return float(answer)

    def seconds(self, kind, values, counts, end):
        count, times = counts[kind]
        line = {"decode": "decode {count} {value}", "prefill": "prefill {value}", "batch": "batch {value} {count}" + end,
                "embed": "embed {value}"}[kind]
        return [median(self.ask(line.format(value=value, count=count)) for _ in range(times)) for value in values]

    def end(self):
        self.child.stdin.close()
        self.child.wait()


class Llama:
    """llama.cpp's own benchmarks, a process for each kind of step."""

    ends = ("",)

    def __init__(self, programs, file, more):
        self.programs, self.more = programs, ["-m", file, *map(str, more)]

    def rows(self, program, *args):
        command = [os.path.join(self.programs, program), *self.more, *map(str, args)]
        for _ in range(5):  # llama-batched-bench may end before its log's thread has written the rows
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            if done.returncode != 0 or rows:
                break
        if done.returncode != 0 or not rows:
            sys.exit(f"{done.stderr}run.py: {' '.join(command)}: exit code {done.returncode}, {len(rows)} rows")
        return rows

    def seconds(self, kind, values, counts, _):
        count, times = counts[kind]
        if kind == "batch":
            before = KEYS - count // 2
            rows = self.rows("llama-batched-bench", "-c", max(values) * (before + count), "-npp", before, "-ntg", count, "-pps",
                             "-npl", ",".join(map(str, values * times)), "--output-format", "jsonl")
            return [median(row["t_tg"] for row in rows if row["pl"] == value) / count for value in values]
        listed = ",".join(str(value - count // 2) for value in values)
        ask = ["-p", 0, "-n", count, "-d", listed] if kind == "decode" else ["-p", listed, "-n", 0]
        rows = self.rows("llama-bench", *ask, "-r", times, "-o", "jsonl")
        return [median(row["samples_ns"]) / 1e9 / count for row in rows]


def arguments():
    def numbers(text):
        return [int(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="says what is missing, and measures nothing")
    parser.add_argument("player")
    parser.add_argument("folder")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--size", default="gpt2")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="rounds")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N")
    parser.add_argument("--device", default="cpu", metavar="cpu|vulkan:N", help="the other side's is the first of CUDA's")
    parser.add_argument("--torch", metavar="SCRIPT", help="PyTorch's side of f16: it is called with the model's folder, and "
                        "answers bench_player's lines")
    parser.add_argument("--formats", type=lambda text: text.split(","), metavar="LIST",
                        help="f32,f16,q8_0,q8_0_int8,q4_0,q4_0_int8; on a GPU f16,q8_0,q4_0,q4_k")
    parser.add_argument("--keys", type=numbers, metavar="LIST", help="of one token: 128; on a GPU 4096,1024,128")
    parser.add_argument("--prompts", type=numbers, metavar="LIST", help="512; on a GPU 2048,512,128,16")
    parser.add_argument("--sequences", type=numbers, metavar="LIST", help="16; on a GPU 32,8")
    args = parser.parse_args()
    args.gpu, args.encoder = args.device != "cpu", re.search(ENCODERS, args.size)
    if args.gpu and args.encoder:
        parser.error("--device: an encoder is compared on the CPU alone")
    args.counts = GPU if args.gpu else CPU
    # The longest first: a GPU that rested is slow for a while.
    kinds = ("decode", args.keys, [4096, 1024, 128], [KEYS]), ("prefill", args.prompts, [2048, 512, 128, 16], [512]), (
        "batch", args.sequences, [32, 8], [16])
    # llama-batched-bench refuses a shared prompt where positions have parts (M-RoPE), and without one it crashes.
    args.kinds = {kind: given or (on_gpu if args.gpu else on_cpu) for kind, given, on_gpu, on_cpu in kinds
                  if kind != "batch" or not args.size.startswith("qwen3.5")}
    # ONNX Runtime's side of an encoder is in f32, ours with bf16 rows and weights too.
    args.formats = ["f32", "bf16"] if args.encoder else args.formats or (
        ["f16", "q8_0", "q4_0", "q4_k"] if args.gpu else ["f32", "f16", "q8_0", "q8_0_int8", "q4_0", "q4_0_int8"])
    return args


def sides_of(args, weights, fmt, kinds):
    """Our sides: kind -> the end of a row's name -> (side, the end of a line)."""
    blocks, profile = re.fullmatch("(.*?)(?:_(int8(?:_decode)?))?", fmt).groups()
    own = weights.endswith(".gguf")  # its blocks are multiplied as they lie
    how = ["--profile", profile or (fmt if not own else "f16" if args.gpu else "f32")]
    if profile:
        how += ["--format", "own" if own else blocks]
    player = [args.player, *how, "--device", args.device, "--threads", str(args.threads), "--model", weights]
    ours = Lines(*player)
    ways = {kind: {"": (ours, "")} for kind in kinds}
    if args.gpu and "batch" in kinds:
        wide = Lines(*player, "--wide")
        ways["batch"] |= {"_top": (ours, " top"), "_wide": (wide, ""), "_wide_top": (wide, " top")}
    return ways


def compare(args, weights, fmt, kinds, peers):
    """The rows of a format, timed on all sides in turn; peers: name -> side."""
    rows, ways = [], sides_of(args, weights, fmt, kinds)
    for kind, values in kinds.items():
        times = {}

        def measure(key, side, line):
            # Threads of the side before may spin for a while behind its answer.
            time.sleep(0.2)
            if args.gpu and isinstance(side, Lines):
                side.ask(f"decode 300 {KEYS}")  # a GPU that rested is slow for a while
            times.setdefault(key, []).append(side.seconds(kind, values, args.counts, line))

        for counted in range(-1, args.runs):  # before the first: what is touched first
            for way, (side, line) in ways[kind].items():
                measure(way, side, line)
            for name, side in peers.items():
                if counted < 0 and isinstance(side, Llama):
                    continue  # it warms up itself
                for line in {line: None for _, line in ways[kind].values() if line in side.ends}:
                    measure((name, line), side, line)
            if counted < 0:
                times.clear()
        for (i, value), (way, (_, line)), name in itertools.product(enumerate(values), ways[kind].items(), peers):
            mine, peer = ([each[i] for each in times[key]] for key in
                          (way, (name, line if (name, line) in times else "")))
            count = {"decode": 1, "embed": int(str(value).split()[0])}.get(kind, value)
            what = kind if (kind, value) == ("decode", KEYS) else f"{kind}_{str(value).replace(' ', 'x')}"
            row = {"name": f"{what}{way}_{fmt}", "ours": count / median(mine), "peer": count / median(peer), "peer_name": name,
                   "unit": "texts/s" if kind == "embed" else "tokens/s", "ratio": median(b / a for a, b in zip(mine, peer)),
                   "ours_seconds": mine, "peer_seconds": peer}
            rows.append(row)
            print(f"{row['name']:28} {row['ours']:9.1f} {row['unit']} {1e3 * median(mine):9.3f} ms, {name} "
                  f"{row['peer']:9.1f} {1e3 * median(peer):9.3f} ms, ratio {row['ratio']:.2f}", flush=True)
    for side in {side for named in ways.values() for side, _ in named.values()}:
        side.end()
    return rows


def needs_onnx(args):
    return args.encoder or ("f32" in args.formats and "gpt2" in args.size)


def main():
    args = arguments()
    missing = [name for name in ["numpy", *(["onnx"] if needs_onnx(args) else [])] if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"run.py: Python's {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing, which the models' "
                 f"files are written by: apt-get install {' '.join('python3-' + name for name in missing)}" +
                 (", or --formats without f32" if "onnx" in missing and not args.encoder else ""))
    if args.check:
        return

    def made(file, script, *more):
        if not os.path.exists(file):
            subprocess.run([sys.executable, os.path.join(ROOT, script), *more], check=True)
        return file

    def model(dtype, *more):
        folder = os.path.join(args.folder, f"{args.size}-{dtype}")
        arch = next(arch for sizes, arch in ARCHS.items() if re.search(sizes, args.size))
        made(os.path.join(folder, "model.safetensors"), "scripts/make_random_model.py", "--arch", arch,
             "--size", SIZES.get(args.size, args.size),
             "--dtype", dtype, "--out", folder, *more)
        return folder

    print(f"{args.size}, {args.threads} threads, medians of {args.runs} rounds in turn (above 1: ours is faster)", flush=True)
    rows = []

    def add(more):
        rows.extend(more)
        if args.json:
            with open(args.json, "w", encoding="utf-8") as out:
                json.dump(rows, out, indent=1)

    for fmt in args.formats:
        if fmt == "f32" or args.encoder:
            if needs_onnx(args):
                # An encoder has a text of 128 tokens, and 256 texts of 16 in one request.
                kinds = {"embed": ["1 128", "256 16"]} if args.encoder else {**args.kinds}
                kinds.pop("batch", None)
                folder = model("f32", "--onnx")
                theirs = Lines("node", os.path.join(args.folder, "ort.mjs"), folder, str(args.threads))
                add(compare(args, folder, fmt, kinds, {"ONNX Runtime": theirs}))
                theirs.end()
            continue
        blocks = fmt.split("_int8")[0]
        # As the profile of that name has it, or as llama.cpp's files of it do.
        head = {"q4_0": "q8_0", "q4_k": "q6_k"}.get(blocks, blocks)
        folder = model("f16")
        file = os.path.join(folder, blocks + ".gguf")
        made(file, "tests/support/make_gguf.py", folder, file, "--type", blocks.upper(), "--head-type", head.upper(),
             "--made-up-tokens")
        peers = {"llama.cpp": Llama(os.path.join(args.folder, "llama.cpp", "cuda" if args.gpu else "cpu", "bin"), file,
                                    ["-t", args.threads, *(["-ngl", "99", "-fa", "1"] if args.gpu else [])])}
        if args.torch and fmt == "f16":
            peers["PyTorch"] = Lines(sys.executable, args.torch, folder)
        add(compare(args, file if blocks == "q4_k" else folder, fmt, args.kinds, peers))
        if "PyTorch" in peers:
            peers["PyTorch"].end()


if __name__ == "__main__":
    main()
