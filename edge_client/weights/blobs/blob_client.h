// The origin of blobs: this server or another one that it names. Requests to that have a hash and a
// range, never a key; the hash decides whether the bytes are good. Does not follow redirects.
#pragma once

#include <string>

#include "edge_client/cloud/remote.h"
#include "wire/protocol.h"

namespace split::edge {

struct BlobOrigin {
  std::string origin, path;  // a blob is at origin/path/sha256
  Patience patience;
  Credentials credentials = {};  // hold a key only for the server's own origin
};

// `server`: the manifest's origin. Throws Error(kRemote) if it names no URL.
BlobOrigin blob_origin(const wire::ModelInfo& info, const std::string& server,
                       const Patience& patience, const Credentials& credentials = {});

// One connection, kept alive. One thread at a time, except cancel().
class BlobClient {
 public:
  explicit BlobClient(BlobOrigin from);

  // Requests `count` bytes from `first` on. Calls on_data with no more than these, and their place
  // in the file: everything from 0 on if the server has no ranges. Ends when on_data returns false.
  // Throws RemoteError.
  using OnData = std::function<bool(uint64_t at, Bytes bytes)>;
  void get(const std::string& sha256, uint64_t first, uint64_t count, const OnData& on_data);
  bool has_ranges() const { return has_ranges_; }  // the present answer's
  void cancel() { client_.cancel(); }              // any thread; for good
  const BlobOrigin& from() const { return from_; }

 private:
  BlobOrigin from_;
  http::Client client_;
  bool has_ranges_ = true;
};

}  // namespace split::edge
