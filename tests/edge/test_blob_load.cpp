// Blobs from a server and a cache into the hands of who loads them: parallel, chunk by chunk, and
// right whatever happened to the disk, the wire or the server.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <random>
#include <thread>

#include "edge_client/weights/blobs/blob_load.h"
#include "support/edge_world.h"

namespace split::test {
namespace {

namespace fs = std::filesystem;
using edge::BlobLoad;
using edge::FetchCounts;
using edge::ShardCache;

constexpr uint64_t kChunk = wire::kChunkBytes;

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
    return {running_.url(), "/some/where", std::chrono::milliseconds(20000)};
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

TEST_F(BlobLoads, FetchEachChunkOnceAndLaterNothing) {
  const FetchCounts first = load(cache.path);
  EXPECT_EQ(first.downloaded, total);
  EXPECT_EQ(first.from_cache, 0u);
  EXPECT_EQ(server.asked().size(), 1u + 6 + 2);
  expect_complete();
  server.forget();
  const FetchCounts second = load(cache.path);
  EXPECT_EQ(second.downloaded, 0u);
  EXPECT_EQ(second.from_cache, total);
  EXPECT_TRUE(server.asked().empty());
}

TEST_F(BlobLoads, AskForSeveralChunksAtOnce) {
  std::mutex mutex;
  std::condition_variable more;
  int waiting = 0;
  bool together = false;
  const auto gated = server.gate([&](const http::Request&, int) -> std::optional<http::Response> {
    std::unique_lock lock(mutex);
    together |= ++waiting >= 4;
    more.notify_all();
    EXPECT_TRUE(more.wait_for(lock, std::chrono::seconds(20), [&] { return together; }));
    return std::nullopt;
  });
  EXPECT_EQ(load(cache.path).downloaded, total);
  EXPECT_TRUE(together);
}

// The reader sees headers and whole blobs while later ones have not come yet.
TEST_F(BlobLoads, AreReadBeforeTheLastHasCome) {
  std::mutex mutex;
  std::condition_variable seen;
  bool read = false;
  const auto gated =
      server.gate([&](const http::Request& request, int) -> std::optional<http::Response> {
        if (request.path_params[0] == blobs[2].sha256 &&
            request.headers.get("Range") != "bytes=0-1048575") {
          std::unique_lock lock(mutex);
          EXPECT_TRUE(seen.wait_for(lock, std::chrono::seconds(20), [&] { return read; }));
        }
        return std::nullopt;
      });
  BlobLoad load(ShardCache(cache.path), server.origin(), blobs, options(), interrupt);
  EXPECT_EQ(load.begun(blobs[2].sha256).size(), blobs[2].bytes);
  EXPECT_EQ(as_text(load.begun(blobs[2].sha256)).substr(0, kChunk),
            server.bytes_of(blobs[2]).substr(0, kChunk));
  EXPECT_EQ(as_text(load.whole(blobs[1].sha256)), server.bytes_of(blobs[1]));
  {
    const std::lock_guard lock(mutex);
    read = true;
  }
  seen.notify_all();
  EXPECT_EQ(as_text(load.whole(blobs[2].sha256)), server.bytes_of(blobs[2]));
  load.finish();
}

// One that was let go, before it has its name or after it, comes from the disk.
TEST_F(BlobLoads, MapAgainWhatWasLetGo) {
  BlobLoad load(ShardCache(cache.path), server.origin(), blobs, options(), interrupt);
  for (const bool finished : {false, true}) {
    if (finished) load.finish();
    for (const wire::BlobInfo& blob : blobs) {
      EXPECT_EQ(as_text(load.whole(blob.sha256)), server.bytes_of(blob));
      load.let_go(blob.sha256);
      EXPECT_EQ(as_text(load.begun(blob.sha256)), server.bytes_of(blob));
    }
  }
}

TEST_F(BlobLoads, FetchOneChunkForABitFlippedOnTheDisk) {
  load(cache.path);
  const wire::BlobInfo& odd = blobs[1];
  for (const uint64_t at : {uint64_t{0}, 3 * kChunk, 4 * kChunk - 1, odd.bytes - 1}) {
    flip(file_of(odd), at);
    server.forget();
    const FetchCounts counts = load(cache.path);
    const uint64_t size = wire::chunk_size(odd.bytes, at / kChunk);
    EXPECT_EQ(counts.downloaded, size) << at;
    EXPECT_EQ(counts.from_cache, total - size) << at;
    EXPECT_EQ(server.asked().size(), 1u);
    expect_complete();
  }
}

TEST_F(BlobLoads, KeepWhatIsGoodOfAFileOfAnotherLength) {
  const wire::BlobInfo& odd = blobs[1];
  load(cache.path);
  const std::pair<uint64_t, uint64_t> cuts[] = {
      {odd.bytes - 1, 12345},           {odd.bytes + 1, 0}, {5 * kChunk, 12345},
      {kChunk + 7, odd.bytes - kChunk}, {1, odd.bytes},     {0, odd.bytes}};
  for (const auto& [length, missing] : cuts) {
    fs::resize_file(file_of(odd), length);
    EXPECT_EQ(load(cache.path).downloaded, missing) << length;
    expect_complete();
  }
}

TEST_F(BlobLoads, FetchOneChunkAgainForABitFlippedOnTheWire) {
  const wire::BlobInfo& odd = blobs[1];
  std::atomic<int> flips{0};
  const auto gated =
      server.gate([&](const http::Request& request, int) -> std::optional<http::Response> {
        const bool third =
            request.headers.get("Range") == cat("bytes=", 2 * kChunk, "-", 3 * kChunk - 1);
        if (!third || flips++ > 0) return std::nullopt;
        return server.flipped(request, 3 * kChunk - 5);
      });
  EXPECT_EQ(load(cache.path).downloaded, total + kChunk);
  EXPECT_EQ(flips, 2);
  expect_complete();
  EXPECT_EQ(wire::chunk_count(odd.bytes), 6u);
}

TEST_F(BlobLoads, RefuseBytesThatStayWrongAndLeaveNothing) {
  const wire::BlobInfo& odd = blobs[1];
  auto gated = server.gate([&](const http::Request& request, int) -> std::optional<http::Response> {
    if (request.path_params[0] != odd.sha256) return std::nullopt;
    return server.flipped(request, 2 * kChunk);
  });
  EXPECT_EQ(failure({odd}, cat("chunk 2 of 6: its sha256 is not ", odd.chunks[2])),
            ErrorKind::kIntegrity);
  EXPECT_TRUE(ShardCache(cache.path).entries().empty());
  // Too few bytes; and more than were asked for, of which nobody takes notice.
  gated.reset();
  gated = server.gate([&](const http::Request& request, int) -> std::optional<http::Response> {
    const std::string& all = server.bytes_of(odd);
    const uint64_t first = std::stoull(std::string(request.headers.get("Range")->substr(6)));
    http::Response response;
    response.status = 206;
    response.body = all.substr(first, wire::chunk_size(odd.bytes, first / kChunk));
    if (first == 5 * kChunk) response.body.pop_back();
    return response;
  });
  EXPECT_EQ(failure({odd}, "chunk 5 of 6: expected 12345 bytes, got 12344"), ErrorKind::kIntegrity);
  EXPECT_TRUE(ShardCache(cache.path).entries().empty());
  gated.reset();
  gated = server.gate([&](const http::Request& request, int) -> std::optional<http::Response> {
    const uint64_t first = std::stoull(std::string(request.headers.get("Range")->substr(6)));
    http::Response response;
    response.status = 206;
    response.body = server.bytes_of(odd).substr(first) + "more";
    return response;
  });
  load(cache.path, {odd});
}

// A manifest whose chunks are not those of its hash: what it names is whatever that server could
// have sent anyway, and nobody who knows the hash's own chunks is ever given it, whether the file
// is complete, in part or being put together.
TEST_F(BlobLoads, GiveNobodyWhatALiarPutUnderAHash) {
  const wire::BlobInfo honest = server.add("victim", 5 * kChunk + 12345, 9);
  const wire::BlobInfo& other = blobs[1];  // of this size
  wire::BlobInfo lie = other;
  lie.sha256 = honest.sha256;
  const auto lying = [&](const http::Request& request, int) -> std::optional<http::Response> {
    http::Request asked = request;
    asked.path_params[0] = other.sha256;
    return server.real(asked);
  };
  const auto poison = [&] {
    const auto gated = server.gate(lying);
    BlobLoad load(ShardCache(cache.path), server.origin(), {lie}, options(), interrupt);
    EXPECT_EQ(as_text(load.whole(lie.sha256)), server.bytes_of(other));
    load.finish();
  };
  poison();
  EXPECT_EQ(load(cache.path, {honest}).downloaded, honest.bytes);
  EXPECT_TRUE(read_file(file_of(honest), 100 << 20) == server.bytes_of(honest));
  EXPECT_EQ(load(cache.path, {honest}).downloaded, 0u);
  // And what the liar left in part.
  fs::remove(file_of(honest));
  poison();
  fs::rename(file_of(honest), file_of(honest).string() + ".part");
  EXPECT_EQ(load(cache.path, {honest}).downloaded, honest.bytes);
  // Both at once: one waits for the other's part, and then looks at every chunk of it.
  fs::remove(file_of(honest));
  const auto gated = server.gate([&](const http::Request& request, int n) {
    return n < static_cast<int>(lie.chunks.size()) ? lying(request, n) : std::nullopt;
  });
  BlobLoad first(ShardCache(cache.path), server.origin(), {lie}, options(), interrupt);
  first.begun(lie.sha256);
  std::optional<BlobLoad> second;
  second.emplace(ShardCache(cache.path), server.origin(), std::vector{honest}, options(),
                 interrupt);
  first.finish();
  EXPECT_EQ(as_text(second->whole(honest.sha256)), server.bytes_of(honest));
  second->finish();
}

TEST_F(BlobLoads, LoseOnlyTheChunkOfALostConnection) {
  std::atomic<int> cuts{0};
  const auto gated = server.gate([&](const http::Request&, int n) -> std::optional<http::Response> {
    if (n % 3 != 1 || cuts >= 3) return std::nullopt;
    ++cuts;
    return cut_short(std::string(500, 'x'));
  });
  const FetchCounts counts = load(cache.path);
  EXPECT_EQ(cuts, 3);
  EXPECT_GE(counts.downloaded, total);
  EXPECT_LE(counts.downloaded, total + 3 * 500);
  expect_complete();
}

TEST_F(BlobLoads, GoOnFromWhatAnEndedLoadLeft) {
  const wire::BlobInfo& odd = blobs[1];
  std::atomic<int> passed{0};
  auto gated = server.gate([&](const http::Request&, int) -> std::optional<http::Response> {
    if (passed++ < 4) return std::nullopt;
    throw http::HttpError(500, "broken", "no more");
  });
  EXPECT_EQ(failure({odd}, "no more"), ErrorKind::kRemote);
  const auto left = ShardCache(cache.path).entries();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_TRUE(left[0].partial);
  gated.reset();
  server.forget();
  const FetchCounts counts = load(cache.path, {odd});
  EXPECT_EQ(counts.downloaded + counts.from_cache, odd.bytes);
  EXPECT_GE(counts.from_cache, kChunk);
  // A part that holds nothing but noise, or is too long, costs no more than none.
  fs::remove(file_of(odd));
  write_file(file_of(odd).string() + ".part", as_bytes_of(std::string(odd.bytes + 100, 'n')));
  EXPECT_EQ(load(cache.path, {odd}).downloaded, odd.bytes);
}

// A model that stopped growing may live on, while its weights come by another load.
TEST_F(BlobLoads, AnEndedLoadLeavesItsPartsToTheNextAndKeepsItsMaps) {
  const wire::BlobInfo& odd = blobs[1];
  std::promise<void> ended;
  const std::shared_future<void> over(ended.get_future());
  auto gated = server.gate([&](const http::Request& request, int) -> std::optional<http::Response> {
    if (request.headers.get("Range") != "bytes=0-1048575") over.wait();
    return std::nullopt;
  });
  BlobLoad first(ShardCache(cache.path), server.origin(), {odd}, options(), interrupt);
  const Bytes begun = first.begun(odd.sha256);
  first.end();
  EXPECT_THROW(first.whole(odd.sha256), Error);
  ended.set_value();
  gated.reset();
  std::promise<void> done;
  const std::jthread watch([&, done = done.get_future()] {
    if (done.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      interrupt.raise(SIGINT);  // it waits for the part
    }
  });
  const std::shared_ptr<void> at_end(nullptr, [&](void*) { done.set_value(); });
  const FetchCounts counts = load(cache.path, {odd});
  EXPECT_EQ(counts.downloaded + counts.from_cache, odd.bytes);
  EXPECT_GE(counts.from_cache, kChunk);
  EXPECT_EQ(as_text(begun).substr(0, kChunk), server.bytes_of(odd).substr(0, kChunk));
}

TEST_F(BlobLoads, TakeAWholeBlobFromAServerWithoutRanges) {
  const auto gated =
      server.gate([&](const http::Request& request, int) -> std::optional<http::Response> {
        http::Response response = server.real(request);
        response.body = server.bytes_of(*std::ranges::find_if(
            blobs, [&](auto& blob) { return blob.sha256 == request.path_params[0]; }));
        response.owner = nullptr;
        response.pieces.clear();
        return response;
      });
  // Each of the four connections may ask before the first answer tells; one goes on.
  EXPECT_LE(load(cache.path).downloaded, 4 * total);
  expect_complete();
  // Only what is missing is written, though all of it comes.
  flip(file_of(blobs[1]), 3 * kChunk);
  const FetchCounts again = load(cache.path);
  EXPECT_GT(again.downloaded, kChunk);
  EXPECT_LE(again.downloaded, blobs[1].bytes);
  expect_complete();
}

TEST_F(BlobLoads, FollowNoRedirect) {
  BlobServer other;
  other.add("odd", blobs[1].bytes, 2);
  const auto gated =
      server.gate([&](const http::Request& request, int) -> std::optional<http::Response> {
        http::Response response;
        response.status = 302;
        response.headers.set("Location",
                             cat(other.origin().origin, "/some/where/", request.path_params[0]));
        return response;
      });
  EXPECT_EQ(failure({blobs[1]}, "answered 302"), ErrorKind::kRemote);
  EXPECT_TRUE(other.asked().empty());
  EXPECT_TRUE(ShardCache(cache.path).entries().empty());
}

TEST_F(BlobLoads, FetchEachChunkOnceWhenTwoRunAtOnce) {
  std::atomic<uint64_t> downloaded{0}, cached{0};
  std::vector<std::thread> edges;
  for (const bool backwards : {false, true, false}) {
    edges.emplace_back([&, backwards] {
      auto wanted = blobs;
      if (backwards) std::ranges::reverse(wanted);
      const FetchCounts counts = load(cache.path, wanted);
      downloaded += counts.downloaded;
      cached += counts.from_cache;
    });
  }
  for (std::thread& edge : edges) edge.join();
  EXPECT_EQ(downloaded, total);
  EXPECT_EQ(cached, 2 * total);
  expect_complete();
}

// Each answer brings some bytes and no chunk: nothing that would be waited for again and again.
TEST_F(BlobLoads, GiveUpOnAServerThatOnlyDrips) {
  const auto gated = server.gate([&](const http::Request&, int) { return cut_short(); });
  try {
    edge::LoadOptions impatient = options();
    impatient.retry.budget = std::chrono::milliseconds(100);
    BlobLoad load(ShardCache(cache.path), server.origin(), blobs, impatient, interrupt);
    load.finish();
    ADD_FAILURE() << "nothing went wrong";
  } catch (const edge::RemoteError& error) {
    EXPECT_TRUE(error.transient()) << error.what();
  }
}

TEST_F(BlobLoads, BesideATextComeOneAfterTheOther) {
  std::mutex mutex;
  std::vector<std::string> order;
  const auto gated =
      server.gate([&](const http::Request& request, int) -> std::optional<http::Response> {
        const std::lock_guard lock(mutex);
        order.push_back(request.path_params[0]);
        return std::nullopt;
      });
  edge::LoadOptions beside = options();
  beside.beside_texts = true;
  beside.workers = 1;
  BlobLoad load(ShardCache(cache.path), server.origin(), blobs, beside, interrupt);
  EXPECT_EQ(load.missing(), total);
  EXPECT_EQ(load.finish().downloaded, total);
  std::vector<std::string> want{blobs[0].sha256};
  want.insert(want.end(), 6, blobs[1].sha256);
  want.insert(want.end(), 2, blobs[2].sha256);
  EXPECT_EQ(order, want);
  for (const wire::BlobInfo& blob : blobs) EXPECT_TRUE(load.comes(blob.sha256));
  expect_complete();
}

TEST_F(BlobLoads, BesideATextABrokenOneIsItsOwnMatter) {
  const wire::BlobInfo& odd = blobs[1];
  const auto gated =
      server.gate([&](const http::Request& request, int) -> std::optional<http::Response> {
        if (request.path_params[0] != odd.sha256) return std::nullopt;
        return server.flipped(request, 2 * kChunk + 5);
      });
  edge::LoadOptions beside = options();
  beside.beside_texts = true;
  {
    BlobLoad load(ShardCache(cache.path), server.origin(), blobs, beside, interrupt);
    for (const wire::BlobInfo& blob : {blobs[0], blobs[2]}) {
      EXPECT_EQ(as_text(load.whole(blob.sha256)), server.bytes_of(blob));
    }
    for (const auto& ask : {std::function([&] { load.whole(odd.sha256); }),
                            std::function([&] { load.comes(odd.sha256); })}) {
      try {
        ask();
        ADD_FAILURE() << "expected an error";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kIntegrity);
        const std::string why = error.what();
        EXPECT_NE(why.find("chunk 2 of 6: its sha256 is not"), std::string::npos) << why;
      }
    }
    load.finish();
    EXPECT_TRUE(load.comes(blobs[0].sha256) && load.comes(blobs[2].sha256));
  }
  EXPECT_FALSE(fs::exists(file_of(odd)));
  EXPECT_FALSE(fs::exists(file_of(odd).string() + ".part"));
  EXPECT_TRUE(read_file(file_of(blobs[2]), 100 << 20) == server.bytes_of(blobs[2]));
}

// The bytes that a range asks for.
std::pair<uint64_t, uint64_t> bounds_of(const std::string& range) {
  size_t dash = 0;
  const uint64_t first = std::stoull(range.substr(6), &dash);
  return {first, std::stoull(range.substr(6 + dash + 1)) + 1};
}

TEST_F(BlobLoads, BesideATextAskForAShortRangeAtATime) {
  std::atomic<int> inside{0}, most{0};
  const auto gated = server.gate([&](const http::Request& request, int) {
    most = std::max(most.load(), ++inside);
    const auto response = std::optional(server.real(request));
    --inside;
    return response;
  });
  edge::LoadOptions beside = options();
  beside.beside_texts = true;
  beside.text_runs = true;
  BlobLoad load(ShardCache(cache.path), server.origin(), {blobs[1]}, beside, interrupt);
  EXPECT_EQ(load.finish().downloaded, blobs[1].bytes);
  EXPECT_EQ(most, 1);
  const auto asked = server.asked();
  ASSERT_GT(asked.size(), 6u);
  uint64_t at = 0;
  for (const std::string& range : asked) {  // in order, each byte once, no range over two chunks
    const auto [first, end] = bounds_of(range);
    EXPECT_EQ(first, at);
    EXPECT_LE(end, (first / kChunk + 1) * kChunk);
    at = end;
  }
  EXPECT_EQ(bounds_of(asked[0]).second, 64u << 10);  // no rate is known
  EXPECT_TRUE(read_file(file_of(blobs[1]), 100 << 20) == server.bytes_of(blobs[1]));
}

TEST_F(BlobLoads, LeaveTheLineToATextThatBegins) {
  std::mutex mutex;
  std::condition_variable changed;
  int waiting = 0;
  bool text = false;
  std::vector<uint64_t> asked;  // since then: from which byte on
  const auto gated =
      server.gate([&](const http::Request& request, int n) -> std::optional<http::Response> {
        std::unique_lock lock(mutex);
        if (n < 4) {
          ++waiting;
          changed.notify_all();
          EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return text; }));
          return std::nullopt;
        }
        asked.push_back(bounds_of(std::string(*request.headers.get("Range"))).first);
        return std::nullopt;
      });
  edge::LoadOptions beside = options();
  beside.beside_texts = true;
  BlobLoad load(ShardCache(cache.path), server.origin(), {blobs[1]}, beside, interrupt);
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return waiting == 4; }));
    load.text_runs(true);
    text = true;
  }
  changed.notify_all();
  load.finish();
  // One connection, which goes on where the others stopped, the first of them first.
  EXPECT_TRUE(std::ranges::is_sorted(asked));
  EXPECT_TRUE(std::ranges::any_of(asked, [](uint64_t at) { return at % kChunk != 0; }));
  EXPECT_TRUE(read_file(file_of(blobs[1]), 100 << 20) == server.bytes_of(blobs[1]));
}

TEST_F(BlobLoads, BesideATextSayThatTheyEndBeforeABlobIsHere) {
  std::atomic<bool> go{false};
  const auto gated = server.gate([&](const http::Request&, int) -> std::optional<http::Response> {
    go.wait(false);
    return std::nullopt;
  });
  edge::LoadOptions beside = options();
  beside.beside_texts = true;
  BlobLoad load(ShardCache(cache.path), server.origin(), blobs, beside, interrupt);
  std::thread ends([&] { interrupt.raise(SIGINT); });
  EXPECT_FALSE(load.comes(blobs[2].sha256));
  ends.join();
  go = true;
  go.notify_all();
}

TEST_F(BlobLoads, EndAtOnceWhenInterrupted) {
  std::mutex mutex;
  std::condition_variable ended;
  bool over = false;
  const auto gated = server.gate([&](const http::Request&, int n) -> std::optional<http::Response> {
    if (n == 2) interrupt.raise(SIGINT);
    if (n >= 2) {
      std::unique_lock lock(mutex);
      ended.wait_for(lock, std::chrono::seconds(20), [&] { return over; });
    }
    return std::nullopt;
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(failure(blobs, "interrupted"), ErrorKind::kRemote);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  ended.notify_all();
}

}  // namespace
}  // namespace split::test
