// Blobs on their way from the cache and the server to whoever loads them: in parallel, a chunk at a
// time, each chunk checked once before anybody sees it. A chunk that is missing or not what its
// hash says is fetched alone; whatever was good in a file that was cut short, damaged or left by a
// killed process is kept. The reader waits for what it needs next, while the rest goes on.
//
// A file's name is not trusted: its chunks are always checked against this server's manifest. A
// server that lists wrong chunks for a hash only spoils a file with bytes that it could have sent
// anyway, and the next download from an honest server mends it.
//
// A load beside texts (LoadOptions) brings one blob after the other, leaves the text its
// share of the line (fetch_pace.h), and a blob that goes wrong is that one's matter alone.
//
// A blob that is complete under its name is only read. Otherwise it is put together in a part file
// (part_file.h) that one process holds at a time; others wait for it and then find it complete.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/resources/clock.h"
#include "edge_client/split/retry.h"
#include "edge_client/weights/blobs/blob_client.h"
#include "edge_client/weights/blobs/fetch_pace.h"
#include "edge_client/weights/blobs/part_file.h"
#include "edge_client/weights/blobs/shard_cache.h"
#include "edge_client/weights/progress.h"
#include "program/interrupt.h"

namespace split::edge {

// So many bytes of a blob's chunk are here by now: `fetched` just now, or from the disk. A chunk
// that came wrong begins again. From any of a load's threads.
using OnBytes =
    std::function<void(const std::string& sha256, size_t chunk, uint64_t have, bool fetched)>;

struct LoadOptions {
  RetryOptions retry;
  ProgressTo progress;
  std::optional<uint64_t> cache_limit;
  OnBytes on_bytes;
  bool beside_texts = false;   // else all headers come first, and the first error ends everything
  bool text_runs = false;      // at the beginning
  bool missing_alone = false;  // nobody reads the blobs: one that is there is not looked at
  unsigned workers = 4;        // each with a connection, if it needs one, and a chunk of memory
};

// Used by one thread; works on threads of its own.
class BlobLoad {
 public:
  // Begins. The blobs are wanted in this order. Throws Error(kIo) when the cache has no room.
  BlobLoad(const ShardCache& cache, BlobOrigin from, const std::vector<wire::BlobInfo>& blobs,
           const LoadOptions& options, Interrupt& interrupt);
  // As end() does.
  ~BlobLoad();

  // The blob with this hash, mapped for the life of this object, once its first chunk, or all of
  // it, is good. Both throw what went wrong anywhere: Error(kIo) when a blob cannot be stored,
  // Error(kIntegrity) when the server's bytes are not what it promised, RemoteError.
  Bytes begun(const std::string& sha256);
  Bytes whole(const std::string& sha256);
  // Ends the map of a blob that is whole, which nobody reads; it is mapped anew when asked for.
  void let_go(const std::string& sha256);
  // Waits until it is whole; false where the load ends before. Throws why that blob will not come.
  bool comes(const std::string& sha256);
  // Returns when everything is also durable under its name.
  FetchCounts finish();
  FetchCounts counts() const;                    // so far
  uint64_t missing() const { return missing_; }  // bytes that were not there at the beginning

  // Whether a text runs that the load is beside. Any thread.
  void text_runs(bool runs);
  // Ends all that still goes on, as if the program were interrupted. Any thread.
  void cancel();
  // The same, and waits for it. Another load may have what is not whole, then; what is stays
  // mapped. Good chunks of a part stay for the next time, but not on a disk that was full or from a
  // server that lied.
  void end();

 private:
  enum class Chunk : uint8_t { kTodo, kTaken, kDone };
  enum class State : uint8_t { kNew, kBusy, kOpening, kOpen, kFull, kClosing, kKept, kBroken };
  enum class Step : uint8_t { kOpen, kChunk, kClose };

  struct Item {
    wire::BlobInfo info;
    size_t order = 0;
    std::filesystem::path path;
    State state = State::kNew;
    Clock::time_point again;  // kBusy: when to look whether another process is done with it
    bool expected = false;    // in the progress' total
    Fd found;                 // the file under its name, and which of its chunks are good
    uint64_t identity = 0;
    std::vector<bool> good;
    bool damaged = false;          // what was found will not do: a part is needed
    std::optional<PartFile> part;  // being filled; until then `found` is checked
    bool streaming = false;        // one worker takes all of it from a server without ranges
    std::vector<Chunk> chunks;     // of this pass
    size_t left = 0;
    uint64_t cached = 0;           // counted as from_cache
    std::vector<MappedFile> maps;  // the last one is what the blob will be
    bool begun = false, whole = false;
    std::exception_ptr error;  // kBroken
    bool keep_part = true;     // then
  };
  struct Task {
    Step step;
    Item* item;
    size_t chunk = 0;
  };
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

  mutable std::mutex mutex_;  // of everything below; never held while the Interrupt is asked
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::map<std::string, Item*> by_hash_;
  std::vector<BlobClient*> clients_;
  std::optional<Progress> progress_;
  uint64_t missing_ = 0;
  FetchCounts counts_;
  FetchPace pace_;
  unsigned chunks_ = 0;                              // tasks that run
  std::multiset<std::pair<size_t, size_t>> asking_;  // blobs and chunks that are fetched
  std::exception_ptr error_;
  bool stopped_ = false, keep_parts_ = true;

  std::vector<std::thread> threads_;
  std::optional<Interrupt::Hook> hook_;
};

}  // namespace split::edge
