// Sessions: their life, their one rule of positions, and what happens when memory is short.
#include <atomic>
#include <thread>

#include "run/shard/shard.h"
#include "serve/api_keys.h"
#include "support/cloud_fixture.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

std::string session_id(int n) {
  std::string id = cat(n);
  return std::string(32 - id.size(), '0') + id;
}

class CloudSessions : public testing::Test {
 protected:
  explicit CloudSessions(uint64_t kv = 16 << 20, const TestCloud::Adjust& adjust = {})
      : cloud({"rand-a"}, kv, {}, Profile::kF32, adjust) {}

  http::Reply put(int n, const Json& body) {
    return cloud.ask().send("PUT", wire::session_path(session_id(n)), body.dump());
  }
  http::Reply step(int n, int past, const std::vector<int32_t>& tokens,
                   const char* phase = "prompt", const char* rows = "all") {
    return cloud.ask().post(wire::session_forward_path(session_id(n)),
                            {{"past", past}, {"tokens", tokens}, {"phase", phase}, {"rows", rows}});
  }
  std::vector<float> hidden(const http::Reply& reply) {
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.status == 200 ? floats_of(reply.body, "hidden") : std::vector<float>();
  }
  // Returns the hidden states that enter block `to` after these tokens, by the stateless route.
  std::vector<float> fresh(const std::vector<int32_t>& tokens, int to) {
    return fresh(cloud.ask(), tokens, to);
  }
  std::vector<float> fresh(Caller& caller, const std::vector<int32_t>& tokens, int to) {
    return hidden(
        caller.post_for_tensors("/v1/models/rand-a/forward", {{"tokens", tokens}, {"to", to}}));
  }
  std::vector<float> tail(const std::vector<float>& values, size_t rows) {
    return {values.end() - static_cast<ptrdiff_t>(rows * 96), values.end()};
  }
  int64_t have(int n) {
    return json_of(cloud.ask().get(wire::session_path(session_id(n))))["have"].get<int64_t>();
  }

  const Golden golden{"rand-a"};
  const std::vector<int32_t> ids = golden.ids(3);  // 35 tokens
  TestCloud cloud;
};

TEST_F(CloudSessions, StandOnceAndOnlyWithTheSameFields) {
  const Json fields = {{"model", "rand-a"}, {"from", 0}, {"to", 2}};
  const http::Reply created = put(1, fields);
  const Json json = json_of(created, 201);
  EXPECT_EQ(json["id"], session_id(1));
  EXPECT_EQ(json["to"], 2);
  EXPECT_EQ(put(1, fields).status, 200);
  EXPECT_EQ(put(1, {{"cut", 2}}).status, 200);  // the same in short
  expect_error(put(1, {{"cut", 1}}), 409, "session_conflict", "");
  expect_error(put(1, {{"model", "rand-a"}, {"from", 1}, {"to", 2}}), 409, "session_conflict", "");
  EXPECT_EQ(have(1), 0);
  EXPECT_EQ(cloud.ask().send("DELETE", wire::session_path(session_id(1))).status, 204);
  expect_error(cloud.ask().send("DELETE", wire::session_path(session_id(1))), 404,
               "session_unknown", "");
  EXPECT_EQ(put(1, {{"cut", 1}}).status, 201);
}

TEST_F(CloudSessions, GetAnIdWhenTheyBringNone) {
  const Json one = json_of(cloud.ask().post("/v1/sessions", {{"cut", 1}}), 201);
  const Json two = json_of(cloud.ask().post("/v1/sessions", {{"cut", 1}}), 201);
  EXPECT_TRUE(is_lower_hex(one["id"].get<std::string>(), 32));
  EXPECT_NE(one["id"], two["id"]);
  EXPECT_EQ(cloud.ask()
                .post(wire::session_forward_path(one["id"].get<std::string>()),
                      {{"past", 0}, {"tokens", {1}}})
                .status,
            200);
}

TEST_F(CloudSessions, AreUnknownUntilPut) {
  expect_error(step(7, 0, {1}), 404, "session_unknown", "");
  expect_error(cloud.ask().get(wire::session_path(session_id(7))), 404, "session_unknown", "");
  for (const std::string& id :
       {std::string("1"), session_id(1) + "0", std::string(32, 'A'), std::string(32, 'g')}) {
    expect_error(cloud.ask().send("PUT", wire::session_path(id), "{\"cut\":1}"), 400,
                 "invalid_session_id", "id", id);
  }
  expect_error(put(1, {{"cut", 1}, {"model", "none"}}), 404, "model_not_found", "model");
}

TEST_F(CloudSessions, StepsInAnySlicesAreOneRun) {
  for (int to = 0; to <= 3; ++to) {
    ASSERT_EQ(put(to, {{"cut", to}}).status, 201);
    const auto whole = fresh(ids, to);
    std::vector<float> got;
    for (size_t at = 0, size = 1; at < ids.size(); at += size, size = size * 2 + 1) {
      const size_t count = std::min(size, ids.size() - at);
      const auto part = hidden(step(to, static_cast<int>(at),
                                    {ids.begin() + static_cast<ptrdiff_t>(at),
                                     ids.begin() + static_cast<ptrdiff_t>(at + count)}));
      ASSERT_EQ(part.size(), count * 96);
      got.insert(got.end(), part.begin(), part.end());
    }
    EXPECT_EQ(got, whole) << "to " << to;
    EXPECT_EQ(have(to), static_cast<int64_t>(ids.size()));
  }
}

TEST_F(CloudSessions, APastBelowHaveCutsBackAndOneAboveIsRefused) {
  ASSERT_EQ(put(1, {{"cut", 3}}).status, 201);
  ASSERT_EQ(step(1, 0, ids).status, 200);
  for (const int past : {34, 17, 16, 15, 3, 0}) {
    std::vector<int32_t> other(ids.begin(), ids.begin() + past);
    const std::vector<int32_t> added = {7, 8, 9};
    other.insert(other.end(), added.begin(), added.end());
    EXPECT_EQ(hidden(step(1, past, added)), tail(fresh(other, 3), 3)) << past;
    EXPECT_EQ(have(1), past + 3);
    const http::Reply ahead = step(1, past + 4, {1});
    expect_error(ahead, 409, "position_mismatch", "past");
    EXPECT_EQ(json_of(ahead, 409)["error"]["have"], past + 3);
    EXPECT_EQ(have(1), past + 3);  // and nothing was lost
    // Asks for the step again: a lost answer costs nothing.
    EXPECT_EQ(hidden(step(1, past, added)), tail(fresh(other, 3), 3)) << past;
    ASSERT_EQ(step(1, 0, ids).status, 200);
  }
}

// The digest's values were computed by hand: FNV-1a's, an id at a time.
TEST_F(CloudSessions, RowsOfOtherIdsAreRefusedWhereADigestSaysWhichAreMeant) {
  constexpr const char* kNone = "cbf29ce484222325";   // of no id
  constexpr const char* kFirst = "af63ba4c8601b2c6";  // of 7
  constexpr const char* kBoth = "08285e07b4e2d40a";   // of 7 and 8
  ASSERT_EQ(put(1, {{"cut", 3}}).status, 201);
  const auto ask = [&](Json body) {
    body["rows"] = "all";
    return cloud.ask().post(wire::session_forward_path(session_id(1)), body);
  };
  const std::vector<int32_t> three = {7, 8, 9}, other = {7, 9};
  EXPECT_EQ(ask({{"past", 0}, {"tokens", three}, {"digest", kNone}}).status, 200);
  const http::Reply wrong = ask({{"past", 2}, {"tokens", {9}}, {"digest", kFirst}});
  expect_error(wrong, 409, "position_mismatch", "digest");
  EXPECT_EQ(json_of(wrong, 409)["error"]["have"], 0);
  EXPECT_EQ(have(1), 3);  // and nothing was lost
  const Json fill = {{"fill", true}, {"past", 0}, {"count", 2}, {"to", 3}};
  Json named = fill;
  named["digest"] = kFirst;
  expect_error(ask(named), 409, "position_mismatch", "digest");
  named["digest"] = kBoth;
  EXPECT_EQ(ask(named).status, 200);
  EXPECT_EQ(hidden(ask({{"past", 2}, {"tokens", {9}}, {"digest", kBoth}})),
            tail(fresh(three, 3), 1));
  EXPECT_EQ(hidden(ask({{"past", 1}, {"tokens", {9}}, {"digest", kFirst}})),
            tail(fresh(other, 3), 1));
  expect_error(ask({{"past", 2}, {"tokens", {9}}, {"digest", kBoth}}), 409, "position_mismatch",
               "digest");
}

TEST_F(CloudSessions, FillTheContextAndNoMore) {
  ASSERT_EQ(put(1, {{"cut", 1}}).status, 201);
  const std::vector<int32_t> full(64, 3), more(65, 3);
  expect_error(step(1, 0, more), 400, "context_exceeded", "past");
  ASSERT_EQ(step(1, 0, full).status, 200);
  expect_error(step(1, 64, {1}), 400, "context_exceeded", "past");
  expect_error(step(1, 1 << 30, {1}), 400, "context_exceeded", "past");
  EXPECT_EQ(step(1, 63, {1}).status, 200);
}

TEST_F(CloudSessions, AnswerAsAskedAndSayHowLongItTook) {
  ASSERT_EQ(put(1, {{"cut", 2}}).status, 201);
  const http::Reply all = step(1, 0, {1, 2, 3});
  EXPECT_EQ(all.headers.get("Content-Type"), Caller::kTensors);
  EXPECT_EQ(all.headers.get("Cache-Control"), "no-store");
  const std::string timing(all.headers.get("Server-Timing").value_or(""));
  double queue = -1, compute = -1;
  ASSERT_EQ(std::sscanf(timing.c_str(), "queue;dur=%lf, compute;dur=%lf", &queue, &compute), 2)
      << timing;
  EXPECT_GE(queue, 0);
  EXPECT_GT(compute, 0);
  const auto whole = hidden(all);
  ASSERT_EQ(whole.size(), 3u * 96);
  EXPECT_EQ(hidden(step(1, 0, {1, 2, 3}, "prompt", "last")), tail(whole, 1));
  EXPECT_EQ(hidden(step(1, 2, {3}, "generate", "last")), tail(whole, 1));
  const Json json = json_of(cloud.ask().send("POST", wire::session_forward_path(session_id(1)),
                                             R"({"past":0,"tokens":[1,2,3]})", "application/json",
                                             {{"Accept", "application/json"}}));
  EXPECT_EQ(json["shape"], Json({3, 96}));
  EXPECT_EQ(json["have"], 3);
  EXPECT_EQ(flat(json["hidden"]), whole);
}

TEST_F(CloudSessions, TakeHiddenStatesWhereTheyBeginAboveTheEmbedding) {
  ASSERT_EQ(put(1, {{"cut", 1}}).status, 201);
  ASSERT_EQ(put(2, {{"from", 1}, {"to", 3}}).status, 201);
  const auto whole = fresh(ids, 3);
  const auto forward = [&](const std::string& query, std::string body) {
    return cloud.ask().post_tensors(cat(wire::session_forward_path(session_id(2)), "?", query),
                                    std::move(body));
  };
  std::vector<float> got;
  for (size_t at = 0; at < ids.size(); at += 9) {
    const auto end = std::min(ids.size(), at + 9);
    const http::Reply first =
        step(1, static_cast<int>(at),
             {ids.begin() + static_cast<ptrdiff_t>(at), ids.begin() + static_cast<ptrdiff_t>(end)});
    const auto part = hidden(forward(cat("past=", at, "&phase=generate&rows=all"), first.body));
    got.insert(got.end(), part.begin(), part.end());
  }
  EXPECT_EQ(got, whole);
  const std::vector<float> ones(96, 1.0f);
  const std::string row = wire::frame("hidden", 1, 96, ones);
  expect_error(forward("past=36", row), 409, "position_mismatch", "past");
  expect_error(forward("past=64", row), 400, "context_exceeded", "past");
  for (const char* past : {"", "past=", "past=-1", "past=1.5", "past=1e308", "past=1073741825"}) {
    expect_error(forward(past, row), 400, "invalid_request", "past", past);
  }
  expect_error(forward("past=0&phase=x", row), 400, "invalid_request", "phase");
  expect_error(forward("past=0&rows=0", row), 400, "invalid_request", "rows");
  expect_error(forward("past=0&token=0", row), 400, "invalid_request", "token");
  expect_error(forward("past=0", wire::frame("hidden", 1, 48, std::span(ones).first(48))), 400,
               "invalid_request", "hidden");
  expect_error(step(2, 0, {1}), 400, "hidden_expected", "hidden");
  expect_error(
      cloud.ask().post_tensors(cat(wire::session_forward_path(session_id(1)), "?past=0"), row), 400,
      "tokens_expected", "tokens");
  EXPECT_EQ(have(2), static_cast<int64_t>(ids.size()));  // none of these cost anything
}

// Rows as they arrive in a format.
std::vector<float> rounded_to(const char* format, const std::vector<float>& rows) {
  const auto count = static_cast<uint32_t>(rows.size() / 96);
  const std::string body =
      wire::frame("hidden", count, 96, rows, {.format = *dtype_from_format(format)});
  return wire::parse_frame(as_bytes_of(body), "hidden", 96, count).values;
}

TEST_F(CloudSessions, SendAndTakeHiddenStatesInTheFormatThatIsAskedFor) {
  ASSERT_EQ(put(1, {{"cut", 2}}).status, 201);
  ASSERT_EQ(put(2, {{"from", 1}, {"to", 3}}).status, 201);
  const std::vector<float> plain = hidden(step(1, 0, ids)), below = fresh(ids, 1);
  const std::string path = wire::session_forward_path(session_id(1));
  const auto rows_of = [&](const http::Reply& reply) {
    EXPECT_EQ(reply.status, 200) << reply.body;
    return wire::parse_frame(as_bytes_of(reply.body), "hidden", 96, 35).values;
  };
  for (const char* format : {"f16", "q8_0"}) {
    const std::vector<float> expected = rounded_to(format, plain);
    EXPECT_EQ(rows_of(cloud.ask().post(path, {{"past", 0}, {"tokens", ids}, {"wire", format}})),
              expected);
    EXPECT_EQ(rows_of(cloud.ask().post(
                  path, {{"past", 0}, {"count", 35}, {"fill", true}, {"wire", format}})),
              expected);
    EXPECT_EQ(rows_of(cloud.ask().post_for_tensors(
                  "/v1/models/rand-a/forward", {{"tokens", ids}, {"to", 2}, {"dtype", format}})),
              expected);
    // Rows that come rounded are computed as they are.
    const auto forward = [&](const std::vector<float>& rows, DType as, const std::string& wire) {
      return rows_of(
          cloud.ask().post_tensors(cat(wire::session_forward_path(session_id(2)), "?past=0", wire),
                                   wire::frame("hidden", 35, 96, rows, {.format = as})));
    };
    const std::vector<float> above = forward(rounded_to(format, below), DType::kF32, "");
    EXPECT_EQ(forward(below, *dtype_from_format(format), ""), above);
    EXPECT_EQ(forward(below, *dtype_from_format(format), cat("&wire=", format)),
              rounded_to(format, above));
  }
  expect_error(cloud.ask().post(path, {{"past", 0}, {"tokens", ids}, {"wire", "q4_0"}}), 400,
               "invalid_request", "wire");
  expect_error(cloud.ask().send("POST", path, R"({"past":0,"tokens":[1],"wire":"f16"})",
                                "application/json", {{"Accept", "application/json"}}),
               400, "invalid_request", "wire");
  const Json features = json_of(cloud.ask().get("/v1/models/rand-a"))["features"];
  EXPECT_NE(std::ranges::find(features, "wire"), features.end());
}

// The largest difference of the logits of all rows of a prompt, over the largest logit, when its
// rows travel like that at any cut.
double logits_off(const std::string& model, const char* format) {
  const Golden golden(model);
  TestCloud cloud({model});
  const ModelConfig& config = cloud.cloud.models[0]->config();
  const std::string path = cat("/v1/models/", model, "/forward");
  const auto columns = static_cast<uint32_t>(config.channels);
  double off = 0, largest = 0;
  for (int cut = 1; cut <= config.layers; ++cut) {
    const auto logits = [&](const char* as) {
      const http::Reply below = cloud.ask().post_for_tensors(
          path, {{"tokens", golden.ids(0)}, {"to", cut}, {"dtype", as}});
      const http::Reply above =
          cloud.ask().post_tensors(cat(path, "?rows=all&from=", cut), below.body);
      EXPECT_EQ(above.status, 200) << above.body;
      return floats_of(above.body, "logits");
    };
    const std::vector<float> exact = logits("f32"), rounded = logits(format);
    EXPECT_EQ(exact.size(), rounded.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      off = std::max(off, std::abs(double{exact[i]} - rounded[i]));
      largest = std::max(largest, std::abs(double{exact[i]}));
    }
  }
  EXPECT_GT(columns, 0u);
  return off / largest;
}

// The bounds are some three times what was measured.
TEST(CloudWire, LogitsOfRoundedRowsStayNear) {
  for (const char* model : {"demo", "rand-a", "rand-b", "rand-c"}) {
    const double half = logits_off(model, "f16"), blocks = logits_off(model, "q8_0");
    std::printf("%s: f16 %.2g q8_0 %.2g of the largest logit\n", model, half, blocks);
    EXPECT_LT(half, 1e-3) << model;
    EXPECT_LT(blocks, 5e-2) << model;
    EXPECT_GT(half, 0) << model;
    EXPECT_GT(blocks, half) << model;
  }
}

TEST_F(CloudSessions, StepsOfOneRunOneAtATime) {
  ASSERT_EQ(put(1, {{"cut", 3}}).status, 201);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<float>> expected;
  for (int32_t i = 0; i < 8; ++i) {
    std::vector<int32_t> prompt;
    for (int32_t t = 0; t < 20 + 5 * i; ++t) prompt.push_back((i * 37 + t * 11) % 311);
    prompts.push_back(prompt);
    expected.push_back(fresh(prompt, 3));
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      Caller caller(cloud.url());
      for (int round = 0; round < 10; ++round) {
        const http::Reply reply = caller.post(wire::session_forward_path(session_id(1)),
                                              {{"past", 0}, {"tokens", prompts[i]}});
        if (reply.status != 200 || floats_of(reply.body, "hidden") != expected[i]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Two keys, and room for six contexts: twelve of the sessions below.
class CanarySessions : public CloudSessions {
 protected:
  static constexpr int kSessions = 1000, kThreads = 8, kOpen = 6, kSteps = 3, kRows = 8;

  CanarySessions()
      : CloudSessions(6ull * 2 * 3 * 64 * 96 * 4, [](Cloud& cloud, http::Server::Options&) {
          cloud.keys = serve::ApiKeys::parse("ann:" + key_of(0) + "\nbob:" + key_of(1), "keys");
        }) {}

  // Every other session is of the other key,
  static std::string key_of(int n) { return cat("0123456789abcde", n % 2); }
  // and of four, two have the same id.
  static std::string path_of(int n) {
    return wire::session_path(session_id(n % 4 == 1 ? n - 1 : n));
  }
  static bool shares_its_id(int n) { return n % 4 < 2; }
  // Tokens of nobody else.
  static std::vector<int32_t> canary(int n) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < kSteps * kRows; ++i) tokens.push_back((n * (2 * i + 1) + i * i) % 311);
    return tokens;
  }
  // Rows of a step, whatever became of the session: like an edge, replays what was lost.
  std::vector<float> rows(Caller& caller, int n, const std::vector<int32_t>& tokens, int past) {
    for (bool replay = false;;) {
      const int from = replay ? 0 : past;
      const std::vector<int32_t> more(tokens.begin() + from, tokens.begin() + past + kRows);
      const http::Reply reply =
          caller.post(path_of(n) + "/forward", {{"past", from}, {"tokens", more}});
      if (reply.status == 200) return tail(floats_of(reply.body, "hidden"), kRows);
      if (reply.status != 404 && reply.status != 503) return {};
      caller.send("PUT", path_of(n), "{\"cut\":2}");
      replay = true;
      ++replays;
    }
  }
  // Reads, goes on with, cuts back and deletes a session of the other key: what of it succeeds.
  int trespasses(Caller& other, int n) {
    int done = 0;
    for (const char* method : {"GET", "DELETE"})
      done += other.send(method, path_of(n)).status != 404;
    for (const int past : {0, kRows}) {
      const http::Reply reply =
          other.post(path_of(n) + "/forward", {{"past", past}, {"tokens", {1}}});
      done += reply.status != 404 || reply.body.find("session_unknown") == std::string::npos;
    }
    return done;
  }
  // Some sessions of both keys at a time, a step of each after the other.
  void run(int first, int count, Caller (&callers)[2]) {
    std::vector<std::vector<float>> got(static_cast<size_t>(count));
    const auto caller = [&](int n) -> Caller& { return callers[n % 2]; };
    for (int n = first; n < first + count; ++n) caller(n).send("PUT", path_of(n), "{\"cut\":2}");
    for (int step = 0; step < kSteps; ++step) {
      for (int n = first; n < first + count; ++n) {
        const auto part = rows(caller(n), n, canary(n), step * kRows);
        auto& all = got[static_cast<size_t>(n - first)];
        all.insert(all.end(), part.begin(), part.end());
        if (!shares_its_id(n)) trespassed += trespasses(caller(n + 1), n);
      }
    }
    for (int n = first; n < first + count; ++n) {
      if (got[static_cast<size_t>(n - first)] != alone[static_cast<size_t>(n)]) ++wrong;
      const int ended = caller(n).send("DELETE", path_of(n)).status;
      if (ended != 204 && ended != 404) ++wrong;
    }
  }

  std::vector<std::vector<float>> alone;
  std::atomic<int> replays{0}, wrong{0}, trespassed{0};
};

// Sessions of many clients, interleaved, in pages that others had before: each as if alone.
TEST_F(CanarySessions, InterleavedAreEachAsAlone) {
  Caller ann(cloud.url(), key_of(0));
  for (int n = 0; n < kSessions; ++n) alone.push_back(fresh(ann, canary(n), 2));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Caller callers[2] = {Caller(cloud.url(), key_of(0)), Caller(cloud.url(), key_of(1))};
      for (int first = i * kOpen; first < kSessions; first += kThreads * kOpen) {
        run(first, std::min(kOpen, kSessions - first), callers);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(trespassed, 0);
  EXPECT_GT(replays, 0);  // pages did go from hand to hand
  EXPECT_GT(cloud.cloud.sessions.evicted(), 0u);
  EXPECT_EQ(cloud.pages().in_use(), 0u);
}

// Room for one context: 4 pages of 16.
class CrowdedSessions : public CloudSessions {
 protected:
  CrowdedSessions() : CloudSessions(2ull * 3 * 64 * 96 * 4) {}
};

TEST_F(CrowdedSessions, TheLeastRecentlyUsedGivesWay) {
  ASSERT_EQ(cloud.pages().total(), 4u);
  const std::vector<int32_t> two_pages(ids.begin(), ids.begin() + 17);
  const auto expected = fresh(two_pages, 2);
  for (const int n : {1, 2}) {
    ASSERT_EQ(put(n, {{"cut", 2}}).status, 201);
    EXPECT_EQ(hidden(step(n, 0, two_pages)), expected);
  }
  EXPECT_EQ(step(1, 17, {1}).status, 200);  // now 2 is the older one
  ASSERT_EQ(put(3, {{"cut", 2}}).status, 201);
  EXPECT_EQ(hidden(step(3, 0, two_pages)), expected);
  EXPECT_EQ(cloud.cloud.sessions.evicted(), 1u);
  expect_error(step(2, 17, {1}), 404, "session_unknown", "");
  EXPECT_EQ(have(1), 18);
  EXPECT_EQ(step(1, 18, {1}).status, 200);
  // Replay works, at somebody else's cost.
  ASSERT_EQ(put(2, {{"cut", 2}}).status, 201);
  EXPECT_EQ(hidden(step(2, 0, two_pages)), expected);
  EXPECT_EQ(cloud.cloud.sessions.evicted(), 2u);
  // A stateless request makes room for itself too, and gives it back.
  EXPECT_EQ(fresh(std::vector<int32_t>(64, 1), 2).size(), 64u * 96);
  EXPECT_EQ(cloud.pages().in_use(), 0u);
  EXPECT_EQ(cloud.cloud.sessions.size(), 0u);
}

TEST_F(CrowdedSessions, BusyIs503WithRetryAfter) {
  ASSERT_EQ(put(1, {{"cut", 2}}).status, 201);
  ASSERT_EQ(step(1, 0, {1, 2}).status, 200);
  const SequenceId all = cloud.pages().open();  // an answer in flight that has the rest
  ASSERT_TRUE(cloud.pages().reserve(all, 48));
  const std::vector<int32_t> two_pages(ids.begin(), ids.begin() + 17);
  const http::Reply busy = step(1, 0, two_pages);
  expect_error(busy, 503, "busy", "");
  EXPECT_TRUE(busy.headers.get("Retry-After").has_value());
  ASSERT_TRUE(cloud.pages().reserve(all, 64));
  expect_error(cloud.ask().post("/v1/models/rand-a/forward", {{"tokens", {1}}}), 503, "busy", "");
  expect_error(cloud.ask().post("/v1/completions", {{"prompt", {1}}, {"max_tokens", 1}}), 503,
               "busy", "");
  EXPECT_EQ(cloud.ask().get("/livez").status, 200);
  cloud.pages().close(all);
  EXPECT_EQ(hidden(step(1, 0, two_pages)), fresh(two_pages, 2));
}

}  // namespace
}  // namespace split::cloud
