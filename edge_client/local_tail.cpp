#include "edge_client/local_tail.h"

#include <algorithm>
#include <set>

#include "base/json.h"

namespace split::edge {

bool TailRange::empty(const ModelConfig& config) const {
  return !embed && first >= config.layers && last <= config.layers;
}

std::string TailRange::describe(const ModelConfig& config) const {
  std::vector<std::string> parts;
  if (embed) parts.push_back("embed");
  const int end = std::min(last, config.layers);
  if (first + 1 == end) parts.push_back(cat("block ", first));
  if (first + 1 < end) parts.push_back(cat("blocks ", first, "-", end - 1));
  if (last > config.layers) parts.push_back("norm");
  if (last > config.layers + 1) parts.push_back("head");
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text.empty() ? "nothing" : text;
}

namespace {

// The server's blob, or nothing; `known` becomes the formats it has.
const wire::BlobInfo* find_blob(const wire::ModelInfo& info, const std::string& stage,
                                const std::string& name, std::string_view format,
                                std::string& known) {
  const wire::BlobInfo* found = nullptr;
  for (const wire::StageInfo& offered : info.stages) {
    if (offered.name != stage) continue;
    for (const wire::BlobInfo& blob : offered.blobs) {
      if (blob.name == name && blob.format == format) found = &blob;
      if (known.size() < 100) known += (known.empty() ? "" : ", ") + blob.format;
    }
  }
  return found;
}

}  // namespace

std::vector<wire::BlobInfo> blobs_of(const Model& model, const wire::ModelInfo& info,
                                     const TailRange& range, const StageFormats& formats) {
  std::vector<std::string> stages;
  if (range.embed) stages.push_back("embed");
  const int layers = model.config().layers;
  for (int i = range.first; i < std::min(range.last, layers); ++i)
    stages.push_back(cat("block.", i));
  if (range.last > layers) stages.push_back("norm");
  if (range.last > layers + 1) stages.push_back("head");

  std::vector<wire::BlobInfo> blobs;
  for (const std::string& stage : stages) {
    const std::optional<DType> asked = formats.of(stage);
    const std::string wanted = asked ? std::string(format_name(*asked)) : info.format;
    for (const std::string& name : model.stage(stage).blobs_as(asked.value_or(DType::kF32))) {
      const auto same =
          std::ranges::find_if(blobs, [&](const auto& blob) { return blob.name == name; });
      if (same != blobs.end()) {
        if (same->format == wanted) continue;
        throw Error(
            ErrorKind::kInput,
            cat("--format: '", name, "' of ", shown(info.id), " is in ", stage,
                " and in another stage: expected one format, got ", wanted, " and ", same->format));
      }
      std::string known;
      const wire::BlobInfo* const found = find_blob(info, stage, name, wanted, known);
      if (found == nullptr) {
        throw Error(ErrorKind::kInput,
                    cat("--format: the server has ", stage, " of ", shown(info.id), " in ",
                        known.empty() ? "no such format" : known, ", expected ", shown(wanted)));
      }
      blobs.push_back(*found);
    }
  }
  return blobs;
}

LocalTail::LocalTail(std::unique_ptr<Device> device, const Model& model, const TailRange& range,
                     const StageFormats& formats, std::span<const wire::BlobInfo> blobs,
                     std::unique_ptr<BlobLoad> load)
    : load_(std::move(load)), device_(std::move(device)) {
  const ModelConfig& config = model.config();
  ShardOptions options;
  options.embed = range.embed;
  options.first = range.first;
  options.last = range.last;
  options.formats = formats;
  options.kv_bytes = kv_bytes_for(
      config, std::max(0, std::min(range.last, config.layers) - range.first), options.profile, 1);
  for (const wire::BlobInfo& blob : blobs) {
    for (const WeightDecl& decl : model.blob(blob.name).weights) blob_of_[decl.name] = blob;
  }
  WeightSource weights;
  weights.declared = [this](const std::string& name) { return tensor(name, false); };
  weights.view = [this](const std::string& name) { return tensor(name, true); };
  weights.taken = [](const TensorView& view) { MappedFile::let_go(view.bytes); };
  try {
    shard_ = std::make_unique<Shard>(*device_, model, weights, options);
  } catch (const Error& error) {
    // The hashes were right, so the server itself is wrong.
    if (error.kind() != ErrorKind::kShape && error.kind() != ErrorKind::kInput) throw;
    throw Error(ErrorKind::kIntegrity, error.what());
  }
  batcher_ = std::make_unique<Batcher>(*shard_);
}

TensorView LocalTail::tensor(const std::string& name, bool with_bytes) {
  const auto missing = [&] {
    return Error(ErrorKind::kIntegrity, cat("[weights] no downloaded blob holds ", shown(name)));
  };
  const auto blob = blob_of_.find(name);
  if (blob == blob_of_.end()) throw missing();
  const std::string& hash = blob->second.sha256;
  Bytes bytes = with_bytes ? load_->whole(hash) : load_->begun(hash);
  // A header that is longer than the part that is there is waited for.
  if (!with_bytes && bytes.size() >= 8 && load_le64(bytes.data()) > wire::kChunkBytes - 8) {
    bytes = load_->whole(hash);
  }
  Parsed& parsed = parsed_[hash];
  if (parsed.from != bytes.data()) {  // a blob that was damaged goes on in another file
    parsed = {bytes.data(), parse_weight_file(bytes, cat("blob ", shown(blob->second.name)))};
  }
  const auto at = parsed.tensors.find(name);
  if (at == parsed.tensors.end()) throw missing();
  return at->second;
}

}  // namespace split::edge
