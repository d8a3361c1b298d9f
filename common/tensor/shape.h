// Element types and shapes: a tensor's facts before any computation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace split {

// Types from Q8_0 on are stored in blocks of elements along the last axis (tensor/blocks.h), all
// others element by element.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kI64,
  kU8,
  kBool,
  kQ8_0,
  kQ4_0,
  kQ4_K,
  kQ6_K,
  kQ5_K  // only for tables that the host reads rows of: no device multiplies it
};

inline constexpr size_t kBlock = 32;
inline constexpr size_t kSuperBlock = 256;  // for Q4_K, Q5_K and Q6_K, whose rows are whole ones
bool is_quantised(DType dtype);             // stored in blocks
constexpr bool is_k_quant(DType dtype) { return dtype >= DType::kQ4_K; }
constexpr size_t block_elements(DType dtype) { return is_k_quant(dtype) ? kSuperBlock : kBlock; }
size_t dtype_size(DType dtype);   // bytes an element; not for types in blocks
size_t block_bytes(DType dtype);  // a quantised type's
// Bytes of a row of `inner` elements of a quantised type.
size_t row_bytes(DType dtype, size_t inner);
// The name in safetensors: "F32", "F16", "BF16", "I32", "I64", "U8", "BOOL"; for messages "Q8_0",
// "Q4_0", which safetensors and dtype_from_name() do not know.
std::string_view dtype_name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);
// Returns the name of a type of weights for users and manifests: "f32", "f16", "bf16", "q8_0",
// "q4_0".
std::string_view format_name(DType dtype);
std::optional<DType> dtype_from_format(std::string_view name);

// Sizes, outermost first. At most 8 of them, none negative.
using Dims = std::vector<int64_t>;

// "[2, 3]"
std::string to_string(const Dims& dims);

// The product of the sizes; nothing when one is negative or the product overflows 63 bits.
std::optional<int64_t> element_count(const Dims& dims);
// Bytes of a dense tensor: for a quantised type rows of whole blocks, of a matrix only. Nothing if
// there is no such tensor or it overflows.
std::optional<uint64_t> tensor_bytes(DType dtype, const Dims& dims);

// A dense row-major tensor somewhere in memory that it does not own.
struct TensorView {
  DType dtype = DType::kF32;
  Dims dims;
  Bytes bytes;  // exactly tensor_bytes(dtype, dims)
};

// Half-precision conversions, exact where the target can hold the value, else rounded to nearest
// even.
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);

// Converts element by element, dense, of one count; either side F32, F16 or BF16, or both of one
// type. Neither side needs to be aligned. Throws Error(kShape) for other types.
void convert(const TensorView& from, DType to, std::span<std::byte> out);

// A tensor with its own bytes. Moves only: a copy's view would show the original.
struct OwnedTensor {
  OwnedTensor() = default;
  OwnedTensor(const OwnedTensor&) = delete;
  OwnedTensor& operator=(const OwnedTensor&) = delete;
  OwnedTensor(OwnedTensor&&) = default;
  OwnedTensor& operator=(OwnedTensor&&) = default;

  std::vector<std::byte> storage;
  TensorView view;  // views storage, also after a move
};

// A copy of type `to` and equal shape. Rules and errors are convert()'s.
OwnedTensor converted(const TensorView& from, DType to);

}  // namespace split
