// Internals of BlobLoad: the state of one of its threads, and how it gets a chunk from the server.
// Included by its own sources alone.
#pragma once

#include "edge_client/weights/blobs/blob_load.h"

namespace split::edge {

// State of one worker thread: a buffer for one chunk, and a connection once it needs one.
struct BlobLoad::Worker {
  explicit Worker(BlobLoad& load)
      : load(load), buffer(wire::kChunkBytes), retry(load.retry_, load.interrupt_) {}
  ~Worker() {
    const std::lock_guard lock(load.mutex_);
    if (client) std::erase(load.clients_, &*client);
  }
  BlobClient& connection() {
    if (!client) {
      client.emplace(load.from_);
      const std::lock_guard lock(load.mutex_);
      load.clients_.push_back(&*client);
      if (load.stopped_) client->cancel();
    }
    return *client;
  }
  BlobLoad& load;
  std::vector<std::byte> buffer;
  Retry retry;
  std::optional<BlobClient> client;
};

// A chunk's claim to a connection while it is fetched: with too few connections, chunks of the
// first blobs come first.
class BlobLoad::Turn {
 public:
  Turn(BlobLoad& load, const Item& item, size_t chunk);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  void wait();  // until it has a connection

 private:
  BlobLoad& load_;
  std::multiset<std::pair<size_t, size_t>>::iterator at_;
};

// Fetches one chunk, or every missing chunk if the server has no ranges.
class BlobLoad::Download {
 public:
  Download(BlobLoad& load, Item& item, size_t chunk, Worker& worker)
      : load_(load), item_(item), wanted_(chunk), worker_(worker) {}
  ~Download();
  // Returns when the chunk is good and written, or left to another worker.
  void run();

 private:
  // Bytes of the next request, of those left of a chunk.
  uint64_t range(uint64_t left);
  bool take(uint64_t at, Bytes bytes, bool ranges);
  void measure();
  // Whether to collect the chunk of the byte at `at`.
  bool begin(uint64_t at, size_t chunk);
  // Returns false if the wanted chunk is wrong, or nothing else is missing.
  bool complete();
  bool any_left();
  // Drops the collected bytes of a chunk. Call with the lock held.
  void drop();

  BlobLoad& load_;
  Item& item_;
  const size_t wanted_;
  Worker& worker_;
  std::optional<size_t> collecting_;
  uint64_t have_ = 0, came_ = 0, answer_ = 0;  // bytes: of the collected chunk; over the wire; of
                                               // one answer
  bool done_ = false, streams_ = false;
  bool with_text_ = false;  // a text ran when the range was requested
  bool cut_short_ = false;  // the rest of the range is requested again
  Clock::time_point first_came_, last_came_;
  size_t first_bytes_ = 0;
  std::string wrong_;
};

}  // namespace split::edge
