#include "cloud_server/weight_store.h"

#include <algorithm>

#include "base/json.h"
#include "base/log.h"
#include "io/weight_file.h"

namespace split::cloud {

WeightStore::WeightStore(const Checkpoint& checkpoint, const Model& model,
                         std::span<const DType> formats)
    : checkpoint_(checkpoint), model_(model), formats_(served_formats(checkpoint, formats)) {
  for (const BlobFormat& what : offered_blobs(model_, formats_)) {
    entries_.push_back({what, 0, "", {}});
  }
  hasher_ = std::thread([this] {
    try {
      for (Entry& entry : entries_) {
        if (stop_) return;
        const std::string file = build(entry.what.blob->weights, entry.what.format);
        entry.bytes = file.size();
        entry.sha256 = Sha256::hex_of(as_bytes_of(file));
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

std::string WeightStore::build(const std::vector<WeightDecl>& weights, DType format) const {
  return write_weight_file(format_weights(checkpoint_, weights, format).tensors);
}

std::vector<wire::StageInfo> WeightStore::stages() {
  wait_until_hashed();
  std::vector<wire::StageInfo> stages;
  for (const Stage& stage : model_.stages()) {
    wire::StageInfo& info = stages.emplace_back();
    info.name = stage.name;
    for (const Entry& entry : entries_) {
      const auto& blobs = stage.blobs_as(entry.what.format);
      if (std::ranges::find(blobs, entry.what.blob->name) != blobs.end()) {
        info.blobs.push_back({entry.what.blob->name, std::string(format_name(entry.what.format)),
                              entry.bytes, entry.sha256});
      }
    }
  }
  return stages;
}

std::shared_ptr<const std::string> WeightStore::blob(const std::string& sha256) {
  wait_until_hashed();
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.sha256 == sha256; });
  if (at == entries_.end()) return nullptr;
  std::shared_ptr<const std::string> file = at->live.lock();
  if (file == nullptr) {
    file = std::make_shared<const std::string>(build(at->what.blob->weights, at->what.format));
    at->live = file;
  }
  return file;
}

std::shared_ptr<const std::string> WeightStore::stage_file(const std::string& stage,
                                                           const std::string& format) {
  const Stage& found = model_.stage(stage);
  std::string known;
  std::optional<DType> dtype;
  for (const DType one : formats_) {
    if (found.blobs_as(one).empty()) continue;
    if (format_name(one) == format) dtype = one;
    known += cat(known.empty() ? "" : ", ", format_name(one));
  }
  if (!dtype) {
    throw Error(ErrorKind::kInput,
                cat("'format': ", stage, " comes in ", known, ", got ", shown(format)), "format");
  }
  std::vector<WeightDecl> weights;
  for (const std::string& name : found.blobs_as(*dtype)) {
    const Blob& blob = model_.blob(name);
    weights.insert(weights.end(), blob.weights.begin(), blob.weights.end());
  }
  const std::lock_guard lock(mutex_);
  std::weak_ptr<const std::string>& live = live_stages_[stage + " " + format];
  std::shared_ptr<const std::string> file = live.lock();
  if (file == nullptr) live = file = std::make_shared<const std::string>(build(weights, *dtype));
  return file;
}

}  // namespace split::cloud
