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

// f32, f16 or q8_0, by name.
std::optional<DType> row_format(std::string_view name);
inline constexpr std::string_view kRowFormats = "\"f32\", \"f16\" or \"q8_0\"";
// Stands among the features of a server's manifest that knows them.
inline constexpr std::string_view kWireFeature = "wire";

// Values [rows, columns] in a format; the view is into `kept` unless that is f32. Throws
// Error(kInput) for a value that the format cannot hold, and names `field`, which asked for it.
TensorView rounded(const TensorView& values, DType format, std::string_view field,
                   OwnedTensor& kept);
// Whether rows may come in it; bf16 may, which nobody sends from here.
bool is_row_format(DType format);
// The same [rows, columns] as floats; `out` has their number.
void widen(const TensorView& rows, std::span<float> out);

}  // namespace split::wire
