#include "edge_client/weights/blobs/blob_client.h"

#include <algorithm>

#include "edge_client/cloud/remote.h"

namespace split::edge {
namespace {

constexpr uint64_t kMostBytes = 1ull << 50;  // on_data counts; the manifest's own limit

}  // namespace

BlobOrigin blob_origin(const wire::ModelInfo& info, const std::string& server,
                       const Patience& patience, const Credentials& credentials) {
  if (info.blob_url.empty()) {
    const std::string path = wire::blob_path("");
    return {server, path.substr(0, path.size() - 1), patience, credentials};
  }
  try {
    http::UrlParts parts = http::split_url(info.blob_url);
    Credentials theirs = credentials;
    if (http::parse_url(parts.origin) != http::parse_url(http::split_url(server).origin))
      theirs.api_key.clear();
    return {std::move(parts.origin), std::move(parts.path), patience, std::move(theirs)};
  } catch (const Error& error) {
    throw Error(ErrorKind::kRemote, cat("[server] ", server, ": blob_url: ", error.what()));
  }
}

BlobClient::BlobClient(BlobOrigin from)
    : from_(std::move(from)),
      client_(from_.origin, client_options(from_.origin, from_.patience, from_.credentials)) {}

void BlobClient::get(const std::string& sha256, uint64_t first, uint64_t count,
                     const OnData& on_data) {
  const std::string path = cat(from_.path, "/", sha256);
  const http::Headers headers = {{"Range", cat("bytes=", first, "-", first + count - 1)}};
  uint64_t at = first;
  http::Reply reply;
  try {
    reply = client_.get_stream(
        path, headers,
        [&](Bytes bytes) {
          const uint64_t left = has_ranges_ ? first + count - at : kMostBytes;
          if (left == 0) return false;
          const Bytes wanted = bytes.first(std::min<uint64_t>(bytes.size(), left));
          const bool more = on_data(at, wanted);
          at += wanted.size();
          return more;
        },
        kMostBytes,
        [&](int status) {
          has_ranges_ = status != 200;
          if (!has_ranges_) at = 0;
        });
  } catch (const http::NoReply& error) {
    throw no_answer(error);
  }
  if (reply.status != 200 && reply.status != 206) throw refusal(client_.origin(), reply, path);
}

}  // namespace split::edge
