// Several texts of one answer: at once, in steps that they share, and each that of its seed alone.
#include "serve/choices.h"

#include <gtest/gtest.h>

#include <set>

#include "run/batcher.h"
#include "serve/completions.h"
#include "support/edge_server.h"

namespace split::test {
namespace {

using Json = nlohmann::json;
using serve::Choices;
using serve::SpareThreads;

constexpr std::chrono::seconds kForEver{60};  // of what a broken program never does

// Waits until `count` have come; false when they do not.
class Meeting {
 public:
  explicit Meeting(int count) : left_(count) {}
  bool join() {
    std::unique_lock lock(mutex_);
    --left_;
    come_.notify_all();
    return come_.wait_for(lock, kForEver, [this] { return left_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable come_;
  int left_;
};

const auto kNothing = [] {};

TEST(Choices, RunAtOnceOnSpareThreadsAndGiveThemBack) {
  SpareThreads spare(3);
  Meeting meeting(4);
  std::mutex mutex;
  std::set<size_t> done;
  Choices(&spare).run(
      6,
      [&](size_t index) {
        EXPECT_TRUE(index > 3 || meeting.join());
        const std::lock_guard lock(mutex);
        return done.insert(index).second ? Choices::Next::kGoOn : Choices::Next::kStop;
      },
      kNothing);
  EXPECT_EQ(done.size(), 6u);
  EXPECT_EQ(spare.take(9), 3u);
}

TEST(Choices, RunInOrderWithoutThreadsUntilOneSaysEnough) {
  std::vector<size_t> order;
  Choices(nullptr).run(
      5,
      [&](size_t index) {
        order.push_back(index);
        return index < 2 ? Choices::Next::kGoOn : Choices::Next::kStop;
      },
      kNothing);
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2}));
}

TEST(Choices, EndWithTheFirstError) {
  SpareThreads spare(8);
  std::atomic<bool> ended{false};
  const auto one = [&](size_t index) -> Choices::Next {
    if (index == 1) throw Error(ErrorKind::kDevice, "the first");
    while (!ended) std::this_thread::yield();
    throw Error(ErrorKind::kRemote, "told to end");
  };
  try {
    Choices(&spare).run(4, one, [&] { ended = true; });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the first");
  }
  EXPECT_EQ(spare.take(9), 8u);
}

// Room for `most` at once: who finds none gives back what it has.
class Room {
 public:
  explicit Room(int most) : left_(most) {}
  void use(int parts) {
    int held = 0;
    const std::shared_ptr<void> give_back(nullptr, [&](void*) { left_ += held; });
    for (; held < parts; ++held) {
      if (left_-- <= 0) {
        ++left_;
        throw Error(ErrorKind::kBusy, "no room");
      }
      std::this_thread::yield();
    }
  }

 private:
  std::atomic<int> left_;
};

TEST(Choices, ThatFindNoRoomWaitForThoseThatHaveIt) {
  for (const int most : {3, 4, 7}) {
    SpareThreads spare(8);
    Choices choices(&spare);
    Room room(most);
    std::atomic<int> done{0};
    choices.run(
        9,
        [&](size_t) {
          choices.retried([&] { room.use(3); });
          ++done;
          return Choices::Next::kGoOn;
        },
        kNothing);
    EXPECT_EQ(done, 9);
  }
}

TEST(Choices, ThatFindNoRoomAloneSaySo) {
  SpareThreads spare(4);
  Choices choices(&spare);
  Room room(2);
  const auto run = [&] {
    choices.run(
        4,
        [&](size_t) {
          choices.retried([&] { room.use(3); });
          return Choices::Next::kGoOn;
        },
        kNothing);
  };
  EXPECT_THROW(run(), Error);
  Choices one(nullptr);
  int asked = 0;
  EXPECT_THROW(one.run(
                   1,
                   [&](size_t) {
                     one.retried([&] {
                       ++asked;
                       throw RequesterGone();
                     });
                     return Choices::Next::kGoOn;
                   },
                   kNothing),
               RequesterGone);
  EXPECT_EQ(asked, 1);
}

// --- of a model

class SeveralTexts : public ::testing::Test {
 protected:
  static constexpr int kSeed = 5, kTokens = 10, kTexts = 4;
  SeveralTexts() : cloud("rand-a"), prompt(golden().values<int32_t>("p1.ids")) {}
  static const Golden& golden() {
    static const Golden golden("rand-a");
    return golden;
  }
  Json wish(int n) const {
    return {{"prompt", prompt}, {"temperature", 0.9}, {"seed", kSeed},           {"n", n},
            {"max_tokens", 10}, {"ignore_eos", true}, {"return_token_ids", true}};
  }
  using Texts = std::vector<std::vector<int32_t>>;
  static http::Reply post(const std::string& url, const Json& body) {
    return Client(url).request("POST", "/v1/completions", body.dump(), "application/json");
  }
  static Json ask(const std::string& url, const Json& body) {
    const http::Reply reply = post(url, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body, nullptr, false);
  }
  // Each seed's text, asked for alone.
  Texts one_by_one(const std::string& url) const {
    Texts texts;
    for (int i = 0; i < kTexts; ++i) {
      Json body = wish(1);
      body["seed"] = kSeed + i;
      texts.push_back(ask(url, body)["choices"][0]["token_ids"].get<std::vector<int32_t>>());
      EXPECT_EQ(texts.back().size(), size_t{kTokens});
    }
    return texts;
  }
  Texts together(const std::string& url) const {
    const Json json = ask(url, wish(kTexts));
    EXPECT_EQ(json["usage"]["prompt_tokens"], prompt.size());
    EXPECT_EQ(json["usage"]["completion_tokens"], kTexts * kTokens);
    Texts texts;
    for (const Json& choice : json["choices"]) {
      EXPECT_EQ(choice["index"], texts.size());
      EXPECT_EQ(choice["finish_reason"], "length");
      texts.push_back(choice["token_ids"].get<std::vector<int32_t>>());
    }
    return texts;
  }
  Texts streamed(const std::string& url) const {
    Json body = wish(kTexts);
    body["stream"] = true;
    return texts_of(post(url, body).body);
  }
  static Texts texts_of(const std::string& stream) {
    Texts texts(kTexts);
    const auto events = events_of(stream);
    EXPECT_EQ(events.back(), "[DONE]");
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      const Json choice = Json::parse(events[i])["choices"][0];
      for (const Json& id : choice["token_ids"]) {
        texts.at(choice["index"]).push_back(id);
      }
    }
    return texts;
  }
  GatedCloud cloud;
  TemporaryFolder cache;
  const std::vector<int32_t> prompt;
};

TEST_F(SeveralTexts, ShareTheStepsOfTheCloud) {
  Batcher& batcher = cloud.model().batcher();
  std::atomic<bool> gathered{true};
  std::atomic<uint32_t> most{0};
  batcher.on_step([&, first = true](const StepSeen& seen) mutable {
    most = std::max(most.load(), seen.sequences);
    if (!std::exchange(first, false)) return;
    const auto end = std::chrono::steady_clock::now() + kForEver;
    while (gathered && batcher.depth() < kTexts) gathered = std::chrono::steady_clock::now() < end;
  });
  const Texts texts = together(cloud.url());
  EXPECT_TRUE(gathered);
  EXPECT_GT(most, 1u);
  EXPECT_EQ(texts, one_by_one(cloud.url()));
  EXPECT_EQ(streamed(cloud.url()), texts);
}

// A reader that has enough after each event.
class SlowSink : public http::Sink {
 public:
  bool write(std::string_view bytes) override {
    text += bytes;
    return true;
  }
  bool full() const override { return true; }
  bool client_gone() override { return false; }
  std::string text;
};

// Between two events a stream is a call that has returned; and its texts are the same.
TEST_F(SeveralTexts, ThatWaitForTheirReaderAreTheSame) {
  for (const size_t threads : {0, 2, 8}) {
    SpareThreads spare(threads);
    Json body = wish(kTexts);
    body["stream"] = true;
    http::Request request;
    request.body = body.dump();
    const http::Response response = serve::completions(request, [&](const std::string&) {
      Batcher& batcher = cloud.model().batcher();
      serve::TextModel model = serve::local_backend(
          "m", cloud.model().config(), cloud.model().tokenizer(),
          [&](size_t, const GenerateOptions&) { return std::make_unique<LocalForward>(batcher); });
      model.spare = &spare;
      return model;
    });
    SlowSink sink;
    size_t calls = 1;
    for (; response.stream(sink) == http::Streamed::kMore; ++calls) {
      EXPECT_EQ(spare.take(99), threads);
      spare.give_back(threads);
      EXPECT_EQ(cloud.model().batcher().depth(), 0u);
    }
    EXPECT_GE(calls, size_t{kTokens});
    EXPECT_EQ(texts_of(sink.text), together(cloud.url())) << threads;
  }
}

TEST_F(SeveralTexts, AreAskedOfTheCloudAtOnce) {
  EdgeServer edge({cat("--server=", cloud.url()), cat("--cache=", cache.path.string()), "--cut=1"});
  edge.ready();
  Meeting meeting(kTexts);
  std::atomic<bool> met{true};
  cloud.reset([&](const http::Request&, int n) -> std::optional<http::Response> {
    if (n < kTexts && !meeting.join()) met = false;
    return std::nullopt;
  });
  const Texts texts = together(edge.url());
  EXPECT_TRUE(met);
  cloud.reset({});
  EXPECT_EQ(texts, one_by_one(edge.url()));
  EXPECT_EQ(streamed(edge.url()), texts);
}

// Keys and values for one text: the others wait, and their clients notice nothing.
TEST_F(SeveralTexts, ThatFindNoRoomAreTheSame) {
  EdgeServer edge({cat("--server=", cloud.url()), cat("--cache=", cache.path.string()), "--cut=1",
                   "--kv-budget=1"});
  edge.ready();
  const Texts texts = one_by_one(edge.url());
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(together(edge.url()), texts);
    EXPECT_EQ(streamed(edge.url()), texts);
  }
}

TEST_F(SeveralTexts, HaveOneReceipt) {
  EdgeServer edge({cat("--server=", cloud.url()), cat("--cache=", cache.path.string()), "--cut=2",
                   "--draft=off"});
  const Json receipt = ask(edge.ready().url(), wish(kTexts))["usage"]["splitcompute"];
  EXPECT_EQ(receipt["steps"], kTexts * kTokens);
  EXPECT_EQ(receipt["cloud_layer_rows"], kTexts * 2 * (prompt.size() + kTokens - 1));
  EXPECT_GT(receipt["tokens_per_second"], 0);
}

TEST_F(SeveralTexts, SayOnTheCloudWhatTheyTook) {
  const auto timing = [&](const Json& body) {
    return std::string(post(cloud.url(), body).headers.get("Server-Timing").value_or(""));
  };
  const std::string whole = timing(wish(2));
  for (const char* part : {"device;desc=\"cpu (2 threads", "queue;dur=", "compute;dur="}) {
    EXPECT_NE(whole.find(part), whole.npos) << whole;
  }
  Json body = wish(1);
  body["stream"] = true;
  const std::string head = timing(body);
  EXPECT_TRUE(head.starts_with("device;desc=") && head.find("dur=") == head.npos) << head;
}

}  // namespace
}  // namespace split::test
