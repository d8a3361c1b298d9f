#include "tensor/shape.h"

#include <algorithm>
#include <array>
#include <bit>

namespace split {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  size_t size;              // bytes of an element, or of a block
  std::string_view format;  // formats of weights only
  bool blocks = false;
};
constexpr std::array<Row, 12> kTypes{{{DType::kF32, "F32", 4, "f32"},
                                      {DType::kF16, "F16", 2, "f16"},
                                      {DType::kBF16, "BF16", 2, "bf16"},
                                      {DType::kI32, "I32", 4, ""},
                                      {DType::kI64, "I64", 8, ""},
                                      {DType::kU8, "U8", 1, ""},
                                      {DType::kBool, "BOOL", 1, ""},
                                      {DType::kQ8_0, "Q8_0", 34, "q8_0", true},
                                      {DType::kQ4_0, "Q4_0", 18, "q4_0", true},
                                      {DType::kQ4_K, "Q4_K", 144, "q4_k", true},
                                      {DType::kQ6_K, "Q6_K", 210, "q6_k", true},
                                      {DType::kQ5_K, "Q5_K", 176, "q5_k", true}}};

const Row& row(DType dtype) { return kTypes[static_cast<size_t>(dtype)]; }

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace

bool is_quantised(DType dtype) { return row(dtype).blocks; }
size_t dtype_size(DType dtype) {
  CHECK(!is_quantised(dtype));
  return row(dtype).size;
}
size_t block_bytes(DType dtype) {
  CHECK(is_quantised(dtype));
  return row(dtype).size;
}
size_t row_bytes(DType dtype, size_t inner) {
  const size_t each = block_elements(dtype);
  return (inner + each - 1) / each * block_bytes(dtype);
}
std::string_view dtype_name(DType dtype) { return row(dtype).name; }
std::string_view format_name(DType dtype) { return row(dtype).format; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& r : kTypes) {
    if (!r.blocks && r.name == name) return r.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_format(std::string_view name) {
  for (const Row& r : kTypes) {
    if (!name.empty() && r.format == name) return r.dtype;
  }
  return std::nullopt;
}

std::string to_string(const Dims& dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  return out + "]";
}

std::optional<int64_t> element_count(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t n : dims) {
    if (n < 0 || __builtin_mul_overflow(count, n, &count)) return std::nullopt;
  }
  return count;
}

std::optional<uint64_t> tensor_bytes(DType dtype, const Dims& dims) {
  const std::optional<int64_t> count = element_count(dims);
  if (!count) return std::nullopt;
  if (!is_quantised(dtype)) return checked_mul(static_cast<uint64_t>(*count), dtype_size(dtype));
  if (dims.size() != 2) return std::nullopt;
  const uint64_t each = block_elements(dtype), inner = static_cast<uint64_t>(dims[1]);
  if (is_k_quant(dtype) && inner % each != 0) return std::nullopt;
  const auto bytes = checked_mul(inner / each + (inner % each != 0), block_bytes(dtype));
  return bytes ? checked_mul(static_cast<uint64_t>(dims[0]), *bytes) : std::nullopt;
}

namespace {

// condition ? a : b, by masks: g++ turns a ?: of a float operation back into a branch, and the loop
// stays scalar.
uint32_t select(bool condition, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

}  // namespace

// IEEE 754 binary16, by integer arithmetic: the same on every compiler and processor. Both ways
// compute all their cases and select, without a branch, so that the loops of convert() vectorise.
float f16_to_f32(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  const uint32_t mantissa = magnitude & 0x3ffu;
  const uint32_t normal = (magnitude << 13) + (112u << 23);  // exponent bias 15 -> 127
  const uint32_t special = 0x7f800000u | mantissa << 13;     // infinity and NaN
  // Subnormal halves are normal floats: exact. By int32_t, for which there is a vector instruction.
  const float tiny = static_cast<float>(static_cast<int32_t>(mantissa)) * 0x1p-24f;
  const uint32_t finite = select(magnitude < 0x400u, std::bit_cast<uint32_t>(tiny), normal);
  return std::bit_cast<float>(sign | select(magnitude >= 0x7c00u, special, finite));
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1) - 0x38000000u) >> 13;
  // Below 2^-14 lies a subnormal half; adding 0.5 lets the FPU round at bit 2^-24.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const uint32_t tiny = std::bit_cast<uint32_t>(shifted) - 0x3f000000u;
  const uint32_t finite = select(magnitude < 0x38800000u, tiny, normal);
  // From 65520: infinity.
  const uint32_t rounded = select(magnitude >= 0x477ff000u, 0x7c00u, finite);
  return static_cast<uint16_t>(sign | select(magnitude > 0x7f800000u, 0x7e00u, rounded));
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

namespace {

struct F32 {
  using Word = float;
  static float widen(float value) { return value; }
  static float narrow(float value) { return value; }
};
struct F16 {
  using Word = uint16_t;
  static float widen(uint16_t bits) { return f16_to_f32(bits); }
  static uint16_t narrow(float value) { return f32_to_f16(value); }
};
struct BF16 {
  using Word = uint16_t;
  static float widen(uint16_t bits) { return bf16_to_f32(bits); }
  static uint16_t narrow(float value) { return f32_to_bf16(value); }
};

template <typename From, typename To>
void convert_all(const std::byte* from, size_t count, std::byte* to) {
  for (size_t i = 0; i < count; ++i) {
    const float value =
        From::widen(load<typename From::Word>(from + i * sizeof(typename From::Word)));
    store<typename To::Word>(to + i * sizeof(typename To::Word), To::narrow(value));
  }
}

[[noreturn]] void refuse(DType dtype) {
  throw Error(ErrorKind::kShape,
              cat("[convert] expected F32, F16 or BF16, got ", dtype_name(dtype)));
}

template <typename From>
void convert_to(DType to, const std::byte* from, size_t count, std::byte* out) {
  switch (to) {
    case DType::kF32:
      return convert_all<From, F32>(from, count, out);
    case DType::kF16:
      return convert_all<From, F16>(from, count, out);
    case DType::kBF16:
      return convert_all<From, BF16>(from, count, out);
    default:
      refuse(to);
  }
}

}  // namespace

void convert(const TensorView& from, DType to, std::span<std::byte> out) {
  if (is_quantised(from.dtype) || is_quantised(to)) {
    refuse(is_quantised(from.dtype) ? from.dtype : to);
  }
  const size_t count = from.bytes.size() / dtype_size(from.dtype);
  CHECK(out.size() == count * dtype_size(to));
  if (from.dtype == to) {
    std::copy(from.bytes.begin(), from.bytes.end(), out.begin());
    return;
  }
  switch (from.dtype) {
    case DType::kF32:
      return convert_to<F32>(to, from.bytes.data(), count, out.data());
    case DType::kF16:
      return convert_to<F16>(to, from.bytes.data(), count, out.data());
    case DType::kBF16:
      return convert_to<BF16>(to, from.bytes.data(), count, out.data());
    default:
      refuse(from.dtype);
  }
}

OwnedTensor converted(const TensorView& from, DType to) {
  if (is_quantised(from.dtype) || is_quantised(to)) {
    refuse(is_quantised(from.dtype) ? from.dtype : to);
  }
  OwnedTensor out;
  out.storage.resize(from.bytes.size() / dtype_size(from.dtype) * dtype_size(to));
  convert(from, to, out.storage);
  out.view = {to, from.dims, out.storage};
  return out;
}

}  // namespace split
