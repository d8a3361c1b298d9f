// The formats that rows of a tensor travel in: f32 as they are computed, f16 in half the bytes,
// q8_0 in little more than a quarter (tensor/blocks.h). Rounding is decided here alone, for both
// directions. It is no more than this, for a row as it is and as it arrives:
//   f16   each value by 2^-11 of itself, or by 2^-25 if that is more;
//   q8_0  32 values together, as the root of their mean square, by 1/224 of the largest of them
//         and 2^-18.
// A value that a format cannot hold is an error, and never another value.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tensor/shape.h"

namespace split::wire {

// Returns f32, f16 or q8_0 by name.
std::optional<DType> row_format(std::string_view name);
inline constexpr std::string_view kRowFormats = "\"f32\", \"f16\" or \"q8_0\"";
// A feature of servers that know these formats.
inline constexpr std::string_view kWireFeature = "wire";

// Rounds values [rows, columns] to a format; the view is into `kept` unless that is f32. Throws
// Error(kInput) for a value that the format cannot hold; `field`, which requested the format, is in
// the message.
TensorView rounded(const TensorView& values, DType format, std::string_view field,
                   OwnedTensor& kept);
// Whether rows may come in this format; bf16 may, though we never send it.
bool is_row_format(DType format);
// Converts such rows to floats; `out` has their number.
void widen(const TensorView& rows, std::span<float> out);

}  // namespace split::wire
