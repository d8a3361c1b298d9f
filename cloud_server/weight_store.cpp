#include "cloud_server/weight_store.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/json.h"
#include "base/log.h"
#include "io/quantize.h"
#include "io/weight_file.h"

namespace split::cloud {
namespace {

// Of the conversions below: another number where the same weights in the same format become other
// bytes, so that no blob of an older program is taken for one of this.
std::string conversion(DType format) {
  return is_quantised(format) ? std::string(kQuantiser) : "1";
}

constexpr int kBackground = 10;  // nice: the sums take what the first passes leave

}  // namespace

WeightStore::WeightStore(const Checkpoint& checkpoint, const Model& model,
                         std::span<const DType> formats, const std::filesystem::path& cache)
    : checkpoint_(checkpoint),
      model_(model),
      cache_(cache),
      formats_(served_formats(checkpoint, formats)) {
  for (const BlobFormat& what : offered_blobs(model_, formats_)) entries_.emplace_back(what);
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
    try {
      KeptBlob kept = convert(entry);
      entry.sums = std::move(kept.sums);
      entry.file = std::move(kept.file);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInput) throw;
      entry.failed = error.what();
      log_warning(cat(entry.failed, "; ", entry.blob->name, " is not served in this format"));
      return;
    }
    entry.pieces = {entry.file.bytes()};
    const auto parsed = parse_weight_file(entry.file.bytes(), entry.blob->name);
    for (const WeightDecl& decl : entry.blob->weights) {
      entry.tensors.push_back({decl.name, parsed.at(decl.name)});
    }
    return;
  }
  entry.tensors = format_weights(checkpoint_, entry.blob->weights, entry.format).tensors;
  entry.header = weight_file_header(entry.tensors);
  entry.pieces = {as_bytes_of(entry.header)};
  for (const NamedTensor& tensor : entry.tensors) entry.pieces.push_back(tensor.view.bytes);
  wire::BlobSummer summer;
  for (const Bytes piece : entry.pieces) summer.update(piece);
  entry.sums = summer.finish();
}

KeptBlob WeightStore::convert(const Entry& entry) {
  // Ready: what it is made from is in the checkpoint's own format, which comes first.
  const Entry& own = entry_of(source_of(model_, *entry.blob).name, formats_[0]);
  const std::string key =
      cat(own.sums.sha256, ".", format_name(entry.format), ".", conversion(entry.format));
  if (auto kept = cache_.find(key)) return std::move(*kept);
  const FormattedWeights made = format_weights(checkpoint_, entry.blob->weights, entry.format);
  const std::string header = weight_file_header(made.tensors);
  std::vector<Bytes> pieces = {as_bytes_of(header)};
  for (const NamedTensor& tensor : made.tensors) pieces.push_back(tensor.view.bytes);
  return cache_.keep(key, pieces);
}

const WeightStore::Entry& WeightStore::entry_of(const std::string& blob, DType format) const {
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

std::vector<wire::StageInfo> WeightStore::stages(const std::optional<std::vector<DType>>& wanted) {
  const auto listed = [&](DType format) {
    return !wanted || format == formats_[0] || std::ranges::find(*wanted, format) != wanted->end();
  };
  size_t needed = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (listed(entries_[i].format)) needed = i + 1;
  }
  wait_until([&] { return ready_ >= needed; });
  std::vector<wire::StageInfo> stages;
  for (const Stage& stage : model_.stages()) {
    wire::StageInfo& info = stages.emplace_back();
    info.name = stage.name;
    for (const Entry& entry : entries_) {
      if (!listed(entry.format)) continue;
      const auto& blobs = stage.blobs_as(entry.format);
      if (!entry.failed.empty() || std::ranges::find(blobs, entry.blob->name) == blobs.end()) {
        continue;
      }
      info.blobs.push_back({entry.sums, entry.blob->name, std::string(format_name(entry.format))});
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
                cat("'format': expected one of ", known, " for this stage, got ", shown(format)),
                "format");
  }
  std::vector<const Entry*> entries;
  for (const std::string& name : found.blobs_as(*dtype)) entries.push_back(&entry_of(name, *dtype));
  const auto last = static_cast<size_t>(*std::ranges::max_element(entries) - entries_.data());
  wait_until([&] { return last < ready_; });
  Sha256 tag;
  std::vector<NamedTensor> tensors;
  for (const Entry* entry : entries) {
    if (!entry->failed.empty()) throw Error(ErrorKind::kInput, entry->failed, "format");
    tag.update(as_bytes_of(entry->sums.sha256));
    tensors.insert(tensors.end(), entry->tensors.begin(), entry->tensors.end());
  }
  const auto header = std::make_shared<const std::string>(weight_file_header(tensors));
  FileView view{{as_bytes_of(*header)}, tag.finish_hex(), header};
  for (const NamedTensor& tensor : tensors) view.pieces.push_back(tensor.view.bytes);
  return view;
}

}  // namespace split::cloud
