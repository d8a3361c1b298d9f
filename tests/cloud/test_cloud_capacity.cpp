// Three times what the server takes: whoever gets an answer gets the right one, the others are told
// when to come back, and afterwards all is as before.
#include <atomic>
#include <latch>
#include <thread>

#include "run/shard/shard.h"
#include "support/cloud_fixture.h"
#include "wire/protocol.h"

namespace split::cloud {
namespace {

constexpr size_t kInflight = 4, kQueue = 2, kClients = 3 * (kInflight + kQueue);

class CloudCapacity : public testing::Test {
 protected:
  // One client: a session from its prompt on, again and again until all of it is there.
  struct Client {
    std::vector<float> hidden;
    size_t refused = 0;
    std::string wrong;  // what it must not have been told
  };
  static bool told_to_come_back(const http::Reply& reply) {
    return (reply.status == 429 || reply.status == 503) && reply.headers.get("Retry-After");
  }
  // The good answer, after any number of refusals.
  http::Reply insist(Caller& caller, Client& client, const std::string& method,
                     const std::string& path, const Json& body) const {
    for (;;) {
      http::Reply reply = caller.send(method, path, body.is_null() ? "" : body.dump(),
                                      "application/json", {{"Accept", Caller::kTensors}});
      if (reply.status >= 200 && reply.status < 300) return reply;
      if (!told_to_come_back(reply)) {
        client.wrong = cat(method, " ", path, ": ", reply.status, " ", reply.body);
        return reply;
      }
      ++client.refused;
      std::this_thread::yield();
    }
  }
  void run(int number, Client& client) const {
    Caller caller(cloud.url());
    const std::string digits = cat(number);
    const std::string id = std::string(32 - digits.size(), '0') + digits;
    insist(caller, client, "PUT", wire::session_path(id), {{"cut", 2}});
    for (size_t at = 0; at < ids.size() && client.wrong.empty();) {
      const size_t end = at == 0 ? 20 : at + 1;  // a prompt, then token by token
      const std::vector<int32_t> part(ids.begin() + static_cast<ptrdiff_t>(at),
                                      ids.begin() + static_cast<ptrdiff_t>(end));
      const http::Reply reply = insist(caller, client, "POST", wire::session_forward_path(id),
                                       {{"past", at}, {"tokens", part}, {"phase", "prompt"}});
      if (reply.status != 200) return;
      const auto rows = floats_of(reply.body, "hidden");
      client.hidden.insert(client.hidden.end(), rows.begin(), rows.end());
      at = end;
    }
    insist(caller, client, "DELETE", wire::session_path(id), nullptr);
  }
  // A request counts until its worker is back, which is after its client has the answer.
  void until_idle() {
    while (cloud.stats().inflight != 0) std::this_thread::yield();
  }

  const Golden golden{"rand-a"};
  const std::vector<int32_t> ids = golden.ids(3);
  TestCloud cloud{{"rand-a"}, 64 << 20, {}, Profile::kF32, [](Cloud&, http::Server::Options& o) {
                    o.max_inflight = kInflight;
                    o.queue = kQueue;
                  }};
};

TEST_F(CloudCapacity, ThreeTimesIsRefusedAndNotLost) {
  const http::Reply whole =
      cloud.ask().post_for_tensors("/v1/models/rand-a/forward", {{"tokens", ids}, {"to", 2}});
  ASSERT_EQ(whole.status, 200);
  const std::vector<float> expected = floats_of(whole.body, "hidden");
  std::vector<Client> clients(kClients);
  {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kClients; ++i) {
      threads.emplace_back([&, i] { run(static_cast<int>(i), clients[i]); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (const Client& client : clients) {
    EXPECT_EQ(client.wrong, "");
    EXPECT_TRUE(client.hidden == expected);
  }
  until_idle();
  EXPECT_EQ(cloud.cloud.sessions.size(), 0u);
  EXPECT_EQ(cloud.pages().in_use(), 0u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(cloud.ask().get("/v1/models").status, 200);
}

// Handlers that are held: what is beyond them and the queue is refused at once.
TEST_F(CloudCapacity, AFullQueueSaysWhenToComeBack) {
  const std::string path = wire::session_path(std::string(32, '1'));
  ASSERT_EQ(cloud.ask().send("PUT", path, R"({"cut":2})").status, 201);
  until_idle();
  std::vector<http::Peer> waiting;
  cloud.cloud.sessions.with(std::string(32, '1'), [&](Session&) {
    for (size_t i = 0; i < kInflight + kQueue; ++i) {
      waiting.emplace_back(cloud.port());
      waiting.back().say(http::get(path));
      while (cloud.stats().inflight < i + 1) std::this_thread::yield();
    }
    const std::string refused = http::last_words(cloud.port(), http::get(path));
    EXPECT_TRUE(http::says(refused, 503) && http::has(refused, "Retry-After: 1\r\n")) << refused;
  });
  for (http::Peer& peer : waiting) EXPECT_TRUE(http::says(peer.answer(), 200));
  until_idle();
  EXPECT_EQ(cloud.ask().get(path).status, 200);
}

// Room for the states of two sequences, both of them in other hands: each of eight texts is told to
// come back, and is the one of a cloud with room for all.
TEST(CloudStates, OfOthersAreWaitedFor) {
  const std::string name = "models/qwen35";
  const auto model = make_model(read_file(model_dir(name) + "/config.json", 1 << 20));
  const TestCloud::Adjust admit = [](Cloud&, http::Server::Options& o) { o.max_inflight = 16; };
  TestCloud roomy({name}, 64 << 20, {}, Profile::kF32, admit),
      cloud({name}, kv_bytes_for(*model, {}, Profile::kF32, 1), {}, Profile::kF32, admit);
  KvPages& pages = cloud.pages();
  ASSERT_EQ(pages.states(), 2u);
  const SequenceId held[] = {pages.open(), pages.open()};
  for (const SequenceId one : held)
    ASSERT_TRUE(pages.reserve(one, 1, {.to = cloud.config().layers}));
  constexpr int kTexts = 8;
  const auto wish = [&](int n) -> Json {
    return {{"prompt", std::vector<int32_t>(static_cast<size_t>(20 + n), 3 + n)},
            {"max_tokens", 12},
            {"temperature", 0},
            {"return_token_ids", true}};
  };
  const auto text_of = [](const http::Reply& reply) {
    return json_of(reply)["choices"][0]["token_ids"].get<std::vector<int32_t>>();
  };
  const std::string session = wire::session_path(std::string(32, '1')),
                    forward = wire::session_forward_path(std::string(32, '1'));
  const Json rows = {{"past", 0}, {"tokens", {1, 2, 3}}};
  ASSERT_EQ(cloud.ask().send("PUT", session, R"({"cut":2})").status, 201);
  expect_error(cloud.ask().post(forward, rows), 503, "busy", "");
  std::latch refused(kTexts);
  std::vector<std::thread> threads;
  for (int n = 0; n < kTexts; ++n) {
    threads.emplace_back([&, n] {
      Caller caller(cloud.url());
      http::Reply reply = caller.post("/v1/completions", wish(n));
      expect_error(reply, 503, "busy", "");
      EXPECT_TRUE(reply.headers.get("Retry-After"));
      refused.count_down();
      for (; reply.status == 503; reply = caller.post("/v1/completions", wish(n)))
        std::this_thread::yield();
      EXPECT_EQ(text_of(reply), text_of(Caller(roomy.url()).post("/v1/completions", wish(n))));
    });
  }
  refused.wait();
  for (const SequenceId one : held) pages.close(one);
  for (std::thread& thread : threads) thread.join();
  const auto hidden = [&](TestCloud& one) {
    one.ask().send("PUT", session, R"({"cut":2})");
    return floats_of(one.ask().post_for_tensors(forward, rows).body, "hidden");
  };
  EXPECT_EQ(hidden(cloud), hidden(roomy));
  EXPECT_EQ(cloud.ask().send("DELETE", session).status, 204);
  EXPECT_EQ(pages.states_in_use(), 0u);
}

// Texts whose readers take nothing.
class CloudReaders : public testing::Test {
 protected:
  static std::string wish(int tokens) {
    const std::string body =
        Json{{"prompt", "a"},  {"max_tokens", tokens}, {"n", 4},
             {"seed", 1},      {"logprobs", 5},        {"temperature", 1},
             {"stream", true}, {"ignore_eos", true},   {"return_token_ids", true}}
            .dump();
    return http::post(cat("Content-Length: ", body.size(), "\r\n"), body, "/v1/completions");
  }
  // Each choice's ids, from the chunks of an answer.
  static std::map<int, std::vector<int>> ids_of(const std::string& answer) {
    std::map<int, std::vector<int>> ids;
    for (size_t at = 0; (at = answer.find("data: {", at)) != std::string::npos; ++at) {
      const Json chunk = Json::parse(answer.substr(at + 6, answer.find('\n', at) - at - 6));
      const Json& choice = chunk["choices"][0];
      for (const Json& id : choice["token_ids"]) ids[choice["index"]].push_back(id);
    }
    return ids;
  }
};

// The part kept for a reader is bounded: its text waits, without a thread and without a step, while
// others are answered; and then it goes on.
TEST_F(CloudReaders, LetTheirTextsWaitWithoutAThread) {
  // Room for all of them, however much of each the system's buffers take before they wait.
  constexpr uint64_t kPages = 256 << 20;
  TestCloud cloud({"demo"}, kPages, {}, Profile::kF32, [](Cloud&, http::Server::Options& o) {
    o.max_inflight = o.queue = o.idle_workers = 1;
    o.write_timeout = std::chrono::minutes(10);
  });
  http::Peer quick(cloud.port());
  quick.say(wish(500));
  const auto expected = ids_of(quick.until("[DONE]"));
  ASSERT_EQ(expected.size(), 4u);
  std::vector<http::Peer> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back(cloud.port());
    readers.back().say(wish(500));
    readers.back().until("\r\n\r\n");
    // While the system's buffers take what is sent, it may go on.
    for (int round = 0; round < 2; ++round) {
      while (cloud.stats().inflight != 0 || cloud.cloud.models[0]->batcher().depth() != 0) {
        std::this_thread::yield();
      }
      EXPECT_GT(cloud.pages().in_use(), 0u);
      EXPECT_EQ(cloud.ask().post("/v1/models/demo/forward", {{"tokens", {1}}}).status, 200);
    }
  }
  for (http::Peer& reader : readers) EXPECT_TRUE(ids_of(reader.until("[DONE]")) == expected);
  while (cloud.pages().in_use() != 0) std::this_thread::yield();
}

TEST_F(CloudReaders, ThatTakeNothingLoseTheirPages) {
  TestCloud cloud({"demo"}, 64 << 20, {}, Profile::kF32, [](Cloud&, http::Server::Options& o) {
    o.write_timeout = std::chrono::milliseconds(200);
  });
  http::Peer reader(cloud.port());
  reader.say(wish(500));
  reader.until("data: ");
  while (cloud.pages().in_use() != 0) std::this_thread::yield();
  EXPECT_EQ(reader.to_end().find("[DONE]"), std::string::npos);
}

}  // namespace
}  // namespace split::cloud
