#include "edge_client/weights/local_tail.h"

#include <algorithm>

#include "base/json.h"
#include "base/system/pages.h"
#include "edge_client/weights/growth.h"

namespace split::edge {
namespace {

// Returns the server's entry for a stage.
const wire::StageInfo& find_stage(const wire::ModelInfo& info, const std::string& name) {
  const auto at = std::ranges::find(info.stages, name, &wire::StageInfo::name);
  if (at != info.stages.end()) return *at;
  throw Error(ErrorKind::kRemote,
              cat("[server] its manifest of ", shown(info.id), " lacks ", name));
}

}  // namespace

std::vector<StageBlobs> stage_blobs(const Model& model, const wire::ModelInfo& info,
                                    const StageRange& range, const StageFormats& formats) {
  return stage_blobs(model, info, range.stage_names(model.config().layers), formats);
}

std::vector<StageBlobs> stage_blobs(const Model& model, const wire::ModelInfo& info,
                                    const std::vector<std::string>& stages,
                                    const StageFormats& formats) {
  std::map<std::string, std::string> format_of;  // format of the blobs so far, by name
  std::vector<StageBlobs> all;
  for (const std::string& stage : stages) {
    const wire::StageInfo& offered = find_stage(info, stage);
    const std::optional<DType> asked = formats.of(stage);
    const std::string wanted = asked ? std::string(format_name(*asked)) : offered.format;
    const DType dtype = dtype_from_format(wanted).value_or(DType::kF32);
    StageBlobs& own = all.emplace_back(StageBlobs{stage, {}});
    for (const std::string& name : model.stage(stage).blobs_as(dtype)) {
      const auto [same, is_new] = format_of.emplace(name, wanted);
      if (!is_new && same->second == wanted) continue;
      if (!is_new) {
        throw Error(
            ErrorKind::kInput,
            cat("--format: '", name, "' of ", shown(info.id), " is in ", stage,
                " and in another stage: expected one format, got ", wanted, " and ", same->second));
      }
      const auto found = std::ranges::find_if(offered.blobs, [&](const auto& blob) {
        return blob.name == name && blob.format == wanted;
      });
      if (found == offered.blobs.end()) {
        throw Error(ErrorKind::kInput,
                    cat("--format: the server does not offer ", shown(wanted), " for ", stage,
                        " of ", shown(info.id), " (see --plan)"));
      }
      own.blobs.push_back(*found);
    }
  }
  return all;
}

std::vector<wire::BlobInfo> blobs_of(const Model& model, const wire::ModelInfo& info,
                                     const StageRange& range, const StageFormats& formats) {
  std::vector<wire::BlobInfo> blobs;
  for (const StageBlobs& stage : stage_blobs(model, info, range, formats)) {
    blobs.insert(blobs.end(), stage.blobs.begin(), stage.blobs.end());
  }
  return blobs;
}

uint64_t bytes_of(std::span<const wire::BlobInfo> blobs) {
  uint64_t bytes = 0;
  for (const wire::BlobInfo& blob : blobs) bytes += blob.bytes;
  return bytes;
}

TextRoom text_room(const EngineOptions& options, const PlacementRequest& request,
                   const wire::ModelInfo& info) {
  TextRoom room{.budget = options.kv_budget, .texts = 2};  // like TailBuilder::granted_to_weights()
  // A GPU allocates the memory before there is a text, as a tab does.
  if (!kLazyPages || request.device.device != "cpu") room.most = kLazyPages ? 1ull << 31 : 0;
  for (const wire::StageInfo& stage : info.stages) {
    for (const wire::BlobInfo& blob : stage.blobs)
      room.weights += blob.format == stage.format ? blob.bytes : 0;
  }
  if (request.cut == Cut::cloud())
    room.weights = std::min(room.weights, options.max_weights.value_or(kMaxWeights));
  return room;
}

LocalTail::LocalTail(std::unique_ptr<Device> device, const Model& model, const StageRange& range,
                     const StageFormats& formats, Profile profile,
                     std::span<const wire::BlobInfo> blobs, std::unique_ptr<BlobLoad> load,
                     uint64_t kv_budget, unsigned threads, Begins begins,
                     std::shared_ptr<const TailWeights> over)
    : weights_(model, blobs, std::move(load), std::move(over)), device_(std::move(device)) {
  ShardOptions options;
  options.range = range;
  if (begins == Begins::kEmpty) options.floor = range.to;
  options.profile = profile;
  options.formats = formats;
  options.threads = threads;
  options.kv_bytes = std::max(kv_budget, kv_bytes_for(model, range, options.profile, 1));
  WeightSource weights;
  weights.declared = [this](const std::string& name) { return weights_.tensor(name, false); };
  weights.view = [this](const std::string& name) { return weights_.tensor(name, true); };
  weights.taken = [this](const TensorView& view) { weights_.taken(view); };
  weights.largest_first = MappedFile::is_memory();
  checked([&] { shard_ = std::make_unique<Shard>(*device_, model, weights, options); });
  batcher_ = std::make_unique<Batcher>(*shard_);
  batcher_->keep_prefixes();
}

// Wrong weights with right hashes are the server's fault.
template <typename Work>
void LocalTail::checked(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kShape && error.kind() != ErrorKind::kInput) throw;
    throw Error(ErrorKind::kIntegrity, error.what());
  }
}

void LocalTail::grow(Point floor) {
  checked([&] { shard_->grow(floor); });
}

}  // namespace split::edge
