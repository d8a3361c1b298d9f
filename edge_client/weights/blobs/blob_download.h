// Inside of BlobLoad: what one of its threads has, and how it gets a chunk from the server. Nobody
// else includes this.
#pragma once

#include "edge_client/weights/blobs/blob_load.h"

namespace split::edge {

// State of one worker thread: room for one chunk, and a connection once it needs one.
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

// A chunk's claim to a connection, as long as it is fetched: where there are fewer than chunks,
// those of the first blobs come first.
class BlobLoad::Turn {
 public:
  Turn(BlobLoad& load, const Item& item, size_t chunk);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  void wait();  // until it has one

 private:
  BlobLoad& load_;
  std::multiset<std::pair<size_t, size_t>>::iterator at_;
};

// One chunk that a server sends, or, from one without ranges, every chunk that is still missing.
class BlobLoad::Download {
 public:
  Download(BlobLoad& load, Item& item, size_t chunk, Worker& worker)
      : load_(load), item_(item), wanted_(chunk), worker_(worker) {}
  ~Download();
  // Returns when the chunk is good and written, or has been left to another worker.
  void run();

 private:
  // How much to ask for of the bytes that are left of a chunk.
  uint64_t range(uint64_t left);
  bool take(uint64_t at, Bytes bytes, bool ranges);
  void measure();
  // Whether the byte at `at` is of a chunk that this collects.
  bool begin(uint64_t at, size_t chunk);
  // False when it is the wanted one, and wrong, or when nothing else is missing.
  bool complete();
  bool any_left();
  // Drops what was collected of a chunk. Takes the lock as held.
  void drop();

  BlobLoad& load_;
  Item& item_;
  const size_t wanted_;
  Worker& worker_;
  std::optional<size_t> collecting_;
  uint64_t have_ = 0, came_ = 0, answer_ = 0;  // bytes: of that chunk; over the wire; of one answer
  bool done_ = false, streams_ = false;
  bool with_text_ = false;  // a text ran when the present range was asked for
  bool cut_short_ = false;  // and the rest of that is asked for again
  Clock::time_point first_came_, last_came_;
  size_t first_bytes_ = 0;
  std::string wrong_;
};

}  // namespace split::edge
