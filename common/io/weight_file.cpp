#include "io/weight_file.h"

#include "base/json.h"
#include "tensor/blocks.h"

namespace split {
namespace {

// Parses "[2304, 768]", in the exact form of to_string().
std::optional<Dims> parse_matrix_dims(std::string_view text) {
  constexpr uint64_t kMaxSize = uint64_t{1} << 40;
  const size_t comma = text.find(", ");
  if (!text.starts_with('[') || !text.ends_with(']') || comma == text.npos) return std::nullopt;
  const auto rows = parse_u64(text.substr(1, comma - 1), 0, kMaxSize);
  const auto inner = parse_u64(text.substr(comma + 2, text.size() - comma - 3), 0, kMaxSize);
  if (!rows || !inner) return std::nullopt;
  Dims dims{static_cast<int64_t>(*rows), static_cast<int64_t>(*inner)};
  return to_string(dims) == text ? std::optional(dims) : std::nullopt;
}

TensorView read_quantised(const TensorView& bytes, const std::string& described,
                          const std::string& where) {
  const auto fail = [&](const std::string& message) {
    throw Error(ErrorKind::kInput, where + message);
  };
  const size_t space = std::min(described.find(' '), described.size());
  const auto dtype = dtype_from_format(described.substr(0, space));
  const auto dims =
      space < described.size() ? parse_matrix_dims(described.substr(space + 1)) : std::nullopt;
  if (!dtype || !is_quantised(*dtype) || !dims) {
    fail(cat("described as ", shown(described), ", expected one like \"q8_0 [rows, K]\""));
  }
  if ((*dims)[0] == 0 || (*dims)[1] == 0) fail(cat("shape ", to_string(*dims), " has a size of 0"));
  const auto size = tensor_bytes(*dtype, *dims);
  if (!size) fail(cat("shape ", to_string(*dims), " overflows"));
  const bool fits = bytes.dtype == DType::kU8 && bytes.dims.size() == 2 &&
                    bytes.dims[0] == (*dims)[0] && bytes.bytes.size() == *size;
  if (!fits) {
    fail(cat(described, ": expected U8 in ", (*dims)[0], " rows of ", *size, " bytes in all, got ",
             dtype_name(bytes.dtype), " ", to_string(bytes.dims)));
  }
  return {*dtype, *dims, bytes.bytes};
}

}  // namespace

Safetensors::Tensors parse_weight_file(Bytes file, std::string_view what, uint64_t max_header) {
  Safetensors parsed = Safetensors::parse(file, what, max_header);
  const Safetensors::Metadata metadata = parsed.metadata();
  Safetensors::Tensors tensors = std::move(parsed).tensors();
  for (auto& [name, view] : tensors) {
    const auto described = metadata.find(name);
    if (described == metadata.end()) continue;
    view = read_quantised(view, described->second,
                          cat("[weights] ", what, ": tensor ", shown(name), ": "));
  }
  return tensors;
}

std::string weight_file_header(std::span<const NamedTensor> tensors) {
  Safetensors::Metadata metadata;
  std::vector<NamedTensor> stored;
  for (const auto& [name, view] : tensors) {
    NamedTensor& added = stored.emplace_back(NamedTensor{name, view});
    if (!is_quantised(view.dtype)) continue;
    metadata[name] = cat(format_name(view.dtype), " ", to_string(view.dims));
    const size_t bytes = row_bytes(view.dtype, static_cast<size_t>(view.dims[1]));
    added.view.dtype = DType::kU8;
    added.view.dims = {view.dims[0], static_cast<int64_t>(bytes)};
  }
  return safetensors_header(stored, metadata);
}

std::string write_weight_file(std::span<const NamedTensor> tensors) {
  return with_tensors(weight_file_header(tensors), tensors);
}

}  // namespace split
