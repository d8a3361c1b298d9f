#include "wire/row_format.h"

#include <cmath>

#include "base/error.h"
#include "io/quantize.h"
#include "tensor/blocks.h"

namespace split::wire {
namespace {

constexpr float kMostHalf = 65504;

// The largest value of a format.
float most_of(DType format) { return format == DType::kF16 ? kMostHalf : kMostHalf * 127; }

}  // namespace

std::optional<DType> row_format(std::string_view name) {
  const auto format = dtype_from_format(name);
  const bool known = format == DType::kF32 || format == DType::kF16 || format == DType::kQ8_0;
  return known ? format : std::nullopt;
}

TensorView rounded(const TensorView& values, DType format, std::string_view field,
                   OwnedTensor& kept) {
  CHECK(values.dtype == DType::kF32 && row_format(format_name(format)));
  if (format == DType::kF32) return values;
  for (size_t at = 0; at < values.bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, values.bytes.data() + at, sizeof value);
    if (std::abs(value) <= most_of(format)) continue;  // false for NaN, too
    throw Error(ErrorKind::kInput,
                cat("a value of ", value, " is beyond ", format_name(format), ", which ends at ",
                    most_of(format), ": ask for f32"),
                std::string(field));
  }
  kept = is_quantised(format) ? quantised(values, format, false, field) : converted(values, format);
  return kept.view;
}

bool is_row_format(DType format) {
  return format == DType::kBF16 || row_format(format_name(format)).has_value();
}

void widen(const TensorView& rows, std::span<float> out) {
  CHECK(rows.dims.size() == 2 && element_count(rows.dims) == static_cast<int64_t>(out.size()));
  if (!is_quantised(rows.dtype)) {
    convert(rows, DType::kF32, std::as_writable_bytes(out));
    return;
  }
  const auto columns = static_cast<size_t>(rows.dims[1]);
  const size_t each = row_bytes(rows.dtype, columns);
  for (size_t row = 0; row < out.size() / columns; ++row) {
    dequantise_row(rows.dtype, rows.bytes.data() + row * each, columns, out.data() + row * columns);
  }
}

}  // namespace split::wire
