// Who may ask, what is theirs, and how much of it they get.
#include "run/shard/shard.h"
#include "serve/api_keys.h"
#include "support/cloud_fixture.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

using serve::ApiKeys;
using std::chrono::milliseconds;

const std::string kAnn = "ann-0123456789abcdef", kBob = "bob-0123456789abcdef";

http::Headers bearer(const std::string& key) { return {{"Authorization", "Bearer " + key}}; }

TEST(ApiKeyFile, HasALineForEach) {
  const ApiKeys keys = ApiKeys::parse(
      "# who\n\n  ann:" + kAnn + "  # hers\r\nbob:" + kBob + " sessions=3 rows_per_s=7\n", "f");
  EXPECT_EQ(keys.admit(bearer(kAnn)), "ann");
  EXPECT_EQ(keys.admit({{"authorization", "bearer " + kBob}}), "bob");
  EXPECT_EQ(keys.most_sessions("bob"), 3u);
  EXPECT_EQ(keys.most_sessions("ann"), 0u);
  const ApiKeys ranked = ApiKeys::parse("ann:" + kAnn + " priority=low\nbob:" + kBob, "f");
  EXPECT_EQ(ranked.priority("ann"), serve::Priority::kLow);
  EXPECT_EQ(ranked.priority("bob"), serve::Priority::kNormal);
  for (const std::string& other :
       {kAnn + "0", kAnn.substr(1), std::string(), std::string("ann"), "ann:" + kAnn, kAnn + " "}) {
    EXPECT_THROW(keys.admit(bearer(other)), http::HttpError) << other;
  }
  EXPECT_THROW(keys.admit({{"Authorization", "Basic " + kAnn}}), http::HttpError);
  // Anthropic's clients send it so.
  EXPECT_EQ(keys.admit({{"X-Api-Key", kAnn}}), "ann");
  EXPECT_THROW(keys.admit({{"X-Api-Key", kAnn + "0"}}), http::HttpError);
  EXPECT_THROW(keys.admit({{"X-Api-Key", kAnn}, {"Authorization", "Basic x"}}), http::HttpError);
}

TEST(ApiKeyFile, SaysWhatIsWrongInWhichLineAndNoKey) {
  const struct {
    std::string text, what;
  } rows[] = {
      {"", "expected keys, found none"},
      {"# nobody\n", "expected keys, found none"},
      {"\n" + kAnn + "\n", "line 2: expected NAME:KEY"},
      {"a b:" + kAnn, "line 1: expected NAME:KEY"},
      {":" + kAnn, "line 1: expected NAME:KEY"},
      {"a/b:" + kAnn, "line 1: expected NAME:KEY"},
      {"ann:short", "line 1: expected a key of 16..256"},
      {"ann:" + std::string(257, 'x'), "line 1: expected a key of 16..256"},
      {"ann:" + kAnn + "\nann:" + kBob, "line 2: a second key of this name"},
      {"ann:" + kAnn + "\nbob:" + kAnn, "line 2: the same key as ann's"},
      {"ann:" + kAnn + " rows=1", "line 1: expected sessions=N"},
      {"ann:" + kAnn + " sessions=0", "line 1: expected sessions=N"},
      {"ann:" + kAnn + " sessions=-1", "line 1: expected sessions=N"},
      {"ann:" + kAnn + " bytes_per_s=99999999999999999999", "line 1: expected sessions=N"},
      {"ann:" + kAnn + " priority=first", "line 1: expected sessions=N"},
      {"ann:" + kAnn + " " + kBob, "line 1: expected sessions=N"},
  };
  for (const auto& row : rows) {
    try {
      ApiKeys::parse(row.text, "keys.txt");
      ADD_FAILURE() << row.text;
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("keys.txt"), std::string::npos) << text;
      EXPECT_NE(text.find(row.what), std::string::npos) << text;
      EXPECT_EQ(text.find("0123456789"), std::string::npos) << text;
    }
  }
}

TEST(RateLimit, OwesWhatItGaveTooSoon) {
  serve::RateLimit limit(10);
  serve::RateLimit::Time now{std::chrono::hours(1)};
  EXPECT_EQ(limit.wait(now), 0);
  limit.take(now, 35);  // of any size, once
  EXPECT_DOUBLE_EQ(limit.wait(now), 2.5);
  now += milliseconds(1000);
  EXPECT_DOUBLE_EQ(limit.wait(now), 1.5);
  now += milliseconds(1600);
  EXPECT_EQ(limit.wait(now), 0);
  now += std::chrono::hours(9);  // no more is saved up than of a second
  limit.take(now, 20);
  EXPECT_DOUBLE_EQ(limit.wait(now), 1);
}

class CloudAccess : public testing::Test {
 protected:
  explicit CloudAccess(const std::string& of_ann = "", const std::string& of_bob = "")
      : cloud({"rand-a"}, 16 << 20, {}, Profile::kF32, [&](Cloud& c, http::Server::Options&) {
          c.keys = ApiKeys::parse("ann:" + kAnn + of_ann + "\nbob:" + kBob + of_bob, "keys");
        }) {}

  http::Reply as(const std::string& key, const std::string& method, const std::string& path,
                 const Json& body = nullptr) {
    return cloud.ask().send(method, path, body.is_null() ? "" : body.dump(), "application/json",
                            bearer(key));
  }
  http::Reply put(const std::string& key, char digit, int cut = 2) {
    return as(key, "PUT", wire::session_path(std::string(32, digit)), {{"cut", cut}});
  }
  http::Reply step(const std::string& key, char digit, int past, const std::vector<int>& tokens) {
    return as(key, "POST", wire::session_forward_path(std::string(32, digit)),
              {{"past", past}, {"tokens", tokens}});
  }
  TestCloud cloud;
};

TEST_F(CloudAccess, NothingWithoutAKeyButWhetherItLives) {
  const std::string session = wire::session_path(std::string(32, '1'));
  const std::pair<const char*, std::string> guarded[] = {
      {"GET", "/"},
      {"GET", "/props"},
      {"GET", "/v1/models"},
      {"GET", "/v1/models/rand-a"},
      {"GET", "/v1/models/rand-a/files/config.json"},
      {"GET", "/v1/models/rand-a/stages/norm"},
      {"GET", "/v1/blobs/sha256/" + std::string(64, '0')},
      {"HEAD", "/v1/blobs/sha256/" + std::string(64, '0')},
      {"POST", "/v1/models/rand-a/forward"},
      {"POST", "/v1/completions"},
      {"PUT", session},
      {"GET", session},
      {"DELETE", session},
      {"POST", session + "/forward"},
      {"POST", "/v1/sessions"},
      {"GET", "/get_model_config"},
      {"POST", "/"},
  };
  for (const auto& [method, path] : guarded) {
    for (const http::Headers& headers : {http::Headers(), bearer("nobody-0123456789abc")}) {
      const http::Reply reply = cloud.ask().send(method, path, "", "application/json", headers);
      EXPECT_EQ(reply.status, 401) << method << " " << path;
      const bool given = headers.size() > 0;
      EXPECT_EQ(reply.headers.get("WWW-Authenticate"),
                given ? "Bearer error=\"invalid_token\"" : "Bearer");
      if (method == std::string("HEAD")) continue;
      expect_error(reply, 401, given ? "invalid_api_key" : "api_key_missing", "", path);
    }
  }
  EXPECT_EQ(cloud.ask().get("/livez").status, 200);
  EXPECT_EQ(cloud.ask().get("/readyz").status, 503);
  EXPECT_EQ(cloud.ask().get("/health").status, 503);
  cloud.cloud.ready = true;
  EXPECT_EQ(cloud.ask().get("/readyz").status, 200);
  EXPECT_EQ(as(kAnn, "GET", "/v1/models").status, 200);
  EXPECT_EQ(as(kBob, "GET", "/v1/models").status, 200);
}

TEST_F(CloudAccess, ASessionIsItsKeys) {
  ASSERT_EQ(put(kAnn, '1').status, 201);
  ASSERT_EQ(step(kAnn, '1', 0, {1, 2, 3}).status, 200);
  const std::string path = wire::session_path(std::string(32, '1'));
  for (const char* method : {"GET", "DELETE"}) {
    expect_error(as(kBob, method, path), 404, "session_unknown", "", method);
  }
  expect_error(step(kBob, '1', 0, {1}), 404, "session_unknown", "");
  expect_error(step(kBob, '1', 3, {1}), 404, "session_unknown", "");
  // Another key's same id is another session, and says nothing of the first.
  EXPECT_EQ(put(kBob, '1', 1).status, 201);
  EXPECT_EQ(step(kBob, '1', 0, {4, 5}).status, 200);
  EXPECT_EQ(json_of(as(kBob, "GET", path))["have"], 2);
  EXPECT_EQ(as(kBob, "DELETE", path).status, 204);
  const Json hers = json_of(as(kAnn, "GET", path));
  EXPECT_EQ(hers["have"], 3);
  EXPECT_EQ(hers["to"], 2);
  EXPECT_EQ(hers["id"], std::string(32, '1'));
}

class SessionsOfAKey : public CloudAccess {
 protected:
  SessionsOfAKey() : CloudAccess(" sessions=2") {}
};

TEST_F(SessionsOfAKey, AreLimited) {
  EXPECT_EQ(put(kAnn, '1').status, 201);
  EXPECT_EQ(put(kAnn, '2').status, 201);
  EXPECT_EQ(put(kAnn, '2').status, 200);  // it stands
  const http::Reply full = put(kAnn, '3');
  expect_error(full, 429, "too_many_sessions", "");
  EXPECT_EQ(full.headers.get("Retry-After"), "1");
  expect_error(as(kAnn, "POST", "/v1/sessions", {{"cut", 1}}), 429, "too_many_sessions", "");
  for (const char digit : {'1', '2', '3'}) EXPECT_EQ(put(kBob, digit).status, 201);
  EXPECT_EQ(as(kAnn, "DELETE", wire::session_path(std::string(32, '1'))).status, 204);
  EXPECT_EQ(put(kAnn, '3').status, 201);
}

// An edge that died leaves its sessions; they do not count for ever.
TEST_F(SessionsOfAKey, GiveWayWhenAbandoned) {
  Sessions sessions(10, milliseconds(0));
  Batcher& batcher = cloud.cloud.models[0]->batcher();
  const auto put = [&](const SessionName& name, size_t most) {
    return sessions.put(name, "rand-a", {.to = 2}, batcher, most);
  };
  using Put = Sessions::Put;
  EXPECT_EQ(put({"1", "bob"}, 2), Put::kCreated);
  for (const char* id : {"1", "2", "3"}) {
    EXPECT_EQ(put({id, "ann"}, 2), Put::kCreated);
  }
  const auto there = [&](const SessionName& name) { return sessions.with(name, [](Session&) {}); };
  EXPECT_FALSE(there({"1", "ann"}));  // the oldest of hers, and nobody else's
  EXPECT_TRUE(there({"2", "ann"}) && there({"3", "ann"}) && there({"1", "bob"}));
  sessions.with({"2", "ann"}, [&](Session&) {  // one in use stays
    EXPECT_EQ(put({"4", "ann"}, 2), Put::kCreated);
    EXPECT_EQ(put({"5", "ann"}, 1), Put::kCreated);
    EXPECT_EQ(put({"6", "ann"}, 1), Put::kCreated);
  });
  EXPECT_TRUE(there({"2", "ann"}));
}

class RowsOfAKey : public CloudAccess {
 protected:
  RowsOfAKey() : CloudAccess(" rows_per_s=1") {}
  const std::vector<int> prompt = std::vector<int>(60, 7);  // owed for a minute
  void expect_owed() {
    for (const auto& [path, body] :
         {std::pair<std::string, Json>{"/v1/models/rand-a/forward", {{"tokens", {1}}}},
          {"/v1/completions", {{"prompt", {1}}, {"max_tokens", 1}}},
          {"/v1/completions", {{"prompt", {1}}, {"max_tokens", 1}, {"stream", true}}}}) {
      const http::Reply reply = as(kAnn, "POST", path, body);
      expect_error(reply, 429, "rate_limited", "", path);
      const auto after = parse_u64(reply.headers.get("Retry-After").value_or(""), 1, 60);
      EXPECT_TRUE(after.has_value());
      EXPECT_EQ(as(kBob, "POST", path, body).status, 200) << path;
    }
    EXPECT_EQ(as(kAnn, "GET", "/v1/models").status, 200);
  }
};

TEST_F(RowsOfAKey, AreCountedInSessions) {
  ASSERT_EQ(put(kAnn, '1').status, 201);
  EXPECT_EQ(step(kAnn, '1', 0, prompt).status, 200);
  expect_error(step(kAnn, '1', 60, {1}), 429, "rate_limited", "");
  expect_owed();
}

TEST_F(RowsOfAKey, AreCountedInForwards) {
  EXPECT_EQ(as(kAnn, "POST", "/v1/models/rand-a/forward", {{"tokens", prompt}}).status, 200);
  expect_owed();
}

TEST_F(RowsOfAKey, AreCountedInCompletions) {
  EXPECT_EQ(as(kAnn, "POST", "/v1/completions",
               {{"prompt", {1}}, {"max_tokens", 60}, {"ignore_eos", true}})
                .status,
            200);
  expect_owed();
}

class BytesOfAKey : public CloudAccess {
 protected:
  BytesOfAKey() : CloudAccess(" bytes_per_s=1") {}
};

TEST_F(BytesOfAKey, AreLimitedBothWays) {
  EXPECT_EQ(as(kAnn, "GET", "/v1/models").status, 200);
  const http::Reply reply = as(kAnn, "GET", "/v1/models");
  expect_error(reply, 429, "rate_limited", "");
  EXPECT_TRUE(reply.headers.get("Retry-After").has_value());
  EXPECT_EQ(as(kBob, "GET", "/v1/models").status, 200);
}

// Nothing that a server says or writes holds a prompt, a key or what somebody tried as one.
TEST_F(CloudAccess, SaysNobodysSecrets) {
  const std::string canary = "CANARY7PROMPT", wrong = "CANARY7WRONGKEY00", hidden = "CANARY7";
  testing::internal::CaptureStderr();
  std::string all;
  const auto keep = [&](const http::Reply& reply) {
    all += cat(reply.status, "\n");
    for (const auto& [name, value] : reply.headers) all += cat(name, ": ", value, "\n");
    all += reply.body;
  };
  const std::string session = wire::session_path(std::string(32, '1'));
  keep(as(wrong, "GET", "/v1/models"));
  keep(as(wrong, "POST", "/v1/completions", {{"prompt", canary}}));
  for (const std::string& key : {kAnn, kBob}) {
    for (const Json& body : std::vector<Json>{{{"prompt", canary}, {"max_tokens", "x"}},
                                              {{"prompt", canary}, {"model", "none"}},
                                              {{"prompt", {canary}}, {"temperature", -1}},
                                              {{"prompt", std::string(200000, 'x') + canary}},
                                              {{"prompt", canary}, {"stop", 7}},
                                              {{"input_text", canary}}}) {
      keep(as(key, "POST", "/v1/completions", body));
      keep(as(key, "POST", "/v1/models/rand-a/forward", body));
      keep(as(key, "PUT", session, body));
      keep(as(key, "POST", session + "/forward", body));
      keep(as(key, "POST", "/", body));
    }
    keep(cloud.ask().send("POST", "/v1/completions", "{\"prompt\":\"" + canary, "application/json",
                          bearer(key)));
    keep(cloud.ask().send("POST", "/v1/models/rand-a/forward?from=1", canary,
                          "application/octet-stream", bearer(key)));
    for (const char* path : {"/", "/metrics", "/openapi.json", "/v1/models", "/livez"}) {
      keep(as(key, "GET", path));
    }
  }
  all += testing::internal::GetCapturedStderr();
  for (const std::string& secret : {hidden, kAnn, kBob}) {
    const size_t at = all.find(secret);
    EXPECT_EQ(at, std::string::npos) << all.substr(at < 200 ? 0 : at - 200, 400);
  }
}

}  // namespace
}  // namespace split::cloud
