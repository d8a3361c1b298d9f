// Tensors on the wire are safetensors files: one reader and one writer for weights and for steps.
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/json.h"
#include "io/weight_file.h"
#include "wire/protocol.h"
#include "wire/row_format.h"

namespace split::wire {

namespace {

constexpr const char* kLengths = "lengths";
constexpr uint64_t kMaxHeader = 64 << 10;  // parsed, it takes 30 times as much

}  // namespace

std::string frame(std::string_view name, uint32_t rows, uint32_t columns,
                  std::span<const float> values, const FrameOptions& options) {
  CHECK(values.size() == size_t{rows} * columns);
  OwnedTensor kept;
  const TensorView as_is{DType::kF32, {int64_t{rows}, int64_t{columns}}, std::as_bytes(values)};
  std::vector<NamedTensor> tensors{
      {std::string(name), rounded(as_is, options.format, options.field, kept)}};
  const std::span<const uint32_t> lengths = options.lengths;
  if (!lengths.empty()) {
    tensors.push_back(
        {kLengths, {DType::kI32, {static_cast<int64_t>(lengths.size())}, std::as_bytes(lengths)}});
  }
  return write_weight_file(tensors);
}

std::vector<uint32_t> parse_lengths(Bytes bytes, uint32_t rows, uint32_t most) {
  const Safetensors file = Safetensors::parse(bytes, "the body", kMaxHeader);
  const auto at = file.tensors().find(kLengths);
  if (at == file.tensors().end()) return {};
  const TensorView& view = at->second;
  const auto refuse = [&](const std::string& got) {
    throw Error(ErrorKind::kInput,
                cat("tensor 'lengths': expected I32 [texts] of 1..", most, " rows each, ", rows,
                    " together, got ", got),
                kLengths);
  };
  if (view.dtype != DType::kI32 || view.dims.size() != 1 || view.dims[0] < 1) {
    refuse(cat(dtype_name(view.dtype), " ", to_string(view.dims)));
  }
  std::vector<uint32_t> lengths(static_cast<size_t>(view.dims[0]));
  std::memcpy(lengths.data(), view.bytes.data(), view.bytes.size());
  uint64_t sum = 0;
  for (const uint32_t length : lengths) {
    if (length < 1 || length > most) refuse(cat("a text of ", static_cast<int32_t>(length)));
    sum += length;
  }
  if (sum != rows) refuse(cat(sum, " together"));
  return lengths;
}

Matrix parse_frame(Bytes bytes, std::string_view name, uint32_t columns, uint32_t max_rows) {
  const Safetensors::Tensors tensors = parse_weight_file(bytes, "the body", kMaxHeader);
  const auto at = tensors.find(name);
  if (at == tensors.end()) {
    throw Error(ErrorKind::kInput, cat("the body: expected a tensor '", name, "'"),
                std::string(name));
  }
  const TensorView& view = at->second;
  if (!is_row_format(view.dtype) || view.dims.size() != 2 || view.dims[1] != int64_t{columns}) {
    throw Error(ErrorKind::kInput,
                cat("tensor '", name, "': expected F32 [rows, ", columns, "], got ",
                    dtype_name(view.dtype), " ", to_string(view.dims)),
                std::string(name));
  }
  if (view.dims[0] < 1 || view.dims[0] > int64_t{max_rows}) {
    throw Error(ErrorKind::kInput,
                cat("tensor '", name, "': expected 1..", max_rows, " rows, got ", view.dims[0]),
                std::string(name));
  }
  Matrix matrix;
  matrix.rows = static_cast<uint32_t>(view.dims[0]);
  matrix.columns = columns;
  matrix.values.resize(size_t{matrix.rows} * columns);
  widen(view, matrix.values);
  for (size_t i = 0; i < matrix.values.size(); ++i) {
    if (!std::isfinite(matrix.values[i])) {
      throw Error(
          ErrorKind::kInput,
          cat("tensor '", name, "': row ", i / columns, " column ", i % columns, " is not finite"),
          std::string(name));
    }
  }
  return matrix;
}

void append_floats(std::string& out, std::span<const float> values) {
  out += '[';
  char buffer[32];
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, values[i]);
    CHECK(error == std::errc());
    out.append(buffer, end);
  }
  out += ']';
}

double json_number(float value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  CHECK(error == std::errc());
  double result = 0;
  parse_real(buffer, end, result);
  return result;
}

}  // namespace split::wire
