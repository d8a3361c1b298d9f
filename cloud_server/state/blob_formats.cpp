#include "cloud_server/state/blob_formats.h"

#include <algorithm>
#include <set>

#include "base/json.h"
#include "io/quantize.h"
#include "run/shard/shard.h"
#include "tensor/blocks.h"

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

namespace {

// A tensor inside the model that it does not have (an adapter, cross attention, a block too many)
// would be ignored silently; one beside it (a classifier's head) does no harm.
void refuse_unknown_tensors(const Checkpoint& checkpoint, const Model& model) {
  std::set<std::string_view> known;
  for (const Blob& blob : model.blobs()) {
    for (const WeightDecl& decl : blob.weights) known.insert({decl.name, decl.from});
  }
  for (const std::string& name : checkpoint.names()) {
    if (model.is_inside(name) && !known.contains(name)) {
      throw Error(ErrorKind::kInput,
                  cat("[model] ", checkpoint.path().string(), ": tensor ", shown(name),
                      " is no part of a ", model.config().model_type, " of ", model.config().layers,
                      " blocks; adapters and changed architectures are not supported"));
    }
  }
}

bool is_in_blocks(const Checkpoint& checkpoint, const WeightDecl& decl) {
  return is_quantised(stored_weight(checkpoint, decl).dtype);
}

}  // namespace

std::unique_ptr<Model> model_of(const Checkpoint& checkpoint, std::optional<int> context) {
  std::unique_ptr<Model> model = make_model(checkpoint.config_json(), context);
  refuse_unknown_tensors(checkpoint, *model);
  for (const Blob& blob : model->blobs()) {
    for (const WeightDecl& decl : blob.weights) {
      const TensorView view = stored_weight(checkpoint, decl);
      const Dims dims = stored_dims(decl, view.dtype);
      if (view.dims != dims) {
        throw Error(ErrorKind::kShape,
                    cat("[model] ", checkpoint.path().string(), ": weight '", decl.name,
                        "': expected ", to_string(dims), ", got ", to_string(view.dims)));
      }
    }
  }
  for (const Blob& blob : model->blobs()) {
    for (const WeightDecl& decl : blob.weights) {
      if (!decl.finite || values_are_finite(stored_weight(checkpoint, decl))) continue;
      throw Error(ErrorKind::kInput, cat("[model] ", checkpoint.path().string(), ": weight '",
                                         decl.name, "': a value is not finite"));
    }
  }
  return model;
}

DType own_format(const Checkpoint& checkpoint, const Blob& blob) {
  for (const WeightDecl& decl : blob.weights) {
    // A table has the blocks that it has in any format of its stage.
    if (!decl.looked_up && is_in_blocks(checkpoint, decl))
      return stored_weight(checkpoint, decl).dtype;
  }
  return checkpoint.dtype();
}

DType own_format(const Checkpoint& checkpoint, const Model& model, const Stage& stage) {
  for (const std::string& name : stage.quantised) {
    const DType format = own_format(checkpoint, model.blob(name));
    if (is_quantised(format)) return format;
  }
  return checkpoint.dtype();
}

std::vector<BlobFormat> offered_blobs(const Checkpoint& checkpoint, const Model& model,
                                      std::span<const DType> asked) {
  std::vector<BlobFormat> offered;
  const auto offer = [&](const Stage& stage, DType format) {
    for (const std::string& name : stage.blobs_as(format)) {
      const Blob& blob = model.blob(name);
      const DType own = own_format(checkpoint, blob);
      const auto is_it = [&](const BlobFormat& other) {
        return other.blob == &blob && (other.format == format || is_quantised(own));
      };
      if (std::ranges::none_of(offered, is_it)) offered.push_back({&blob, format});
    }
  };
  for (const Stage& stage : model.stages()) offer(stage, own_format(checkpoint, model, stage));
  for (const DType format : asked) {
    for (const Stage& stage : model.stages()) offer(stage, format);
  }
  return offered;
}

const Blob& source_of(const Model& model, const Blob& blob) {
  const std::string& from = blob.weights[0].from;
  if (from.empty() || blob.weights[0].from_row >= 0) return blob;
  const auto holds = [&](const Blob& other) {
    return std::ranges::any_of(other.weights, [&](const auto& decl) { return decl.name == from; });
  };
  const auto at = std::ranges::find_if(model.blobs(), holds);
  CHECK(blob.weights.size() == 1 && at != model.blobs().end());
  return *at;
}

DType dtype_in(const Checkpoint& checkpoint, const WeightDecl& decl, DType format) {
  const DType own = stored_weight(checkpoint, decl).dtype;
  if (decl.looked_up && is_quantised(own)) return own;
  const bool verbatim = is_quantised(format) ? decl.product == Product::kNone
                                             : format == checkpoint.dtype() && !is_quantised(own);
  return verbatim ? own : format;
}

FormattedWeights own_weights(const Checkpoint& checkpoint, std::span<const WeightDecl> weights) {
  FormattedWeights result;
  for (const WeightDecl& decl : weights) {
    result.tensors.push_back({decl.name, stored_weight(checkpoint, decl)});
  }
  return result;
}

FormattedWeights format_weights(const Checkpoint& checkpoint, std::span<const WeightDecl> weights,
                                DType format, ThreadPool& pool) {
  FormattedWeights result = own_weights(checkpoint, weights);
  result.made.reserve(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    const WeightDecl& decl = weights[i];
    TensorView& view = result.tensors[i].view;
    const DType dtype = dtype_in(checkpoint, decl, format);
    if (dtype == view.dtype) continue;
    if (is_quantised(view.dtype)) {
      throw Error(ErrorKind::kInput,
                  cat("[formats] weight '", decl.name, "' as ", format_name(format),
                      ": expected floats to make it from, got ", format_name(view.dtype)));
    }
    result.made.push_back(
        is_quantised(dtype)
            ? quantised(view, dtype, decl.product == Product::kInOut, decl.name, &pool)
            : converted(view, dtype));
    view = result.made.back().view;
  }
  return result;
}

}  // namespace split::cloud
