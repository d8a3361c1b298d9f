// POST /v1/completions: the whole model on the cloud, in OpenAI's shape, against PyTorch's losses;
// and its texts, from a model that says exactly what the test wants.
#include <numeric>
#include <thread>

#include "http/sse.h"
#include "serve/completions.h"
#include "support/cloud_fixture.h"
#include "text/utf8.h"

namespace split::cloud {
namespace {

const char* const kPath = "/v1/completions";

// A stream's chunks, up to [DONE], which must be there.
std::vector<Json> chunks_of(const std::string& body) {
  std::vector<Json> chunks;
  bool done = false;
  http::SseParser parser([&](std::string_view data) {
    done = data == "[DONE]";
    if (!done) {
      chunks.push_back(Json::parse(data, nullptr, false));
      EXPECT_FALSE(chunks.back().is_discarded()) << data;
    }
    return true;
  });
  parser.feed(body);
  EXPECT_TRUE(done) << body;
  return chunks;
}

struct Whole {
  std::map<int, std::string> text, finish;
  std::map<int, std::vector<int32_t>> ids;
};
Whole joined(const std::vector<Json>& chunks) {
  Whole whole;
  for (const Json& chunk : chunks) {
    EXPECT_EQ(chunk["object"], "text_completion");
    for (const Json& choice : chunk["choices"]) {
      const int index = choice["index"];
      whole.text[index] += choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null()) whole.finish[index] = choice["finish_reason"];
      if (choice.contains("token_ids")) {
        for (const Json& id : choice["token_ids"]) whole.ids[index].push_back(id);
      }
    }
  }
  return whole;
}

double mean_loss(Caller& caller, const Golden& golden, size_t windows) {
  const auto ids = golden.values<int32_t>("eval.ids");
  const size_t count = golden.json["eval"]["windows"], size = golden.json["eval"]["window"];
  CHECK(ids.size() == count * size);
  double sum = 0;
  size_t predictions = 0;
  for (size_t w = 0; w < std::min(count, windows); ++w) {
    const std::vector<int32_t> window(ids.begin() + static_cast<ptrdiff_t>(w * size),
                                      ids.begin() + static_cast<ptrdiff_t>((w + 1) * size));
    const Json json = json_of(caller.post(
        kPath, {{"prompt", window}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}}));
    const Json& logprobs = json["choices"][0]["logprobs"]["token_logprobs"];
    EXPECT_EQ(logprobs.size(), size);
    EXPECT_TRUE(logprobs[0].is_null());
    for (size_t t = 1; t < size; ++t) sum -= logprobs[t].get<double>();
    predictions += size - 1;
    EXPECT_EQ(json["usage"]["completion_tokens"], 0);
  }
  return sum / static_cast<double>(predictions);
}

TEST(CloudScores, MeanLossOverTheWindowsAgreesWithPyTorch) {
  for (const char* name : {"rand-a", "rand-b", "rand-c"}) {
    const Golden golden(name);
    TestCloud cloud({name});
    const double expected = golden.json["eval"]["mean_nll"];
    EXPECT_NEAR(mean_loss(cloud.ask(), golden, 1000) / expected, 1, 1e-4) << name;
  }
}

TEST(CloudScores, OneWindowOfTheDemoModelAgreesWithPyTorch) {
  const Golden golden("demo");
  TestCloud cloud({"demo"});
  const auto nll = golden.values<float>("eval.nll");
  const double expected = std::accumulate(nll.begin(), nll.begin() + 511, 0.0) / 511;
  EXPECT_NEAR(mean_loss(cloud.ask(), golden, 1) / expected, 1, 1e-4);
}

class CloudCompletions : public testing::Test {
 protected:
  Json ask(Json body) {
    body["model"] = "demo";
    return json_of(cloud.ask().post(kPath, body));
  }
  std::vector<Json> stream(Json body) {
    body["stream"] = true;
    const http::Reply reply = cloud.ask().post(kPath, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.headers.get("Content-Type"), "text/event-stream");
    return chunks_of(reply.body);
  }
  const Golden golden{"demo"};
  TestCloud cloud{{"demo"}};
};

TEST_F(CloudCompletions, HaveOpenAisShape) {
  const Json json = ask({{"prompt", "Once upon a time"},
                         {"max_tokens", 5},
                         {"temperature", 0},
                         {"logprobs", 2},
                         {"user", "someone"},
                         {"return_token_ids", true}});
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_TRUE(json["created"].is_number_integer());
  EXPECT_EQ(json["model"], "demo");
  ASSERT_EQ(json["choices"].size(), 1u);
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["index"], 0);
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["token_ids"].size(), 5u);
  const Json& lists = choice["logprobs"];
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    EXPECT_EQ(lists[key].size(), 5u) << key;
  }
  std::string text;
  for (size_t i = 0; i < 5; ++i) {
    text += lists["tokens"][i].get<std::string>();
    EXPECT_EQ(lists["top_logprobs"][i].size(), 2u);
    // Greedy: the token is the likeliest.
    EXPECT_EQ(lists["top_logprobs"][i][lists["tokens"][i].get<std::string>()],
              lists["token_logprobs"][i]);
  }
  EXPECT_EQ(choice["text"], text);
  const size_t prompt = choice["prompt_token_ids"].size();
  EXPECT_EQ(json["usage"]["prompt_tokens"], prompt);
  EXPECT_EQ(json["usage"]["completion_tokens"], 5);
  EXPECT_EQ(json["usage"]["total_tokens"], prompt + 5);
}

TEST_F(CloudCompletions, GreedyTextIsPyTorchs) {
  for (const int p : {0, 1, 5}) {
    const auto greedy = golden.values<int32_t>(cat("p", p, ".greedy_ids"));
    const auto margin = golden.values<float>(cat("p", p, ".greedy_margin"));
    // The last prompt nearly fills the context: more is asked for than there is room.
    const Json json = ask({{"prompt", golden.ids(p)},
                           {"max_tokens", p == 5 ? 1 << 24 : 64},
                           {"temperature", 0},
                           {"ignore_eos", true},
                           {"return_token_ids", true}});
    const Json& ids = json["choices"][0]["token_ids"];
    ASSERT_EQ(ids.size(), greedy.size());
    EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
    for (size_t i = 0; i < greedy.size() && margin[i] > 2e-4f; ++i) {
      ASSERT_EQ(ids[i], greedy[i]) << "prompt " << p << " token " << i;
    }
  }
}

TEST_F(CloudCompletions, AFullContextGivesNoTokens) {
  const Json json = ask({{"prompt", std::vector<int32_t>(512, 5)}, {"max_tokens", 10}});
  EXPECT_EQ(json["choices"][0]["text"], "");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["completion_tokens"], 0);
  expect_error(cloud.ask().post(kPath, {{"prompt", std::vector<int32_t>(513, 5)}}), 400,
               "invalid_request", "prompt");
  EXPECT_EQ(ask({{"prompt", "a"}, {"max_tokens", 0}, {"echo", true}})["choices"][0]["text"], "a");
}

TEST_F(CloudCompletions, StreamAndWholeSayTheSameForTheSameSeed) {
  for (const double temperature : {0.0, 0.8, 30.0}) {  // the last: mostly parts of characters
    const Json body = {{"prompt", "The king"},
                       {"max_tokens", 24},
                       {"temperature", temperature},
                       {"seed", 7},
                       {"ignore_eos", true},
                       {"n", 2},
                       {"echo", true},
                       {"return_token_ids", true}};
    const Json json = ask(body);
    ASSERT_EQ(json["choices"].size(), 2u);
    EXPECT_EQ(ask(body)["choices"], json["choices"]);
    Json streamed = body;
    streamed["stream_options"] = {{"include_usage", true}};
    const auto chunks = stream(streamed);
    const Whole whole = joined(chunks);
    EXPECT_EQ(chunks.back()["usage"], json["usage"]);
    for (int i = 0; i < 2; ++i) {
      const Json& choice = json["choices"][static_cast<size_t>(i)];
      EXPECT_EQ(choice["text"], whole.text.at(i)) << temperature;
      EXPECT_EQ(choice["finish_reason"], whole.finish.at(i));
      EXPECT_EQ(whole.ids.at(i), choice["token_ids"].get<std::vector<int32_t>>());
    }
    // n counts a prompt once; n = 2 goes on from n = 1; other seeds say other things.
    EXPECT_EQ(json["usage"]["prompt_tokens"], json["choices"][0]["prompt_token_ids"].size());
    EXPECT_EQ(json["usage"]["completion_tokens"], 48);
    Json one = body;
    one["n"] = 1;
    EXPECT_EQ(ask(one)["choices"][0], json["choices"][0]);
    if (temperature == 0) continue;
    EXPECT_NE(json["choices"][0]["text"], json["choices"][1]["text"]);
    one["seed"] = 8;
    EXPECT_NE(ask(one)["choices"][0]["text"], json["choices"][0]["text"]);
  }
}

TEST_F(CloudCompletions, EchoWithLogprobsStreamsTheSameLists) {
  const Json body = {{"prompt", "Once upon a time"},
                     {"max_tokens", 6},
                     {"seed", 3},
                     {"echo", true},
                     {"logprobs", 1}};
  const Json json = ask(body);
  const auto chunks = stream(body);
  EXPECT_EQ(json["choices"][0]["text"], joined(chunks).text.at(0));
  EXPECT_EQ(chunks[0]["choices"][0]["logprobs"], json["choices"][0]["logprobs"]);
}

TEST_F(CloudCompletions, UnknownModelsAre404) {
  expect_error(cloud.ask().post(kPath, {{"model", "gpt-4"}, {"prompt", "a"}}), 404,
               "model_not_found", "model");
}

TEST_F(CloudCompletions, WorkIsBounded) {
  const std::vector<std::vector<int32_t>> prompts(64, std::vector<int32_t>(256, 1));
  const Json body = {{"prompt", prompts}, {"max_tokens", 1000}};
  Json wide = body, listed = body;
  wide["n"] = 16;
  listed["logprobs"] = 100;
  expect_error(cloud.ask().post(kPath, wide), 400, "invalid_request", "max_tokens");
  expect_error(cloud.ask().post(kPath, listed), 400, "invalid_request", "max_tokens");
  expect_error(
      cloud.ask().post(kPath, {{"prompt", std::vector<std::string>(65, "a")}, {"max_tokens", 0}}),
      400, "invalid_request", "prompt");
}

// 16 choices of 500 tokens take far longer than this test waits.
TEST_F(CloudCompletions, AClientThatGoesAwayFreesItsMemory) {
  for (const bool stream : {true, false}) {
    http::Peer peer(cloud.port());
    const std::string body = Json{
        {"prompt", "The king"},
        {"max_tokens", 500},
        {"n", 16},
        {"ignore_eos", true},
        {"stream", stream}}.dump();
    peer.say(cat("POST ", kPath, " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
                 "\r\n\r\n", body));
    if (stream) {
      EXPECT_NE(peer.until("data: {").find("data: {"), std::string::npos);
    }
    const auto start = std::chrono::steady_clock::now();
    const auto waited = [&] { return std::chrono::steady_clock::now() - start; };
    while (cloud.pages().in_use() == 0 && waited() < std::chrono::seconds(20)) {
      std::this_thread::yield();
    }
    ASSERT_GT(cloud.pages().in_use(), 0u);
    const auto closed = std::chrono::steady_clock::now();
    peer.close();
    // Between two choices nothing is held, for microseconds: stay at 0 for longer than that.
    int quiet = 0;
    while (quiet < 1000 && std::chrono::steady_clock::now() - closed < std::chrono::seconds(20)) {
      quiet = cloud.pages().in_use() == 0 ? quiet + 1 : 0;
      std::this_thread::yield();
    }
    EXPECT_EQ(cloud.pages().in_use(), 0u);
  }
}

// A model that says one given thing.
class Scripted : public Forward {
 public:
  Scripted(std::vector<int32_t> script, size_t vocab, size_t prompt)
      : script_(std::move(script)), logits_(vocab), prompt_(prompt) {}
  std::span<const float> run(const SequenceRows& rows) override {
    std::fill(logits_.begin(), logits_.end(), 0.0f);
    const size_t at = rows.past + rows.count() - prompt_;
    logits_[static_cast<size_t>(at < script_.size() ? script_[at] : 8191)] = 100;
    return logits_;
  }

 private:
  std::vector<int32_t> script_;
  std::vector<float> logits_;
  size_t prompt_;
};

class Scripts : public testing::Test {
 protected:
  Scripts() {
    config.vocab = 8192;
    config.context = 512;
    config.end_of_text = 8191;
    running = std::make_unique<http::Running>(http::Server::Options(), [this](auto& server) {
      server.route("POST", kPath, [this](const http::Request& request) {
        return serve::completions(request, [this](const std::string&) {
          return serve::local_backend("script", config, &*tokenizer,
                                      [this](size_t, const GenerateOptions&) {
                                        return std::make_unique<Scripted>(script, 8192, 1);
                                      });
        });
      });
    });
    caller = std::make_unique<Caller>(running->url());
  }
  // The text of both ways to answer, which must be the same.
  std::string said(const std::vector<int32_t>& ids, Json body) {
    script = ids;
    body["prompt"] = {1};
    body["temperature"] = 0;
    body["max_tokens"] = 511;
    const Json whole = json_of(caller->post(kPath, body));
    body["stream"] = true;
    const Whole streamed = joined(chunks_of(caller->post(kPath, body).body));
    EXPECT_EQ(streamed.text.at(0), whole["choices"][0]["text"].get<std::string>());
    EXPECT_EQ(streamed.finish.at(0), whole["choices"][0]["finish_reason"].get<std::string>());
    finish = whole["choices"][0]["finish_reason"];
    return whole["choices"][0]["text"];
  }

  ModelConfig config;
  std::optional<Tokenizer> tokenizer = load_tokenizer(model_dir("demo"));
  std::vector<int32_t> script;
  std::unique_ptr<http::Running> running;
  std::unique_ptr<Caller> caller;
  std::string finish;
};

TEST_F(Scripts, EndAtEndOfText) {
  EXPECT_EQ(said(tokenizer->encode("Once upon"), {}), "Once upon");
  EXPECT_EQ(finish, "stop");
}

TEST_F(Scripts, EveryByteComesThroughAsValidText) {
  // Each byte's own token alone, then all after one another, then in reverse.
  std::vector<int32_t> bytes;
  for (int32_t id = 0; id < tokenizer->size(); ++id) {
    if (tokenizer->token_bytes(id).size() == 1) bytes.push_back(id);
  }
  ASSERT_EQ(bytes.size(), 256u);
  for (const int32_t id : bytes) {
    EXPECT_EQ(said({id}, {}), to_valid_utf8(tokenizer->token_bytes(id)));
  }
  EXPECT_EQ(said(bytes, {{"logprobs", 2}}), to_valid_utf8(tokenizer->decode(bytes)));
  std::reverse(bytes.begin(), bytes.end());
  EXPECT_EQ(said(bytes, {{"return_token_ids", true}}), to_valid_utf8(tokenizer->decode(bytes)));
  // A character byte by byte, and one that never ends.
  std::vector<int32_t> split;
  for (const char c : std::string("\xf0\x9f\x91\x91 \xf0\x9f\x91")) {
    const auto at = std::find_if(bytes.begin(), bytes.end(),
                                 [&](int32_t id) { return tokenizer->token_bytes(id)[0] == c; });
    split.push_back(*at);
  }
  EXPECT_EQ(said(split, {}), "\xf0\x9f\x91\x91 \xef\xbf\xbd");
}

TEST_F(Scripts, StopStringsAreFoundAcrossTokens) {
  std::vector<int32_t> ids;
  for (const char* part : {"The", " ki", "ng", " said", " no"}) {
    for (const int32_t id : tokenizer->encode(part)) ids.push_back(id);
  }
  EXPECT_EQ(said(ids, {{"stop", "king"}}), "The ");
  EXPECT_EQ(finish, "stop");
  EXPECT_EQ(said(ids, {{"stop", "g s"}}), "The kin");
  EXPECT_EQ(said(ids, {{"stop", {"zzz", "no"}}}), "The king said ");
  EXPECT_EQ(said(ids, {{"stop", "The"}}), "");
  EXPECT_EQ(said(ids, {{"stop", "no!"}}), "The king said no");  // held back, then given
}

}  // namespace
}  // namespace split::cloud
