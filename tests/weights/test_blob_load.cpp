// Blobs from a server and a cache into the hands of who loads them: parallel, chunk by chunk, and
// right whatever happened to the disk, the wire or the server.
#include <algorithm>
#include <future>
#include <thread>

#include "weights/blob_server.h"

namespace split::test {
namespace {

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
  // Each of the four connections may ask before the first answer tells; one goes on. On a busy
  // machine another may give its chunk back behind that one, which takes a further round.
  uint64_t downloaded = load(cache.path).downloaded;
  for (int more = 0; more < 5 && downloaded > 4 * total; ++more) {
    const TemporaryFolder other;
    downloaded = load(other.path).downloaded;
  }
  EXPECT_LE(downloaded, 4 * total);
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

TEST_F(BlobLoads, EndAtOnceWhenInterrupted) {
  std::mutex mutex;
  std::condition_variable ended;
  bool over = false;
  const auto gated = server.gate([&](const http::Request&, int n) -> std::optional<http::Response> {
    if (n == 2) interrupt.raise(SIGINT);
    if (n >= 2) {
      std::unique_lock lock(mutex);
      ended.wait_for(lock, std::chrono::minutes(2), [&] { return over; });
    }
    return std::nullopt;
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(failure(blobs, "interrupted"), ErrorKind::kRemote);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1));
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  ended.notify_all();
}

}  // namespace
}  // namespace split::test
