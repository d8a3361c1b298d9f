#!/usr/bin/env python3
"""bench_train.py [--torch SCRIPT] [--rounds N] [BENCH_TRAIN FLAGS...]: a step of training, ours, in turn with PyTorch's where
SCRIPT measures that: it is called with a file for its JSON, {"cpu_THREADS" or "cuda_eager_f32": {WORKLOAD: ms}}."""
import argparse, json, os, statistics, subprocess, sys, tempfile

from bench_line import program, root

NAMES = {"gpt2_step_b4_t256": "demo_gpt2_step_b4_t256",
         "last_two_blocks_step_b4_t256": "demo_last_two_blocks_step_b4_t256"}


def measured(start, file):
    """What a program leaves in a file."""
    if start.wait() != 0:
        sys.exit("bench.sh: a measurement failed")
    with open(file) as json_file:
        return json.load(json_file)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", metavar="SCRIPT")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    asked, flags = parser.parse_known_args()
    flags += ["--threads", str(asked.threads), "--device", asked.device]
    has_torch = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0
    if not asked.torch or not has_torch:
        print("bench.sh: ours alone:", "no --torch SCRIPT is given" if has_torch else "this Python has no PyTorch",
              flush=True)
        sys.exit(program("bench_train", *flags).wait())
    ours, theirs = {name: [] for name in NAMES}, {name: [] for name in NAMES}
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "measured.json")
        for _ in range(asked.rounds):
            rows = measured(program("bench_train", "--json", file, *flags, stdout=subprocess.DEVNULL), file)
            torch = measured(subprocess.Popen([sys.executable, asked.torch, file, os.path.join(root, "weights/demo")],
                                              stdout=subprocess.DEVNULL), file)
            torch = torch["cuda_eager_f32" if asked.device != "cpu" else f"cpu_{asked.threads}"]
            for name, other in NAMES.items():
                ours[name] += [row["value"] for row in rows if row["name"] == name]
                theirs[name].append(torch[other])
    for name in NAMES:
        a, b = statistics.median(ours[name]), statistics.median(theirs[name])
        print(f"{name:32} ours {a:8.1f} ms, PyTorch {b:8.1f} ms, ratio {a / b:.2f}")


main()
