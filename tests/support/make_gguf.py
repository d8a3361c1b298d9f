#!/usr/bin/env python3
"""make_gguf.py DIR OUT [--type F32|F16|BF16|Q8_0|Q4_0|Q4_K|Q6_K] [--version 2|3] [--tied-head] [--alignment N]
    [--head-type TYPE] [--made-up-tokens]

A Hugging Face directory of GPT-2, Llama, Qwen2, Qwen3.5 or Gemma 4 (one safetensors file) as llama.cpp's converter would write it: its
tensor names, [out, in] linear weights, F32 for vectors and positions, Llama's rows of q and k turned. Written from the
format's description; for tests and benchmarks. --head-type is that of embedding and head;
--tied-head writes the head out again; --made-up-tokens makes a byte-level vocabulary for programs that want one: the
bytes, then t0, t1, ...
"""
import argparse
import json
import os
import struct
import sys

import numpy as np

TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "BF16": 30}
OUTSIDE = {
    "wte.weight": "token_embd.weight",
    "wpe.weight": "position_embd.weight",
    "ln_f.weight": "output_norm.weight",
    "ln_f.bias": "output_norm.bias",
    "lm_head.weight": "output.weight",
}
LLAMA_OUTSIDE = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LLAMA_IN_BLOCK = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
IN_BLOCK = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


QWEN35_IN_BLOCK = LLAMA_IN_BLOCK | {
    "post_attention_layernorm": "post_attention_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
GEMMA4_OUTSIDE = LLAMA_OUTSIDE | {
    "embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
}
GEMMA4_IN_BLOCK = LLAMA_IN_BLOCK | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
# Names in a block that end in neither .weight nor .bias, in either kind of file.
WHOLE = {
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "layer_scalar": "layer_output_scale.weight",
}


def read_safetensors(path):
    """name -> the array in the file, mapped."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    data = np.memmap(path, np.uint8, "r", 8 + length)
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = data[begin:end].view({"F32": "<f4", "F16": "<f2"}[entry["dtype"]])
        name = name.removeprefix("transformer.").removeprefix("model.")
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


def q4_k(x):
    """Simpler than ggml's choice too: each group of 32 from its least to its largest value."""
    x = x.reshape(-1, 8, 32)
    least = np.maximum(-x.min(axis=2), 0)
    scale = (x.max(axis=2) + least) / 15
    whole = [halves(part.max(axis=1) / 63) for part in (scale, least)]
    factors = [np.where(d == 0, 1, d).astype(np.float32)[:, None] for d in whole]
    s, m = [np.clip(np.rint(part / factor), 0, 63).astype(np.uint8) for part, factor in zip((scale, least), factors)]
    step = factors[0] * s
    q = (x + (factors[1] * m)[:, :, None]) / np.where(step == 0, 1, step)[:, :, None]
    q = np.clip(np.rint(q), 0, 15).astype(np.uint8)
    n = len(q)
    packed = np.concatenate([s[:, :4] | s[:, 4:] >> 4 << 6, m[:, :4] | m[:, 4:] >> 4 << 6, s[:, 4:] & 15 | (m[:, 4:] & 15) << 4], axis=1)
    d, dmin = (part[:, None].view(np.uint8) for part in whole)
    return np.concatenate([d, dmin, packed, (q[:, ::2] | q[:, 1::2] << 4).reshape(n, 128)], axis=1)


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


def encoded(x, kind, piece=1 << 24):
    """Its bytes; in pieces of whole blocks, since some tables fill a machine's memory as float32."""
    x = np.ascontiguousarray(x).reshape(-1)
    return b"".join(encoded_piece(x[at : at + piece].astype(np.float32), kind) for at in range(0, x.size, piece))


def encoded_piece(x, kind):
    if kind == "F32":
        return x.astype("<f4").tobytes()
    if kind == "F16":
        return halves(x).tobytes()
    if kind == "BF16":  # truncated: these tests' values are made for it
        return (np.ascontiguousarray(x, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return {"Q8_0": q8_0, "Q4_0": q4_0, "Q4_K": q4_k, "Q6_K": q6_k}[kind](x).tobytes()


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
    if isinstance(value[0], bool):
        return struct.pack("<IIQ", 9, 7, len(value)) + bytes(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


def write_file(out, pairs, tensors, version=3, alignment=32):
    """pairs: key -> value; tensors: (name, dims innermost first, type's number, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    for key, value in pairs.items():
        head += text(key) + typed(value)
    offset = 0
    for name, dims, kind, data in tensors:
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        offset += len(data) + -len(data) % alignment
    out.write(head + bytes(-len(head) % alignment))
    for _, _, _, data in tensors:
        out.write(data + bytes(-len(data) % alignment))


def gguf_name(name, outside, in_block):
    if name in outside:
        return outside[name]
    _, block, rest = name.split(".", 2)
    if rest in WHOLE:
        return f"blk.{block}.{WHOLE[rest]}"
    part, kind = rest.rsplit(".", 1)
    return f"blk.{block}.{in_block[part]}.{kind}"


def gpt2_pairs(config):
    return {
        "gpt2.block_count": config["n_layer"],
        "gpt2.context_length": config["n_positions"],
        "gpt2.embedding_length": config["n_embd"],
        "gpt2.feed_forward_length": config.get("n_inner") or 4 * config["n_embd"],
        "gpt2.attention.head_count": config["n_head"],
        "gpt2.attention.layer_norm_epsilon": float(config["layer_norm_epsilon"]),
    }


def llama_pairs(config):
    heads, kind = config["num_attention_heads"], config["model_type"]
    return {
        f"{kind}.block_count": config["num_hidden_layers"],
        f"{kind}.context_length": config["max_position_embeddings"],
        f"{kind}.embedding_length": config["hidden_size"],
        f"{kind}.feed_forward_length": config["intermediate_size"],
        f"{kind}.attention.head_count": heads,
        f"{kind}.attention.head_count_kv": config["num_key_value_heads"],
        f"{kind}.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        f"{kind}.rope.freq_base": float(config["rope_theta"]),
        f"{kind}.rope.dimension_count": config.get("head_dim") or config["hidden_size"] // heads,
        f"{kind}.vocab_size": config["vocab_size"],
    }


def qwen35_pairs(config):
    heads, kind = config["num_attention_heads"], "qwen35"
    values = config["linear_num_value_heads"]
    return {
        f"{kind}.block_count": config["num_hidden_layers"],
        f"{kind}.context_length": config["max_position_embeddings"],
        f"{kind}.embedding_length": config["hidden_size"],
        f"{kind}.feed_forward_length": config["intermediate_size"],
        f"{kind}.attention.head_count": heads,
        f"{kind}.attention.head_count_kv": config["num_key_value_heads"],
        f"{kind}.attention.key_length": config["head_dim"],
        f"{kind}.attention.value_length": config["head_dim"],
        f"{kind}.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        f"{kind}.rope.freq_base": float(config["rope_parameters"]["rope_theta"]),
        f"{kind}.rope.dimension_count": config["head_dim"] // 4,
        f"{kind}.rope.dimension_sections": [11, 11, 10, 0],
        f"{kind}.ssm.conv_kernel": config["linear_conv_kernel_dim"],
        f"{kind}.ssm.state_size": config["linear_key_head_dim"],
        f"{kind}.ssm.group_count": config["linear_num_key_heads"],
        f"{kind}.ssm.time_step_rank": values,
        f"{kind}.ssm.inner_size": values * config["linear_value_head_dim"],
        f"{kind}.full_attention_interval": 4,
    }


def gemma4_pairs(config):
    kind, layers, window = "gemma4", config["num_hidden_layers"], [t != "full_attention" for t in config["layer_types"]]
    own = layers - config["num_kv_shared_layers"]
    pairs = {
        f"{kind}.block_count": layers,
        f"{kind}.context_length": config["max_position_embeddings"],
        f"{kind}.embedding_length": config["hidden_size"],
        f"{kind}.embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        f"{kind}.feed_forward_length": [config["intermediate_size"] * (1 if i < own else 2) for i in range(layers)],
        f"{kind}.attention.head_count": config["num_attention_heads"],
        f"{kind}.attention.head_count_kv": config["num_key_value_heads"],
        f"{kind}.attention.shared_kv_layers": layers - own,
        f"{kind}.attention.sliding_window": config["sliding_window"],
        f"{kind}.attention.sliding_window_pattern": window,
        f"{kind}.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        f"{kind}.final_logit_softcapping": float(config["final_logit_softcapping"]),
        f"{kind}.rope.freq_base": float(config["rope_parameters"]["full_attention"]["rope_theta"]),
        f"{kind}.rope.freq_base_swa": float(config["rope_parameters"]["sliding_attention"]["rope_theta"]),
    }
    for end, key in ("", "global_head_dim"), ("_swa", "head_dim"):
        for what in "attention.key_length", "attention.value_length", "rope.dimension_count":
            pairs[f"{kind}.{what}{end}"] = config[key]
    return pairs


def converted(name, x, config):
    """A tensor of Qwen3.5 as the converter turns it: norms, decays, value heads in rounds."""
    if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        x = x + 1
    if name.endswith("A_log"):
        x = -np.exp(x)
    if name.endswith("conv1d.weight"):
        x = x[:, 0]
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    size, first = config["linear_value_head_dim"], 2 * keys * config["linear_key_head_dim"]

    def tiled(x, size):
        return x.reshape(keys, values // keys, size, -1).swapaxes(0, 1).reshape(x.shape)

    if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        return np.concatenate([x[:first], tiled(x[first:], size)])
    if name.endswith("in_proj_z.weight"):
        return tiled(x, size)
    if name.endswith("linear_attn.out_proj.weight"):
        return np.ascontiguousarray(tiled(np.ascontiguousarray(x.T), size).T)
    return tiled(x, 1) if name.endswith(("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias")) else x


def rope_factors(config):
    """What rope_scaling "llama3" divides each frequency by, as `rope_freqs.weight` has it."""
    scaling = config["rope_scaling"]
    half = (config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]) // 2
    length = 2 * np.pi * config["rope_theta"] ** (np.arange(half) / half)  # of a wave, in positions
    original = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = np.clip((original / length - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / scaling["factor"] + smooth)).astype("<f4")


def turned(x, heads):
    """Rows of q or k as llama.cpp's rotation of neighbours has them."""
    return x.reshape(heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def tokenizer_pairs(folder, vocab_size):
    if vocab_size is None:
        with open(os.path.join(folder, "vocab.json"), encoding="utf-8") as file:
            vocab = json.load(file)
        with open(os.path.join(folder, "merges.txt"), encoding="utf-8") as file:
            merges = [line for line in file.read().split("\n") if line and not line.startswith("#version")]
        end = vocab["<|endoftext|>"]
    else:
        if vocab_size < 258:
            sys.exit(f"--made-up-tokens: expected a vocabulary of 258 tokens or more, got {vocab_size}")
        # Printable Latin-1 stands for itself, other bytes for characters from U+0100 on.
        own = [chr(byte) for byte in range(256) if 33 <= byte <= 126 or (byte >= 161 and byte != 173)]
        names = own + [chr(256 + i) for i in range(256 - len(own))]
        names += [f"t{i}" for i in range(vocab_size - 257)] + ["<|endoftext|>"]
        vocab = {name: i for i, name in enumerate(names)}
        merges, end = ["t 0"], vocab_size - 1
    tokens = sorted(vocab, key=vocab.get)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if t == "<|endoftext|>" else 1 for t in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": end,
        "tokenizer.ggml.eos_token_id": end,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("out")
    parser.add_argument("--type", choices=TYPES, default="F16")
    parser.add_argument("--head-type", choices=TYPES)
    parser.add_argument("--version", type=int, default=3)
    parser.add_argument("--tied-head", action="store_true")
    parser.add_argument("--alignment", type=int, default=32)
    parser.add_argument("--made-up-tokens", action="store_true")
    args = parser.parse_args()

    with open(os.path.join(args.dir, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    weights = read_safetensors(os.path.join(args.dir, "model.safetensors"))
    kind = {"qwen3_5_text": "qwen35", "gemma4_text": "gemma4"}.get(config["model_type"], config["model_type"])
    gpt2 = kind == "gpt2"
    outside, in_block, pairs_of = {
        "gpt2": (OUTSIDE, IN_BLOCK, gpt2_pairs),
        "qwen35": (LLAMA_OUTSIDE, QWEN35_IN_BLOCK, qwen35_pairs),
        "gemma4": (GEMMA4_OUTSIDE, GEMMA4_IN_BLOCK, gemma4_pairs),
    }.get(kind, (LLAMA_OUTSIDE, LLAMA_IN_BLOCK, llama_pairs))
    if config.get("tie_word_embeddings", gpt2):
        weights.pop("lm_head.weight", None)
        if args.tied_head:
            weights["lm_head.weight"] = weights["wte.weight" if gpt2 else "embed_tokens.weight"]
    pairs = {
        "general.architecture": kind,
        "general.name": "made for tests",
        "general.alignment": args.alignment,
        **pairs_of(config),
        "general.file_type": 1,
    }
    if args.alignment == 32:
        del pairs["general.alignment"]
    if os.path.isfile(os.path.join(args.dir, "vocab.json")) or args.made_up_tokens:
        pairs |= tokenizer_pairs(args.dir, config["vocab_size"] if args.made_up_tokens else None)
    else:
        pairs["tokenizer.ggml.eos_token_id"] = config["eos_token_id"]
    tensors = []
    if config.get("rope_scaling"):
        tensors.append(("rope_freqs.weight", (len(rope_factors(config)),), TYPES["F32"], rope_factors(config).tobytes()))
    if kind == "gemma4":
        factors = np.full(config["global_head_dim"] // 2, 1e30, "<f4")
        factors[: len(factors) // 4] = 1
        tensors.append(("rope_freqs.weight", (len(factors),), TYPES["F32"], factors.tobytes()))
    for name, x in weights.items():
        if kind == "qwen35":
            x = converted(name, x.astype(np.float32), config)
        if ".c_" in name and x.ndim == 2:
            x = x.T
        if config["model_type"] == "llama" and ".q_proj." in name:
            x = turned(x, config["num_attention_heads"])
        if config["model_type"] == "llama" and ".k_proj." in name:
            x = turned(x, config["num_key_value_heads"])
        blocks = args.head_type or args.type if name in outside else args.type
        if x.ndim == 1 or name == "wpe.weight" or name.endswith("conv1d.weight"):
            blocks = "F32"
        elif x.shape[-1] % {"Q8_0": 32, "Q4_0": 32, "Q4_K": 256, "Q6_K": 256}.get(blocks, 1):
            blocks = "F16"  # as llama.cpp does where rows are no whole blocks
        tensors.append((gguf_name(name, outside, in_block), x.shape[::-1], TYPES[blocks], encoded(x, blocks)))
    with open(args.out, "wb") as out:
        write_file(out, pairs, tensors, args.version, args.alignment)


if __name__ == "__main__":
    main()
