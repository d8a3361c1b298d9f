// The checkpoint as blobs: each one safetensors file, named by the sha256 of its bytes, in each
// format this server has. A blob is put together when somebody asks for it and dropped when the
// last reader is done; its hash is computed once, in the background after the start.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "cloud_server/blob_formats.h"
#include "wire/protocol.h"

namespace split::cloud {

// Any number of threads.
class WeightStore {
 public:
  // Both outlive the store. `formats` are those beside the checkpoint's own.
  WeightStore(const Checkpoint& checkpoint, const Model& model, std::span<const DType> formats);
  ~WeightStore();

  const std::vector<DType>& formats() const { return formats_; }  // the checkpoint's own first

  // Every stage with its blobs in every format. Waits until the hashes are there.
  std::vector<wire::StageInfo> stages();
  // The file with this hash, or null. Waits as above.
  std::shared_ptr<const std::string> blob(const std::string& sha256);
  // All tensors of a stage in one file. Throws Error(kNotFound) for a stage, Error(kInput) for a
  // format that is none.
  std::shared_ptr<const std::string> stage_file(const std::string& stage,
                                                const std::string& format);

 private:
  struct Entry {
    BlobFormat what;
    uint64_t bytes = 0;
    std::string sha256;
    std::weak_ptr<const std::string> live;
  };
  std::string build(const std::vector<WeightDecl>& weights, DType format) const;
  void wait_until_hashed();

  const Checkpoint& checkpoint_;
  const Model& model_;
  std::vector<DType> formats_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
  // "embed f16": however many ask at once, a stage is in memory once.
  std::map<std::string, std::weak_ptr<const std::string>> live_stages_;
  bool hashed_ = false;
  std::exception_ptr hash_error_;
  std::atomic<bool> stop_{false};
  std::condition_variable done_;
  std::thread hasher_;
};

}  // namespace split::cloud
