#include "cloud_server/state/weight_store.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/json.h"
#include "base/log.h"
#include "base/resources/threads.h"
#include "io/quantize.h"
#include "io/weight_file.h"
#include "run/shard/shard.h"

namespace split::cloud {
namespace {

// Version of the conversions below: it changes when the same weights in the same format get other
// bytes, so that no blob of an older program is used.
std::string conversion(DType format) {
  return is_quantised(format) ? std::string(kQuantiser) : "1";
}

constexpr int kBackground = 10;  // nice: sums use what the first passes leave
constexpr std::chrono::milliseconds kUntilNextTry{100};  // retries after running out of memory

}  // namespace

WeightStore::WeightStore(const Checkpoint& checkpoint, const Model& model,
                         std::span<const DType> formats, const std::filesystem::path& cache,
                         std::chrono::milliseconds patience)
    : checkpoint_(checkpoint), model_(model), patience_(patience), cache_(cache) {
  for (const BlobFormat& what : offered_blobs(checkpoint, model_, formats)) {
    entries_.emplace_back(what);
  }
  maker_ = started([this] { work(); });
}

WeightStore::~WeightStore() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_all();
  maker_.join();
}

// Waits and goes on after running out of memory; any other error ends it.
void WeightStore::work() {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kBackground);  // inherited by the
                                                                            // pool's threads
  while (!try_work()) {
    std::unique_lock lock(mutex_);
    if (more_.wait_for(lock, kUntilNextTry, [this] { return stop_; })) return;
  }
}

// Makes the missing blobs. Returns false if it ran out of memory.
bool WeightStore::try_work() {
  std::unique_lock lock(mutex_, std::defer_lock);
  try {
    ThreadPool pool(0);
    make_own(pool);
    for (lock.lock(); Entry* const entry = next(); more_.notify_all()) {
      lock.unlock();
      make(*entry, pool);
      lock.lock();
      entry->ready = true;
    }
  } catch (const std::bad_alloc&) {
    return false;
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    error_ = std::current_exception();
    more_.notify_all();
  }
  return true;
}

// Returns the entry that was requested first, else the first of all. Null when there is nothing
// more to do.
WeightStore::Entry* WeightStore::next() {
  if (stop_) return nullptr;
  while (!asked_.empty() && asked_.front()->ready) asked_.pop_front();
  if (!asked_.empty()) return asked_.front();
  const auto at = std::ranges::find(entries_, false, &Entry::ready);
  return at == entries_.end() ? nullptr : &*at;
}

bool WeightStore::is_own(const Entry& entry) const {
  if (entry.format == own_format(checkpoint_, *entry.blob)) return true;
  return std::ranges::all_of(entry.blob->weights, [&](const WeightDecl& decl) {
    return decl.looked_up && is_quantised(stored_weight(checkpoint_, decl).dtype);
  });
}

// Makes the sums of the checkpoint's own format: the other blobs' keys, and all that most edges
// need.
void WeightStore::make_own(ThreadPool& pool) {
  std::vector<Entry*> own;
  for (Entry& entry : entries_) {
    if (is_own(entry) && !entry.ready) own.push_back(&entry);
  }
  pool.run(own.size(), [&](size_t i) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
    }
    Entry& entry = *own[i];
    entry.tensors = own_weights(checkpoint_, entry.blob->weights).tensors;
    entry.header = weight_file_header(entry.tensors);
    entry.pieces = {as_bytes_of(entry.header)};
    for (const NamedTensor& tensor : entry.tensors) entry.pieces.push_back(tensor.view.bytes);
    wire::BlobSummer summer;
    for (const Bytes piece : entry.pieces) summer.update(piece);
    entry.sums = summer.finish();
    const std::lock_guard lock(mutex_);
    entry.ready = true;
    more_.notify_all();
  });
}

void WeightStore::make(Entry& entry, ThreadPool& pool) {
  try {
    KeptBlob kept = convert(entry, pool);
    entry.sums = std::move(kept.sums);
    entry.file = std::move(kept.file);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    entry.failed = error.what();
    log_warning(cat(entry.failed, "; ", entry.blob->name, " is not served in this format"));
    return;
  }
  entry.pieces = {entry.file.bytes()};
  entry.tensors.clear();  // left by an interrupted try
  const auto parsed = parse_weight_file(entry.file.bytes(), entry.blob->name);
  for (const WeightDecl& decl : entry.blob->weights) {
    entry.tensors.push_back({decl.name, parsed.at(decl.name)});
  }
}

KeptBlob WeightStore::convert(const Entry& entry, ThreadPool& pool) {
  const std::string key = cat(source_entry(entry).sums.sha256, ".", format_name(entry.format), ".",
                              conversion(entry.format));
  if (auto kept = cache_.find(key)) return std::move(*kept);
  const FormattedWeights made =
      format_weights(checkpoint_, entry.blob->weights, entry.format, pool);
  const std::string header = weight_file_header(made.tensors);
  std::vector<Bytes> pieces = {as_bytes_of(header)};
  for (const NamedTensor& tensor : made.tensors) pieces.push_back(tensor.view.bytes);
  return cache_.keep(key, pieces);
}

WeightStore::Entry* WeightStore::find(const Blob& blob, DType format) {
  const auto at = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.blob == &blob && entry.format == format; });
  return at == entries_.end() ? nullptr : &*at;
}

// Returns the entry in the checkpoint's own format, which determines it.
WeightStore::Entry& WeightStore::source_entry(const Entry& entry) {
  const Blob& source = source_of(model_, *entry.blob);
  Entry* const found = find(source, own_format(checkpoint_, source));
  CHECK(found != nullptr);
  return *found;
}

void WeightStore::refuse_busy(size_t ready, size_t of) const {
  std::string formats;  // formats that are not ready
  for (const Entry& entry : entries_) {
    const std::string_view name = format_name(entry.format);
    if (entry.ready || formats.find(name) != formats.npos) continue;
    if (entry.asked) formats += cat(formats.empty() ? "" : " and ", name);
  }
  throw Error(ErrorKind::kBusy, cat("the server prepares ", formats, formats.empty() ? "" : " ",
                                    "weights: ", ready, " of ", of));
}

void WeightStore::wait_for(std::span<Entry* const> entries) {
  std::unique_lock lock(mutex_);
  for (Entry* const entry : entries) {
    if (!entry->ready && !std::exchange(entry->asked, true)) asked_.push_back(entry);
  }
  const auto ready = [&] {
    return static_cast<size_t>(std::ranges::count_if(entries, [](auto* e) { return e->ready; }));
  };
  const bool done = more_.wait_for(lock, patience_,
                                   [&] { return error_ != nullptr || ready() == entries.size(); });
  if (error_ != nullptr) std::rethrow_exception(error_);
  if (!done) refuse_busy(ready(), entries.size());
}

bool WeightStore::is_ready(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  return entry.ready;
}

std::vector<wire::StageInfo> WeightStore::stages(const Listed& listed) {
  const std::vector<Stage>& stages = model_.stages();
  const size_t first = listed.range.begin(model_.config().layers),
               end = listed.range.end(model_.config().layers);
  std::vector<std::vector<Entry*>> of_stage(stages.size());
  std::vector<Entry*> needed;
  for (size_t i = 0; i < stages.size(); ++i) {
    const DType own = own_format(checkpoint_, model_, stages[i]);
    const bool others = i >= first && i < end;
    for (Entry& entry : entries_) {
      const bool wanted =
          listed.ready ? is_ready(entry)
                       : !listed.formats || entry.format == listed.formats->of(stages[i].name);
      const auto& blobs = stages[i].blobs_as(entry.format);
      if ((entry.format == own || (others && wanted)) &&
          std::ranges::find(blobs, entry.blob->name) != blobs.end()) {
        of_stage[i].push_back(&entry);
      }
    }
    needed.insert(needed.end(), of_stage[i].begin(), of_stage[i].end());
  }
  wait_for(needed);
  std::vector<wire::StageInfo> infos;
  for (size_t i = 0; i < stages.size(); ++i) {
    wire::StageInfo& info = infos.emplace_back();
    info.name = stages[i].name;
    info.format = format_name(own_format(checkpoint_, model_, stages[i]));
    for (const Entry* entry : of_stage[i]) {
      if (!entry->failed.empty()) continue;
      info.blobs.push_back(
          {entry->sums, entry->blob->name, std::string(format_name(entry->format))});
    }
  }
  return infos;
}

std::optional<FileView> WeightStore::blob(const std::string& sha256, bool wait) {
  std::unique_lock lock(mutex_);
  const Entry* found = nullptr;
  size_t ready = 0;
  const auto known = [&] {
    ready = 0;
    for (const Entry& entry : entries_) {
      if (!entry.ready) continue;
      ++ready;
      if (entry.sums.sha256 == sha256) found = &entry;
    }
    return found != nullptr || ready == entries_.size() || error_ != nullptr;
  };
  const auto patience = wait ? patience_ : std::chrono::milliseconds(0);
  const bool certain = more_.wait_for(lock, patience, known);
  if (found != nullptr) return FileView{found->pieces, sha256, nullptr};
  if (!wait) return std::nullopt;
  if (error_ != nullptr) std::rethrow_exception(error_);
  if (!certain) refuse_busy(ready, entries_.size());
  return std::nullopt;
}

FileView WeightStore::stage_file(const std::string& stage,
                                 const std::optional<std::string>& format) {
  const Stage& found = model_.stage(stage);
  std::string known;
  std::vector<Entry*> entries;
  const std::string wanted =
      format.value_or(std::string(format_name(own_format(checkpoint_, model_, found))));
  for (const DType one : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0,
                          DType::kQ4_K, DType::kQ6_K, DType::kQ5_K}) {
    std::vector<Entry*> of_format;
    for (const std::string& name : found.blobs_as(one)) {
      if (Entry* const entry = find(model_.blob(name), one)) of_format.push_back(entry);
    }
    if (of_format.empty()) continue;
    known += cat(known.empty() ? "" : ", ", format_name(one));
    if (format_name(one) == wanted) entries = std::move(of_format);
  }
  if (entries.empty()) {
    throw Error(ErrorKind::kInput,
                cat("'format': expected one of ", known, " for this stage, got ", shown(wanted)),
                "format");
  }
  wait_for(entries);
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
