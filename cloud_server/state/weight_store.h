// The checkpoint as blobs: each one safetensors file, named by the sha256 of its bytes, in each
// format that this server has. In the checkpoint's own format a blob is a header of ours and the
// checkpoint's mapped tensors; in another one it is a mapped file of the blob cache. Bytes are sent
// without a copy. Blobs and sums are made once, in the background after the start: first the
// checkpoint's own format, then requested blobs, then the others in their order.
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

// A file in memory, in consecutive pieces. The store keeps the tensors' bytes, `owner` the rest.
struct FileView {
  std::vector<Bytes> pieces;
  std::string tag;  // differs for other bytes
  std::shared_ptr<const void> owner;
};

// Any number of threads.
class WeightStore {
 public:
  // Both outlive the store. `formats`: beside the checkpoint's own. `cache`: directory of converted
  // blobs (blob_cache.h). A blob that is not made within `patience` of a request is Error(kBusy)
  // with the progress; a repeated request goes on waiting.
  WeightStore(const Checkpoint& checkpoint, const Model& model, std::span<const DType> formats,
              const std::filesystem::path& cache, std::chrono::milliseconds patience);
  ~WeightStore();

  // The blobs in a manifest beside the checkpoint's own format: of the stages in a range, in every
  // format or in the one named for the stage, if there is such a blob.
  struct Listed {
    StageRange range;
    std::optional<StageFormats> formats;
    bool ready = false;  // only finished ones; starts nothing
  };
  std::vector<wire::StageInfo> stages(const Listed& listed);
  // Returns the file with this hash, or nullopt. While some are not made yet, waits for an unknown
  // one, unless `wait` is false.
  std::optional<FileView> blob(const std::string& sha256, bool wait = true);
  // Returns all tensors of a stage in one file, in the checkpoint's own format by default. Throws
  // Error(kNotFound) for an unknown stage, Error(kInput) for an unknown format.
  FileView stage_file(const std::string& stage, const std::optional<std::string>& format);

 private:
  struct Entry : BlobFormat {
    explicit Entry(const BlobFormat& what) : BlobFormat(what) {}
    bool asked = false, ready = false;
    // Set when ready:
    std::string failed;  // why there is no such blob: a weight that the format cannot hold
    wire::BlobSums sums;
    std::string header;                // set in the checkpoint's own format
    MappedFile file;                   // set in other formats
    std::vector<NamedTensor> tensors;  // ordered as blob->weights
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
  // Waits until all of these are ready, or no more will be.
  void wait_for(std::span<Entry* const> entries);
  [[noreturn]] void refuse_busy(size_t ready, size_t of) const;

  const Checkpoint& checkpoint_;
  const Model& model_;
  const std::chrono::milliseconds patience_;
  BlobCache cache_;

  std::mutex mutex_;  // guards the members below; a ready entry does not change
  std::vector<Entry> entries_;
  std::deque<Entry*> asked_;
  std::exception_ptr error_;
  bool stop_ = false;
  std::condition_variable more_;
  std::thread maker_;
};

}  // namespace split::cloud
