#include "cloud_server/weight_store.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/json.h"
#include "base/log.h"

namespace split::cloud {
namespace {

// Of the conversions below: another number where the same weights in the same format become other
// bytes, so that no blob of an older program is taken for one of this.
constexpr int kConversion = 1;

constexpr int kBackground = 10;  // nice: the sums take what the first passes leave

}  // namespace

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

WeightStore::WeightStore(const Checkpoint& checkpoint, const Model& model,
                         const std::filesystem::path& cache)
    : checkpoint_(checkpoint), model_(model), cache_(cache) {
  formats_.push_back(format_of(checkpoint.dtype()));
  for (const char* format : {"f32", "f16"}) {
    if (formats_[0] != format) formats_.push_back(format);
  }
  for (const std::string& format : formats_) {
    for (const Blob& blob : model_.blobs()) {
      Entry& entry = entries_.emplace_back();
      entry.blob = &blob;
      entry.format = format;
    }
  }
  maker_ = std::thread([this] {
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kBackground);  // of this thread
    try {
      for (Entry& entry : entries_) {
        if (stop_) return;
        make(entry);
        const std::lock_guard lock(mutex_);
        ++ready_;
        more_.notify_all();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      more_.notify_all();
    }
  });
}

WeightStore::~WeightStore() {
  stop_ = true;
  maker_.join();
}

void WeightStore::make(Entry& entry) {
  if (entry.format != formats_[0]) {
    KeptBlob kept = convert(entry);
    entry.sums = std::move(kept.sums);
    entry.file = std::move(kept.file);
    entry.pieces = {entry.file.bytes()};
    const Safetensors parsed = Safetensors::parse(entry.file.bytes(), entry.blob->name);
    for (const WeightDecl& decl : entry.blob->weights) {
      entry.tensors.push_back({decl.name, parsed.tensors().at(decl.name)});
    }
    return;
  }
  // Verbatim, also where a tensor's type is not the most common one.
  for (const WeightDecl& decl : entry.blob->weights) {
    entry.tensors.push_back({decl.name, checkpoint_.at(decl.name)});
  }
  entry.header = safetensors_header(entry.tensors);
  entry.pieces = {as_bytes_of(entry.header)};
  for (const NamedTensor& tensor : entry.tensors) entry.pieces.push_back(tensor.view.bytes);
  wire::BlobSummer summer;
  for (const Bytes piece : entry.pieces) summer.update(piece);
  entry.sums = summer.finish();
}

KeptBlob WeightStore::convert(const Entry& entry) {
  const Entry& own = entry_of(entry.blob->name, formats_[0]);  // ready: these come first
  const std::string key = cat(own.sums.sha256, ".", entry.format, ".", kConversion);
  if (auto kept = cache_.find(key)) return std::move(*kept);
  std::vector<OwnedTensor> owned;
  std::vector<NamedTensor> tensors;
  owned.reserve(own.tensors.size());
  for (const NamedTensor& tensor : own.tensors) {
    owned.push_back(converted(tensor.view, entry.format == "f32" ? DType::kF32 : DType::kF16));
    tensors.push_back({tensor.name, owned.back().view});
  }
  const std::string header = safetensors_header(tensors);
  std::vector<Bytes> pieces = {as_bytes_of(header)};
  for (const NamedTensor& tensor : tensors) pieces.push_back(tensor.view.bytes);
  return cache_.keep(key, pieces);
}

const WeightStore::Entry& WeightStore::entry_of(const std::string& blob,
                                                const std::string& format) const {
  const auto at = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.blob->name == blob && entry.format == format;
  });
  CHECK(at != entries_.end());
  return *at;
}

void WeightStore::wait_until(const std::function<bool()>& done) {
  std::unique_lock lock(mutex_);
  more_.wait(lock, [&] { return done() || error_ != nullptr || ready_ == entries_.size(); });
  if (error_ != nullptr) std::rethrow_exception(error_);
}

std::vector<wire::StageInfo> WeightStore::stages() {
  wait_until([] { return false; });
  std::vector<wire::StageInfo> stages;
  for (const Stage& stage : model_.stages()) {
    wire::StageInfo& info = stages.emplace_back();
    info.name = stage.name;
    for (const std::string& blob : stage.blobs) {
      for (const Entry& entry : entries_) {
        if (entry.blob->name == blob) info.blobs.push_back({entry.sums, blob, entry.format});
      }
    }
  }
  return stages;
}

std::optional<FileView> WeightStore::blob(const std::string& sha256) {
  const Entry* found = nullptr;
  size_t seen = 0;
  wait_until([&] {
    for (; seen < ready_ && found == nullptr; ++seen) {
      if (entries_[seen].sums.sha256 == sha256) found = &entries_[seen];
    }
    return found != nullptr;
  });
  if (found == nullptr) return std::nullopt;
  return FileView{found->pieces, sha256, nullptr};
}

FileView WeightStore::stage_file(const std::string& stage, const std::string& format) {
  if (std::ranges::find(formats_, format) == formats_.end()) {
    std::string known;
    for (const std::string& one : formats_) known += (known.empty() ? "" : ", ") + one;
    throw Error(ErrorKind::kInput,
                cat("'format': expected one of ", known, ", got ", shown(format)), "format");
  }
  std::vector<const Entry*> entries;
  for (const std::string& name : model_.stage(stage).blobs) {
    entries.push_back(&entry_of(name, format));
  }
  const auto last = static_cast<size_t>(*std::ranges::max_element(entries) - entries_.data());
  wait_until([&] { return last < ready_; });
  Sha256 tag;
  std::vector<NamedTensor> tensors;
  for (const Entry* entry : entries) {
    tag.update(as_bytes_of(entry->sums.sha256));
    tensors.insert(tensors.end(), entry->tensors.begin(), entry->tensors.end());
  }
  const auto header = std::make_shared<const std::string>(safetensors_header(tensors));
  FileView view{{as_bytes_of(*header)}, tag.finish_hex(), header};
  for (const NamedTensor& tensor : tensors) view.pieces.push_back(tensor.view.bytes);
  return view;
}

}  // namespace split::cloud
