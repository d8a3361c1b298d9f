#!/usr/bin/env python3
"""make.py: writes the hostile safetensors files beside it, one per way to be wrong. test_io.cpp knows the message of each.

Each differs from GOOD in one thing, so that no other check can refuse it first. Standard library only.
"""
import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))


def entry(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def without(field):
    out = entry()
    del out[field]
    return out


def raw(text, data=bytes(8), length=None):
    """A file of this header text (str or bytes) and data; `length` is a lie about the header."""
    text = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def file(header, data=bytes(8)):
    return raw(json.dumps(header, separators=(",", ":")), data)


GOOD = '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'

ATTACKS = {
    # the length
    "empty": b"",
    "short_length": bytes(7),
    "header_over_cap": raw(GOOD, length=(4 << 20) + 1),
    "header_length_max": raw(GOOD, length=2**64 - 1),
    "header_past_end": raw(GOOD, length=len(GOOD) + 8 + 1),
    "header_empty": raw(""),
    # the JSON
    "header_byte_order_mark": raw(b"\xef\xbb\xbf" + GOOD.encode()),
    "header_leading_space": raw(" " + GOOD),
    "header_array": raw("[]", b""),
    "json_cut": raw(GOOD[:-1]),
    "json_trailing": raw(GOOD + "}"),
    "json_comment": raw(GOOD + "//"),
    "json_not_utf8": raw(GOOD.encode().replace(b'"a"', b'"\xff"')),
    "json_number_overflow": raw(GOOD.replace("[2]", "[1e999]")),
    "json_deep": raw('{"a":' + "[" * 5000 + "]" * 5000 + "}"),
    "key_twice": raw(GOOD[:-1] + "," + GOOD[1:]),
    "key_twice_escaped": raw(GOOD[:-1] + "," + GOOD[1:].replace('"a"', '"\\u0061"')),
    "field_twice": raw(GOOD.replace('"shape"', '"dtype":"F32","shape"')),
    # metadata
    "metadata_not_object": file({"__metadata__": "pt", "a": entry()}),
    "metadata_not_text": file({"__metadata__": {"format": 1}, "a": entry()}),
    # a tensor's fields
    "tensor_not_object": file({"a": [0, 8]}),
    "field_unknown": file({"a": entry(strides=[1])}),
    "no_dtype": file({"a": without("dtype")}),
    "no_shape": file({"a": without("shape")}),
    "no_offsets": file({"a": without("data_offsets")}),
    "dtype_not_text": file({"a": entry(dtype=32)}),
    "dtype_unknown": file({"a": entry(dtype="F8_E5M2", shape=[8])}),
    "dtype_lower_case": file({"a": entry(dtype="f32")}),
    "shape_not_array": raw(GOOD.replace("[2]", "2")),
    "shape_negative": file({"a": entry(shape=[-1, -2])}),
    "shape_fraction": file({"a": entry(shape=[2.0])}),
    "shape_text": file({"a": entry(shape=["2"])}),
    "shape_over_63_bits": file({"a": entry(shape=[2**63])}),
    "shape_nine_sizes": file({"a": entry(shape=[1] * 8 + [2])}),
    # 2^33 * 2^33 elements are 0 modulo 2^64, and so are 2^62 elements of 4 bytes.
    "shape_product_overflows": file({"a": entry(shape=[2**33, 2**33], offsets=[0, 0])}, b""),
    "shape_bytes_overflow": file({"a": entry(shape=[2**62], offsets=[0, 0])}, b""),
    "offsets_not_pair": file({"a": entry(offsets=[0, 8, 8])}),
    "offsets_not_array": raw(GOOD.replace("[0,8]", "8")),
    "offsets_negative": file({"a": entry(offsets=[-8, 0])}),
    "offsets_fraction": file({"a": entry(offsets=[0, 8.0])}),
    # where the tensors lie
    "begin_after_end": file({"a": entry(offsets=[8, 0])}),
    "end_past_data": file({"a": entry(shape=[3], offsets=[0, 12])}),
    "end_huge": file({"a": entry(shape=[2], offsets=[2**64 - 9, 2**64 - 1])}),
    "size_too_small": file({"a": entry(shape=[1])}),
    "size_too_large": file({"a": entry(shape=[3])}),
    "overlap": file({"a": entry(), "b": entry(shape=[1], offsets=[4, 8])}),
    "same_bytes": file({"a": entry(), "b": entry()}),
    "empty_inside": file({"a": entry(), "b": entry(shape=[0], offsets=[4, 4])}),
    "hole": file({"a": entry(shape=[1], offsets=[0, 4]), "b": entry(shape=[1], offsets=[8, 12])}, bytes(12)),
    "hole_at_start": file({"a": entry(offsets=[4, 12])}, bytes(12)),
    "data_after_last": file({"a": entry()}, bytes(9)),
    "data_without_tensor": file({}, bytes(1)),
}

if __name__ == "__main__":
    for name, data in {"good": raw(GOOD), **ATTACKS}.items():
        with open(os.path.join(HERE, name + ".safetensors"), "wb") as out:
            out.write(data)
