// Descriptions of models as servers last gave them, kept so that a model whose weights are
// all on this machine starts without its server. The texts (manifest, tokenizer) are files of the
// cache by their hash, as weights are; which of them belong together is a small record for each
// server, model and query: root/seen/<hash of these>. What each file is stands in root/names. Knows
// no network.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/weights/blobs/shard_cache.h"

namespace split::edge {

struct SeenModel {
  wire::ModelInfo info;
  std::map<std::string, std::string> files;  // of the tokenizer: their text by name
  int64_t seconds = 0;                       // when, since 1970
};

// Whether two descriptions, which may list other formats of other stages, are of one model.
bool same_model(const wire::ModelInfo& a, const wire::ModelInfo& b);

// Immutable; any thread and any number of processes.
class SeenModels {
 public:
  static constexpr size_t kMost = 64;  // records; those written longest ago make room

  struct Key {
    std::string server;  // http::Client::origin()
    std::string asked;   // the model's id; empty: the server's first
    std::string query;   // of the manifest
  };
  explicit SeenModels(ShardCache cache) : cache_(std::move(cache)) {}
  const ShardCache& cache() const { return cache_; }

  // Replaces what was kept under the key. Throws Error(kIo).
  void remember(const Key& key, const SeenModel& model) const;
  // Nothing when it was never seen. Throws Error(kIntegrity) for what is kept and is not all there
  // or not as it was, Error(kIo) for what is no file.
  std::optional<SeenModel> recall(const Key& key) const;

  // Whether something was kept, as it seems.
  bool has(const Key& key) const;

  struct Entry {
    std::filesystem::path path;
    std::string server, model;  // empty where the record cannot be read
    int64_t seconds = 0;
    bool complete = false;  // its files are there
  };
  // Those seen longest ago first.
  std::vector<Entry> entries() const;

  // Removes all that can go: weights, records and names. Where the cache cannot be written it
  // stays.
  void clear() const;

  // Names of the cache's files, by their hash, for people: told as they come, never relied on.
  struct Name {
    std::string model, stage, format;
    bool operator==(const Name&) const = default;
  };
  using Names = std::map<std::string, Name>;
  // Empty where nothing was kept, or it cannot be read.
  Names names() const;
  // Adds those of the model's blobs. Where the cache cannot be written nothing is kept.
  void name_blobs(const wire::ModelInfo& info, const std::vector<wire::BlobInfo>& blobs) const;

 private:
  struct Record;
  std::filesystem::path folder() const { return cache_.root() / "seen"; }
  std::filesystem::path path_of(const Key& key) const;
  bool here(const std::string& sha256) const;
  std::optional<std::string> kept(const std::string& sha256, uint64_t limit) const;
  std::string keep(std::string_view text, uint64_t limit) const;
  void add_names(const Names& more) const;

  ShardCache cache_;
};

}  // namespace split::edge
