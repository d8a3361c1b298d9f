#!/usr/bin/env python3
"""make_gguf.py DIR OUT [--type F32|F16|BF16|Q8_0|Q4_0|Q6_K] [--version 2|3] [--tied-head] [--alignment N]

A Hugging Face GPT-2 directory (one safetensors file) as llama.cpp's converter would write it: its tensor names, [out, in]
linear weights, F32 for vectors and positions. Written from the format's description; for tests. --tied-head writes the
head out again.
"""
import argparse
import json
import os
import struct

import numpy as np

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "Q6_K": 14, "BF16": 30}
OUTSIDE = {
    "wte.weight": "token_embd.weight",
    "wpe.weight": "position_embd.weight",
    "ln_f.weight": "output_norm.weight",
    "ln_f.bias": "output_norm.bias",
    "lm_head.weight": "output.weight",
}
IN_BLOCK = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[8 + length + begin : 8 + length + end]
        values = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[entry["dtype"]]).astype(np.float32)
        name = name.removeprefix("transformer.")
        if not name.endswith((".attn.bias", ".attn.masked_bias")):
            out[name] = values.reshape(entry["shape"])
    return out


def halves(values):
    return values.astype("<f2")


def q8_0(x):
    x = x.reshape(-1, 32)
    d = np.abs(x).max(axis=1) / 127
    inverse = np.where(d == 0, 0, 1 / np.where(d == 0, 1, d))
    q = np.rint(x * inverse[:, None]).astype(np.int8)
    return np.concatenate([halves(d)[:, None].view(np.uint8), q.view(np.uint8)], axis=1)


def q4_0(x):
    x = x.reshape(-1, 32)
    largest = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)[:, 0]
    d = largest / -8
    inverse = np.where(d == 0, 0, 1 / np.where(d == 0, 1, d))
    q = np.clip(np.trunc(x * inverse[:, None] + 8.5), 0, 15).astype(np.uint8)
    return np.concatenate([halves(d)[:, None].view(np.uint8), q[:, :16] | q[:, 16:] << 4], axis=1)


def q6_k(x):
    """Simpler than ggml's choice of scales, but the same layout: each group of 16 scaled to its largest value."""
    x = x.reshape(-1, 16, 16)
    scale = np.abs(x).max(axis=2) / 31
    d = halves(np.abs(scale).max(axis=1) / 127)
    s = np.rint(scale / np.where(d == 0, 1, d).astype(np.float32)[:, None]).astype(np.int8)
    step = d.astype(np.float32)[:, None] * s
    q = np.clip(np.rint(x / np.where(step == 0, 1, step)[:, :, None]), -32, 31).astype(np.int16) + 32
    q = q.astype(np.uint8).reshape(-1, 2, 4, 32)  # halves of 128, quarters of 32
    low = np.concatenate([q[:, :, 0] & 15 | (q[:, :, 2] & 15) << 4, q[:, :, 1] & 15 | (q[:, :, 3] & 15) << 4], axis=2)
    high = q[:, :, 0] >> 4 | q[:, :, 1] >> 4 << 2 | q[:, :, 2] >> 4 << 4 | q[:, :, 3] >> 4 << 6
    n = len(q)
    return np.concatenate([low.reshape(n, 128), high.reshape(n, 64), s.view(np.uint8), d[:, None].view(np.uint8)], axis=1)


def encoded(x, kind):
    if kind == "F32":
        return x.astype("<f4").tobytes()
    if kind == "F16":
        return halves(x).tobytes()
    if kind == "BF16":  # truncated: these tests' values are made for it
        return (np.ascontiguousarray(x, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return {"Q8_0": q8_0, "Q4_0": q4_0, "Q6_K": q6_k}[kind](np.ascontiguousarray(x)).tobytes()


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(value)) + value


def typed(value):
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


def file_of(pairs, tensors, version=3, alignment=32):
    """pairs: key -> value; tensors: (name, dims innermost first, type's number, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    for key, value in pairs.items():
        out += text(key) + typed(value)
    offset = 0
    for name, dims, kind, data in tensors:
        out += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        offset += len(data) + -len(data) % alignment
    out += bytes(-len(out) % alignment)
    return out + b"".join(data + bytes(-len(data) % alignment) for _, _, _, data in tensors)


def gguf_name(name):
    if name in OUTSIDE:
        return OUTSIDE[name]
    _, block, rest = name.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{block}.{IN_BLOCK[part]}.{kind}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("out")
    parser.add_argument("--type", choices=TYPES, default="F16")
    parser.add_argument("--version", type=int, default=3)
    parser.add_argument("--tied-head", action="store_true")
    parser.add_argument("--alignment", type=int, default=32)
    args = parser.parse_args()

    with open(os.path.join(args.dir, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    weights = read_safetensors(os.path.join(args.dir, "model.safetensors"))
    if config.get("tie_word_embeddings", True):
        weights.pop("lm_head.weight", None)
        if args.tied_head:
            weights["lm_head.weight"] = weights["wte.weight"]
    pairs = {
        "general.architecture": "gpt2",
        "general.name": "made for tests",
        "general.alignment": args.alignment,
        "gpt2.block_count": config["n_layer"],
        "gpt2.context_length": config["n_positions"],
        "gpt2.embedding_length": config["n_embd"],
        "gpt2.feed_forward_length": config.get("n_inner") or 4 * config["n_embd"],
        "gpt2.attention.head_count": config["n_head"],
        "gpt2.attention.layer_norm_epsilon": float(config["layer_norm_epsilon"]),
        "general.file_type": 1,
    }
    if args.alignment == 32:
        del pairs["general.alignment"]
    if os.path.isfile(os.path.join(args.dir, "vocab.json")):
        with open(os.path.join(args.dir, "vocab.json"), encoding="utf-8") as file:
            vocab = json.load(file)
        with open(os.path.join(args.dir, "merges.txt"), encoding="utf-8") as file:
            merges = [line for line in file.read().split("\n") if line and not line.startswith("#version")]
        tokens = sorted(vocab, key=vocab.get)
        pairs |= {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3 if t == "<|endoftext|>" else 1 for t in tokens],
            "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.bos_token_id": vocab["<|endoftext|>"],
            "tokenizer.ggml.eos_token_id": vocab["<|endoftext|>"],
        }
    else:
        pairs["tokenizer.ggml.eos_token_id"] = config["eos_token_id"]
    tensors = []
    for name, x in weights.items():
        if ".c_" in name and x.ndim == 2:
            x = x.T
        kind = args.type
        if x.ndim == 1 or name == "wpe.weight":
            kind = "F32"
        elif x.shape[-1] % {"Q8_0": 32, "Q4_0": 32, "Q6_K": 256}.get(kind, 1):
            kind = "F16"  # as llama.cpp does where rows are no whole blocks
        tensors.append((gguf_name(name), x.shape[::-1], TYPES[kind], encoded(x, kind)))
    with open(args.out, "wb") as out:
        out.write(file_of(pairs, tensors, args.version, args.alignment))


if __name__ == "__main__":
    main()
