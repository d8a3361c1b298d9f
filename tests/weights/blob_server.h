// A server of blobs that can be made to go wrong, and loads from it into a cache.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <random>

#include "edge_client/weights/blobs/blob_load.h"
#include "support/edge_world.h"

namespace split::test {

namespace fs = std::filesystem;
using edge::BlobLoad;
using edge::FetchCounts;
using edge::ShardCache;

inline constexpr uint64_t kChunk = wire::kChunkBytes;

// A server of blobs that remembers what it was asked and can be made to go wrong.
class BlobServer {
 public:
  using Gate = std::function<std::optional<http::Response>(const http::Request&, int n)>;

  BlobServer()
      : running_([this](http::Server& server) {
          server.route("GET", "/some/where/{hex}",
                       [this](const http::Request& request) { return answer(request); });
        }) {}

  // `seed` tells blobs of one size apart.
  wire::BlobInfo add(std::string name, uint64_t bytes, uint32_t seed) {
    auto text = std::make_shared<std::string>(bytes, '\0');
    std::minstd_rand random(seed);
    for (char& c : *text) c = static_cast<char>(random() >> 8);
    wire::BlobSummer summer;
    summer.update(as_bytes_of(*text));
    wire::BlobInfo info{summer.finish(), std::move(name), "f32"};
    blobs_[info.sha256] = text;
    return info;
  }
  const std::string& bytes_of(const wire::BlobInfo& info) const { return *blobs_.at(info.sha256); }
  edge::BlobOrigin origin() const {
    return {running_.url(), "/some/where", std::chrono::milliseconds(20000), in_process()};
  }
  // From now on requests are remembered anew and answered by `gate`, until the result goes: then
  // nothing that the gate refers to is used any more.
  [[nodiscard]] std::shared_ptr<void> gate(Gate gate) {
    const std::lock_guard lock(mutex_);
    gate_ = std::move(gate);
    asked_.clear();
    return {this, [](BlobServer* server) {
              std::unique_lock lock(server->mutex_);
              server->gate_ = nullptr;
              server->left_.wait(lock, [server] { return server->inside_ == 0; });
            }};
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    asked_.clear();
  }
  http::Response real(const http::Request& request) const {
    const auto at = blobs_.find(request.path_params[0]);
    if (at == blobs_.end()) throw http::HttpError(404, "blob_not_found", "no such blob");
    return http::Response::bytes({as_bytes_of(*at->second)}, at->second, "a/b", "\"x\"");
  }
  // Bytes with one bit of byte `at` turned.
  http::Response flipped(const http::Request& request, uint64_t at) const {
    auto text = std::make_shared<std::string>(*blobs_.at(request.path_params[0]));
    (*text)[at] = static_cast<char>((*text)[at] ^ 1);
    return http::Response::bytes({as_bytes_of(*text)}, text, "a/b", "\"x\"");
  }
  std::vector<std::string> asked() const {  // "wte 0", name and first byte
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  http::Response answer(const http::Request& request) {
    std::optional<http::Response> response;
    Gate gate;
    int n = 0;
    {
      const std::lock_guard lock(mutex_);
      n = static_cast<int>(asked_.size());
      asked_.emplace_back(request.headers.get("Range").value_or(""));
      gate = gate_;
      ++inside_;
    }
    const std::shared_ptr<BlobServer> leave(this, [](BlobServer* server) {
      const std::lock_guard lock(server->mutex_);
      --server->inside_;
      server->left_.notify_all();
    });
    if (gate) response = gate(request, n);
    return response ? std::move(*response) : real(request);
  }

  std::map<std::string, std::shared_ptr<std::string>> blobs_;
  mutable std::mutex mutex_;
  std::condition_variable left_;
  Gate gate_;
  int inside_ = 0;  // requests being answered
  std::vector<std::string> asked_;
  Running running_;
};

class BlobLoads : public testing::Test {
 protected:
  BlobLoads() {
    blobs = {server.add("small", 1000, 1), server.add("odd", 5 * kChunk + 12345, 2),
             server.add("even", 2 * kChunk, 3)};
    for (const auto& blob : blobs) total += blob.bytes;
  }
  edge::LoadOptions options() const {
    edge::LoadOptions options;
    options.retry.budget = std::chrono::milliseconds(2000);
    return options;
  }
  FetchCounts load(const fs::path& root) { return load(root, blobs); }
  FetchCounts load(const fs::path& root, const std::vector<wire::BlobInfo>& wanted) {
    BlobLoad load(ShardCache(root), server.origin(), wanted, options(), interrupt);
    for (const wire::BlobInfo& blob : wanted) {
      EXPECT_EQ(as_text(load.begun(blob.sha256)).substr(0, kChunk),
                server.bytes_of(blob).substr(0, kChunk));
    }
    for (const wire::BlobInfo& blob : wanted) {
      EXPECT_EQ(as_text(load.whole(blob.sha256)), server.bytes_of(blob));
    }
    return load.finish();
  }
  fs::path file_of(const wire::BlobInfo& blob) const {
    return ShardCache(cache.path).path_of(blob.sha256);
  }
  void expect_complete() {
    size_t files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(cache.path)) {
      files += entry.is_regular_file();
    }
    EXPECT_EQ(files, blobs.size());
    for (const wire::BlobInfo& blob : blobs) {
      EXPECT_TRUE(read_file(file_of(blob), 100 << 20) == server.bytes_of(blob)) << blob.name;
    }
  }
  void flip(const fs::path& path, uint64_t at) {
    const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    char byte = 0;
    CHECK(::pread(file.get(), &byte, 1, static_cast<off_t>(at)) == 1);
    byte = static_cast<char>(byte ^ 1);
    CHECK(::pwrite(file.get(), &byte, 1, static_cast<off_t>(at)) == 1);
  }
  // Returns the kind of the error that a load throws, and checks that its message is one line.
  ErrorKind failure(const std::vector<wire::BlobInfo>& wanted, const std::string& part) {
    try {
      BlobLoad load(ShardCache(cache.path), server.origin(), wanted, options(), interrupt);
      load.finish();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.kind();
    }
    ADD_FAILURE() << "nothing went wrong";
    return ErrorKind::kInput;
  }

  BlobServer server;
  std::vector<wire::BlobInfo> blobs;
  uint64_t total = 0;
  TemporaryFolder cache;
  Interrupt interrupt;
};

}  // namespace split::test
