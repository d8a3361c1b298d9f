// io/gguf: what is refused, and that nothing ever leaves the file.
#include <gtest/gtest.h>

#include <random>

#include "io/gguf_model.h"
#include "support/attack_files.h"

namespace split {
namespace {

std::string error_of(Bytes file) {
  try {
    read_gguf_model(Gguf::parse(file, "FILE"));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "";
}

// Behind "[gguf] FILE: ".
constexpr test::Attack kAttacks[] = {
    {"empty", "the magic: needs 4 bytes at 0, the file has 0"},
    {"magic", "does not begin with GGUF"},
    {"version_1", "version 1, expected 2 or 3; llama.cpp's gguf-py writes the present one"},
    {"version_4", "version 4, expected 2 or 3"},
    {"big_endian", "is big-endian, which is not supported"},
    {"cut_in_head", "the number of keys: needs 8 bytes at 16, the file has 20"},
    {"tensors_over_cap", "65537 tensors, expected at most 65536"},
    {"keys_over_cap", "18446744073709551615 keys, expected at most 65536"},
    {"more_keys_than_there_are", "key 12: expected at most 65535 bytes, got 844424930131968"},
    {"more_tensors_than_there_are", "tensor '': expected 1 to 4 sizes, got 0"},
    {"key_too_long", "key 11: expected at most 65535 bytes, got 65536"},
    {"key_length_max", "key 11: expected at most 65535 bytes, got 18446744073709551615"},
    {"key_twice", "key 'gpt2.block_count': is there twice"},
    {"value_type_unknown", "key 'x': unknown type 13"},
    {"value_cut", "key 'general.architecture': needs 4 bytes at 64, the file has 66"},
    {"bool_of_2", "key 'x': expected a bool of 0 or 1, got 2"},
    {"string_past_end", "key 'x': expected at most 800 bytes, got 1099511627776"},
    {"string_length_max", "key 'x': expected at most 800 bytes, got 18446744073709551615"},
    {"array_of_arrays", "key 'x': arrays of type 9 are not supported"},
    {"array_type_unknown", "key 'x': arrays of type 99 are not supported"},
    {"array_count_overflows", "key 'x': 2305843009213693952 elements overflow"},
    {"array_past_end", "key 'x': needs 4194304 bytes at 561, the file has 800"},
    {"array_of_more_strings", "key 'x': expected at most 800 bytes, got 8589934594"},
    {"alignment_0", "general.alignment: expected a whole number in 1..65536, got 0"},
    {"alignment_12", "general.alignment: expected a power of two from 8 on, got 12"},
    {"alignment_24", "general.alignment: expected a power of two from 8 on, got 24"},
    {"alignment_huge", "general.alignment: expected a whole number in 1..65536, got 2147483648"},
    {"alignment_text", "general.alignment: expected a whole number from 0 on"},
    {"name_too_long", "the name of tensor 0: expected at most 64 bytes, got 65"},
    {"tensor_twice", "tensor 'blk.0.ffn_up.weight': is there twice"},
    {"dims_0", "tensor 'token_embd.weight': expected 1 to 4 sizes, got 0"},
    {"dims_5", "tensor 'token_embd.weight': expected 1 to 4 sizes, got 5"},
    {"dims_max", "tensor 'token_embd.weight': expected 1 to 4 sizes, got 4294967295"},
    {"size_0", "tensor 'token_embd.weight': has a size of 0"},
    {"sizes_overflow", "tensor 'token_embd.weight': its sizes overflow"},
    {"size_over_63_bits", "tensor 'token_embd.weight': its sizes overflow"},
    {"bytes_overflow", "tensor 'token_embd.weight': its sizes overflow"},
    {"type_unknown",
     "tensor 'token_embd.weight': type 999 is not supported, expected F32, F16, BF16, Q8_0, Q4_0, "
     "Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K"},
    {"type_q4_k", "tensor 'token_embd.weight': 432 bytes at 0, the file has 96 of data"},
    {"rows_of_part_blocks",
     "tensor 'token_embd.weight': rows of 16 are no whole blocks of 32 (Q8_0)"},
    {"offset_unaligned", "tensor 'token_embd.weight': begins at 4, no multiple of 32"},
    {"offset_past_end", "tensor 'token_embd.weight': 24 bytes at 128, the file has 96 of data"},
    {"offset_max",
     "tensor 'token_embd.weight': 24 bytes at 18446744073709551584, the file has 96 of data"},
    {"bytes_past_end", "tensor 'token_embd.weight': 160 bytes at 0, the file has 96 of data"},
    {"no_data", "tensor 'token_embd.weight': 24 bytes at 0, the file has 0 of data"},
    {"overlap", "tensor 'blk.0.ffn_up.weight': begins at 32 and overlaps 'token_embd.weight'"},
    {"no_architecture", "no key 'general.architecture'"},
    {"architecture_llama", "no key 'llama.attention.head_count'"},
    {"architecture_number", "general.architecture: expected a string"},
    {"no_block_count", "no key 'gpt2.block_count'"},
    {"block_count_0", "gpt2.block_count: expected a whole number in 1..1048576, got 0"},
    {"block_count_text", "gpt2.block_count: expected a whole number from 0 on"},
    {"block_count_negative", "gpt2.block_count: expected a whole number from 0 on"},
    {"context_length_huge",
     "gpt2.context_length: expected a whole number in 1..1048576, got 1073741824"},
    {"epsilon_nan", "gpt2.attention.layer_norm_epsilon: expected a number in 1e-12..1, got nan"},
    {"epsilon_whole", "gpt2.attention.layer_norm_epsilon: expected a floating-point number"},
    {"no_embedding", "no tensor 'token_embd.weight'"},
    {"tensor_of_llama", "tensor 'blk.0.ffn_gate.weight' is none of a GPT-2's"},
    {"tensor_of_no_block", "tensor 'blk.99999999.ffn_up.weight' is none of a GPT-2's"},
    {"tokenizer_llama", "tokenizer.ggml.model: expected \"gpt2\", got 'llama'"},
    {"no_tokenizer_model", "no key 'tokenizer.ggml.model'"},
    {"pre_tokenizer_llama", "tokenizer.ggml.pre: expected \"gpt-2\", got 'llama-bpe'"},
    {"tokens_no_array", "tokenizer.ggml.tokens: expected an array of at most 1048576 strings"},
    {"tokens_of_numbers", "tokenizer.ggml.tokens: expected an array of at most 1048576 strings"},
    {"token_twice", "tokenizer.ggml.tokens: token 2 is there twice"},
    {"token_not_utf8", "the tokenizer: is not UTF-8"},
    {"no_merges", "no key 'tokenizer.ggml.merges'"},
    {"types_short", "tokenizer.ggml.token_type: expected 3 of them, got 2"},
    {"types_of_text",
     "tokenizer.ggml.token_type: expected an array of at most 1048576 32-bit numbers"},
    {"end_of_text_huge",
     "tokenizer.ggml.eos_token_id: expected a whole number in 0..16777215, got 4294967295"},
};

TEST(Gguf, RefusesEachAttackWithItsOwnMessage) {
  test::expect_refused(".gguf", kAttacks, "[gguf] FILE: ", [](const std::string& file) {
    return error_of(as_bytes_of(file));
  });
}

TEST(Gguf, ReadsTheGoodOne) {
  const MappedFile file(test::attack_file("good.gguf"));
  const GgufModel model = read_gguf_model(Gguf::parse(file.bytes(), "FILE"));
  EXPECT_EQ(
      model.config_json,
      R"({"activation_function":"gelu_new","architectures":["GPT2LMHeadModel"],)"
      R"("layer_norm_epsilon":1e-05,"model_type":"gpt2","n_ctx":4,"n_embd":2,"n_head":1,)"
      R"("n_inner":8,"n_layer":1,"n_positions":4,"tie_word_embeddings":true,"vocab_size":3})");
  ASSERT_EQ(model.tensors.size(), 2u);
  EXPECT_EQ(model.tensors.at("wte.weight").dims, (Dims{3, 2}));
  // Blocks of a matrix are [out, in] and stay where they lie.
  const TensorView& blocks = model.tensors.at("h.0.mlp.c_fc.weight");
  EXPECT_EQ(blocks.dims, (Dims{1, 32}));
  EXPECT_EQ(blocks.dtype, DType::kQ8_0);
  EXPECT_GE(blocks.bytes.data(), file.bytes().data());
  EXPECT_LE(blocks.bytes.data() + 34, file.bytes().data() + file.bytes().size());
}

// Blocks made by hand from ggml's description.
TEST(Gguf, BlocksAreTheseValues) {
  const auto floats = [](GgmlType type, const std::vector<uint8_t>& bytes, size_t count) {
    const GgufTensor tensor{type, {static_cast<int64_t>(count)}, std::as_bytes(std::span(bytes))};
    std::vector<float> out(count);
    gguf_floats(tensor, 0, count, out.data());
    return out;
  };
  std::vector<uint8_t> q8{0x00, 0x38};  // 0.5
  for (int i = 0; i < 32; ++i) q8.push_back(static_cast<uint8_t>(i * 8 - 128));
  const auto a = floats(GgmlType::kQ8_0, q8, 32);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(a[i], 0.5f * static_cast<float>(i * 8 - 128));

  std::vector<uint8_t> q4{0x00, 0xc0};  // -2
  for (int i = 0; i < 16; ++i) q4.push_back(static_cast<uint8_t>(i | (15 - i) << 4));
  const auto b = floats(GgmlType::kQ4_0, q4, 32);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(b[i], -2.0f * static_cast<float>(i - 8));
    EXPECT_EQ(b[i + 16], -2.0f * static_cast<float>(7 - i));
  }

  // Value v of 256 is 37 v % 61, as six bits; scale s of 16 is s - 8; d is 1.
  std::vector<uint8_t> q6(210);
  for (int v = 0; v < 256; ++v) {
    const int half = v / 128, j = v % 128 / 32, l = v % 32, six = 37 * v % 61;
    q6[64 * half + 32 * (j % 2) + l] |= static_cast<uint8_t>((six & 15) << (4 * (j / 2)));
    q6[128 + 32 * half + l] |= static_cast<uint8_t>((six >> 4) << (2 * j));
  }
  for (int s = 0; s < 16; ++s) q6[192 + s] = static_cast<uint8_t>(s - 8);
  q6[209] = 0x3c;
  const auto c = floats(GgmlType::kQ6_K, q6, 256);
  for (int v = 0; v < 256; ++v) {
    EXPECT_EQ(c[v], static_cast<float>((v / 16 - 8) * (37 * v % 61 - 32))) << v;
  }

  // Nibbles i and 15 - i, d 0.5, m 3; with a fifth bit for every third value.
  const auto with_nibbles = [](std::vector<uint8_t> bytes) {
    for (int i = 0; i < 16; ++i) bytes.push_back(static_cast<uint8_t>(i | (15 - i) << 4));
    return bytes;
  };
  const auto q4_1 = floats(GgmlType::kQ4_1, with_nibbles({0x00, 0x38, 0x00, 0x42}), 32);
  const auto q5_0 = floats(GgmlType::kQ5_0, with_nibbles({0x00, 0x38, 0x49, 0x92, 0x24, 0x49}), 32);
  const auto q5_1 =
      floats(GgmlType::kQ5_1, with_nibbles({0x00, 0x38, 0x00, 0x42, 0x49, 0x92, 0x24, 0x49}), 32);
  for (int i = 0; i < 32; ++i) {
    const int four = i < 16 ? i : 31 - i, five = four + (i % 3 == 0 ? 16 : 0);
    EXPECT_EQ(q4_1[i], 0.5f * static_cast<float>(four) + 3);
    EXPECT_EQ(q5_0[i], 0.5f * static_cast<float>(five - 16));
    EXPECT_EQ(q5_1[i], 0.5f * static_cast<float>(five) + 3);
  }

  // Groups of 32: group g has the scale 3 g + 30 and the minimum 60 - 5 g; d is 1, dmin 2. A value
  // v is 7 v % 16, of five bits 7 v % 32.
  for (const bool fifth : {false, true}) {
    std::vector<uint8_t> k(fifth ? 176 : 144);
    k[1] = 0x3c, k[3] = 0x40;
    for (int g = 0; g < 8; ++g) {
      const int scale = 3 * g + 30, minimum = 60 - 5 * g;
      if (g < 4) {
        k[4 + g] |= static_cast<uint8_t>(scale), k[8 + g] |= static_cast<uint8_t>(minimum);
      } else {
        k[8 + g] |= static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
        k[g] |= static_cast<uint8_t>(scale >> 4 << 6);
        k[4 + g] |= static_cast<uint8_t>(minimum >> 4 << 6);
      }
    }
    const int nibbles = fifth ? 48 : 16;
    for (int v = 0; v < 256; ++v) {
      const int g = v / 32, l = v % 32, q = 7 * v % (fifth ? 32 : 16);
      k[nibbles + g / 2 * 32 + l] |= static_cast<uint8_t>((q & 15) << (4 * (g % 2)));
      if (fifth) k[16 + l] |= static_cast<uint8_t>(q >> 4 << g);
    }
    const auto values = floats(fifth ? GgmlType::kQ5_K : GgmlType::kQ4_K, k, 256);
    for (int v = 0; v < 256; ++v) {
      const int g = v / 32, q = 7 * v % (fifth ? 32 : 16);
      EXPECT_EQ(values[v], static_cast<float>((3 * g + 30) * q - 2 * (60 - 5 * g))) << v;
    }
  }
}

// True when it was accepted; then its tensors lie inside the file, and everything could be read.
bool reads_in_bounds(const std::string& text) {
  const std::vector<char> copy(text.begin(), text.end());  // AddressSanitizer sees a read past it
  const Bytes file = as_bytes_of({copy.data(), copy.size()});
  try {
    const Gguf parsed = Gguf::parse(file, "FILE");
    for (const auto& [name, tensor] : parsed.tensors()) {
      EXPECT_GE(tensor.bytes.data(), file.data());
      EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), file.data() + file.size());
    }
    read_gguf_model(parsed);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    return false;
  }
}

std::string good() { return read_file(test::attack_file("good.gguf"), 1 << 20); }

TEST(Gguf, RefusesEveryTruncationOfWhatItNeeds) {
  const std::string file = good();
  ASSERT_TRUE(reads_in_bounds(file));
  const size_t needed = file.size() - 30;  // the last tensor's padding may be missing
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_EQ(reads_in_bounds(file.substr(0, size)), size >= needed) << size;
  }
}

TEST(Gguf, OneFlippedHeaderBitNeverLeavesTheFile) {
  const std::string file = good();
  const size_t header = file.size() - 96;
  for (size_t bit = 0; bit < header * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    reads_in_bounds(flipped);
    if (HasFailure()) FAIL() << bit;
  }
}

TEST(Gguf, RandomDamageNeverLeavesTheFile) {
  const std::string file = good();
  std::mt19937_64 random(1);
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = file;
    for (uint64_t flips = 1 + random() % 8; flips > 0; --flips) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) damaged.erase(random() % damaged.size(), 1 + random() % 4);
    reads_in_bounds(damaged);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace split
