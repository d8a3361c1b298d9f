#!/usr/bin/env python3
"""make_random_model.py --arch ARCH --size SIZE --out DIR: a model of random weights as Hugging Face would save it.

  gpt2    tiny distilgpt2 gpt2 gpt2-medium gpt2-large gpt2-xl
  llama   tiny agent smollm2-135m tinyllama-1.1b llama-3.2-1b
  qwen2   tiny qwen2.5-0.5b
  qwen3   tiny qwen3-0.6b
  qwen35  tiny qwen3.5-0.8b
  gemma4  tiny gemma-4-e2b
  bert    tiny minilm-l6 bge-base       with the files of sentence-transformers, as the next ones
  mpnet   tiny mpnet-base
  roberta tiny roberta-base
  xlm-roberta  tiny e5-small bge-m3
  modernbert   tiny modernbert-base
  embeddinggemma  tiny 300m

For benchmarks and tests of real shapes without a download. The same arguments give the same bytes on every machine.
Without --tokenizer the directory has no tokenizer files, and the model takes ids only. --onnx writes the same weights as
model.onnx too, of gpt2 and of encoders. --rerank puts a classifier of one label on an encoder (but embeddinggemma), which then
scores pairs of texts.
"""
import argparse
import json
import math
import os
import shutil
import struct
import sys

# Published config.json files' sizes: layers, channels, heads, and of all but gpt2: key heads, inner, vocabulary, positions.
GPT2 = {
    "tiny": (2, 64, 4),
    "distilgpt2": (6, 768, 12),
    "gpt2": (12, 768, 12),
    "gpt2-medium": (24, 1024, 16),
    "gpt2-large": (36, 1280, 20),
    "gpt2-xl": (48, 1600, 25),
}
OTHERS = {
    "llama": {
        "tiny": (2, 64, 4, 2, 160, 512, 256),
        "agent": (4, 128, 4, 2, 384, 648, 32768),
        "smollm2-135m": (30, 576, 9, 3, 1536, 49152, 8192),
        "tinyllama-1.1b": (22, 2048, 32, 4, 5632, 32000, 2048),
        "llama-3.2-1b": (16, 2048, 32, 8, 8192, 128256, 131072),
    },
    "qwen2": {"tiny": (2, 64, 4, 2, 160, 512, 256), "qwen2.5-0.5b": (24, 896, 14, 2, 4864, 151936, 32768)},
    "qwen3": {"tiny": (2, 64, 4, 2, 160, 512, 256), "qwen3-0.6b": (28, 1024, 16, 8, 3072, 151936, 40960)},
    "qwen35": {
        "tiny": (4, 256, 4, 2, 256, 512, 256),
        "qwen3.5-0.8b": (24, 1024, 8, 2, 3584, 248320, 262144),
    },
    "gemma4": {
        "tiny": (10, 64, 4, 1, 96, 512, 256),
        "gemma-4-e2b": (35, 1536, 8, 1, 6144, 262144, 131072),
    },
    "bert": {
        "tiny": (2, 64, 4, 4, 160, 512, 128),
        "minilm-l6": (6, 384, 12, 12, 1536, 30522, 512),
        "bge-base": (12, 768, 12, 12, 3072, 30522, 512),
    },
    "mpnet": {"tiny": (2, 64, 4, 4, 160, 512, 130), "mpnet-base": (12, 768, 12, 12, 3072, 30527, 514)},
    "roberta": {"tiny": (2, 64, 4, 4, 160, 512, 130), "roberta-base": (12, 768, 12, 12, 3072, 50265, 514)},
    "xlm-roberta": {
        "tiny": (2, 64, 4, 4, 160, 512, 130),
        "e5-small": (12, 384, 12, 12, 1536, 250037, 514),
        "bge-m3": (24, 1024, 16, 16, 4096, 250002, 8194),
    },
    "modernbert": {"tiny": (4, 64, 4, 4, 96, 512, 128), "modernbert-base": (22, 768, 12, 12, 1152, 50368, 8192)},
    "embeddinggemma": {"tiny": (4, 64, 4, 1, 96, 512, 128), "300m": (24, 768, 3, 1, 1152, 262144, 2048)},
}
ENCODERS = ("bert", "mpnet", "roberta", "xlm-roberta", "modernbert", "embeddinggemma")
ARCHS = {"gpt2": GPT2, **OTHERS}
# Settings that a size has beyond its numbers.
MORE = {
    "smollm2-135m": {"rope_theta": 100000.0},
    "tinyllama-1.1b": {"tie_word_embeddings": False},
    "llama-3.2-1b": {
        "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    },
    "qwen2.5-0.5b": {"rope_theta": 1000000.0},
    "qwen3-0.6b": {"rope_theta": 1000000.0, "head_dim": 128},
}
# The text that a size of an encoder takes, and how it pools.
SENTENCES = {
    "tiny": (64, "mean"),
    "minilm-l6": (256, "mean"),
    "bge-base": (512, "cls"),
    "mpnet-base": (384, "mean"),
    "roberta-base": (512, "mean"),
    "e5-small": (512, "mean"),
    "bge-m3": (8192, "cls"),
    "modernbert-base": (8192, "cls"),
    "300m": (2048, "mean"),
}
CLASSIFIERS = {
    "bert": "Bert",
    "mpnet": "MPNet",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "modernbert": "ModernBert",
}
TOKENIZER_FILES = ("vocab.json", "merges.txt", "vocab.txt", "tokenizer.json", "tokenizer_config.json")
CHUNK = 1 << 16  # values at a time: 512 KiB of random words stay in the cache
TORCH = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
STD = 0.02


def gpt2_config(size, positions, vocab, dtype):
    n_layer, n_embd, n_head = GPT2[size]
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
        "n_ctx": positions,
        "n_embd": n_embd,
        "n_head": n_head,
        "n_inner": None,
        "n_layer": n_layer,
        "n_positions": positions,
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
        "torch_dtype": TORCH[dtype],
        "use_cache": True,
        "vocab_size": vocab,
    }


def other_config(arch, size, positions, vocab, dtype):
    layers, channels, heads, kv_heads, inner, _, _ = OTHERS[arch][size]
    config = {
        "hidden_size": channels,
        "initializer_range": STD,
        "intermediate_size": inner,
        "max_position_embeddings": positions,
        "model_type": arch,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "torch_dtype": TORCH[dtype],
        "use_cache": True,
        "vocab_size": vocab,
    }
    if arch == "bert":
        return config | {
            "architectures": ["BertModel"],
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-12,
            "pad_token_id": 0,
            "type_vocab_size": 2,
        }
    if arch in ("mpnet", "roberta", "xlm-roberta"):
        more = {"relative_attention_num_buckets": 32} if arch == "mpnet" else {"type_vocab_size": 1}
        names = {"mpnet": "MPNetModel", "roberta": "RobertaModel", "xlm-roberta": "XLMRobertaModel"}
        common = {"hidden_act": "gelu", "layer_norm_eps": 1e-05, "pad_token_id": 1}
        return config | common | more | {"architectures": [names[arch]]}
    if arch == "modernbert":
        return config | {
            "architectures": ["ModernBertModel"],
            "global_attn_every_n_layers": 3,
            "global_rope_theta": 160000.0,
            "hidden_activation": "gelu",
            "local_attention": 128,
            "local_rope_theta": 10000.0,
            "norm_eps": 1e-05,
        }
    if arch == "embeddinggemma":
        return config | {
            "architectures": ["Gemma3TextModel"],
            "head_dim": 256 if size == "300m" else 16,
            "hidden_activation": "gelu_pytorch_tanh",
            "model_type": "gemma3_text",
            "num_key_value_heads": kv_heads,
            "query_pre_attn_scalar": 256,
            "rms_norm_eps": 1e-06,
            "rope_local_base_freq": 10000.0,
            "rope_theta": 1000000.0,
            "sliding_window": 512,
            "use_bidirectional_attention": True,
        }
    if arch == "qwen35":
        tiny = size == "tiny"
        return config | {
            "architectures": ["Qwen3_5ForCausalLM"],
            "bos_token_id": None,
            "eos_token_id": vocab - 1,
            "head_dim": 64 if tiny else 256,
            "hidden_act": "silu",
            "layer_types": ["linear_attention" if (i + 1) % 4 else "full_attention" for i in range(layers)],
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 64 if tiny else 128,
            "linear_num_key_heads": 2 if tiny else 16,
            "linear_num_value_heads": 4 if tiny else 16,
            "linear_value_head_dim": 64 if tiny else 128,
            "model_type": "qwen3_5_text",
            "num_key_value_heads": kv_heads,
            "rms_norm_eps": 1e-06,
            "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000000.0, "rope_type": "default"},
            "tie_word_embeddings": True,
        }
    if arch == "gemma4":
        tiny = size == "tiny"
        return config | {
            "architectures": ["Gemma4ForCausalLM"],
            "bos_token_id": 2,
            "eos_token_id": 1,
            "final_logit_softcapping": 30.0,
            "global_head_dim": 32 if tiny else 512,
            "head_dim": 16 if tiny else 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "hidden_size_per_layer_input": 16 if tiny else 256,
            "layer_types": ["sliding_attention" if (i + 1) % 5 else "full_attention" for i in range(layers)],
            "model_type": "gemma4_text",
            "num_key_value_heads": kv_heads,
            "num_kv_shared_layers": layers * 4 // 7,
            "rms_norm_eps": 1e-06,
            "rope_parameters": {
                "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
                "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
            },
            "sliding_window": 16 if tiny else 512,
            "tie_word_embeddings": True,
            "use_double_wide_mlp": True,
            "vocab_size_per_layer_input": vocab,
        }
    config |= {
        "architectures": [{"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[arch] + "ForCausalLM"],
        "bos_token_id": vocab - 2,
        "eos_token_id": vocab - 1,
        "head_dim": channels // heads,
        "hidden_act": "silu",
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": 1e-05 if arch == "llama" else 1e-06,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    }
    return config | MORE.get(size, {})


def gpt2_tensors(config):
    """(name, shape, mean, standard deviation)."""
    n_layer, c = config["n_layer"], config["n_embd"]
    residual = STD / math.sqrt(2 * n_layer)  # GPT-2 paper, section 2.3
    out = [
        ("wte.weight", (config["vocab_size"], c), 0, STD),
        ("wpe.weight", (config["n_positions"], c), 0, STD),
        ("ln_f.weight", (c,), 1, 0.05),
        ("ln_f.bias", (c,), 0, STD),
    ]
    for layer in range(n_layer):
        h = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            out += [(h + norm + ".weight", (c,), 1, 0.05), (h + norm + ".bias", (c,), 0, STD)]
        # Conv1D: [in, out]
        for linear, shape, deviation in (
            ("attn.c_attn", (c, 3 * c), STD),
            ("attn.c_proj", (c, c), residual),
            ("mlp.c_fc", (c, 4 * c), STD),
            ("mlp.c_proj", (4 * c, c), residual),
        ):
            out += [(h + linear + ".weight", shape, 0, deviation), (h + linear + ".bias", shape[1:], 0, 0.01)]
    return [("transformer." + name, *rest) for name, *rest in out]


def linear(name, outputs, inputs, bias, deviation=STD):
    return [(name + ".weight", (outputs, inputs), 0, deviation)] + ([(name + ".bias", (outputs,), 0, 0.01)] if bias else [])


def llama_tensors(config):
    c, inner, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    width, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    residual = STD / math.sqrt(2 * config["num_hidden_layers"])
    out = [("model.embed_tokens.weight", (config["vocab_size"], c), 0, STD), ("model.norm.weight", (c,), 1, 0.05)]
    if not config["tie_word_embeddings"]:
        out += linear("lm_head", config["vocab_size"], c, False)
    bias = config["model_type"] == "qwen2"
    for layer in range(config["num_hidden_layers"]):
        h = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            out.append((f"{h}{norm}.weight", (c,), 1, 0.05))
        if config["model_type"] == "qwen3":
            out += [(f"{h}self_attn.{norm}.weight", (d,), 1, 0.05) for norm in ("q_norm", "k_norm")]
        out += linear(h + "self_attn.q_proj", width, c, bias)
        out += linear(h + "self_attn.k_proj", kv, c, bias)
        out += linear(h + "self_attn.v_proj", kv, c, bias)
        out += linear(h + "self_attn.o_proj", c, width, False, residual)
        out += linear(h + "mlp.gate_proj", inner, c, False)
        out += linear(h + "mlp.up_proj", inner, c, False)
        out += linear(h + "mlp.down_proj", c, inner, False, residual)
    return out


def qwen35_tensors(config):
    c, inner, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    width, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    heads, dv = config["linear_num_value_heads"], config["linear_value_head_dim"]
    mixed = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"] + heads * dv
    out = [("model.embed_tokens.weight", (config["vocab_size"], c), 0, STD), ("model.norm.weight", (c,), 0, 0.05)]
    for layer, kind in enumerate(config["layer_types"]):
        h = f"model.layers.{layer}."
        out += [(f"{h}{norm}.weight", (c,), 0, 0.05) for norm in ("input_layernorm", "post_attention_layernorm")]
        if kind == "full_attention":
            out += [(f"{h}self_attn.{norm}.weight", (d,), 0, 0.05) for norm in ("q_norm", "k_norm")]
            out += linear(h + "self_attn.q_proj", 2 * width, c, False)
            out += linear(h + "self_attn.k_proj", kv, c, False)
            out += linear(h + "self_attn.v_proj", kv, c, False)
            out += linear(h + "self_attn.o_proj", c, width, False)
        else:
            h += "linear_attn."
            out += linear(h + "in_proj_qkv", mixed, c, False)
            out += linear(h + "in_proj_z", heads * dv, c, False)
            out += linear(h + "in_proj_a", heads, c, False)
            out += linear(h + "in_proj_b", heads, c, False)
            out.append((h + "conv1d.weight", (mixed, 1, config["linear_conv_kernel_dim"]), 0, 0.3))
            out += [(h + "A_log", (heads,), 1, 0.5), (h + "dt_bias", (heads,), 0, 0.5)]
            out.append((h + "norm.weight", (dv,), 1, 0.05))
            out += linear(h + "out_proj", c, heads * dv, False)
            h = f"model.layers.{layer}."
        out += linear(h + "mlp.gate_proj", inner, c, False)
        out += linear(h + "mlp.up_proj", inner, c, False)
        out += linear(h + "mlp.down_proj", c, inner, False)
    return out


def gemma4_tensors(config):
    c, layers, ple = config["hidden_size"], config["num_hidden_layers"], config["hidden_size_per_layer_input"]
    vocab = config["vocab_size"]
    out = [
        ("model.embed_tokens.weight", (vocab, c), 0, STD),
        ("model.embed_tokens_per_layer.weight", (vocab, layers * ple), 0, STD),
        ("model.per_layer_model_projection.weight", (layers * ple, c), 0, STD),
        ("model.per_layer_projection_norm.weight", (ple,), 1, 0.05),
        ("model.norm.weight", (c,), 1, 0.05),
    ]
    norms = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    for layer, kind in enumerate(config["layer_types"]):
        h = f"model.layers.{layer}."
        d = config["global_head_dim" if kind == "full_attention" else "head_dim"]
        shared = layer >= layers - config["num_kv_shared_layers"]
        width, inner = config["num_attention_heads"] * d, config["intermediate_size"] * (2 if shared else 1)
        out += [(f"{h}{norm}.weight", (c,), 1, 0.05) for norm in (*norms, "post_per_layer_input_norm")]
        out += [(f"{h}self_attn.{norm}.weight", (d,), 1, 0.05) for norm in ("q_norm", "k_norm")[: 1 if shared else 2]]
        out += linear(h + "self_attn.q_proj", width, c, False)
        for name in () if shared else ("k_proj", "v_proj"):
            out += linear(f"{h}self_attn.{name}", config["num_key_value_heads"] * d, c, False)
        out += linear(h + "self_attn.o_proj", c, width, False)
        out += linear(h + "mlp.gate_proj", inner, c, False)
        out += linear(h + "mlp.up_proj", inner, c, False)
        out += linear(h + "mlp.down_proj", c, inner, False)
        out += linear(h + "per_layer_input_gate", ple, c, False)
        out += linear(h + "per_layer_projection", c, ple, False)
        out.append((h + "layer_scalar", (1,), 1, 0.05))
    return out


def bert_tensors(config):
    c, inner, mpnet = config["hidden_size"], config["intermediate_size"], config["model_type"] == "mpnet"

    def norm(name):
        return [(name + ".LayerNorm.weight", (c,), 1, 0.05), (name + ".LayerNorm.bias", (c,), 0, STD)]

    out = [
        ("embeddings.word_embeddings.weight", (config["vocab_size"], c), 0, STD),
        ("embeddings.position_embeddings.weight", (config["max_position_embeddings"], c), 0, STD),
        *norm("embeddings"),
    ]
    if mpnet:
        out.append(("encoder.relative_attention_bias.weight", (32, config["num_attention_heads"]), 0, 0.5))
    else:
        out.append(("embeddings.token_type_embeddings.weight", (config["type_vocab_size"], c), 0, STD))
    for layer in range(config["num_hidden_layers"]):
        h = f"encoder.layer.{layer}."
        names = ("attn.q", "attn.k", "attn.v", "attn.o") if mpnet else ("self.query", "self.key", "self.value", "output.dense")
        for name in names:
            out += linear(f"{h}attention.{name}", c, c, True)
        out += norm(h + ("attention" if mpnet else "attention.output"))
        out += linear(h + "intermediate.dense", inner, c, True) + linear(h + "output.dense", c, inner, True)
        out += norm(h + "output")
    return out


def modernbert_tensors(config):
    c, inner = config["hidden_size"], config["intermediate_size"]
    residual = STD / math.sqrt(2 * config["num_hidden_layers"])
    out = [("embeddings.tok_embeddings.weight", (config["vocab_size"], c), 0, STD)]
    norms = ["embeddings.norm", "final_norm"]
    for layer in range(config["num_hidden_layers"]):
        h = f"layers.{layer}."
        norms += [h + "mlp_norm"] + ([h + "attn_norm"] if layer > 0 else [])
        out += linear(h + "attn.Wqkv", 3 * c, c, False) + linear(h + "attn.Wo", c, c, False, residual)
        out += linear(h + "mlp.Wi", 2 * inner, c, False) + linear(h + "mlp.Wo", c, inner, False, residual)
    return out + [(name + ".weight", (c,), 1, 0.05) for name in norms]


def embeddinggemma_tensors(config):
    c, inner, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    width, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    out = [("embed_tokens.weight", (config["vocab_size"], c), 0, STD), ("norm.weight", (c,), 0, 0.05)]
    for layer in range(config["num_hidden_layers"]):
        h = f"layers.{layer}."
        for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            out.append((f"{h}{norm}_layernorm.weight", (c,), 0, 0.05))
        out += [(f"{h}self_attn.{norm}.weight", (d,), 0, 0.05) for norm in ("q_norm", "k_norm")]
        out += linear(h + "self_attn.q_proj", width, c, False) + linear(h + "self_attn.k_proj", kv, c, False)
        out += linear(h + "self_attn.v_proj", kv, c, False) + linear(h + "self_attn.o_proj", c, width, False)
        for name, outputs, inputs in (("gate", inner, c), ("up", inner, c), ("down", c, inner)):
            out += linear(f"{h}mlp.{name}_proj", outputs, inputs, False)
    return out


def classifier_tensors(arch, config):
    """What a ...ForSequenceClassification with one label has on top of the encoder."""
    c = config["hidden_size"]
    if arch == "bert":
        return linear("pooler.dense", c, c, True) + linear("classifier", 1, c, True)
    if arch == "modernbert":
        return [("head.norm.weight", (c,), 1, 0.05), *linear("head.dense", c, c, False), *linear("classifier", 1, c, True)]
    return linear("classifier.dense", c, c, True) + linear("classifier.out_proj", 1, c, True)


TENSORS = {
    "gpt2": gpt2_tensors,
    **{arch: llama_tensors for arch in ("llama", "qwen2", "qwen3")},
    "qwen35": qwen35_tensors,
    "gemma4": gemma4_tensors,
    **{arch: bert_tensors for arch in ("bert", "mpnet", "roberta", "xlm-roberta")},
    "modernbert": modernbert_tensors,
    "embeddinggemma": embeddinggemma_tensors,
}



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


def stored(values, dtype):
    """By way of f32: the f16 and bf16 models are the f32 model, rounded."""
    values = values.astype("<f4")
    if dtype == "f16":
        return values.astype("<f2")
    if dtype == "bf16":  # to the nearest, ties to even
        bits = values.view("<u4").astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)).astype("<u2")
    return values


def write_weights(path, tensors, dtype, seed):
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
                values = normal(bits, min(CHUNK, count - start)) * deviation + mean
                out.write(stored(values, dtype).tobytes())
    os.replace(path + ".part", path)


def write_json(folder, name, value):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        json.dump(value, out, indent=2, sort_keys=True)
        out.write("\n")


def write_sentence_files(folder, arch, size, channels, seed):
    """What sentence-transformers reads beside the model."""
    length, pooling = SENTENCES[size]
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if arch == "embeddinggemma":
        for path, inputs, outputs in (("2_Dense", channels, 4 * channels), ("3_Dense", 4 * channels, channels)):
            kinds.append((path, "Dense"))
            dense = {"in_features": inputs, "out_features": outputs, "bias": False}
            write_json(folder, path + "/config.json", dense | {"activation_function": "torch.nn.modules.linear.Identity"})
            tensors = [("linear.weight", (outputs, inputs), 0, STD)]
            write_weights(os.path.join(folder, path, "model.safetensors"), tensors, "f32", seed)
    kinds.append((f"{len(kinds)}_Normalize", "Normalize"))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    write_json(folder, "modules.json", modules)
    write_json(folder, "sentence_bert_config.json", {"do_lower_case": False, "max_seq_length": length})
    write_json(
        folder,
        "1_Pooling/config.json",
        {
            "pooling_mode_cls_token": pooling == "cls",
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
            "pooling_mode_mean_tokens": pooling == "mean",
            "word_embedding_dimension": channels,
        },
    )


def write_onnx(folder, config):
    """model.onnx beside model.safetensors, by Debian's python3-onnx; its weights are in model.onnx.data."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import onnx_of_model

    onnx_of_model.write(folder, config)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=ARCHS, default="gpt2")
    parser.add_argument("--size", required=True)
    parser.add_argument("--seed", type=int, default=0, help="0 or more")
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--dtype", choices=TORCH, default="f32")
    parser.add_argument("--n-ctx", type=int, metavar="N", help="positions (default: the model's)")
    parser.add_argument("--vocab", type=int, metavar="N", help="tokens (default: the model's)")
    parser.add_argument("--tokenizer", metavar="DIR", help="copy the tokenizer files of this directory")
    parser.add_argument("--onnx", action="store_true", help="write model.onnx too (gpt2, encoders; needs python3-onnx)")
    parser.add_argument("--rerank", action="store_true", help="an encoder with a classifier of one label")
    args = parser.parse_args()
    if args.size not in ARCHS[args.arch]:
        parser.error(f"--size: expected one of {', '.join(ARCHS[args.arch])} for {args.arch}, got '{args.size}'")
    published = (50257, 1024) if args.arch == "gpt2" else ARCHS[args.arch][args.size][5:]
    vocab = published[0] if args.vocab is None else args.vocab
    positions = published[1] if args.n_ctx is None else args.n_ctx
    if args.seed < 0 or positions < 1 or vocab < 2:
        parser.error("--seed is 0 or more, --n-ctx 1 or more, --vocab 2 or more")
    if args.onnx and (args.arch not in ("gpt2", *ENCODERS) or args.dtype != "f32"):
        parser.error("--onnx: expected gpt2 or an encoder in f32")
    if args.rerank and args.arch not in CLASSIFIERS:
        parser.error(f"--rerank: expected --arch {', '.join(CLASSIFIERS)}, got {args.arch}")
    global np  # after the command line: --help needs nothing
    try:
        import numpy as np

        if args.onnx:
            import onnx  # noqa: F401
    except ImportError as error:
        sys.exit(f"make_random_model.py: needs {error.name}: apt-get install python3-{error.name}")

    copied = []
    if args.tokenizer:
        copied = [name for name in TOKENIZER_FILES if os.path.isfile(os.path.join(args.tokenizer, name))]
        if not copied:
            parser.error(f"--tokenizer {args.tokenizer}: none of {', '.join(TOKENIZER_FILES)} there")
    os.makedirs(args.out, exist_ok=True)
    for name in copied:
        shutil.copyfile(os.path.join(args.tokenizer, name), os.path.join(args.out, name))
    if args.arch == "gpt2":
        config = gpt2_config(args.size, positions, vocab, args.dtype)
    else:
        config = other_config(args.arch, args.size, positions, vocab, args.dtype)
    if args.rerank:
        config["architectures"] = [CLASSIFIERS[args.arch] + "ForSequenceClassification"]
        config["id2label"] = {"0": "LABEL_0"}
    write_json(args.out, "config.json", config)
    if args.arch in ENCODERS and not args.rerank:
        write_sentence_files(args.out, args.arch, args.size, config["hidden_size"], args.seed)
    # Sorted, as the safetensors library saves them.
    tensors = TENSORS[args.arch](config) + (classifier_tensors(args.arch, config) if args.rerank else [])
    tensors.sort()
    write_weights(os.path.join(args.out, "model.safetensors"), tensors, args.dtype, args.seed)
    if args.onnx:
        write_onnx(args.out, config)


if __name__ == "__main__":
    main()
