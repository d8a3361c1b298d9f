// The checkpoint as blobs: each one safetensors file, named by the sha256 of its bytes, in each
// format this server has. In the checkpoint's own format a blob is a header of ours and the
// checkpoint's tensors where they are mapped; in another one it is a mapped file of the blob cache.
// Either way its bytes are sent as they lie. They and their sums are made once, in the background
// after the start: those in the checkpoint's own format at once, then what somebody asks for, then
// the others in their order.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "cloud_server/state/blob_cache.h"
#include "cloud_server/state/blob_formats.h"
#include "models/formats.h"
#include "wire/protocol.h"

namespace split::cloud {

// A file as it lies in memory, in pieces that follow one another. The store keeps the tensors'
// bytes, `owner` the rest.
struct FileView {
  std::vector<Bytes> pieces;
  std::string tag;  // another one for other bytes
  std::shared_ptr<const void> owner;
};

// Any number of threads.
class WeightStore {
 public:
  // Both outlive the store. `formats` are those beside the checkpoint's own, `cache` is where blobs
  // in them are kept (blob_cache.h). What is not made within `patience` of a question is
  // Error(kBusy), which says how far it is; the same question again goes on.
  WeightStore(const Checkpoint& checkpoint, const Model& model, std::span<const DType> formats,
              const std::filesystem::path& cache, std::chrono::milliseconds patience);
  ~WeightStore();

  // The blobs that a manifest lists beside those in the checkpoint's own format: of the stages in a
  // range, in every format or in the one that is named for the stage, if there is such a blob.
  struct Listed {
    StageRange range;
    std::optional<StageFormats> formats;
    bool ready = false;  // only those that are made already: nothing is asked for
  };
  std::vector<wire::StageInfo> stages(const Listed& listed);
  // The file with this hash, or nothing. While some are not made yet, one that is not known is
  // waited for or, unless `wait`, nothing.
  std::optional<FileView> blob(const std::string& sha256, bool wait = true);
  // All tensors of a stage in one file, in the checkpoint's own format without another one. Throws
  // Error(kNotFound) for a stage, Error(kInput) for a format that is none.
  FileView stage_file(const std::string& stage, const std::optional<std::string>& format);

 private:
  struct Entry : BlobFormat {
    explicit Entry(const BlobFormat& what) : BlobFormat(what) {}
    bool asked = false, ready = false;
    // Once it is ready:
    std::string failed;  // why there is no such blob: a weight that the format cannot hold
    wire::BlobSums sums;
    std::string header;                // of a blob in the checkpoint's own format
    MappedFile file;                   // of another one
    std::vector<NamedTensor> tensors;  // in the order of blob->weights
    std::vector<Bytes> pieces;
  };
  void work();
  bool try_work();
  Entry* next();
  bool is_own(const Entry& entry) const;
  bool is_ready(const Entry& entry);
  void make_own(ThreadPool& pool);
  void make(Entry& entry, ThreadPool& pool);
  KeptBlob convert(const Entry& entry, ThreadPool& pool);
  Entry* find(const Blob& blob, DType format);
  Entry& source_entry(const Entry& entry);
  // Returns when all of these are ready, or all that there are.
  void wait_for(std::span<Entry* const> entries);
  [[noreturn]] void refuse_busy(size_t ready, size_t of) const;

  const Checkpoint& checkpoint_;
  const Model& model_;
  const std::chrono::milliseconds patience_;
  BlobCache cache_;

  std::mutex mutex_;  // of what follows; an entry that is ready does not change any more
  std::vector<Entry> entries_;
  std::deque<Entry*> asked_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::condition_variable more_;
  std::thread maker_;
};

}  // namespace split::cloud
