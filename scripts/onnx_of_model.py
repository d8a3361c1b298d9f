"""The graph of a GPT-2's or an encoder's directory for ONNX Runtime, made by make_random_model.py --onnx; for benchmarks only.

gpt2: input_ids [1, T], past.N.key and past.N.value [1, H, P, D] -> logits [1, V] of the last token, present.N.*
encoders: input_ids, attention_mask [B, T] -> last_hidden_state [B, T, C]; no text names padding
"""
import json
import os
import struct

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save_model

OPSET = 17  # LayerNormalization is an op from here on


class Graph:
    def __init__(self):
        self.nodes, self.weights = [], []

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def give(self, value, name):
        self.nodes.append(helper.make_node("Identity", [value], [name]))

    def constant(self, array):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def number(self, value):
        return self.constant(np.array(value, np.float32))

    def whole(self, *values):
        return self.constant(np.array(values, np.int64))

    def linear(self, x, weight, bias):
        """weight: [in, out]."""
        return self.op("Add", self.op("MatMul", x, self.constant(weight)), self.constant(bias))

    def norm(self, x, weight, bias, epsilon):
        return self.op("LayerNormalization", x, self.constant(weight), self.constant(bias), axis=-1, epsilon=epsilon)

    def heads(self, x, count):
        """[B, T, C] -> [B, H, T, D]."""
        return self.op("Transpose", self.op("Reshape", x, self.whole(0, 0, count, -1)), perm=[0, 2, 1, 3])

    def attend(self, q, k, v, mask, depth):
        """mask: added to the scores."""
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Add", self.op("Mul", scores, self.number(depth**-0.5)), mask)
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        return self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.whole(0, 0, -1))

    def save(self, path, inputs, outputs):
        graph = helper.make_graph(self.nodes, "model", inputs, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        data = os.path.basename(path) + ".data"
        if os.path.exists(path + ".data"):  # onnx appends to it
            os.remove(path + ".data")
        save_model(model, path, save_as_external_data=True, all_tensors_to_one_file=True, location=data)


def gelu_tanh(g, x):
    cube = g.op("Mul", g.op("Mul", x, x), x)
    inner = g.op("Add", x, g.op("Mul", cube, g.number(0.044715)))
    grown = g.op("Add", g.op("Tanh", g.op("Mul", inner, g.number((2 / np.pi) ** 0.5))), g.number(1))
    return g.op("Mul", g.op("Mul", x, grown), g.number(0.5))


def gelu_erf(g, x):
    grown = g.op("Add", g.op("Erf", g.op("Mul", x, g.number(0.5**0.5))), g.number(1))
    return g.op("Mul", g.op("Mul", x, grown), g.number(0.5))


def tensor(name, kind, *dims):
    return helper.make_tensor_value_info(name, kind, list(dims))


def gpt2(g, config, w):
    heads, c, epsilon = config["n_head"], config["n_embd"], config["layer_norm_epsilon"]
    depth = c // heads
    kept = ["past.0.key", "input_ids"]
    past, rows = (g.op("Gather", g.op("Shape", x), g.whole(axis), axis=0) for x, axis in zip(kept, (2, 1)))
    scalar = g.whole()
    one = g.constant(np.array(1, np.int64))
    first, count = g.op("Reshape", past, scalar), g.op("Reshape", rows, scalar)
    end = g.op("Add", first, count)
    positions = g.op("Range", first, end, one)
    keys = g.op("Range", g.constant(np.array(0, np.int64)), end, one)
    hidden = g.op("Greater", g.op("Unsqueeze", keys, g.whole(0)), g.op("Unsqueeze", positions, g.whole(1)))
    mask = g.op("Mul", g.op("Cast", hidden, to=TensorProto.FLOAT), g.number(-1e9))
    table = g.constant(w["wte.weight"])
    x = g.op("Add", g.op("Gather", table, "input_ids"), g.op("Gather", g.constant(w["wpe.weight"]), positions))
    for layer in range(config["n_layer"]):
        h = f"h.{layer}."

        def weights(name):
            return w[h + name + ".weight"], w[h + name + ".bias"]

        qkv = g.linear(g.norm(x, *weights("ln_1"), epsilon), *weights("attn.c_attn"))
        q, k, v = (g.heads(part, heads) for part in g.op("Split", qkv, g.whole(c, c, c), outputs=3, axis=2))
        k = g.op("Concat", f"past.{layer}.key", k, axis=2)
        v = g.op("Concat", f"past.{layer}.value", v, axis=2)
        g.give(k, f"present.{layer}.key"), g.give(v, f"present.{layer}.value")
        x = g.op("Add", x, g.linear(g.attend(q, k, v, mask, depth), *weights("attn.c_proj")))
        inner = gelu_tanh(g, g.linear(g.norm(x, *weights("ln_2"), epsilon), *weights("mlp.c_fc")))
        x = g.op("Add", x, g.linear(inner, *weights("mlp.c_proj")))
    last = g.op("Gather", x, g.constant(np.array(-1, np.int64)), axis=1)
    normed = g.norm(last, w["ln_f.weight"], w["ln_f.bias"], epsilon)
    g.give(g.op("Gemm", normed, table, transB=1), "logits")
    cache = [f"{layer}.{which}" for layer in range(config["n_layer"]) for which in ("key", "value")]
    inputs = [tensor("input_ids", TensorProto.INT64, 1, "T")]
    inputs += [tensor(f"past.{name}", TensorProto.FLOAT, 1, heads, "P", depth) for name in cache]
    outputs = [tensor("logits", TensorProto.FLOAT, 1, config["vocab_size"])]
    outputs += [tensor(f"present.{name}", TensorProto.FLOAT, 1, heads, "E", depth) for name in cache]
    return inputs, outputs


def text_inputs(g):
    """The mask of padding [B, 1, 1, T] and the places [T] of a batch of texts."""
    mask = g.op("Sub", g.number(1), g.op("Cast", "attention_mask", to=TensorProto.FLOAT))
    mask = g.op("Mul", g.op("Unsqueeze", mask, g.whole(1, 2)), g.number(-1e9))
    rows = g.op("Reshape", g.op("Gather", g.op("Shape", "input_ids"), g.whole(1), axis=0), g.whole())
    zero, one = (g.constant(np.array(n, np.int64)) for n in (0, 1))
    return mask, g.op("Range", zero, rows, one)


def text_outputs(g, x, channels):
    g.give(x, "last_hidden_state")
    inputs = [tensor(name, TensorProto.INT64, "B", "T") for name in ("input_ids", "attention_mask")]
    return inputs, [tensor("last_hidden_state", TensorProto.FLOAT, "B", "T", channels)]


def apart(g, places):
    """Of each row and key, by how many places the key is behind the row: [T, T]."""
    return g.op("Sub", g.op("Unsqueeze", places, g.whole(0)), g.op("Unsqueeze", places, g.whole(1)))


def windowed(g, mask, places, reach):
    """The mask, and of keys that are further away than `reach`."""
    far = g.op("Greater", g.op("Abs", apart(g, places)), g.constant(np.array(reach, np.int64)))
    return g.op("Add", mask, g.op("Mul", g.op("Cast", far, to=TensorProto.FLOAT), g.number(-1e9)))


def relative_bias(g, places, table):
    """MPNet's bias of scores, [H, T, T]: a bucket for each distance up to 7, then by its logarithm."""
    reach = 128
    steps = np.arange(-reach, reach + 1)
    near = np.abs(steps)
    by_log = 8 + np.floor(np.log2(np.maximum(near, 1) / 8) * 2 + 1e-9).astype(np.int64)
    buckets = np.where(near < 8, near, np.minimum(by_log, 15)) + np.where(steps > 0, 16, 0)
    within = g.op("Clip", apart(g, places), *(g.constant(np.array(n, np.int64)) for n in (-reach, reach)))
    index = g.op("Add", within, g.constant(np.array(reach, np.int64)))
    return g.op("Transpose", g.op("Gather", g.constant(table[buckets]), index), perm=[2, 0, 1])


def bert(g, config, w):
    """BERT, RoBERTa, XLM-R and MPNet."""
    heads, c, epsilon = config["num_attention_heads"], config["hidden_size"], config["layer_norm_eps"]
    kind = config["model_type"]
    mpnet, counted = kind == "mpnet", kind != "bert"
    mask, places = text_inputs(g)
    positions = g.op("Add", places, g.constant(np.array(2, np.int64))) if counted else places
    if mpnet:
        mask = g.op("Add", mask, relative_bias(g, places, w["encoder.relative_attention_bias.weight"]))
    e = "embeddings."
    x = g.op("Gather", g.constant(w[e + "word_embeddings.weight"]), "input_ids")
    x = g.op("Add", x, g.op("Gather", g.constant(w[e + "position_embeddings.weight"]), positions))
    if not mpnet:
        x = g.op("Add", x, g.constant(w[e + "token_type_embeddings.weight"][0]))

    def norm(x, name):
        return g.norm(x, w[name + ".LayerNorm.weight"], w[name + ".LayerNorm.bias"], epsilon)

    def linear(x, name):
        return g.linear(x, w[name + ".weight"].T, w[name + ".bias"])

    names = ("attn.q", "attn.k", "attn.v", "attn.o") if mpnet else ("self.query", "self.key", "self.value", "output.dense")
    x = norm(x, "embeddings")
    for layer in range(config["num_hidden_layers"]):
        h = f"encoder.layer.{layer}."
        q, k, v = (g.heads(linear(x, h + "attention." + name), heads) for name in names[:3])
        attended = linear(g.attend(q, k, v, mask, c // heads), h + "attention." + names[3])
        x = norm(g.op("Add", x, attended), h + ("attention" if mpnet else "attention.output"))
        inner = gelu_erf(g, linear(x, h + "intermediate.dense"))
        x = norm(g.op("Add", x, linear(inner, h + "output.dense")), h + "output")
    return text_outputs(g, x, c)


def rotation(g, places, depth, theta):
    """The cosines and sines [T, D / 2] of rotary positions."""
    waves = g.constant((theta ** (-np.arange(0, depth, 2) / depth)).astype(np.float32))
    angles = g.op("Mul", g.op("Unsqueeze", g.op("Cast", places, to=TensorProto.FLOAT), g.whole(1)), waves)
    return g.op("Cos", angles), g.op("Sin", angles)


def rotate(g, x, cosines, sines):
    a, b = g.op("Split", x, axis=-1, outputs=2)
    left = g.op("Sub", g.op("Mul", a, cosines), g.op("Mul", b, sines))
    return g.op("Concat", left, g.op("Add", g.op("Mul", b, cosines), g.op("Mul", a, sines)), axis=-1)


def modernbert(g, config, w):
    heads, c, epsilon = config["num_attention_heads"], config["hidden_size"], config["norm_eps"]
    depth, zeros = c // heads, np.zeros(c, np.float32)
    mask, places = text_inputs(g)
    near = windowed(g, mask, places, config["local_attention"] // 2)
    turns = {name: rotation(g, places, depth, config[name + "_rope_theta"]) for name in ("global", "local")}

    def norm(x, name):
        return g.norm(x, w[name + ".weight"], zeros, epsilon)

    def linear(x, name):
        return g.op("MatMul", x, g.constant(w[name + ".weight"].T))

    x = norm(g.op("Gather", g.constant(w["embeddings.tok_embeddings.weight"]), "input_ids"), "embeddings.norm")
    for layer in range(config["num_hidden_layers"]):
        h, full = f"layers.{layer}.", layer % config["global_attn_every_n_layers"] == 0
        parts = g.op("Split", linear(norm(x, h + "attn_norm") if layer else x, h + "attn.Wqkv"), axis=2, outputs=3)
        q, k, v = (g.heads(part, heads) for part in parts)
        q, k = (rotate(g, part, *turns["global" if full else "local"]) for part in (q, k))
        x = g.op("Add", x, linear(g.attend(q, k, v, mask if full else near, depth), h + "attn.Wo"))
        gate, up = g.op("Split", linear(norm(x, h + "mlp_norm"), h + "mlp.Wi"), axis=2, outputs=2)
        x = g.op("Add", x, linear(g.op("Mul", gelu_erf(g, gate), up), h + "mlp.Wo"))
    return text_outputs(g, norm(x, "final_norm"), c)


def embeddinggemma(g, config, w):
    heads, kv, c = config["num_attention_heads"], config["num_key_value_heads"], config["hidden_size"]
    depth, epsilon = config["head_dim"], config["rms_norm_eps"]
    mask, places = text_inputs(g)
    near = windowed(g, mask, places, config["sliding_window"] // 2)
    thetas = {True: config["rope_theta"], False: config["rope_local_base_freq"]}
    turns = {full: rotation(g, places, depth, theta) for full, theta in thetas.items()}

    def norm(x, name):
        mean = g.op("ReduceMean", g.op("Mul", x, x), axes=[-1])
        scale = g.op("Reciprocal", g.op("Sqrt", g.op("Add", mean, g.number(epsilon))))
        return g.op("Mul", g.op("Mul", x, scale), g.constant(1 + w[name + ".weight"]))

    def linear(x, name):
        return g.op("MatMul", x, g.constant(w[name + ".weight"].T))

    x = g.op("Gather", g.constant(w["embed_tokens.weight"]), "input_ids")
    x = g.op("Mul", x, g.number(c**0.5))
    for layer in range(config["num_hidden_layers"]):
        h, full = f"layers.{layer}.", (layer + 1) % 6 == 0
        a, y = h + "self_attn.", norm(x, h + "input_layernorm")
        q, k, v = (g.heads(linear(y, a + name), count) for name, count in (("q_proj", heads), ("k_proj", kv), ("v_proj", kv)))
        q = rotate(g, norm(q, a + "q_norm"), *turns[full])
        k = rotate(g, norm(k, a + "k_norm"), *turns[full])
        scale = config["query_pre_attn_scalar"]
        attended = linear(g.attend(q, k, v, mask if full else near, scale), a + "o_proj")
        x = g.op("Add", x, norm(attended, h + "post_attention_layernorm"))
        y = norm(x, h + "pre_feedforward_layernorm")
        gated = g.op("Mul", gelu_tanh(g, linear(y, h + "mlp.gate_proj")), linear(y, h + "mlp.up_proj"))
        x = g.op("Add", x, norm(linear(gated, h + "mlp.down_proj"), h + "post_feedforward_layernorm"))
    return text_outputs(g, norm(x, "norm"), c)


BUILD = {"gpt2": gpt2, "modernbert": modernbert, "gemma3_text": embeddinggemma}


def read_weights(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    data = np.memmap(path, np.uint8, "r", 8 + length)
    out = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            out[name.removeprefix("transformer.")] = data[begin:end].view("<f4").reshape(entry["shape"])
    return out


def write(folder, config):
    g = Graph()
    build = BUILD.get(config["model_type"], bert)
    inputs, outputs = build(g, config, read_weights(os.path.join(folder, "model.safetensors")))
    g.save(os.path.join(folder, "model.onnx"), inputs, outputs)
