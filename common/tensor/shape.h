// Element types and shapes: what a tensor is before anybody computes with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace split {

enum class DType : uint8_t { kF32, kF16, kBF16, kI32, kI64, kU8, kBool };

size_t dtype_size(DType dtype);  // bytes an element
std::string_view dtype_name(
    DType dtype);  // safetensors' word: "F32", "F16", "BF16", "I32", "I64", "U8", "BOOL"
std::optional<DType> dtype_from_name(std::string_view name);

// Sizes, outermost first. At most 8 of them, none negative.
using Dims = std::vector<int64_t>;

// "[2, 3]"
std::string to_string(const Dims& dims);

// The product of the sizes; nothing when one is negative or the product overflows 63 bits.
std::optional<int64_t> element_count(const Dims& dims);

// A dense row-major tensor somewhere in memory that it does not own.
struct TensorView {
  DType dtype = DType::kF32;
  Dims dims;
  Bytes bytes;  // exactly element_count(dims) * dtype_size(dtype)
};

// Half-precision conversions, exact where the target can hold the value, else rounded to nearest
// even.
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);

// Element by element, dense, of the same count; either side F32, F16 or BF16, or both of one type.
// Neither side needs to be aligned. Throws Error(kShape) for other types.
void convert(const TensorView& from, DType to, std::span<std::byte> out);

// A tensor with its own bytes. Moves only: a copy's view would show the original.
struct OwnedTensor {
  OwnedTensor() = default;
  OwnedTensor(const OwnedTensor&) = delete;
  OwnedTensor& operator=(const OwnedTensor&) = delete;
  OwnedTensor(OwnedTensor&&) = default;
  OwnedTensor& operator=(OwnedTensor&&) = default;

  std::vector<std::byte> storage;
  TensorView view;  // of storage, also after a move
};

// A copy as `to`, of the same shape. Rules and errors as convert().
OwnedTensor converted(const TensorView& from, DType to);

}  // namespace split
