// Blobs that are loaded beside a text: the line is the text's first.
#include <algorithm>

#include "weights/blob_server.h"

namespace split::test {
namespace {

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
}  // namespace
}  // namespace split::test
