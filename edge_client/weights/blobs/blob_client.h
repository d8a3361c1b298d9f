// Where blobs come from: this server or another one that it names. Nothing is said to that but
// which bytes of which hash, and never a key; whoever it is, the hash decides. Redirects are not
// followed.
#pragma once

#include <chrono>
#include <string>

#include "edge_client/cloud/remote.h"
#include "wire/protocol.h"

namespace split::edge {

struct BlobOrigin {
  std::string origin, path;  // a blob is at origin/path/sha256
  Patience patience;
  Credentials credentials = {};  // the key only where it is the server's own origin
};

// `server` is where the manifest came from. Throws Error(kRemote) when it names no URL.
BlobOrigin blob_origin(const wire::ModelInfo& info, const std::string& server,
                       const Patience& patience, const Credentials& credentials = {});

// One connection, kept alive. One thread at a time, but for cancel().
class BlobClient {
 public:
  explicit BlobClient(BlobOrigin from);

  // Asks for `count` bytes from `first` on. on_data gets them, and no more, with their place in the
  // file: all from 0 on when the server has no ranges. False from on_data ends it. Throws
  // RemoteError.
  using OnData = std::function<bool(uint64_t at, Bytes bytes)>;
  void get(const std::string& sha256, uint64_t first, uint64_t count, const OnData& on_data);
  bool has_ranges() const { return has_ranges_; }  // as the present answer says
  void cancel() { client_.cancel(); }              // any thread; for good
  const BlobOrigin& from() const { return from_; }

 private:
  BlobOrigin from_;
  http::Client client_;
  bool has_ranges_ = true;
};

}  // namespace split::edge
