// The checkpoint as blobs: each one safetensors file, named by the sha256 of its bytes, in each
// format this server has. In the checkpoint's own format a blob is a header of ours and the
// checkpoint's tensors where they are mapped; in another one it is a mapped file of the blob cache.
// Either way its bytes are sent as they lie, and its sums are made once, in the background after
// the start.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "cloud_server/blob_cache.h"
#include "cloud_server/blob_formats.h"
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
  // in them are kept (blob_cache.h).
  WeightStore(const Checkpoint& checkpoint, const Model& model, std::span<const DType> formats,
              const std::filesystem::path& cache);
  ~WeightStore();

  const std::vector<DType>& formats() const { return formats_; }  // the checkpoint's own first

  // Every stage with its blobs in every format, or in `wanted` and the checkpoint's own alone.
  // Waits until the sums of these are there.
  std::vector<wire::StageInfo> stages(const std::optional<std::vector<DType>>& wanted = {});
  // The file with this hash, or nothing. Waits until it is known.
  std::optional<FileView> blob(const std::string& sha256);
  // All tensors of a stage in one file. Throws Error(kNotFound) for a stage, Error(kInput) for a
  // format that is none. Waits as above.
  FileView stage_file(const std::string& stage, const std::string& format);

 private:
  struct Entry : BlobFormat {
    explicit Entry(const BlobFormat& what) : BlobFormat(what) {}
    // Once it is ready:
    std::string failed;  // why there is no such blob: a weight that the format cannot hold
    wire::BlobSums sums;
    std::string header;                // of a blob in the checkpoint's own format
    MappedFile file;                   // of another one
    std::vector<NamedTensor> tensors;  // in the order of blob->weights
    std::vector<Bytes> pieces;
  };
  void make(Entry& entry);
  KeptBlob convert(const Entry& entry);
  const Entry& entry_of(const std::string& blob, DType format) const;
  // Waits for done(), which is asked whenever another entry is ready, or for all of them.
  void wait_until(const std::function<bool()>& done);

  const Checkpoint& checkpoint_;
  const Model& model_;
  BlobCache cache_;
  std::vector<DType> formats_;
  std::vector<Entry> entries_;  // the first ready_ are; these do not change any more
  std::mutex mutex_;
  size_t ready_ = 0;
  std::exception_ptr error_;
  std::atomic<bool> stop_{false};
  std::condition_variable more_;
  std::thread maker_;
};

}  // namespace split::cloud
