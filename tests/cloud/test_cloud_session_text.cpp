// POST /v1/models/{id}/sessions/{sid}/completions: texts that leave their session behind, and go on
// with it.
#include <atomic>
#include <thread>

#include "http/sse.h"
#include "serve/api_keys.h"
#include "support/cloud_fixture.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

class SessionTexts : public testing::Test {
 protected:
  explicit SessionTexts(Profile profile = Profile::kF32, const TestCloud::Adjust& adjust = {})
      : cloud({"demo"}, 64 << 20, {}, profile, adjust) {}

  static std::string id(int n) { return std::string(31, '0') + static_cast<char>('0' + n); }
  static std::string path(int n) { return "/v1/models/demo/sessions/" + id(n) + "/completions"; }
  http::Reply complete(int n, Json body) { return cloud.ask().post(path(n), body); }
  // A text's choice, of the route without a session or on one.
  Json choice(const std::string& at, const Json& body) {
    return json_of(cloud.ask().post(at, body))["choices"][0];
  }
  // The data of a stream's events; their text and ids together.
  struct Told {
    std::string text, finish;
    std::vector<int32_t> prompt, ids;
    std::string error;
  };
  Told stream(int n, Json body) {
    body["stream"] = true;
    return told(complete(n, body).body);
  }
  static Told told(const std::string& body) {
    Told told;
    bool first = true;
    http::SseParser parser([&](std::string_view data) {
      if (data == "[DONE]") return false;
      const Json json = Json::parse(data);
      if (json.contains("error")) {
        told.error = json["error"]["code"];
        return false;
      }
      const Json& choice = json["choices"][0];
      EXPECT_EQ(choice.contains("prompt_token_ids"), first);
      if (first) told.prompt = choice["prompt_token_ids"].get<std::vector<int32_t>>();
      first = false;
      told.text += choice["text"];
      for (const Json& token : choice["token_ids"]) told.ids.push_back(token);
      if (!choice["finish_reason"].is_null()) told.finish = choice["finish_reason"];
      return true;
    });
    parser.feed(body);
    EXPECT_EQ(told.error, "");
    return told;
  }
  Json describe(int n) { return json_of(cloud.ask().get(wire::session_path(id(n)))); }
  static std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b,
                                     size_t count) {
    a.insert(a.end(), b.begin(), b.begin() + static_cast<ptrdiff_t>(count));
    return a;
  }

  const Json asked = {{"prompt", "Once upon a time"},
                      {"max_tokens", 24},
                      {"seed", 3},
                      {"temperature", 0.8},
                      {"ignore_eos", true}};
  TestCloud cloud;
};

TEST_F(SessionTexts, AreThoseWithoutASession) {
  Json plain = asked;
  plain["return_token_ids"] = true;
  const Json want = choice("/v1/completions", plain);
  const Told told = stream(1, asked);
  EXPECT_EQ(want["text"], told.text);
  EXPECT_EQ(told.ids, want["token_ids"].get<std::vector<int32_t>>());
  EXPECT_EQ(told.prompt, want["prompt_token_ids"].get<std::vector<int32_t>>());
  EXPECT_EQ(told.finish, "length");
  const Json whole = choice(path(2), asked);
  EXPECT_EQ(whole["text"], want["text"]);
  EXPECT_EQ(whole["token_ids"], want["token_ids"]);
  // The session has all rows but the last token's, in all blocks, and its tokens.
  const size_t rows = told.prompt.size() + told.ids.size() - 1;
  for (const int n : {1, 2}) {
    EXPECT_EQ(describe(n)["have"], rows);
    EXPECT_EQ(describe(n)["to"], 8);
  }
  const Json next = {{"past", rows}, {"tokens", {told.ids.back()}}, {"to", 3}};
  const http::Reply step = cloud.ask().post(wire::session_forward_path(id(1)), next);
  std::vector<int32_t> all = joined(told.prompt, told.ids, told.ids.size());
  const http::Reply fresh = cloud.ask().post_for_tensors(
      "/v1/models/demo/forward", {{"tokens", all}, {"to", 3}, {"rows", "last"}});
  EXPECT_EQ(floats_of(step.body, "hidden"), floats_of(fresh.body, "hidden"));
  for (const int n : {1, 2}) cloud.ask().send("DELETE", wire::session_path(id(n)));
  EXPECT_EQ(cloud.pages().in_use(), 0u);
}

TEST_F(SessionTexts, ScoreTheirPrompts) {
  Json scored = asked;
  scored.update({{"echo", true}, {"logprobs", 2}, {"max_tokens", 3}, {"return_token_ids", true}});
  const Json want = choice("/v1/completions", scored), got = choice(path(1), scored);
  EXPECT_EQ(got["text"], want["text"]);
  EXPECT_EQ(got["logprobs"], want["logprobs"]);
  EXPECT_EQ(choice(path(1), scored)["logprobs"], want["logprobs"]);  // whatever is there
}

// Rows that the session has already are not computed again.
TEST_F(SessionTexts, GoOnFromRowsThatAreThere) {
  const Told told = stream(1, asked);
  const auto layer_rows = [&](int n) { return describe(n)["layer_rows"].get<uint64_t>(); };
  const uint64_t a_row = cloud.cloud.models[0]->batcher().shard().layer_rows({}, 1, 1);
  Json more = asked;
  more.update(
      {{"prompt", joined(told.prompt, told.ids, 10)}, {"generated", 10}, {"max_tokens", 14}});
  const uint64_t before = layer_rows(1);
  const Told rest = stream(1, more);
  EXPECT_EQ(joined({}, rest.ids, rest.ids.size()),
            std::vector<int32_t>(told.ids.begin() + 10, told.ids.end()));
  EXPECT_TRUE(told.text.ends_with(rest.text));
  EXPECT_EQ(layer_rows(1) - before, 14 * a_row);

  // A step up to a cut and a fill: as an edge comes back to the stream.
  ASSERT_EQ(cloud.ask().send("PUT", wire::session_path(id(2)), R"({"cut":8})").status, 201);
  const auto forward = [&](Json body) {
    return cloud.ask().post(wire::session_forward_path(id(2)), body).status;
  };
  ASSERT_EQ(forward({{"past", 0}, {"tokens", told.prompt}, {"to", 2}, {"rows", "none"}}), 204);
  const size_t rows = told.prompt.size() + 9;
  ASSERT_EQ(forward({{"past", told.prompt.size()},
                     {"tokens", joined({}, told.ids, 9)},
                     {"phase", "generate"},
                     {"to", 2},
                     {"rows", "none"}}),
            204);
  ASSERT_EQ(forward({{"fill", true}, {"past", 0}, {"count", rows}, {"rows", "none"}}), 204);
  const uint64_t filled = layer_rows(2);
  EXPECT_EQ(stream(2, more).ids, rest.ids);
  EXPECT_EQ(layer_rows(2) - filled, 14 * a_row);
}

TEST_F(SessionTexts, GoOnWhateverTheSessionHas) {
  const Told told = stream(1, asked);
  Json more = asked;
  more.update(
      {{"prompt", joined(told.prompt, told.ids, 10)}, {"generated", 10}, {"max_tokens", 14}});
  const std::vector<int32_t> rest(told.ids.begin() + 10, told.ids.end());
  EXPECT_EQ(stream(2, more).ids, rest);  // nothing
  cloud.pages().forget();                // a device was lost
  EXPECT_EQ(stream(2, more).ids, rest);
  Json other = asked;
  other["prompt"] = "Once upon another";
  stream(2, other);
  EXPECT_EQ(stream(2, more).ids, rest);  // another text's
  const Json step = {{"past", 3}, {"tokens", {1, 2, 3}}, {"to", 1}};
  ASSERT_EQ(cloud.ask().post(wire::session_forward_path(id(2)), step).status, 200);
  EXPECT_EQ(stream(2, more).ids, rest);  // the first rows alone
}

// Generated rows are those of a step that generates: where phases differ, so would the text.
class SessionTextsInBlocks : public SessionTexts {
 protected:
  SessionTextsInBlocks() : SessionTexts(Profile::kQ8_0) {}
};

TEST_F(SessionTextsInBlocks, GoOnInThePhaseOfEachRow) {
  Json scored = asked;
  scored.update({{"logprobs", 1}, {"max_tokens", 20}});
  const Json want = choice(path(1), scored);
  const auto prompt = want["prompt_token_ids"].get<std::vector<int32_t>>();
  const auto ids = want["token_ids"].get<std::vector<int32_t>>();
  scored.update({{"prompt", joined(prompt, ids, 12)}, {"generated", 12}, {"max_tokens", 8}});
  for (const int n : {1, 2}) {
    const Json got = choice(path(n), scored);
    const Json& expected = want["logprobs"]["token_logprobs"];
    EXPECT_EQ(got["logprobs"]["token_logprobs"],
              Json(std::vector<double>(expected.begin() + 12, expected.end())));
  }
}

TEST_F(SessionTexts, AreRefusedBeforeASessionIsOpened) {
  const auto with = [&](const char* field, const Json& value) {
    Json body = asked;
    body[field] = value;
    return body;
  };
  const std::pair<const char*, Json> wrong[] = {{"n", 2},
                                                {"prompt", Json({"a", "b"})},
                                                {"generated", -1},
                                                {"generated", "1"},
                                                {"generated", 99},
                                                {"generated", 0.5},
                                                {"model", "rand-a"},
                                                {"max_tokens", -1},
                                                {"suffix", "a"},
                                                {"unknown", 1},
                                                {"prompt", Json({8192})}};
  for (const auto& [field, value] : wrong) {
    expect_error(complete(1, with(field, value)), 400, "invalid_request", field, value.dump());
    expect_error(cloud.ask().get(wire::session_path(id(1))), 404, "session_unknown", "");
  }
  Json echoed = with("echo", true);
  echoed["generated"] = 1;
  expect_error(complete(1, echoed), 400, "invalid_request", "echo");
  expect_error(cloud.ask().post("/v1/models/demo/sessions/0/completions", asked), 400,
               "invalid_session_id", "id");
  expect_error(cloud.ask().post("/v1/models/none/sessions/" + id(1) + "/completions", asked), 404,
               "model_not_found", "model");
  EXPECT_EQ(cloud.cloud.sessions.size(), 0u);
  // One that does not reach the last block cannot have a text.
  ASSERT_EQ(cloud.ask().send("PUT", wire::session_path(id(1)), R"({"cut":4})").status, 201);
  expect_error(complete(1, asked), 409, "session_conflict", "");
}

// Rows that were computed stay, and the client's next step says how many of them are wanted.
TEST_F(SessionTexts, ThatNobodyReadsLeaveTheirRows) {
  http::Peer peer(cloud.port());
  Json endless = asked;
  endless.update({{"max_tokens", 500}, {"stream", true}});
  const std::string body = endless.dump();
  peer.say(cat("POST ", path(1), " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
               "\r\n\r\n", body));
  EXPECT_NE(peer.until("data: {").find("data: {"), std::string::npos);
  peer.close();
  Batcher& batcher = cloud.cloud.models[0]->batcher();
  const Told told = stream(2, asked);
  const auto forward = [&](int n, const Json& step) {
    return floats_of(cloud.ask().post(wire::session_forward_path(id(n)), step).body, "hidden");
  };
  const Json step = {
      {"past", told.prompt.size()}, {"tokens", {told.ids[0], 7}}, {"phase", "generate"}};
  EXPECT_EQ(forward(1, step), forward(2, step));
  for (const int n : {1, 2}) {
    EXPECT_EQ(cloud.ask().send("DELETE", wire::session_path(id(n))).status, 204);
  }
  EXPECT_EQ(batcher.pages().in_use(), 0u);
}

TEST_F(SessionTexts, HaveFillsBetweenTheirSteps) {
  const Told want = stream(2, asked);
  std::atomic<bool> ended = false;
  Told got;
  std::thread reader([&] {
    Caller caller(cloud.url());
    Json body = asked;
    body["stream"] = true;
    got = told(caller.send("POST", path(1), body.dump()).body);
    ended = true;
  });
  size_t fills = 0;
  while (!ended) {
    const http::Reply at = cloud.ask().get(wire::session_path(id(1)));
    const size_t have = at.status == 200 ? json_of(at)["have"].get<size_t>() : 0;
    if (have == 0) continue;
    const http::Reply fill =
        cloud.ask().post(wire::session_forward_path(id(1)),
                         {{"fill", true}, {"past", 0}, {"count", have}, {"to", 5}});
    EXPECT_EQ(fill.status, 200) << fill.body;
    ++fills;
  }
  reader.join();
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_GT(fills, 0u);
}

class SessionTextsOfKeys : public SessionTexts {
 protected:
  static constexpr char kAnn[] = "0123456789abcdef", kBob[] = "fedcba9876543210";
  SessionTextsOfKeys()
      : SessionTexts(Profile::kF32, [](Cloud& cloud, http::Server::Options&) {
          cloud.keys = serve::ApiKeys::parse(
              cat("ann:", kAnn, " sessions=1\nbob:", kBob, " rows_per_s=1"), "keys");
        }) {}
};

TEST_F(SessionTextsOfKeys, AreLimitedAsOthers) {
  Caller ann(cloud.url(), kAnn), bob(cloud.url(), kBob);
  EXPECT_EQ(ann.post(path(1), asked).status, 200);
  expect_error(ann.post(path(2), asked), 429, "too_many_sessions", "");
  EXPECT_EQ(bob.post(path(1), asked).status, 200);  // one of its own
  expect_error(bob.post(path(1), asked), 429, "rate_limited", "");
  EXPECT_EQ(cloud.cloud.sessions.size(), 2u);
}

}  // namespace
}  // namespace split::cloud
