#include "tensor/shape.h"

#include <array>
#include <bit>

namespace split {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  size_t size;
};
constexpr std::array<Row, 7> kTypes{{{DType::kF32, "F32", 4},
                                     {DType::kF16, "F16", 2},
                                     {DType::kBF16, "BF16", 2},
                                     {DType::kI32, "I32", 4},
                                     {DType::kI64, "I64", 8},
                                     {DType::kU8, "U8", 1},
                                     {DType::kBool, "BOOL", 1}}};

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

float load_float(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::kF32:
      return load<float>(from);
    case DType::kF16:
      return f16_to_f32(load<uint16_t>(from));
    case DType::kBF16:
      return bf16_to_f32(load<uint16_t>(from));
    default:
      break;
  }
  throw Error(ErrorKind::kShape,
              cat("[convert] expected F32, F16 or BF16, got ", dtype_name(dtype)));
}

}  // namespace

size_t dtype_size(DType dtype) { return row(dtype).size; }
std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& r : kTypes) {
    if (r.name == name) return r.dtype;
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

// IEEE 754 binary16, by integer arithmetic: the same on every compiler and processor.
float f16_to_f32(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31;
  const uint32_t mantissa = bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude =
      static_cast<float>(mantissa) * 0x1p-24f;  // exact: subnormal halves are normal floats
  return sign != 0 ? -magnitude : magnitude;
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);  // NaN
  if (magnitude >= 0x477ff000u)
    return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 65536 or more
  if (magnitude <
      0x38800000u) {  // below 2^-14: a subnormal half; adding 0.5 lets the FPU round at bit 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

void convert(TensorView from, DType to, std::span<std::byte> out) {
  const size_t in_size = dtype_size(from.dtype), out_size = dtype_size(to);
  const size_t count = from.bytes.size() / in_size;
  CHECK(out.size() == count * out_size);
  if (from.dtype == to) {
    std::memcpy(out.data(), from.bytes.data(), out.size());
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const float value = load_float(from.dtype, from.bytes.data() + i * in_size);
    std::byte* target = out.data() + i * out_size;
    switch (to) {
      case DType::kF32:
        store(target, value);
        break;
      case DType::kF16:
        store(target, f32_to_f16(value));
        break;
      case DType::kBF16:
        store(target, f32_to_bf16(value));
        break;
      default:
        throw Error(ErrorKind::kShape,
                    cat("[convert] expected F32, F16 or BF16, got ", dtype_name(to)));
    }
  }
}

}  // namespace split
