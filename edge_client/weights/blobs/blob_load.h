// Brings blobs from the cache and the server to their reader: in parallel, by chunks, each checked
// once before anybody sees it. A chunk that is missing or does not match its hash is fetched alone;
// good chunks of a file that is truncated, damaged or left by a killed process are kept. The reader
// waits for what it needs next, while the rest goes on.
//
// A file's name is not trusted: its chunks are always checked against this server's manifest. A
// server that lists wrong chunks for a hash only spoils a file with bytes that it could have sent
// anyway, and the next download from an honest server mends it.
//
// A load beside texts (LoadOptions) brings one blob after the other, leaves the text its share of
// the line (fetch_pace.h), and an error of a blob concerns that blob alone.
//
// A complete blob is only read. Otherwise it is assembled in a part file (part_file.h) that one
// process holds at a time; others wait for it and then find it complete.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/resources/clock.h"
#include "base/system/part_file.h"
#include "edge_client/split/lock_order.h"
#include "edge_client/split/retry.h"
#include "edge_client/weights/blobs/blob_client.h"
#include "edge_client/weights/blobs/fetch_pace.h"
#include "edge_client/weights/blobs/shard_cache.h"
#include "edge_client/weights/progress.h"
#include "program/interrupt.h"

namespace split::edge {

// Called when so many bytes of a blob's chunk are here: `fetched` just now, or from the disk. A
// wrong chunk begins again. From any thread of a load.
using OnBytes =
    std::function<void(const std::string& sha256, size_t chunk, uint64_t have, bool fetched)>;

struct LoadOptions {
  RetryOptions retry;
  ProgressTo progress;
  std::optional<uint64_t> cache_limit;
  OnBytes on_bytes;
  bool beside_texts = false;   // one blob after the other, each with its own errors; else all
                               // headers first, and the first error ends everything
  bool text_runs = false;      // at the beginning
  bool missing_alone = false;  // nobody reads the blobs: skips the ones in the cache
  unsigned workers = 4;        // threads, each with a connection, if needed, and a chunk of memory
};

// Used by one thread; has threads of its own.
class BlobLoad {
 public:
  // Begins to load the blobs in this order. Throws Error(kIo) if the cache has no room.
  BlobLoad(const ShardCache& cache, BlobOrigin from, const std::vector<wire::BlobInfo>& blobs,
           const LoadOptions& options, Interrupt& interrupt);
  // Calls end().
  ~BlobLoad();

  // Return a blob, mapped for the life of this object, once its first chunk, or all of it, is good.
  // Both throw any error of the load: Error(kIo) if a blob cannot be stored, Error(kIntegrity) if
  // the server's bytes do not match its manifest, RemoteError.
  Bytes begun(const std::string& sha256);
  Bytes whole(const std::string& sha256);
  // Unmaps a whole blob that nobody reads; a later call maps it anew.
  void let_go(const std::string& sha256);
  // Waits until the blob is whole; false if the load ends before. Throws the blob's own error.
  bool comes(const std::string& sha256);
  // Waits until every blob is durable under its name.
  FetchCounts finish();
  FetchCounts counts() const;                    // so far
  uint64_t missing() const { return missing_; }  // bytes missing at the beginning

  // Says whether a text runs, for a load beside texts. Any thread.
  void text_runs(bool runs);
  // Ends the load, as if the program were interrupted. Any thread.
  void cancel();
  // Cancels and waits. Another load may take incomplete blobs then; whole ones stay mapped. Good
  // chunks of a part stay for the next time, unless the disk was full or the server sent wrong
  // ones.
  void end();

 private:
  enum class Chunk : uint8_t { kTodo, kTaken, kDone };
  enum class State : uint8_t { kNew, kBusy, kOpening, kOpen, kFull, kClosing, kKept, kBroken };

  struct Item {
    wire::BlobInfo info;
    size_t order = 0;
    std::filesystem::path path;
    State state = State::kNew;
    Clock::time_point again;  // kBusy: when to look again whether another process is done
    bool expected = false;    // counted in the progress' total
    Fd found;                 // the file under its name
    uint64_t identity = 0;
    std::vector<bool> good;
    bool damaged = false;          // `found` will not do: a part is needed
    std::optional<PartFile> part;  // being filled; before that `found` is checked
    bool streaming = false;        // one worker streams it from a server without ranges
    std::vector<Chunk> chunks;     // state of each in this pass
    size_t left = 0;
    uint64_t cached = 0;           // bytes counted as from_cache
    std::vector<MappedFile> maps;  // the last one is the blob's
    bool begun = false, whole = false;
    std::exception_ptr error;  // kBroken
    bool keep_part = true;     // kBroken
  };
  struct Task;
  struct Worker;
  class Turn;
  class Download;

  void plan(std::optional<uint64_t> limit);
  void work();
  std::optional<Task> next(Clock::time_point& again);
  std::optional<Task> next_chunk();
  void run(const Task& task, Worker& worker);
  void run_alone(const Task& task, Worker& worker);
  void tell_chunk(const Item& item, size_t chunk) const;
  bool too_much(bool began_with_text);
  void open(Item& item);
  bool look(Item& item);
  void use(Item& item, MappedFile map);
  static Bytes read_chunk(const Fd& file, const Item& item, size_t chunk, Worker& worker);
  void check(Item& item, size_t chunk, Worker& worker);
  void fill(Item& item, size_t chunk, Worker& worker);
  void download(Item& item, size_t chunk, Worker& worker);
  void checked(Item& item, size_t chunk, bool good);
  void filled(Item& item, size_t chunk);
  void start_pass(Item& item);
  void close(Item& item);
  void fail(std::exception_ptr error, bool keep_parts);
  void stop();
  Bytes wait_for(const std::string& sha256, bool Item::*what);

  const ShardCache cache_;
  const BlobOrigin from_;
  const RetryOptions retry_;
  const OnBytes on_bytes_;
  const bool beside_texts_;
  Interrupt& interrupt_;

  // Guards the members below; never held while the Interrupt is asked.
  mutable Mutex mutex_{LockOrder::kLoad};
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::map<std::string, Item*> by_hash_;
  std::vector<BlobClient*> clients_;
  std::optional<Progress> progress_;
  uint64_t missing_ = 0;
  FetchCounts counts_;
  FetchPace pace_;
  unsigned chunks_ = 0;                              // running tasks
  std::multiset<std::pair<size_t, size_t>> asking_;  // blobs and chunks being fetched
  std::exception_ptr error_;
  bool stopped_ = false, keep_parts_ = true;

  std::vector<std::thread> threads_;
  std::optional<Interrupt::Hook> hook_;
};

}  // namespace split::edge
