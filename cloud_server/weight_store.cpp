#include "cloud_server/weight_store.h"

#include <algorithm>

#include "base/json.h"
#include "base/log.h"
#include "io/safetensors.h"

namespace split::cloud {

std::string format_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    default:
      return "f32";
  }
}

WeightStore::WeightStore(const Checkpoint& checkpoint, const Model& model)
    : checkpoint_(checkpoint), model_(model) {
  formats_.push_back(format_of(checkpoint.dtype()));
  for (const char* format : {"f32", "f16"}) {
    if (formats_[0] != format) formats_.push_back(format);
  }
  for (const std::string& format : formats_) {
    for (const Blob& blob : model_.blobs()) entries_.push_back({&blob, format, {}, {}});
  }
  hasher_ = std::thread([this] {
    try {
      for (Entry& entry : entries_) {
        if (stop_) return;
        const std::string file = build(entry.blob->weights, entry.format);
        wire::BlobSummer summer;
        summer.update(as_bytes_of(file));
        entry.sums = summer.finish();
      }
    } catch (...) {
      hash_error_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    hashed_ = true;
    done_.notify_all();
  });
}

WeightStore::~WeightStore() {
  stop_ = true;
  hasher_.join();
}

void WeightStore::wait_until_hashed() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return hashed_; });
  if (hash_error_ != nullptr) std::rethrow_exception(hash_error_);
}

std::string WeightStore::build(const std::vector<WeightDecl>& weights,
                               const std::string& format) const {
  std::vector<OwnedTensor> owned;
  std::vector<NamedTensor> tensors;
  owned.reserve(weights.size());
  for (const WeightDecl& decl : weights) {
    TensorView view = checkpoint_.at(decl.name);
    // The checkpoint's own format is verbatim, also where a tensor's type is not the most common
    // one.
    if (format != formats_[0]) {
      owned.push_back(converted(view, format == "f32" ? DType::kF32 : DType::kF16));
      view = owned.back().view;
    }
    tensors.push_back({decl.name, view});
  }
  return write_safetensors(tensors);
}

std::vector<wire::StageInfo> WeightStore::stages() {
  wait_until_hashed();
  std::vector<wire::StageInfo> stages;
  for (const Stage& stage : model_.stages()) {
    wire::StageInfo& info = stages.emplace_back();
    info.name = stage.name;
    for (const std::string& blob : stage.blobs) {
      for (const Entry& entry : entries_) {
        if (entry.blob->name == blob) {
          info.blobs.push_back({entry.sums, blob, entry.format});
        }
      }
    }
  }
  return stages;
}

std::shared_ptr<const std::string> WeightStore::blob(const std::string& sha256) {
  wait_until_hashed();
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.sums.sha256 == sha256; });
  if (at == entries_.end()) return nullptr;
  std::shared_ptr<const std::string> file = at->live.lock();
  if (file == nullptr) {
    file = std::make_shared<const std::string>(build(at->blob->weights, at->format));
    at->live = file;
  }
  return file;
}

std::shared_ptr<const std::string> WeightStore::stage_file(const std::string& stage,
                                                           const std::string& format) {
  if (std::find(formats_.begin(), formats_.end(), format) == formats_.end()) {
    std::string known;
    for (const std::string& one : formats_) known += (known.empty() ? "" : ", ") + one;
    throw Error(ErrorKind::kInput,
                cat("'format': expected one of ", known, ", got ", shown(format)), "format");
  }
  std::vector<WeightDecl> weights;
  for (const std::string& name : model_.stage(stage).blobs) {
    const Blob& blob = model_.blob(name);
    weights.insert(weights.end(), blob.weights.begin(), blob.weights.end());
  }
  const std::lock_guard lock(mutex_);
  std::weak_ptr<const std::string>& live = live_stages_[stage + " " + format];
  std::shared_ptr<const std::string> file = live.lock();
  if (file == nullptr) live = file = std::make_shared<const std::string>(build(weights, format));
  return file;
}

}  // namespace split::cloud
