// The state of one of BlobLoad's threads. Included by its own sources alone.
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

}  // namespace split::edge
