// Descriptions of models as servers last gave them, kept so that a model whose weights are all on
// this machine starts without its server. The texts (manifest, tokenizer) are files of the cache by
// their hash, as weights are; a small record for each server, model and query says which belong
// together: root/seen/<hash of these>. root/names says what each file is. Knows no network.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/weights/blobs/shard_cache.h"

namespace split::edge {

struct SeenModel {
  wire::ModelInfo info;
  std::map<std::string, std::string> files;  // the tokenizer's: text by name
  int64_t seconds = 0;                       // when it was seen, since 1970
};

// Whether two descriptions, perhaps with other formats of other stages, are of one model.
bool same_model(const wire::ModelInfo& a, const wire::ModelInfo& b);

// Immutable; any thread and any number of processes.
class SeenModels {
 public:
  static constexpr size_t kMost = 64;  // records; the oldest make room

  struct Key {
    std::string server;  // http::Client::origin()
    std::string asked;   // the model's id; empty: the server's first
    std::string query;   // the manifest's
  };
  explicit SeenModels(ShardCache cache) : cache_(std::move(cache)) {}
  const ShardCache& cache() const { return cache_; }

  // Replaces the record of the key. Throws Error(kIo).
  void remember(const Key& key, const SeenModel& model) const;
  // Returns nullopt if the key was never seen. Throws Error(kIntegrity) for a record that is
  // damaged or lacks files, Error(kIo) for one that is no regular file.
  std::optional<SeenModel> recall(const Key& key) const;

  // Whether there seems to be a record.
  bool has(const Key& key) const;

  struct Entry {
    std::filesystem::path path;
    std::string server, model;  // empty: the record cannot be read
    int64_t seconds = 0;
    bool complete = false;  // its files are there
  };
  // Returns the records, the oldest first.
  std::vector<Entry> entries() const;

  // Removes all that can go: weights, records and names. Does nothing if the cache cannot be
  // written.
  void clear() const;

  // Names of the cache's files, by their hash: for people alone, and perhaps incomplete.
  struct Name {
    std::string model, stage, format;
    bool operator==(const Name&) const = default;
  };
  using Names = std::map<std::string, Name>;
  // Returns an empty map if there is none, or it cannot be read.
  Names names() const;
  // Adds the names of the model's blobs. Does nothing if the cache cannot be written.
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
