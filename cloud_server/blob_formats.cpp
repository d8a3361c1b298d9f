#include "cloud_server/blob_formats.h"

#include <algorithm>

#include "base/json.h"
#include "io/quantize.h"

namespace split::cloud {

std::vector<DType> parse_formats(std::string_view text) {
  std::vector<DType> formats;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    more = comma != text.npos;
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(more ? comma + 1 : text.size());
    const auto format = dtype_from_format(word);
    if (!format || format == DType::kBF16) {
      throw Error(ErrorKind::kInput,
                  cat("expected some of f32, f16, q8_0 and q4_0, got ", shown(word)));
    }
    if (std::ranges::find(formats, *format) != formats.end()) {
      throw Error(ErrorKind::kInput, cat("expected each format once, got ", word, " again"));
    }
    formats.push_back(*format);
  }
  return formats;
}

std::vector<DType> served_formats(const Checkpoint& checkpoint, std::span<const DType> asked) {
  std::vector<DType> formats{checkpoint.dtype()};
  for (const DType format : asked) {
    if (format != formats[0]) formats.push_back(format);
  }
  return formats;
}

std::vector<BlobFormat> offered_blobs(const Model& model, std::span<const DType> formats) {
  std::vector<BlobFormat> offered;
  for (const DType format : formats) {
    const size_t first = offered.size();
    for (const Stage& stage : model.stages()) {
      for (const std::string& name : stage.blobs_as(format)) {
        const Blob& blob = model.blob(name);
        const auto is_it = [&](const BlobFormat& other) { return other.blob == &blob; };
        if (std::none_of(offered.begin() + static_cast<ptrdiff_t>(first), offered.end(), is_it)) {
          offered.push_back({&blob, format});
        }
      }
    }
  }
  return offered;
}

const Blob& source_of(const Model& model, const Blob& blob) {
  const std::string& from = blob.weights[0].from;
  if (from.empty()) return blob;
  const auto holds = [&](const Blob& other) {
    return std::ranges::any_of(other.weights, [&](const auto& decl) { return decl.name == from; });
  };
  const auto at = std::ranges::find_if(model.blobs(), holds);
  CHECK(blob.weights.size() == 1 && at != model.blobs().end());
  return *at;
}

FormattedWeights format_weights(const Checkpoint& checkpoint, std::span<const WeightDecl> weights,
                                DType format) {
  FormattedWeights result;
  result.made.reserve(weights.size());
  for (const WeightDecl& decl : weights) {
    TensorView view = checkpoint.at(decl.from.empty() ? decl.name : decl.from);
    if (is_quantised(format)) {
      if (decl.product != Product::kNone) {
        if (view.dims != decl.dims) {
          throw Error(ErrorKind::kShape, cat("[formats] weight '", decl.name, "': expected ",
                                             to_string(decl.dims), ", got ", to_string(view.dims)));
        }
        result.made.push_back(quantised(view, format, decl.product == Product::kInOut, decl.name));
        view = result.made.back().view;
      }
    } else if (format != checkpoint.dtype()) {
      result.made.push_back(converted(view, format));
      view = result.made.back().view;
    }
    result.tensors.push_back({decl.name, view});
  }
  return result;
}

}  // namespace split::cloud
