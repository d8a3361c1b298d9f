#include "edge_client/weights/weight_store.h"

#include <algorithm>

#include "base/figures.h"
#include "edge_client/weights/local_tail.h"
#include "step/names.h"

namespace split::edge {

std::string base_of(const wire::ModelInfo& info) {
  std::string base;
  for (const wire::StageInfo& stage : info.stages) {
    for (const wire::BlobInfo& blob : stage.blobs) {
      const std::string one = cat(blob.name, ":", blob.sha256);  // a tied head has the embedding's
                                                                 // blob
      if (blob.format != info.format || base.find(one) != base.npos) continue;
      base += cat(base.empty() ? "" : " ", one);
    }
  }
  return base;
}

StageFormats WeightStore::formats(const wire::ModelInfo& info) const {
  StageFormats formats = choice_.request().formats;
  if (!choice_.request().own_blocks) return formats;
  for (const wire::StageInfo& stage : info.stages) {
    const std::optional<DType> own = dtype_from_format(stage.format);
    if (!own || !is_quantised(*own)) continue;
    (stage.name == names::kHead ? formats.head : formats.block).reset();
  }
  return formats;
}

std::vector<wire::BlobInfo> WeightStore::blobs(const wire::ModelInfo& info,
                                               const StageRange& range) const {
  return blobs_of(choice_.model(), info, range, formats(info));
}

std::unique_ptr<BlobLoad> WeightStore::begin_load(const wire::ModelInfo& info,
                                                  const std::vector<wire::BlobInfo>& blobs,
                                                  LoadOptions load) const {
  const Remote& remote = choice_.remote();
  load.cache_limit = choice_.options().cache_limit;
  return std::make_unique<BlobLoad>(
      choice_.cache(), blob_origin(info, remote.origin(), remote.patience(), remote.credentials()),
      blobs, load, choice_.interrupt());
}

std::unique_ptr<BlobLoad> WeightStore::begin_rest(const wire::ModelInfo& whole) const {
  const auto blobs = this->blobs(whole, StageRange());
  choice_.seen_models().name_blobs(whole, blobs);
  LoadOptions load;
  load.retry.budget = {};
  load.missing_alone = true;
  return begin_load(whole, blobs, std::move(load));
}

std::optional<wire::ModelInfo> WeightStore::whole_in_cache(const wire::ModelInfo& info) const {
  const auto has_all = [&](const ShardCache& cache, const wire::ModelInfo& known) {
    return std::ranges::all_of(blobs(known, StageRange()), [&](const wire::BlobInfo& blob) {
      const auto file = file_status(cache.path_of(blob.sha256));
      return file && file->regular && file->bytes == blob.bytes;
    });
  };
  try {
    if (has_all(choice_.cache(), info)) return info;
  } catch (const Error&) {  // the manifest has only the requested stages
  }
  try {
    const SeenModels models = choice_.seen_models();
    const auto seen = models.recall({choice_.remote().origin(), info.id, choice_.whole_query()});
    if (seen && same_model(seen->info, info) && has_all(models.cache(), seen->info)) {
      return seen->info;
    }
  } catch (const Error&) {  // no usable record
  }
  return std::nullopt;
}

uint64_t WeightStore::missing_bytes(std::span<const wire::BlobInfo> blobs) const {
  const ShardCache cache = choice_.cache();
  uint64_t missing = 0;
  for (const wire::BlobInfo& blob : blobs) {
    if (!file_status(cache.path_of(blob.sha256))) missing += blob.bytes;
  }
  return missing;
}

std::string WeightStore::over_cache_limit(uint64_t bytes) const {
  const std::optional<uint64_t> limit = choice_.options().cache_limit;
  if (!limit || bytes <= *limit) return {};
  return cat("--cache-limit: expected room for the weights in use, ", human_bytes(bytes), ", got ",
             human_bytes(*limit), ": they are kept all the same");
}

WeightStore::Kept WeightStore::kept() const {
  Kept kept;
  if (!choice_.has_cache()) return kept;
  for (const ShardCache::Entry& entry : choice_.cache().entries()) {
    kept.bytes += entry.bytes;
    ++kept.files;
  }
  return kept;
}

WeightStore::Kept WeightStore::forget() const {
  if (choice_.has_cache()) choice_.seen_models().clear();
  return kept();
}

}  // namespace split::edge
