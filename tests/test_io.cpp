// io/: safetensors, checkpoints; and tensor/'s conversions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "attack_files.h"
#include "base/file.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"

namespace split {
namespace {

namespace fs = std::filesystem;
const fs::path kTests = fs::path(SPLIT_SOURCE_DIR) / "tests";

struct TemporaryFolder {
  fs::path path;
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "split-io-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TemporaryFolder() { fs::remove_all(path); }
  void write(const std::string& name, std::string_view text) const {
    std::ofstream(path / name, std::ios::binary) << text;
  }
};

// What the call throws, or "" when it throws nothing.
std::string error_of(ErrorKind kind, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "";
}

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

template <typename T>
TensorView view_of(DType dtype, Dims dims, const std::vector<T>& values) {
  return {dtype, std::move(dims), std::as_bytes(std::span(values))};
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

TEST(Safetensors, SaysWhetherAViewIsAligned) {
  alignas(8) const std::array<std::byte, 16> bytes{};
  const auto at = [&](size_t offset, DType dtype) {
    return aligned({dtype, {1}, Bytes(bytes).subspan(offset, dtype_size(dtype))});
  };
  EXPECT_TRUE(at(8, DType::kI64));
  EXPECT_FALSE(at(4, DType::kI64));
  EXPECT_TRUE(at(4, DType::kF32));
  EXPECT_FALSE(at(2, DType::kF32));
  EXPECT_FALSE(at(1, DType::kF16));
  EXPECT_TRUE(at(1, DType::kU8));
}

// Behind "[safetensors] FILE: ".
constexpr test::Attack kAttacks[] = {
    {"empty", "expected at least 8 bytes, got 0"},
    {"short_length", "expected at least 8 bytes, got 7"},
    {"header_over_cap", "a header of 4194305 bytes, expected at most 4194304"},
    {"header_length_max", "a header of 18446744073709551615 bytes, expected at most 4194304"},
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
  test::expect_refused(".safetensors", kAttacks, "[safetensors] FILE: ", parse_error_of);
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
    // What is accepted can only be another name, another metadata text or another type of the same
    // size.
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

// --- conversions ---

// The half nearest to `value`, ties to even, by arithmetic in double: every half and every midpoint
// is exact there.
uint16_t reference_f16(double value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  value = std::fabs(value);
  if (value >= 65520.0) return static_cast<uint16_t>(sign | 0x7c00);
  // std::ilogb(0) is a huge negative number, so zero takes the subnormals' step.
  const int exponent = std::max(std::ilogb(value), -14);
  const double step = std::ldexp(1.0, exponent - 10);
  const auto steps = static_cast<uint32_t>(std::nearbyint(value / step));  // ties to even
  return static_cast<uint16_t>(sign | ((exponent + 14) * 1024 + steps));
}
uint16_t reference_bf16(float value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(static_cast<double>(value));
  const int exponent = magnitude == 0 ? -126 : std::max(std::ilogb(magnitude), -126);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 7 - exponent)));
  return static_cast<uint16_t>(sign | ((exponent + 126) * 128 + steps));
}

TEST(Convert, EveryHalfIsItsValueAndComesBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = f16_to_f32(bits);
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    ASSERT_EQ(std::signbit(value), bits >> 15 != 0) << i;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(value), mantissa != 0) << i;
      ASSERT_EQ(std::isinf(value), mantissa == 0) << i;
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      ASSERT_EQ(std::fabs(static_cast<double>(value)), magnitude) << i;
    }
    if (std::isnan(value)) {
      ASSERT_EQ(f32_to_f16(value), (bits & 0x8000) | 0x7e00) << i;
    } else {
      ASSERT_EQ(f32_to_f16(value), bits) << i;
    }
  }
}

TEST(Convert, EveryBf16IsItsValueAndComesBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = bf16_to_f32(bits);
    ASSERT_EQ(std::bit_cast<uint32_t>(value), i << 16);
    if (std::isnan(value)) {
      ASSERT_EQ(f32_to_bf16(value), bits | 0x40) << i;
    } else {
      ASSERT_EQ(f32_to_bf16(value), bits) << i;
    }
  }
}

TEST(Convert, RoundsToNearestEven) {
  const auto check = [](uint32_t bits) {
    const auto value = std::bit_cast<float>(bits);
    if (std::isnan(value)) {
      ASSERT_EQ(f32_to_f16(value), (bits >> 16 & 0x8000) | 0x7e00) << bits;
      ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value)))) << bits;
      return;
    }
    ASSERT_EQ(f32_to_f16(value), reference_f16(value)) << std::hexfloat << value;
    if (!std::isinf(value)) {
      ASSERT_EQ(f32_to_bf16(value), reference_bf16(value)) << std::hexfloat << value;
    } else {
      ASSERT_EQ(f32_to_bf16(value), bits >> 16);
    }
  };
  // Each value both 16-bit types can hold, the midpoint after it, and the floats beside these two.
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto half = std::bit_cast<uint32_t>(f16_to_f32(static_cast<uint16_t>(i)));
    for (const uint32_t base : {half, half + (1u << 12), i << 16, (i << 16) + 0x8000u}) {
      for (const uint32_t bits : {base - 1, base, base + 1}) check(bits);
    }
    const float subnormal_midpoint = (static_cast<float>(i % 1024) + 0.5f) * 0x1p-24f;
    const auto bits = std::bit_cast<uint32_t>(subnormal_midpoint);
    for (const uint32_t near : {bits - 1, bits, bits + 1}) check(near), check(near | 0x80000000u);
    if (HasFailure()) return;
  }
  std::mt19937 random(2);
  for (int i = 0; i < 2000000 && !HasFailure(); ++i) check(static_cast<uint32_t>(random()));
}

TEST(Convert, TensorsOfAnyCountAndAlignment) {
  // Against one value at a time, from and to odd addresses: what the vectorised loops and their
  // tails must equal.
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16};
  std::mt19937 random(3);
  for (const DType from : types) {
    for (const DType to : types) {
      for (const size_t count : {0, 1, 3, 7, 8, 31, 64, 257}) {
        const size_t in = dtype_size(from), size = dtype_size(to);
        std::vector<std::byte> source(count * in + 1), target(count * size + 2, std::byte{0xa5});
        for (std::byte& b : source) b = static_cast<std::byte>(random());
        const TensorView view{from, {static_cast<int64_t>(count)}, Bytes(source).subspan(1)};
        convert(view, to, std::span(target).subspan(1, count * size));
        for (size_t i = 0; i < count; ++i) {
          uint32_t word = 0, got = 0;
          std::memcpy(&word, source.data() + 1 + i * in, in);
          std::memcpy(&got, target.data() + 1 + i * size, size);
          const auto low = static_cast<uint16_t>(word);
          const float value = from == DType::kF32   ? std::bit_cast<float>(word)
                              : from == DType::kF16 ? f16_to_f32(low)
                                                    : bf16_to_f32(low);
          const uint32_t expected = from == to          ? word
                                    : to == DType::kF32 ? std::bit_cast<uint32_t>(value)
                                    : to == DType::kF16 ? f32_to_f16(value)
                                                        : f32_to_bf16(value);
          ASSERT_EQ(got, expected) << dtype_name(from) << " to " << dtype_name(to) << " at " << i;
        }
        EXPECT_EQ(target.front(), std::byte{0xa5});
        EXPECT_EQ(target.back(), std::byte{0xa5});
      }
    }
  }
}

TEST(Convert, OwnsItsBytesAlsoAfterAMove) {
  const std::vector<uint16_t> halves{0x3c00, 0xc000};  // 1, -2
  OwnedTensor first = converted(view_of(DType::kF16, {2, 1}, halves), DType::kF32);
  const OwnedTensor second = std::move(first);
  EXPECT_EQ(second.view.dims, (Dims{2, 1}));
  EXPECT_EQ(second.view.bytes.data(), second.storage.data());
  float values[2];
  ASSERT_EQ(second.view.bytes.size(), sizeof values);
  std::memcpy(values, second.view.bytes.data(), sizeof values);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], -2.0f);
}

TEST(Convert, RefusesIntegers) {
  const std::vector<int32_t> ids{1};
  const std::vector<float> floats{1};
  EXPECT_EQ(
      error_of(ErrorKind::kShape, [&] { converted(view_of(DType::kI32, {1}, ids), DType::kF32); }),
      "[convert] expected F32, F16 or BF16, got I32");
  EXPECT_EQ(error_of(ErrorKind::kShape,
                     [&] { converted(view_of(DType::kF32, {1}, floats), DType::kU8); }),
            "[convert] expected F32, F16 or BF16, got U8");
  EXPECT_EQ(converted(view_of(DType::kI32, {1}, ids), DType::kI32).storage.size(), 4u);
}

// --- checkpoints ---

std::vector<std::string> gpt2_names(int n_layer, bool head) {
  std::vector<std::string> names{"ln_f.bias", "ln_f.weight", "wpe.weight", "wte.weight"};
  if (head) names.push_back("lm_head.weight");
  for (int i = 0; i < n_layer; ++i) {
    for (const char* part :
         {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"}) {
      for (const char* kind : {"weight", "bias"})
        names.push_back(cat("h.", i, ".", part, ".", kind));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Checkpoint, LoadsTheDemoModel) {
  const Checkpoint demo(fs::path(SPLIT_SOURCE_DIR) / "weights" / "demo");
  EXPECT_EQ(demo.names(), gpt2_names(8, false));
  EXPECT_EQ(demo.dtype(), DType::kF16);
  EXPECT_EQ(demo.at("wte.weight").dims, (Dims{8192, 320}));
  EXPECT_EQ(demo.at("h.7.mlp.c_proj.weight").dims, (Dims{1280, 320}));
  EXPECT_EQ(demo.find("transformer.wte.weight"), nullptr);
  EXPECT_NE(demo.config_json().find("\"n_layer\": 8"), std::string::npos);
}

TEST(Checkpoint, LoadsTheGoldenModels) {
  const Checkpoint a(kTests / "golden" / "rand-a"), b(kTests / "golden" / "rand-b"),
      c(kTests / "golden" / "rand-c");
  EXPECT_EQ(a.names(), gpt2_names(3, false));
  EXPECT_EQ(b.names(), gpt2_names(2, false));  // without prefix, and the masks left out
  EXPECT_EQ(c.names(), gpt2_names(2, true));
  for (const Checkpoint* model : {&a, &b, &c}) EXPECT_EQ(model->dtype(), DType::kF32);
  EXPECT_EQ(b.at("h.1.attn.c_attn.bias").dims, (Dims{300}));
  EXPECT_EQ(as_text(c.at("lm_head.weight").bytes), as_text(c.at("wte.weight").bytes));
}

TEST(Checkpoint, ReadsGoldenTensors) {
  const MappedFile file(kTests / "golden" / "rand-a" / "golden.safetensors");
  const Safetensors golden = Safetensors::parse(file.bytes(), "golden");
  EXPECT_EQ(golden.tensors().at("p0.logits_last").dims, (Dims{311}));
  EXPECT_EQ(golden.tensors().at("p0.ids").dtype, DType::kI32);
}

// A checkpoint directory of these files; a tensor's one value says where it came from.
struct Model : TemporaryFolder {
  Model() { write("config.json", "{}"); }

  struct Spec {
    std::string name;
    float value = 0;
    DType dtype = DType::kF32;
    Dims dims = {1, 1};
  };
  static std::string bytes_of(const std::vector<Spec>& specs) {
    std::vector<OwnedTensor> owned;
    std::vector<NamedTensor> named;
    for (const Spec& spec : specs) {
      OwnedTensor tensor;
      const auto count = static_cast<size_t>(element_count(spec.dims).value());
      const std::vector<float> values(count, spec.value);
      const TensorView view = view_of(DType::kF32, spec.dims, values);
      if (spec.dtype == DType::kI64) {
        tensor.storage.resize(count * 8);
        tensor.view = {DType::kI64, spec.dims, tensor.storage};
      } else {
        tensor = converted(view, spec.dtype);
      }
      owned.push_back(std::move(tensor));
      named.push_back({spec.name, owned.back().view});
    }
    return write_safetensors(named);
  }
  void save(const std::string& file, const std::vector<Spec>& specs) const {
    write(file, bytes_of(specs));
  }
  std::string refusal(ErrorKind kind) const {
    std::string text = error_of(kind, [&] { const Checkpoint checkpoint(path); });
    EXPECT_EQ(text.find('\n'), text.npos);
    for (size_t at; (at = text.find(path.string())) != text.npos;) {
      text.replace(at, path.string().size(), "DIR");
    }
    return text;
  }
};

float value_of(const TensorView& view) {
  const OwnedTensor copy = converted(view, DType::kF32);
  float value = 0;
  std::memcpy(&value, copy.storage.data(), sizeof value);
  return value;
}

TEST(Checkpoint, StripsThePrefixAndLeavesMasksOut) {
  const Model model;
  model.save("model.safetensors", {{"transformer.wte.weight", 1},
                                   {"lm_head.weight", 2},
                                   {"transformer.h.0.attn.c_attn.bias", 3},
                                   {"transformer.h.0.attn.bias", 4, DType::kI64},
                                   {"h.11.attn.masked_bias", 5, DType::kI64},
                                   {"h.x.attn.bias", 6},
                                   {"h..attn.bias", 7},
                                   {"transformer.transformer.odd", 8}});
  const Checkpoint checkpoint(model.path);
  EXPECT_EQ(checkpoint.names(),
            (std::vector<std::string>{"h..attn.bias", "h.0.attn.c_attn.bias", "h.x.attn.bias",
                                      "lm_head.weight", "transformer.odd", "wte.weight"}));
  EXPECT_EQ(value_of(checkpoint.at("wte.weight")), 1.0f);
}

TEST(Checkpoint, ViewsOutliveAMove) {
  const Model model;
  model.save("model.safetensors", {{"wte.weight", 5}});
  Checkpoint first(model.path);
  const TensorView view = first.at("wte.weight");
  const Checkpoint second = std::move(first);
  EXPECT_EQ(second.at("wte.weight").bytes.data(), view.bytes.data());
  EXPECT_EQ(value_of(view), 5.0f);
}

TEST(Checkpoint, NamesTheMissingTensorAndTheFile) {
  const Model model;
  model.save("model.safetensors", {{"wte.weight", 5}});
  const Checkpoint checkpoint(model.path);
  EXPECT_EQ(error_of(ErrorKind::kNotFound, [&] { checkpoint.at("wpe.weight"); }),
            cat("[checkpoint] ", (model.path / "model.safetensors").string(),
                ": no tensor 'wpe.weight'"));
}

TEST(Checkpoint, TypeIsThatOfTheVocabularyOrOfMostMatrices) {
  const Model model;
  const auto dtype = [&](const std::vector<Model::Spec>& specs) {
    model.save("model.safetensors", specs);
    return Checkpoint(model.path).dtype();
  };
  const Model::Spec matrix{"a", 0, DType::kF16}, matrix2{"b", 0, DType::kF16};
  EXPECT_EQ(dtype({{"wte.weight", 0, DType::kBF16}, matrix, matrix2}), DType::kBF16);
  EXPECT_EQ(dtype({{"c"}, matrix, matrix2, {"d", 0, DType::kF32, {3}}, {"e", 0, DType::kF32, {3}}}),
            DType::kF16);
  EXPECT_NE(error_of(ErrorKind::kNotFound, [&] { dtype({{"d", 0, DType::kF32, {3}}}); }), "");
}

TEST(Checkpoint, RefusesWhatIsNotACheckpoint) {
  const Model model;
  EXPECT_EQ(error_of(ErrorKind::kNotFound, [] { Checkpoint("/nonexistent/model"); }),
            "[checkpoint] /nonexistent/model: no such directory or GGUF file");
  EXPECT_EQ(model.refusal(ErrorKind::kNotFound),
            "[checkpoint] DIR: neither model.safetensors nor model.safetensors.index.json nor a "
            "GGUF file");
  fs::remove(model.path / "config.json");
  EXPECT_EQ(model.refusal(ErrorKind::kNotFound),
            "[checkpoint] DIR: no config.json; expected a Hugging Face checkpoint");
}

TEST(Checkpoint, RefusesPicklesAndNamesTheConverter) {
  const std::string kConverter =
      ": a pickle can run code and is refused; if you trust it, convert it: python3 -c \"from "
      "transformers import GPT2LMHeadModel as M; M.from_pretrained('DIR').save_pretrained('DIR', "
      "safe_serialization=True)\"";
  for (const char* file : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    const Model model;
    model.write(file, "\x80\x02");
    EXPECT_EQ(model.refusal(ErrorKind::kInput), cat("[checkpoint] DIR/", file, kConverter));
    model.save("model.safetensors", {{"wte.weight"}});  // beside safetensors a pickle is ignored
    EXPECT_EQ(Checkpoint(model.path).names().size(), 1u);
  }
  const TemporaryFolder folder;
  for (const char* name : {"model.bin", "gpt2.pt", "gpt2.pth", "last.ckpt", "weights.pkl"}) {
    folder.write(name, "\x80\x02");
    EXPECT_EQ(error_of(ErrorKind::kInput, [&] { Checkpoint(folder.path / name); }),
              cat("[checkpoint] ", (folder.path / name).string(), kConverter));
  }
  folder.write("model.safetensors", "");
  EXPECT_EQ(error_of(ErrorKind::kInput, [&] { Checkpoint(folder.path / "model.safetensors"); }),
            cat("[checkpoint] ", (folder.path / "model.safetensors").string(),
                ": expected a Hugging Face directory or a file that ends in .gguf"));
}

TEST(Checkpoint, RefusesBadTensors) {
  const Model model;
  model.save("model.safetensors", {{"wte.weight"}, {"ids", 0, DType::kI64}});
  EXPECT_EQ(model.refusal(ErrorKind::kInput),
            "[checkpoint] DIR/model.safetensors: tensor 'ids' is I64, expected F32, F16, BF16 or "
            "blocks that __metadata__ describes");
  model.save("model.safetensors", {{"wte.weight"}, {"transformer.wte.weight"}});
  EXPECT_EQ(model.refusal(ErrorKind::kInput),
            "[checkpoint] DIR/model.safetensors: a second tensor 'wte.weight'");
  model.write("model.safetensors", "");
  EXPECT_EQ(model.refusal(ErrorKind::kInput),
            "[safetensors] DIR/model.safetensors: expected at least 8 bytes, got 0");
}

TEST(Checkpoint, ReadsSeveralFilesByTheirIndex) {
  const Model model;
  model.save("model-1.safetensors",
             {{"transformer.wte.weight", 1}, {"transformer.h.0.attn.bias", 9}});
  model.save("model-2.safetensors", {{"transformer.wpe.weight", 2}});
  model.write("model.safetensors.index.json",
              R"({"metadata":{"total_size":12},"weight_map":{
              "transformer.wte.weight":"model-1.safetensors",
              "transformer.h.0.attn.bias":"model-1.safetensors",
              "transformer.wpe.weight":"model-2.safetensors"}})");
  const Checkpoint checkpoint(model.path);
  EXPECT_EQ(checkpoint.names(), (std::vector<std::string>{"wpe.weight", "wte.weight"}));
  EXPECT_EQ(value_of(checkpoint.at("wte.weight")), 1.0f);
  EXPECT_EQ(value_of(checkpoint.at("wpe.weight")), 2.0f);
  EXPECT_NE(
      error_of(ErrorKind::kNotFound, [&] { checkpoint.at("x"); }).find("index.json: no tensor 'x'"),
      std::string::npos);
}

TEST(Checkpoint, RefusesBadIndexes) {
  const Model model;
  model.save("1.safetensors", {{"a"}});
  model.save("2.safetensors", {{"b"}});
  model.save("again.safetensors", {{"transformer.a"}});
  const auto refusal = [&](std::string_view index, ErrorKind kind = ErrorKind::kInput) {
    model.write("model.safetensors.index.json", index);
    const std::string text = model.refusal(kind);
    const std::string_view prefix = "[checkpoint] DIR/model.safetensors.index.json";
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
  };
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})"), "");
  EXPECT_EQ(refusal("{"), " is not valid JSON at byte 2");
  EXPECT_EQ(refusal("[]"), ": expected an object with a weight_map");
  EXPECT_EQ(refusal("{}"), ": expected an object with a weight_map");
  EXPECT_EQ(refusal(R"({"weight_map":[]})"), ": expected an object with a weight_map");
  EXPECT_EQ(refusal(R"({"weight_map":{"a":1}})"), ": weight_map has no file name for 'a'");
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"1.safetensors","a":"2.safetensors"}})"),
            " has the key 'a' twice");
  EXPECT_EQ(refusal(R"({"weight_map":{"b":"1.safetensors"}})"),
            ": tensor 'b' is not in '1.safetensors'");
  EXPECT_EQ(
      refusal(R"({"weight_map":{"a":"1.safetensors","b":"3.safetensors"}})", ErrorKind::kNotFound),
      ": the file '3.safetensors' is missing");
  EXPECT_EQ(refusal(R"({"weight_map":{"a":"1.safetensors","transformer.a":"again.safetensors"}})"),
            "[checkpoint] DIR/again.safetensors: a second tensor 'a'");
  for (const char* name : {"../1.safetensors", "/etc/passwd", "x/1.safetensors", "..", ".", "",
                           "a\\\\b", "1.safetensors\\u0000"}) {
    EXPECT_NE(refusal(cat(R"({"weight_map":{"a":")", name, "\"}}"))
                  .find("expected one in the same directory"),
              std::string::npos)
        << name;
  }
}

// --- scripts/make_random_gpt2.py ---

TEST(MakeRandomGpt2, GivesTheSameBytesEverywhere) {
  if (std::system("/usr/bin/python3 -c 'import numpy' 2> /dev/null") != 0)
    GTEST_SKIP() << "no python3-numpy";
  const TemporaryFolder folder;
  const auto sum_of = [&](const std::string& options) {
    const std::string command =
        cat("/usr/bin/python3 '", SPLIT_SOURCE_DIR,
            "/scripts/make_random_gpt2.py' --size tiny --seed 7 --vocab 300 --n-ctx 32 --out '",
            folder.path.string(), "' ", options);
    EXPECT_EQ(std::system(command.c_str()), 0);
    return Sha256::hex_of(MappedFile(folder.path / "model.safetensors").bytes());
  };
  EXPECT_EQ(sum_of(""), "7886e9f23cd50b30e789909740c2419b0150e0ed1cfd3d8da5e7bcf12c72b319");
  EXPECT_EQ(Checkpoint(folder.path).names(), gpt2_names(2, false));
  EXPECT_EQ(Checkpoint(folder.path).at("h.1.mlp.c_fc.weight").dims, (Dims{64, 256}));
  EXPECT_EQ(sum_of("--dtype f16"),
            "1fc5f5eb6dfc984227ec1ea139c76b5bd8995515ed2c2ce2ea139487fc51573a");
  EXPECT_EQ(Checkpoint(folder.path).dtype(), DType::kF16);
}

}  // namespace
}  // namespace split
