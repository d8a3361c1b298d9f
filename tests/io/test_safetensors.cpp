// io/safetensors: written and read back, and what is refused.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <random>

#include "io/safetensors.h"
#include "io/write_safetensors.h"
#include "io_testing.h"
#include "support/attack_files.h"

namespace split {
namespace {

std::string parse_error_of(std::string_view file) {
  return error_of(ErrorKind::kInput, [&] { Safetensors::parse(as_bytes_of(file), "FILE"); });
}

// True when it was accepted; then everything in it lies inside the file and covers its data.
bool parses_in_bounds(const std::string& file) {
  const Bytes bytes = as_bytes_of(file);
  try {
    const Safetensors parsed = Safetensors::parse(bytes, "FILE");
    uint64_t total = 8 + load_le64(bytes.data());
    for (const auto& [name, view] : parsed.tensors()) {
      EXPECT_GE(view.bytes.data(), bytes.data());
      EXPECT_LE(view.bytes.data() + view.bytes.size(), bytes.data() + bytes.size());
      EXPECT_EQ(static_cast<uint64_t>(element_count(view.dims).value()) * dtype_size(view.dtype),
                view.bytes.size());
      total += view.bytes.size();
    }
    EXPECT_EQ(total, file.size());
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return false;
  }
}

// Three tensors of several types, one of them empty.
std::string small_file() {
  const std::vector<float> a{1, 2, 3, 4, 5, 6};
  const std::vector<uint16_t> b{7, 8, 9};
  const std::vector<NamedTensor> tensors{{"a", view_of(DType::kF32, {2, 3}, a)},
                                         {"none", {DType::kI64, {0, 4}, {}}},
                                         {"b\"\xc3\xa9", view_of(DType::kF16, {3}, b)}};
  return write_safetensors(tensors, {{"format", "pt"}});
}

TEST(Safetensors, ReadsBackWhatItWrote) {
  const std::string file = small_file();
  EXPECT_EQ(load_le64(as_bytes_of(file).data()) % 8, 0u);
  EXPECT_EQ(file, small_file());
  const Safetensors parsed = Safetensors::parse(as_bytes_of(file), "FILE");
  EXPECT_EQ(parsed.metadata(), (Safetensors::Metadata{{"format", "pt"}}));
  ASSERT_EQ(parsed.tensors().size(), 3u);
  const TensorView& a = parsed.tensors().at("a");
  EXPECT_EQ(a.dtype, DType::kF32);
  EXPECT_EQ(a.dims, (Dims{2, 3}));
  float values[6];
  ASSERT_EQ(a.bytes.size(), sizeof values);
  std::memcpy(values, a.bytes.data(), sizeof values);
  EXPECT_EQ(values[5], 6.0f);
  EXPECT_EQ(parsed.tensors().at("none").dims, (Dims{0, 4}));
  EXPECT_EQ(parsed.tensors().at("b\"\xc3\xa9").dims, (Dims{3}));
  // In the order given: b is last in the file, though not in the map.
  EXPECT_EQ(as_text(parsed.tensors().at("b\"\xc3\xa9").bytes), file.substr(file.size() - 6));
}

TEST(Safetensors, WritesTheseBytes) {
  const std::vector<uint8_t> x{1, 2, 3};
  const std::vector<NamedTensor> tensors{{"x", view_of(DType::kU8, {3}, x)}};
  const std::string json =
      R"({"__metadata__":{"k":"v"},"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})";
  const std::string padded = json + std::string(80 - json.size(), ' ');
  EXPECT_EQ(write_safetensors(tensors, {{"k", "v"}}),
            std::string("\x50\0\0\0\0\0\0\0", 8) + padded + "\1\2\3");
  EXPECT_EQ(write_safetensors({}), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
}

TEST(Safetensors, WriterChecksItsCaller) {
  const std::vector<uint8_t> x{1, 2, 3};
  const TensorView good = view_of(DType::kU8, {3}, x);
  const auto write = [](std::vector<NamedTensor> tensors) { return write_safetensors(tensors); };
  EXPECT_NO_THROW(write({{"x", good}, {"y", good}}));
  EXPECT_THROW(write({{"x", good}, {"x", good}}), std::logic_error);
  EXPECT_THROW(write({{"__metadata__", good}}), std::logic_error);
  EXPECT_THROW(write({{"\xff", good}}), std::logic_error);
  EXPECT_THROW(write({{"x", view_of(DType::kU8, {4}, x)}}), std::logic_error);
  EXPECT_THROW(write({{"x", view_of(DType::kU8, {-3}, x)}}), std::logic_error);
}

// Behind "[safetensors] FILE: ".
constexpr test::Attack kSafetensorsAttacks[] = {
    {"empty", "expected at least 8 bytes, got 0"},
    {"short_length", "expected at least 8 bytes, got 7"},
    {"header_over_cap", "no safetensors file: a header of 4194305 bytes, expected at most 4194304"},
    {"header_length_max",
     "no safetensors file: a header of 18446744073709551615 bytes, expected at most 4194304"},
    {"header_past_end", "a header of 63 bytes ends past the file's 70"},
    {"header_empty", "the header does not begin with '{'"},
    {"header_byte_order_mark", "the header does not begin with '{'"},
    {"header_leading_space", "the header does not begin with '{'"},
    {"header_array", "the header does not begin with '{'"},
    {"json_cut", "the header is not valid JSON at byte 54"},
    {"json_trailing", "the header is not valid JSON at byte 55"},
    {"json_comment", "the header is not valid JSON at byte 55"},
    {"json_not_utf8", "the header is not valid JSON at byte 3"},
    {"json_number_overflow", "the header is not valid JSON at byte 34"},
    {"json_deep", "the header nests deeper than 3 objects and arrays"},
    {"key_twice", "the header has the key 'a' twice"},
    {"key_twice_escaped", "the header has the key 'a' twice"},
    {"field_twice", "the header has the key 'dtype' twice"},
    {"metadata_not_object", "__metadata__ is not an object"},
    {"metadata_not_text", "__metadata__ 'format' is not a string"},
    {"tensor_not_object", "tensor 'a': expected an object of dtype, shape and data_offsets"},
    {"field_unknown", "tensor 'a': unknown field 'strides'"},
    {"no_dtype", "tensor 'a': no dtype"},
    {"no_shape", "tensor 'a': no shape"},
    {"no_offsets", "tensor 'a': no data_offsets"},
    {"dtype_not_text", "tensor 'a': dtype is not a string"},
    {"dtype_unknown", "tensor 'a': dtype 'F8_E5M2' is not supported"},
    {"dtype_lower_case", "tensor 'a': dtype 'f32' is not supported"},
    {"shape_not_array", "tensor 'a': shape is not an array"},
    {"shape_negative", "tensor 'a': shape has a negative size"},
    {"shape_fraction", "tensor 'a': shape has a size that is not a whole number"},
    {"shape_text", "tensor 'a': shape has a size that is not a whole number"},
    {"shape_over_63_bits", "tensor 'a': shape has a size of 9223372036854775808, over 63 bits"},
    {"shape_nine_sizes", "tensor 'a': shape has 9 sizes, expected at most 8"},
    {"shape_product_overflows", "tensor 'a': shape [8589934592, 8589934592] overflows"},
    {"shape_bytes_overflow", "tensor 'a': shape [4611686018427387904] overflows"},
    {"offsets_not_pair", "tensor 'a': data_offsets is not a pair"},
    {"offsets_not_array", "tensor 'a': data_offsets is not a pair"},
    {"offsets_negative", "tensor 'a': data_offsets are not whole numbers from 0"},
    {"offsets_fraction", "tensor 'a': data_offsets are not whole numbers from 0"},
    {"begin_after_end", "tensor 'a': begins at 8, after its end 0"},
    {"end_past_data", "tensor 'a': ends at 12, past the data's 8 bytes"},
    {"end_huge", "tensor 'a': ends at 18446744073709551615, past the data's 8 bytes"},
    {"size_too_small", "tensor 'a': F32 [1] takes 4 bytes, data_offsets hold 8"},
    {"size_too_large", "tensor 'a': F32 [3] takes 12 bytes, data_offsets hold 8"},
    {"overlap", "tensor 'b': begins at 4 and overlaps the tensor before it, which ends at 8"},
    {"same_bytes", "tensor 'b': begins at 0 and overlaps the tensor before it, which ends at 8"},
    {"empty_inside", "tensor 'b': begins at 4 and overlaps the tensor before it, which ends at 8"},
    {"hole", "tensor 'b': begins at 8 and leaves a hole after byte 4"},
    {"hole_at_start", "tensor 'a': begins at 4 and leaves a hole after byte 0"},
    {"data_after_last", "1 bytes of data after the last tensor"},
    {"data_without_tensor", "1 bytes of data after the last tensor"},
};

TEST(Safetensors, RefusesEachAttackWithItsOwnMessage) {
  test::expect_refused(".safetensors", kSafetensorsAttacks, "[safetensors] FILE: ", parse_error_of);
}

TEST(Safetensors, MessagesShowNoRawNames) {
  const std::string name = "\\u001b[2J\\n" + std::string(200, 'n');
  std::string header = "{\"" + name + "\":[]}";
  const std::string file =
      std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header;
  ASSERT_LT(header.size(), 256u);
  const std::string message = parse_error_of(file);
  EXPECT_NE(message.find("tensor '?[2J?nnn"), message.npos) << message;
  EXPECT_LT(message.size(), 160u);
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string file = small_file();
  ASSERT_TRUE(parses_in_bounds(file));
  for (size_t size = 0; size < file.size(); ++size) {
    // A copy of exactly this size, so that AddressSanitizer sees a read past it.
    const std::vector<char> cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_NE(parse_error_of({cut.data(), cut.size()}), "") << size;
  }
  EXPECT_FALSE(parses_in_bounds(file + '\0'));
}

TEST(Safetensors, OneFlippedHeaderBitNeverLeavesTheFile) {
  const std::string good = small_file();
  const size_t header = 8 + load_le64(as_bytes_of(good).data());
  size_t refused = 0, accepted = 0;
  for (size_t bit = 0; bit < header * 8; ++bit) {
    std::string file = good;
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ 1 << bit % 8);
    // An accepted file can only have another name, another metadata text or another type of the
    // same size.
    ++(parses_in_bounds(file) ? accepted : refused);
    ASSERT_TRUE(bit >= 64 || accepted == 0) << bit;  // a wrong length is always seen
  }
  EXPECT_GT(refused, 8 * accepted);
  EXPECT_GT(accepted, 0u);
}

TEST(Safetensors, RandomDamageNeverLeavesTheFile) {
  const std::string good = small_file();
  std::mt19937_64 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string file = good;
    for (uint64_t flips = 1 + random() % 8; flips > 0; --flips) {
      file[random() % file.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) file.erase(random() % file.size(), 1 + random() % 4);
    parses_in_bounds(file);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Safetensors, LargeHostileHeadersTakeLinearTime) {
  // 4 MiB of tensors that are all refused by their last: seconds with a quadratic parser, hours
  // with a cubic one.
  std::string header = "{";
  while (header.size() < (4 << 20) - 200) {
    header += cat("\"t", header.size(), R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)");
  }
  header += R"("z":{}})";
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  EXPECT_EQ(parse_error_of(file + header), "[safetensors] FILE: tensor 'z': no dtype");
}

}  // namespace
}  // namespace split
