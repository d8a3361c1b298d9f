#!/usr/bin/env python3
"""Writes blocks.safetensors: matrices and what ggml's rounding to Q8_0 and Q4_0 blocks makes of them.

Stated from ggml's own description of the formats (ggml-common.h, quantize_row_q8_0_ref and quantize_row_q4_0_ref), in
numpy, with no code of this project. Made with numpy 1.24.2.

  NAME.values  F32 [rows, K]
  NAME.q8_0    U8 [rows, 34 ceil(K / 32)]   NAME.q8_0.read  F32 [rows, K]: the blocks' values
  NAME.q4_0    U8 [rows, 18 ceil(K / 32)]   NAME.q4_0.read  F32 [rows, K]
"""
import json
import os
import struct

import numpy as np


def padded(values):
    rows, k = values.shape
    out = np.zeros((rows, -(-k // 32) * 32), np.float32)
    out[:, :k] = values
    return out.reshape(-1, 32)


def q8_0(values):
    x = padded(values)
    amax = np.abs(x).max(axis=1)
    d = (amax / np.float32(127)).astype(np.float32)
    with np.errstate(divide="ignore"):
        inverse = np.where(d != 0, np.float32(1) / d, np.float32(0)).astype(np.float32)
    scaled = (x * inverse[:, None]).astype(np.float32)
    q = (np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))).astype(np.int8)
    half = d.astype(np.float16)
    blocks = np.concatenate([half.view(np.uint8).reshape(-1, 2), q.view(np.uint8)], axis=1)
    read = q.astype(np.float32) * half.astype(np.float32)[:, None]
    return blocks, read


def q4_0(values):
    x = padded(values)
    where = np.abs(x).argmax(axis=1)
    largest = x[np.arange(len(x)), where]
    d = (largest / np.float32(-8)).astype(np.float32)
    with np.errstate(divide="ignore"):
        inverse = np.where(d != 0, np.float32(1) / d, np.float32(0)).astype(np.float32)
    scaled = (x * inverse[:, None]).astype(np.float32) + np.float32(8.5)
    q = np.minimum(15, scaled.astype(np.int8)).astype(np.uint8)
    half = d.astype(np.float16)
    nibbles = q[:, :16] | q[:, 16:] << 4
    blocks = np.concatenate([half.view(np.uint8).reshape(-1, 2), nibbles], axis=1)
    read = (q.astype(np.float32) - np.float32(8)) * half.astype(np.float32)[:, None]
    return blocks, read


def matrices():
    random = np.random.Generator(np.random.PCG64(7))
    yield "normal", random.normal(0, 0.02, (24, 96))
    yield "ragged", random.normal(0, 1.5, (5, 45))  # the second block has 13 values
    heavy = random.standard_t(3, (16, 64))  # a few values far out, as trained weights have
    heavy[3, :] = 0
    heavy[4, 0:31] = 0
    yield "heavy", heavy
    # Values that both formats hold exactly: whole multiples of a half, with the extreme that sets ggml's scale.
    exact8 = random.integers(-127, 128, (6, 32)) * 0.03125
    exact8[:, 5] = 127 * 0.03125
    yield "exact8", exact8
    exact4 = random.integers(-7, 8, (6, 64)) * 0.0625
    exact4[:, 9] = exact4[:, 41] = -8 * 0.0625
    yield "exact4", exact4


def main():
    tensors = []
    for name, values in matrices():
        values = values.astype(np.float32)
        tensors.append((name + ".values", "F32", values))
        for format_name, function in (("q8_0", q8_0), ("q4_0", q4_0)):
            blocks, read = function(values)
            rows, k = values.shape
            tensors.append((name + "." + format_name, "U8", blocks.reshape(rows, -1)))
            read = read.reshape(rows, -1)[:, :k].copy()
            tensors.append((name + "." + format_name + ".read", "F32", read))
    header, data = {}, b""
    for name, dtype, array in tensors:
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "blocks.safetensors")
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


main()
