// Prompts that begin alike are computed once, for the texts of one key and salt.
#include <latch>
#include <thread>

#include "http/sse.h"
#include "support/cloud_fixture.h"
#include "support/prometheus_text.h"

namespace split::cloud {
namespace {

const std::string kAnn = "ann-0123456789abcdef", kBob = "bob-0123456789abcdef";

// A cloud with a cache, whose steps count the rows of prompts.
struct Cached {
  explicit Cached(const std::string& model = "rand-a", const std::string& keys = {},
                  uint64_t kv = 64 << 20)
      : cloud({model}, kv, {}, Profile::kF32, [&](Cloud& made, auto&) {
          if (!keys.empty()) made.keys = serve::ApiKeys::parse(keys, "keys");
          Batcher& batcher = made.models[0]->batcher();
          batcher.keep_prefixes();
          batcher.on_step([this](const StepSeen& seen) { rows += seen.prompt_rows; });
        }) {}
  Json complete(Json body, Caller* caller = nullptr) {
    body.update({{"max_tokens", 2}, {"seed", 1}, {"return_token_ids", true}});
    return json_of((caller != nullptr ? *caller : cloud.ask()).post("/v1/completions", body));
  }
  uint64_t computed() { return rows.exchange(0); }

  std::atomic<uint64_t> rows = 0;
  TestCloud cloud;
};

size_t cached(const Json& answer) {
  return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<size_t>();
}
Json ids_of(const Json& answer) { return answer["choices"][0]["token_ids"]; }

std::vector<int32_t> prompt_of(size_t count, int32_t first = 7) {
  std::vector<int32_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = (first + 3 * static_cast<int32_t>(i)) % 60;
  return ids;
}

TEST(CloudCache, UsageTellsWhatWasNotComputed) {
  Cached all;
  const std::vector<int32_t> prompt = prompt_of(50);
  const Json cold = all.complete({{"prompt", prompt}});
  EXPECT_EQ(cached(cold), 0u);
  EXPECT_EQ(all.computed(), 50u);
  const Json warm = all.complete({{"prompt", prompt}});
  EXPECT_EQ(cached(warm), 48u);
  EXPECT_EQ(all.computed(), 2u);
  EXPECT_EQ(ids_of(warm), ids_of(cold));
  EXPECT_EQ(warm["usage"]["prompt_tokens"], 50);
  EXPECT_EQ(warm["usage"]["total_tokens"], 52);

  const auto read = test::read_prometheus(all.cloud.ask().get("/metrics").body);
  EXPECT_EQ(read.problems, std::vector<std::string>());
  const test::PrometheusLabels model = {{"model", "rand-a"}};
  EXPECT_EQ(read.value("split_prompt_cached_tokens_total", model), 48);
  EXPECT_EQ(read.value("split_prompt_cache_evicted_pages_total", model), 0);
  EXPECT_EQ(read.value("split_kv_bytes", model), 0);  // nobody's load
  EXPECT_EQ(read.value("split_prompt_cache_bytes", model),
            3 * all.cloud.cloud.models[0]->batcher().shard().page_bytes());
}

// A page that a session has too counts once, as the session's: together they are never above the
// budget.
TEST(CloudCache, BytesAreThoseOfPagesThatItAloneHolds) {
  Cached all;
  const std::string id(32, 'a');
  const auto bytes = [&](const char* name) {
    const auto read = test::read_prometheus(all.cloud.ask().get("/metrics").body);
    return read.value(name, {{"model", "rand-a"}}) /
           static_cast<double>(all.cloud.cloud.models[0]->batcher().shard().page_bytes());
  };
  ASSERT_EQ(all.cloud.ask().send("PUT", "/v1/sessions/" + id, R"({"cut":3})").status, 201);
  ASSERT_EQ(all.cloud.ask()
                .post("/v1/sessions/" + id + "/forward",
                      {{"past", 0}, {"tokens", prompt_of(50)}, {"rows", "none"}})
                .status,
            204);
  EXPECT_EQ(bytes("split_kv_bytes"), 4);
  EXPECT_EQ(bytes("split_prompt_cache_bytes"), 0);
  ASSERT_EQ(all.cloud.ask().send("DELETE", "/v1/sessions/" + id).status, 204);
  EXPECT_EQ(bytes("split_kv_bytes"), 0);
  EXPECT_EQ(bytes("split_prompt_cache_bytes"), 3);
}

TEST(CloudCache, AStreamTellsIt) {
  Cached all;
  all.complete({{"prompt", prompt_of(50)}});
  const http::Reply reply = all.cloud.ask().post(
      "/v1/completions",
      {{"prompt", prompt_of(50)},
       {"max_tokens", 2},
       {"stream", true},
       {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}});
  size_t told = 0;
  http::SseParser parser([&](std::string_view data) {
    if (data == "[DONE]") return false;
    ++told;
    EXPECT_EQ(cached(Json::parse(data)), 48u) << data;
    return true;
  });
  parser.feed(reply.body);
  EXPECT_GE(told, 2u);
}

TEST(CloudCache, ARequestMayDoWithout) {
  Cached all;
  const std::vector<int32_t> prompt = prompt_of(50);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(cached(all.complete({{"prompt", prompt}, {"cache_prompt", false}})), 0u);
    EXPECT_EQ(all.computed(), 50u);
  }
  EXPECT_EQ(cached(all.complete({{"prompt", prompt}})), 0u);
  EXPECT_EQ(cached(all.complete({{"prompt", prompt}, {"cache_salt", "s"}})), 0u);
  EXPECT_EQ(cached(all.complete({{"prompt", prompt}, {"cache_salt", "s"}})), 48u);
  EXPECT_EQ(cached(all.complete({{"prompt", prompt}, {"cache_salt", "t"}})), 0u);
  for (const Json& wrong : {Json(""), Json(std::string(129, 's')), Json(7)}) {
    expect_error(
        all.cloud.ask().post("/v1/completions", {{"prompt", prompt}, {"cache_salt", wrong}}), 400,
        "invalid_request", "cache_salt");
  }
  // The log-probabilities of a prompt need its rows.
  EXPECT_EQ(cached(all.complete({{"prompt", prompt}, {"echo", true}, {"logprobs", 1}})), 0u);
}

TEST(CloudCache, SeveralChoicesComputeOnePrompt) {
  const TemporaryDir dir;
  write_flat_model(dir.path, 64, 64, 256);
  Cached all(dir.path.string());
  const std::vector<int32_t> prompt = prompt_of(200);
  const Json four = all.complete({{"prompt", prompt}, {"n", 4}});
  EXPECT_EQ(cached(four), 0u);
  EXPECT_LE(all.computed(), 200u + 3 * kPageTokens);
  EXPECT_EQ(cached(all.complete({{"prompt", prompt}, {"n", 4}})), 192u);
}

TEST(CloudCache, KeysAreApartAndPayForWhatIsComputed) {
  Cached all("rand-a", "ann:" + kAnn + "\nbob:" + kBob + " rows_per_s=60");
  Caller ann(all.cloud.url(), kAnn), bob(all.cloud.url(), kBob);
  const std::vector<int32_t> prompt = prompt_of(50);
  EXPECT_EQ(cached(all.complete({{"prompt", prompt}}, &ann)), 0u);
  EXPECT_EQ(cached(all.complete({{"prompt", prompt}}, &ann)), 48u);
  EXPECT_EQ(cached(all.complete({{"prompt", prompt}}, &bob)), 0u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cached(all.complete({{"prompt", prompt}}, &bob)), 48u);
  // A key that is gone takes its rows along.
  all.cloud.cloud.renew_keys(serve::ApiKeys::parse("bob:" + kBob, "keys"));
  all.cloud.cloud.renew_keys(serve::ApiKeys::parse("ann:" + kAnn + "\nbob:" + kBob, "keys"));
  EXPECT_EQ(cached(all.complete({{"prompt", prompt}}, &ann)), 0u);
  EXPECT_EQ(cached(all.complete({{"prompt", prompt}}, &bob)), 48u);
}

TEST(CloudCache, ThirtyTwoUsersOfOneSystemPromptComputeItOnce) {
  constexpr size_t kUsers = 32, kSystem = 4064, kOwn = 20;  // of 4,096 positions
  const TemporaryDir dir;
  write_flat_model(dir.path, 64, 64, 4096);
  for (const bool at_once : {false, true}) {
    Cached all(dir.path.string());
    std::latch together(kUsers);
    const auto ask = [&](size_t user, bool waits) {
      std::vector<int32_t> prompt = prompt_of(kSystem);
      const std::vector<int32_t> own = prompt_of(kOwn, static_cast<int32_t>(user));
      prompt.insert(prompt.end(), own.begin(), own.end());
      Caller caller(all.cloud.url());
      if (waits) together.arrive_and_wait();
      all.complete({{"prompt", prompt}}, &caller);
    };
    std::vector<std::jthread> threads;
    for (size_t user = 0; user < kUsers; ++user) {
      if (at_once) {
        threads.emplace_back(ask, user, true);
      } else {
        ask(user, false);
      }
    }
    threads.clear();
    EXPECT_LE(static_cast<double>(all.computed()), 1.02 * (kSystem + kUsers * 2 * kPageTokens))
        << at_once;
  }
}

TEST(CloudCache, AFullCacheMakesRoomBeforeSessionsDo) {
  const uint64_t page = 16 * 2 * 3 * 96 * sizeof(float);
  Cached all("rand-a", {}, 12 * page);
  const std::string session = "/v1/sessions/" + std::string(32, 'a');
  EXPECT_EQ(all.cloud.ask().send("PUT", session, R"({"cut":2})").status, 201);
  EXPECT_EQ(
      all.cloud.ask().post(session + "/forward", {{"past", 0}, {"tokens", prompt_of(40)}}).status,
      200);
  for (int32_t i = 0; i < 10; ++i) {
    all.complete({{"prompt", prompt_of(62, i)}});  // with its answer a whole context
    const KvPages& pages = all.cloud.pages();
    EXPECT_LE(pages.in_use() + pages.spare(), pages.total());
  }
  EXPECT_GT(all.cloud.cloud.models[0]->batcher().prefixes()->evicted(), 0u);
  EXPECT_EQ(all.cloud.cloud.sessions.evicted(), 0u);
  EXPECT_EQ(all.cloud.ask().get(session).status, 200);
}

// Sessions of the same rows on one cloud: those that share them, and one that computes all.
struct Sessions : Cached {
  using Cached::Cached;
  static std::string path(char name) { return "/v1/sessions/" + std::string(32, name); }
  void open(char name, bool shares = true, int to = 3) {
    const Json body = {{"to", to}, {"cache_prompt", shares}};
    EXPECT_EQ(cloud.ask().send("PUT", path(name), body.dump()).status, 201);
  }
  http::Reply step(char name, uint32_t past, const std::vector<int32_t>& tokens, Json more = {}) {
    Json body = {{"past", past}, {"tokens", tokens}, {"rows", "last"}};
    if (!more.is_null()) body.update(more);
    return cloud.ask().post_for_tensors(path(name) + "/forward", body);
  }
  // Both of them answer the same bytes.
  void expect_same(uint32_t past, const std::vector<int32_t>& tokens, const Json& more = {}) {
    const http::Reply a = step('a', past, tokens, more), b = step('b', past, tokens, more);
    EXPECT_EQ(a.status, 200) << a.body;
    EXPECT_TRUE(a.body == b.body) << past << " " << tokens.size();
  }
  KvPages& pages() { return cloud.pages(); }
};

TEST(CloudCache, SessionsTakeRowsAndLetGoOfPagesThatTheyWriteInto) {
  Sessions all;
  all.open('c');
  all.step('c', 0, prompt_of(50));
  all.open('a');
  all.open('b', false);
  all.computed();
  const http::Reply first = all.step('a', 0, prompt_of(50));
  EXPECT_EQ(first.headers.get(wire::kCachedHeader), "48");
  EXPECT_EQ(all.computed(), 2u);
  const http::Reply whole = all.step('b', 0, prompt_of(50));
  EXPECT_FALSE(whole.headers.get(wire::kCachedHeader).has_value());
  EXPECT_TRUE(first.body == whole.body);
  all.expect_same(50, {1, 2}, {{"phase", "generate"}});
  all.expect_same(40, {3, 4, 5}, {{"rows", "all"}});  // inside of a page that others read
  all.expect_same(16, {6}, {{"phase", "generate"}});
  all.expect_same(7, {8, 9}, {{"rows", "all"}});
  all.computed();
  all.expect_same(0, prompt_of(50), {{"rows", "all"}});  // which none can be taken of
  EXPECT_EQ(all.computed(), 100u);
  // In pieces, as a long prompt comes.
  const std::vector<int32_t> prompt = prompt_of(50);
  all.open('d');
  EXPECT_EQ(all.step('d', 0, {prompt.begin(), prompt.begin() + 32}, {{"rows", "none"}}).status,
            204);
  EXPECT_EQ(all.computed(), 0u);
  const http::Reply rest = all.step('d', 32, {prompt.begin() + 32, prompt.end()});
  EXPECT_TRUE(rest.body == whole.body);
  EXPECT_EQ(all.computed(), 2u);
}

// Fills `rows` rows from `past` on up to a deeper point, in pages that another session reads.
void expect_fills(const std::string& model, int shallow, int deep, uint32_t rows, uint32_t past) {
  SCOPED_TRACE(cat(model, " ", rows, " from ", past));
  Sessions all(model);
  const Json to_shallow = {{"to", shallow}};
  const std::vector<int32_t> prompt = prompt_of(rows);
  all.open('a', true, deep);
  all.open('b', false, deep);
  all.expect_same(0, prompt, to_shallow);
  all.open('c', true, shallow);
  EXPECT_EQ(all.step('c', 0, prompt, to_shallow).status, 200);
  all.open('e', true, shallow);
  const auto took = all.step('e', 0, prompt, to_shallow).headers.get(wire::kCachedHeader);
  EXPECT_GE(parse_u64(took.value_or("0"), 0, rows).value() + (deep == 3 ? 2 : 23), rows);
  const auto fill = [&](char name, uint32_t from, uint32_t count, int to) {
    return all.cloud.ask().post_for_tensors(
        all.path(name) + "/forward",
        {{"past", from}, {"count", count}, {"fill", true}, {"to", to}, {"rows", "all"}});
  };
  // Rows that it has: nothing of its own is written.
  EXPECT_TRUE(fill('e', past, rows - past, shallow).body ==
              fill('c', past, rows - past, shallow).body);
  if (past > 0) {
    EXPECT_EQ(fill('a', 0, past, deep).body, fill('b', 0, past, deep).body);
  }
  // Rows that its deeper blocks lack.
  const http::Reply a = fill('a', past, rows - past, deep), b = fill('b', past, rows - past, deep);
  ASSERT_EQ(a.status, 200) << a.body;
  EXPECT_TRUE(a.body == b.body) << past;
  all.expect_same(rows, {1, 2}, {{"phase", "generate"}});
  all.expect_same(rows - 17, {1, 2}, {{"phase", "generate"}});
  EXPECT_EQ(all.step('c', rows, {1}, to_shallow).body, all.step('e', rows, {1}, to_shallow).body);
  if (deep == 3) return;
  const KvPages& pages = all.pages();
  for (const char name : {'a', 'b', 'c', 'e'}) all.cloud.ask().send("DELETE", all.path(name));
  EXPECT_EQ(pages.states_in_use(), 0u);
}

TEST(CloudCache, AFillOfSharedPagesChangesNothingForWhoReadsThem) {
  for (const uint32_t past : {0u, 5u, 16u}) {
    expect_fills("rand-a", 1, 3, 50, past);
    if (HasFailure()) return;
  }
}

// Blocks that keep a state: forks begin at snapshots, and leave their states.
TEST(CloudCache, AFillOfSharedPagesGivesStatesToo) {
  for (const std::string model : {"models/qwen35", "models/qwen35-text"}) {
    for (const int shallow : {1, 3, 4}) {
      for (const uint32_t past : {0u, 21u, 112u}) {
        expect_fills(model, shallow, 5, 100 + 40 * static_cast<uint32_t>(shallow), past);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

TEST(CloudCache, SessionsWithStatesTakeRowsAndGoBack) {
  Sessions all("models/qwen35");
  const std::vector<int32_t> prompt = prompt_of(150);
  all.open('c', true, 5);
  all.step('c', 0, prompt);
  all.open('a', true, 5);
  all.open('b', false, 5);
  const http::Reply first = all.step('a', 0, prompt), whole = all.step('b', 0, prompt);
  EXPECT_EQ(first.headers.get(wire::kCachedHeader), "128");
  EXPECT_TRUE(first.body == whole.body);
  all.expect_same(150, {1, 2}, {{"phase", "generate"}});
  all.computed();
  all.expect_same(130, {3, 4, 5}, {{"rows", "all"}});  // from the snapshot at 128, and from 0
  EXPECT_EQ(all.computed(), 5u + 133u);
  all.expect_same(127, {6}, {{"phase", "generate"}});
  all.expect_same(7, {8, 9}, {{"rows", "all"}});
  // A text that parts from the first leaves a snapshot there, and the next one takes it.
  const auto parted = [&](char name, int32_t id) {
    std::vector<int32_t> other = prompt;
    std::fill(other.begin() + 77, other.end(), id);
    all.open(name, true, 5);
    return all.step(name, 0, other).headers.get(wire::kCachedHeader).value_or("0");
  };
  EXPECT_EQ(parted('d', 5), "0");
  EXPECT_EQ(parted('e', 6), "64");
  // As an edge sends a prompt, in pieces: the snapshot is left where it ends.
  const std::vector<int32_t> pieces = prompt_of(300, 9);
  const auto send = [&](char name) {
    all.open(name, true, 5);
    EXPECT_EQ(all.step(name, 0, {pieces.begin(), pieces.begin() + 256}).status, 200);
    const uint32_t before = all.pages().snapshots();
    all.step(name, 256, {pieces.begin() + 256, pieces.end()});
    return all.pages().snapshots() - before;
  };
  const uint32_t before = all.pages().snapshots();
  EXPECT_EQ(send('f'), 1u);
  EXPECT_EQ(all.pages().snapshots(), before + 1);
  // One that ends with a piece leaves it before the answer's first row.
  const std::vector<int32_t> whole_piece = prompt_of(256, 11);
  all.open('9', true, 5);
  all.step('9', 0, whole_piece);
  EXPECT_EQ(all.pages().snapshots(), before + 1);
  all.step('9', 256, {1}, {{"phase", "generate"}});
  EXPECT_EQ(all.pages().snapshots(), before + 2);
  all.open('8', true, 5);
  EXPECT_EQ(all.step('8', 0, whole_piece).headers.get(wire::kCachedHeader), "240");
}

TEST(CloudCache, ChoicesOfAModelWithStatesComputeOnePrompt) {
  Cached all("models/qwen35");
  const std::vector<int32_t> prompt = prompt_of(200);
  EXPECT_EQ(cached(all.complete({{"prompt", prompt}, {"n", 4}})), 0u);
  EXPECT_LE(all.computed(), 200u + 3 * 24);
  EXPECT_GE(cached(all.complete({{"prompt", prompt}, {"n", 4}})), 176u);
}

TEST(CloudCache, TextsOnSessionsTakeRowsToo) {
  Sessions all;
  const std::vector<int32_t> prompt = prompt_of(50);
  const auto complete = [&](char name, bool shares) {
    return json_of(all.cloud.ask().post(
        "/v1/models/rand-a/sessions/" + std::string(32, name) + "/completions",
        {{"prompt", prompt}, {"max_tokens", 8}, {"seed", 1}, {"cache_prompt", shares}}));
  };
  const Json whole = complete('a', false);
  EXPECT_EQ(cached(whole), 0u);
  EXPECT_EQ(cached(complete('b', true)), 0u);
  EXPECT_EQ(all.cloud.ask().send("DELETE", all.path('b')).status, 204);
  all.computed();
  const Json warm = complete('c', true);
  EXPECT_EQ(cached(warm), 48u);
  EXPECT_EQ(all.computed(), 2u);
  EXPECT_EQ(ids_of(warm), ids_of(whole));
}

}  // namespace
}  // namespace split::cloud
