#!/usr/bin/env python3
"""make_random_gpt2.py --size SIZE --seed S --out DIR: a GPT-2 of random weights as Hugging Face would save it.

For benchmarks and tests of real sizes without a download. The same arguments give the same bytes on every machine.
Without --tokenizer the directory has no tokenizer files, and the model takes ids only.
"""
import argparse
import json
import math
import os
import shutil
import struct
import sys

# name: (n_layer, n_embd, n_head); from the published config.json files
SIZES = {
    "tiny": (2, 64, 4),
    "distilgpt2": (6, 768, 12),
    "gpt2": (12, 768, 12),
    "gpt2-medium": (24, 1024, 16),
    "gpt2-large": (36, 1280, 20),
    "gpt2-xl": (48, 1600, 25),
}
TOKENIZER_FILES = ("vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json")
CHUNK = 1 << 16  # values at a time: 512 KiB of random words stay in the cache


def config_of(n_layer, n_embd, n_head, n_ctx, vocab, dtype):
    return {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "bos_token_id": vocab - 1,
        "embd_pdrop": 0.1,
        "eos_token_id": vocab - 1,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2",
        "n_ctx": n_ctx,
        "n_embd": n_embd,
        "n_head": n_head,
        "n_inner": None,
        "n_layer": n_layer,
        "n_positions": n_ctx,
        "reorder_and_upcast_attn": False,
        "resid_pdrop": 0.1,
        "scale_attn_by_inverse_layer_idx": False,
        "scale_attn_weights": True,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "tie_word_embeddings": True,
        "torch_dtype": {"f32": "float32", "f16": "float16"}[dtype],
        "use_cache": True,
        "vocab_size": vocab,
    }


def tensors_of(n_layer, n_embd, n_ctx, vocab):
    """(name, shape, mean, standard deviation), sorted by name as the safetensors library saves them."""
    c, std = n_embd, 0.02
    residual = std / math.sqrt(2 * n_layer)  # GPT-2 paper, section 2.3
    out = [
        ("wte.weight", (vocab, c), 0, std),
        ("wpe.weight", (n_ctx, c), 0, std),
        ("ln_f.weight", (c,), 1, 0.05),
        ("ln_f.bias", (c,), 0, std),
    ]
    for layer in range(n_layer):
        h = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            out += [(h + norm + ".weight", (c,), 1, 0.05), (h + norm + ".bias", (c,), 0, std)]
        # Conv1D: [in, out]
        for linear, shape, deviation in (
            ("attn.c_attn", (c, 3 * c), std),
            ("attn.c_proj", (c, c), residual),
            ("mlp.c_fc", (c, 4 * c), std),
            ("mlp.c_proj", (4 * c, c), residual),
        ):
            out += [(h + linear + ".weight", shape, 0, deviation), (h + linear + ".bias", shape[1:], 0, 0.01)]
    return sorted(("transformer." + name, *rest) for name, *rest in out)


def normal(bits, count):
    """About normal, mean 0 and deviation 1, within +-3.47: the sum of four 16-bit numbers (Irwin-Hall).

    NumPy promises the words of PCG64 for good, but not what standard_normal makes of them, and that asks libm for
    exp and log, which differ in the last bit between machines. Integer sums and one multiplication in double do not.
    """
    words = bits.random_raw(count)
    low = np.uint64(0x0000FFFF0000FFFF)
    pairs = (words & low) + ((words >> np.uint64(16)) & low)
    total = (pairs & np.uint64(0xFFFFFFFF)) + (pairs >> np.uint64(32))
    # Each of the four has mean 65535 / 2 and variance (65536^2 - 1) / 12.
    return (total.astype(np.float64) - 2 * 65535) * math.sqrt(3 / (65536.0**2 - 1))


def write_model(path, tensors, dtype, seed):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, _, _ in tensors:
        begin, end = end, end + int(np.prod(shape, dtype=np.int64)) * (4 if dtype == "f32" else 2)
        header[name] = {"dtype": dtype.upper(), "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    bits = np.random.PCG64(seed)
    with open(path + ".part", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, shape, mean, deviation in tensors:
            count = int(np.prod(shape, dtype=np.int64))
            for start in range(0, count, CHUNK):
                values = (normal(bits, min(CHUNK, count - start)) * deviation + mean).astype("<f4")
                if dtype == "f16":  # by way of f32: the f16 model is the f32 model, rounded
                    values = values.astype("<f2")
                out.write(values.tobytes())
    os.replace(path + ".part", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--seed", type=int, default=0, help="0 or more")
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--dtype", choices=("f32", "f16"), default="f32")
    parser.add_argument("--n-ctx", type=int, default=1024)
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--tokenizer", metavar="DIR", help="copy the tokenizer files of this directory")
    args = parser.parse_args()
    if args.seed < 0 or args.n_ctx < 1 or args.vocab < 1:
        parser.error("--seed is 0 or more, --n-ctx and --vocab are 1 or more")
    global np  # after the command line: --help needs nothing
    try:
        import numpy as np
    except ImportError:
        sys.exit("make_random_gpt2.py: needs numpy: apt-get install python3-numpy")

    n_layer, n_embd, n_head = SIZES[args.size]
    copied = []
    if args.tokenizer:
        copied = [name for name in TOKENIZER_FILES if os.path.isfile(os.path.join(args.tokenizer, name))]
        if not copied:
            parser.error(f"--tokenizer {args.tokenizer}: none of {', '.join(TOKENIZER_FILES)} there")
    os.makedirs(args.out, exist_ok=True)
    for name in copied:
        shutil.copyfile(os.path.join(args.tokenizer, name), os.path.join(args.out, name))
    config = config_of(n_layer, n_embd, n_head, args.n_ctx, args.vocab, args.dtype)
    with open(os.path.join(args.out, "config.json"), "w", encoding="utf-8", newline="\n") as out:
        json.dump(config, out, indent=2, sort_keys=True)
        out.write("\n")
    tensors = tensors_of(n_layer, n_embd, args.n_ctx, args.vocab)
    write_model(os.path.join(args.out, "model.safetensors"), tensors, args.dtype, args.seed)


if __name__ == "__main__":
    main()
