#!/usr/bin/env python3
"""make.py: writes the hostile files beside it, one per way to be wrong. test_safetensors.cpp, test_weight_file.cpp
(weights), test_gguf.cpp, test_tokenizer_files.cpp (vocab, merges) and test_manifest.cpp know the message of each.

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


# --- a checkpoint with a matrix in blocks (.weights): 2 rows of one Q8_0 block ---


def described(text, shape=(2, 34), dtype="U8", name="m"):
    header = {"__metadata__": {name: text}, "m": entry(dtype, shape, [0, 68])}
    return file(header, bytes(68))


WEIGHT_ATTACKS = {
    "not_described": file({"m": entry("U8", [2, 34], [0, 68])}, bytes(68)),
    "other_described": described("q8_0 [2, 32]", name="n"),
    "described_as_nothing": described(""),
    "format_unknown": described("q5_0 [2, 32]"),
    "format_of_floats": described("f16 [2, 17]"),
    "format_upper_case": described("Q8_0 [2, 32]"),
    "no_shape": described("q8_0"),
    "shape_of_a_vector": described("q8_0 [64]"),
    "shape_of_a_cube": described("q8_0 [2, 32, 1]"),
    "shape_without_space": described("q8_0 [2,32]"),
    "shape_leading_zero": described("q8_0 [02, 32]"),
    "shape_negative": described("q8_0 [-2, 32]"),
    "shape_trailing": described("q8_0 [2, 32] "),
    "shape_over_40_bits": described(f"q8_0 [{2**40 + 1}, 32]"),
    "shape_overflows": described(f"q8_0 [{2**40}, {2**40}]"),
    "rows_0": described("q8_0 [0, 32]"),
    "inner_0": described("q8_0 [2, 0]"),
    "rows_more": described("q8_0 [3, 32]"),
    "rows_less": described("q8_0 [1, 64]"),
    "blocks_more": described("q8_0 [2, 33]"),
    "blocks_less": described("q4_0 [2, 32]"),
    "bytes_in_no_rows": described("q8_0 [2, 32]", shape=[68]),
    "bytes_as_halves": described("q8_0 [2, 32]", shape=[2, 17], dtype="F16"),
}


# --- GGUF ---

U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10  # types of metadata
GGML_F32, GGML_Q8_0 = 0, 8  # types of tensors


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(value)) + value


def key(name, kind, raw):
    return text(name) + struct.pack("<I", kind) + raw


def string(name, value):
    return key(name, STRING, text(value))


def number(name, value):
    return key(name, U32, struct.pack("<I", value))


def array(name, kind, values, count=None):
    raw = b"".join(text(v) if kind == STRING else struct.pack("<i", v) for v in values)
    return key(name, ARRAY, struct.pack("<IQ", kind, len(values) if count is None else count) + raw)


def tensor(name, dims, kind, offset):
    return text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)


KEYS = {
    "general.architecture": string("general.architecture", "gpt2"),
    "gpt2.block_count": number("gpt2.block_count", 1),
    "gpt2.embedding_length": number("gpt2.embedding_length", 2),
    "gpt2.attention.head_count": number("gpt2.attention.head_count", 1),
    "gpt2.context_length": number("gpt2.context_length", 4),
    "gpt2.feed_forward_length": number("gpt2.feed_forward_length", 8),
    "gpt2.attention.layer_norm_epsilon": key("gpt2.attention.layer_norm_epsilon", F32, struct.pack("<f", 1e-5)),
    "tokenizer.ggml.model": string("tokenizer.ggml.model", "gpt2"),
    "tokenizer.ggml.tokens": array("tokenizer.ggml.tokens", STRING, ["a", "b", "ab"]),
    "tokenizer.ggml.merges": array("tokenizer.ggml.merges", STRING, ["a b"]),
    "tokenizer.ggml.token_type": array("tokenizer.ggml.token_type", I32, [1, 1, 1]),
}
TENSORS = {
    "token_embd.weight": tensor("token_embd.weight", [2, 3], GGML_F32, 0),
    "blk.0.ffn_up.weight": tensor("blk.0.ffn_up.weight", [32, 1], GGML_Q8_0, 32),
}
# 24 bytes of floats, 8 of padding, 34 of a block, 30 of padding
DATA = bytes(96)


def gguf(keys=(), tensors=(), more=b"", version=3, magic=b"GGUF", n_keys=None, n_tensors=None, data=DATA, drop=()):
    """GOOD with these keys and tensors in the place of its own, or behind them; `more` is another key's bytes."""
    keys = [raw for name, raw in {**KEYS, **dict(keys)}.items() if name not in drop] + ([more] if more else [])
    tensors = [raw for name, raw in {**TENSORS, **dict(tensors)}.items() if name not in drop]
    n_keys = len(keys) if n_keys is None else n_keys
    n_tensors = len(tensors) if n_tensors is None else n_tensors
    out = magic + struct.pack("<IQQ", version, n_tensors, n_keys) + b"".join(keys) + b"".join(tensors)
    return out + bytes(-len(out) % 32) + data


def with_key(name, raw):
    return gguf(keys={name: raw})


def with_embd(dims, kind=GGML_F32, offset=0, name="token_embd.weight"):
    return gguf(tensors={"token_embd.weight": tensor(name, dims, kind, offset)})


GGUF_ATTACKS = {
    # the head
    "empty": b"",
    "magic": gguf(magic=b"GGML"),
    "version_1": gguf(version=1),
    "version_4": gguf(version=4),
    "big_endian": gguf(version=0x03000000),
    "cut_in_head": gguf()[:20],
    "tensors_over_cap": gguf(n_tensors=(1 << 16) + 1),
    "keys_over_cap": gguf(n_keys=2**64 - 1),
    "more_keys_than_there_are": gguf(n_keys=1 << 16),
    "more_tensors_than_there_are": gguf(n_tensors=1 << 16),
    # keys and values
    "key_too_long": gguf(more=struct.pack("<Q", 65536) + bytes(65536)),
    "key_length_max": gguf(more=struct.pack("<Q", 2**64 - 1)),
    "key_twice": gguf(more=KEYS["gpt2.block_count"]),
    "value_type_unknown": gguf(more=key("x", 13, b"")),
    "value_cut": gguf()[:66],
    "bool_of_2": gguf(more=key("x", BOOL, b"\x02")),
    "string_past_end": gguf(more=key("x", STRING, struct.pack("<Q", 1 << 40))),
    "string_length_max": gguf(more=key("x", STRING, struct.pack("<Q", 2**64 - 1))),
    "array_of_arrays": gguf(more=key("x", ARRAY, struct.pack("<IQ", ARRAY, 1))),
    "array_type_unknown": gguf(more=key("x", ARRAY, struct.pack("<IQ", 99, 1))),
    "array_count_overflows": gguf(more=key("x", ARRAY, struct.pack("<IQ", U64, 2**61))),
    "array_past_end": gguf(more=key("x", ARRAY, struct.pack("<IQ", U32, 1 << 20))),
    "array_of_more_strings": gguf(more=array("x", STRING, ["a"], 1 << 62)),
    "alignment_0": gguf(more=number("general.alignment", 0)),
    "alignment_12": gguf(more=number("general.alignment", 12)),
    "alignment_24": gguf(more=number("general.alignment", 24)),
    "alignment_huge": gguf(more=number("general.alignment", 1 << 31)),
    "alignment_text": gguf(more=string("general.alignment", "32")),
    # tensors
    "name_too_long": with_embd([2, 3], name="n" * 65),
    "tensor_twice": with_embd([2, 3], name="blk.0.ffn_up.weight"),
    "dims_0": with_embd([]),
    "dims_5": with_embd([1] * 5),
    "dims_max": gguf(tensors={"token_embd.weight": text("token_embd.weight") + struct.pack("<I", 2**32 - 1)}),
    "size_0": with_embd([2, 0]),
    "sizes_overflow": with_embd([2**33, 2**33]),
    "size_over_63_bits": with_embd([2**63]),
    "bytes_overflow": with_embd([2**62]),
    "type_unknown": with_embd([2, 3], 999),
    "type_q4_k": with_embd([256, 3], 12),
    "rows_of_part_blocks": with_embd([16, 2], GGML_Q8_0),
    "offset_unaligned": with_embd([2, 3], offset=4),
    "offset_past_end": with_embd([2, 3], offset=128),
    "offset_max": with_embd([2, 3], offset=2**64 - 32),
    "bytes_past_end": with_embd([2, 20]),
    "no_data": gguf(data=b""),
    "overlap": with_embd([2, 5], offset=0),
    # the model
    "no_architecture": gguf(drop=["general.architecture"]),
    "architecture_llama": with_key("general.architecture", string("general.architecture", "llama")),
    "architecture_number": with_key("general.architecture", number("general.architecture", 2)),
    "no_block_count": gguf(drop=["gpt2.block_count"]),
    "block_count_0": with_key("gpt2.block_count", number("gpt2.block_count", 0)),
    "block_count_text": with_key("gpt2.block_count", string("gpt2.block_count", "1")),
    "block_count_negative": with_key("gpt2.block_count", key("gpt2.block_count", I32, struct.pack("<i", -1))),
    "context_length_huge": with_key("gpt2.context_length", number("gpt2.context_length", 1 << 30)),
    "epsilon_nan": with_key(
        "gpt2.attention.layer_norm_epsilon",
        key("gpt2.attention.layer_norm_epsilon", F32, struct.pack("<f", float("nan"))),
    ),
    "epsilon_whole": with_key(
        "gpt2.attention.layer_norm_epsilon", number("gpt2.attention.layer_norm_epsilon", 1)
    ),
    "no_embedding": gguf(drop=["token_embd.weight"]),
    "tensor_of_llama": gguf(
        tensors={"blk.0.ffn_up.weight": tensor("blk.0.ffn_gate.weight", [32, 1], GGML_Q8_0, 32)}
    ),
    "tensor_of_no_block": gguf(
        tensors={"blk.0.ffn_up.weight": tensor("blk.99999999.ffn_up.weight", [32, 1], GGML_Q8_0, 32)}
    ),
    # the tokenizer
    "tokenizer_llama": with_key("tokenizer.ggml.model", string("tokenizer.ggml.model", "llama")),
    "no_tokenizer_model": gguf(drop=["tokenizer.ggml.model"]),
    "pre_tokenizer_llama": gguf(more=string("tokenizer.ggml.pre", "llama-bpe")),
    "tokens_no_array": with_key("tokenizer.ggml.tokens", number("tokenizer.ggml.tokens", 3)),
    "tokens_of_numbers": with_key("tokenizer.ggml.tokens", array("tokenizer.ggml.tokens", I32, [1, 2, 3])),
    "token_twice": with_key("tokenizer.ggml.tokens", array("tokenizer.ggml.tokens", STRING, ["a", "b", "a"])),
    "token_not_utf8": with_key("tokenizer.ggml.tokens", array("tokenizer.ggml.tokens", STRING, ["a", "b", b"\xff"])),
    "no_merges": gguf(drop=["tokenizer.ggml.merges"]),
    "types_short": with_key("tokenizer.ggml.token_type", array("tokenizer.ggml.token_type", I32, [1, 1])),
    "types_of_text": with_key("tokenizer.ggml.token_type", array("tokenizer.ggml.token_type", STRING, ["a"])),
    "end_of_text_huge": gguf(more=number("tokenizer.ggml.eos_token_id", 2**32 - 1)),
}


# --- vocab.json (.vocab) and merges.txt (.merges, for the good vocabulary) ---


def byte_characters():
    """GPT-2's 256 characters that stand for bytes, by byte."""
    itself = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in itself else next(others)) for byte in range(256)]


BYTES = {character: byte for byte, character in enumerate(byte_characters())}
VOCAB = {**BYTES, "ab": 256}


def dumped(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def vocab_with(**more):
    return dumped({**VOCAB, **more})


VOCAB_ATTACKS = {
    "empty": b"",
    "json_cut": vocab_with()[:-1],
    "json_trailing": vocab_with() + b"}",
    "json_not_utf8": vocab_with().replace(b'"ab"', b'"\xff"'),
    "json_nul_in_key": vocab_with().replace(b'"ab"', b'"a\x00"'),
    "json_number_overflow": vocab_with().replace(b"256", b"1e999"),
    "json_deep": b"[" * 5000,
    "not_object": b"[1]",
    "no_tokens": b"{}",
    "key_twice": vocab_with().replace(b'"ab":256', b'"ab":256,"ab":257'),
    "id_twice": vocab_with(zz=256),
    "id_hole": vocab_with(zz=300),
    "id_negative": vocab_with(zz=-1),
    "id_fraction": vocab_with(zz=257.0),
    "id_text": vocab_with(zz="257"),
    "id_null": vocab_with(zz=None),
    "id_over_32_bits": vocab_with(zz=2**32),
    "id_max": vocab_with(zz=2**64 - 1),
    "token_empty": vocab_with(**{"": 257}),
    "token_with_space": vocab_with(**{"a b": 257}),
    "token_no_byte_character": vocab_with(**{"\u4e2d": 257}),
    "token_too_long": vocab_with(**{"a" * 1025: 257}),
    "byte_missing": dumped({character: byte for character, byte in BYTES.items() if byte != 255}),
}
MERGES_ATTACKS = {
    "one_part": b"ab",
    "three_parts": b"a b c",
    "leading_space": b" ab",
    "trailing_space": b"ab ",
    "two_spaces": b"a  b",
    "tab": b"a\tb",
    "empty_line": b"\na b",
    "left_unknown": b"a b\nxy b",
    "right_unknown": b"a b\na xy",
    "result_unknown": b"a b\nb a",
    "merge_twice": b"a b\na b\n",
    "not_utf8": b"a \xff",
    "nul": b"a \x00",
}

# --- the manifest, GET /v1/models/{id} (.manifest) ---

HASH = "0123456789abcdef" * 4
BLOB = {"name": "wte", "format": "f32", "bytes": 1000, "sha256": HASH, "chunks": [HASH]}
FILE = {"name": "config.json", "bytes": 1000, "sha256": HASH}
STAGE = {"name": "embed", "format": "f32", "blobs": [BLOB]}
MANIFEST = {
    "id": "m",
    "object": "model",
    "config": {"model_type": "gpt2"},
    "format": "f32",
    "profile": "f32",
    "phases": {"prompt": "narrow", "generate": "narrow"},
    "files": [FILE],
    "stages": [STAGE],
}


def manifest(**more):
    return dumped({**MANIFEST, **more})


def without_key(value, name):
    return {key: item for key, item in value.items() if key != name}


def blob(**more):
    return manifest(stages=[{**STAGE, "blobs": [{**BLOB, **more}]}])


TWO_LISTS = [[HASH, HASH[::-1]], [HASH[::-1], HASH]]

MANIFEST_ATTACKS = {
    "empty": b"",
    "json_cut": manifest()[:-1],
    "json_not_utf8": manifest().replace(b'"m"', b'"\xff"'),
    "json_deep": manifest(config={"a": 0}).replace(b'"a":0', b'"a":' + b"[" * 5000 + b"]" * 5000),
    "key_twice": manifest().replace(b'"id":"m"', b'"id":"m","id":"n"'),
    "not_object": b"[]",
    "no_id": dumped(without_key(MANIFEST, "id")),
    "id_number": manifest(id=1),
    "no_config": dumped(without_key(MANIFEST, "config")),
    "config_text": manifest(config="{}"),
    "no_format": dumped(without_key(MANIFEST, "format")),
    "profile_number": manifest(profile=32),
    "phases_list": manifest(phases=["narrow"]),
    "phases_without_generate": manifest(phases={"prompt": "narrow"}),
    "files_number": manifest(files=1),
    "files_many": manifest(files=[{**FILE, "name": str(i)} for i in range(17)]),
    "files_of_numbers": manifest(files=[1]),
    "files_without_hashes": manifest(files=["config.json"]),
    "files_twice": manifest(files=[FILE, {**FILE, "bytes": 1001}]),
    "file_name_number": manifest(files=[{**FILE, "name": 1}]),
    "file_without_bytes": manifest(files=[without_key(FILE, "bytes")]),
    "file_bytes_negative": manifest(files=[{**FILE, "bytes": -1}]),
    "file_bytes_max": manifest(files=[{**FILE, "bytes": 2**64 - 1}]),
    "file_without_sha256": manifest(files=[without_key(FILE, "sha256")]),
    "file_sha256_short": manifest(files=[{**FILE, "sha256": HASH[:-1]}]),
    "file_sha256_upper_case": manifest(files=[{**FILE, "sha256": HASH.upper()}]),
    "file_sha256_path": manifest(files=[{**FILE, "sha256": "../" * 21 + "x"}]),
    "no_stages": dumped(without_key(MANIFEST, "stages")),
    "stages_object": manifest(stages={}),
    "stages_many": manifest(stages=[{}] * 4097),
    "stage_text": manifest(stages=["embed"]),
    "stage_without_name": manifest(stages=[without_key(STAGE, "name")]),
    "stage_without_format": manifest(stages=[without_key(STAGE, "format")]),
    "stage_without_blobs": manifest(stages=[without_key(STAGE, "blobs")]),
    "blobs_text": manifest(stages=[{**STAGE, "blobs": "wte"}]),
    "blob_list": manifest(stages=[{**STAGE, "blobs": [[]]}]),
    "blob_name_null": blob(name=None),
    "blob_format_number": blob(format=32),
    "bytes_negative": blob(bytes=-1),
    "bytes_fraction": blob(bytes=1.5),
    "bytes_text": blob(bytes="1000"),
    "bytes_over_50_bits": blob(bytes=2**50 + 1),
    "bytes_max": blob(bytes=2**64 - 1),
    "sha256_upper_case": blob(sha256=HASH.upper()),
    "sha256_short": blob(sha256=HASH[:-1]),
    "sha256_path": blob(sha256="../" * 21 + "x"),
    "sha256_number": blob(sha256=0),
    "no_chunks": manifest(stages=[{**STAGE, "blobs": [without_key(BLOB, "chunks")]}]),
    "chunks_text": blob(chunks=HASH),
    "chunks_empty": blob(chunks=[]),
    "chunks_less": blob(bytes=2**20 + 1),
    "chunks_more": blob(chunks=[HASH] * 2),
    "chunks_many": blob(bytes=2**50),
    "chunk_number": blob(chunks=[0]),
    "chunk_short": blob(chunks=[HASH[:-1]]),
    "chunk_long": blob(chunks=[HASH + "0"]),
    "chunk_upper_case": blob(chunks=[HASH.upper()]),
    "chunk_not_the_blob": blob(chunks=[HASH[::-1]]),
    "one_hash_two_sizes": manifest(stages=[{**STAGE, "blobs": [BLOB, {**BLOB, "bytes": 1001}]}]),
    "one_hash_two_lists": manifest(
        stages=[{**STAGE, "blobs": [{**BLOB, "bytes": 2**21, "chunks": chunks} for chunks in TWO_LISTS]}]
    ),
}


def write(name, data):
    with open(os.path.join(HERE, name), "wb") as out:
        out.write(data)


if __name__ == "__main__":
    for name, data in {"good": raw(GOOD), **ATTACKS}.items():
        write(name + ".safetensors", data)
    for name, data in {"good": described("q8_0 [2, 32]"), **WEIGHT_ATTACKS}.items():
        write(name + ".weights", data)
    for name, data in {"good": gguf(), **GGUF_ATTACKS}.items():
        write(name + ".gguf", data)
    for name, data in {"good": vocab_with(), **VOCAB_ATTACKS}.items():
        write(name + ".vocab", data)
    for name, data in {"good": b"#version: 0.2\na b\n", **MERGES_ATTACKS}.items():
        write(name + ".merges", data)
    for name, data in {"good": manifest(), **MANIFEST_ATTACKS}.items():
        write(name + ".manifest", data)
