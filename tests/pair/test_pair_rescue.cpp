// A cloud that is lost for good, or gives no sign of life, in the middle of a text at a cut that
// was named, or that --cut auto began just now: where the cache has all weights the text goes on
// here.
#include <fstream>
#include <thread>

#include "http/client.h"
#include "http/sse.h"
#include "pair_faults.h"

namespace split::test {
namespace {

constexpr std::string_view kHere = "the cloud does not answer: the text goes on here alone\n";
constexpr std::string_view kSampled = "The king";

size_t times(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++count;
  return count;
}

class Rescue : public Pair {
 protected:
  // All weights are in the cache, and what the edge knows of the model.
  void SetUp() override {
    const EdgeResult all = run_edge(cloud_.url(), home_, long_text({"--cut", "0"}));
    ASSERT_EQ(all.code, 0) << all.err;
    calm_ = all.out;
  }
  std::function<void()> kill() {
    return [this] { cloud_.process().kill(); };
  }
  // A blob of the first stages, which no cut but 0 needs here.
  fs::path blob_of_embed() const {
    std::ifstream names(home_.path / "splitcompute" / "names");
    for (std::string sha256, format, stage, model; names >> sha256 >> format >> stage >> model;) {
      if (stage.find("block.0") == stage.npos) continue;
      return home_.path / "splitcompute" / "sha256" / sha256.substr(0, 2) / sha256;
    }
    ADD_FAILURE() << "no blob of the first block";
    return {};
  }

  std::string calm_;
};

TEST_F(Rescue, TheTextGoesOnHereWhereverItsCutIs) {
  for (const Arguments& cut : {Arguments{"--cut", "4"},
                               {"--cut", "8"},
                               {"--cut", "cloud"},
                               {"--cut", "6", "--head", "cloud"},
                               {"--moves", "0:6,9999:4"}}) {
    SCOPED_TRACE(cut[1]);
    const auto edge = disturbed(cut, kill());
    EXPECT_EQ(edge->wait(), 0) << edge->err();
    EXPECT_EQ(edge->out(), calm_);
    EXPECT_EQ(times(edge->err(), kHere), 1u) << edge->err();
    EXPECT_EQ(times(edge->err(), "(the cloud was lost)"), 1u) << edge->err();
    EXPECT_EQ(times(edge->err(), "the cloud answers"), 0u) << edge->err();
    cloud_.again();
  }
}

TEST_F(Rescue, TheReceiptSaysSo) {
  const auto edge = disturbed({"--cut", "5"}, kill());
  EXPECT_EQ(edge->wait(), 0) << edge->err();
  const auto has_session = [&] {
    const http::Reply said = http::Client(cloud_.url()).request("GET", "/metrics");
    return said.body.find("\nsplit_sessions 1\n") != std::string::npos;
  };
  Json whole;
  // On a busy machine a text may be over before: then another one is disturbed.
  for (int tries = 0; tries < 10 && whole["receipt"]["moves"].empty(); ++tries) {
    cloud_.go_on();
    const auto json = begin(cloud_.url(), long_text({"--cut", "5", "--json"}, 4000));
    // Nothing comes before its end: its session is there once the text runs.
    ASSERT_TRUE(poll_for(has_session));
    cloud_.process().kill();
    ASSERT_EQ(json->wait(), 0) << json->err();
    whole = Json::parse(json->out());
  }
  const Json& receipt = whole.at("receipt");
  ASSERT_EQ(receipt.at("moves").size(), 1u) << receipt;
  EXPECT_EQ(receipt.at("moves")[0].at("why"), "cloud_lost");
  EXPECT_EQ(receipt.at("moves")[0].at("from"), 5);
  EXPECT_EQ(receipt.at("moves")[0].at("to"), 0);
  EXPECT_EQ(receipt.at("exact"), true);
  EXPECT_EQ(whole.at("cut"), 0);
}

// The cloud is lost as early as it can be known that it has begun, before the model is known here
// and after it.
TEST_F(Rescue, TheTextThatBeganOnTheCloudAMomentAgo) {
  ASSERT_EQ(run_edge(cloud_.url(), home_, long_text({"--cut", "auto"})).out, calm_);
  for (const size_t bytes : {1, 1, 20, 200}) {
    const auto edge = disturbed({"--cut", "auto"}, kill(), bytes);
    EXPECT_EQ(edge->wait(), 0) << edge->err();
    EXPECT_EQ(edge->out(), calm_);
    cloud_.again();
  }
}

TEST_F(Rescue, ACloudThatGivesNoSignOfLifeIsLost) {
  for (const char* cut : {"4", "cloud", "auto"}) {
    SCOPED_TRACE(cut);
    std::chrono::steady_clock::time_point start;
    const auto edge = disturbed({"--cut", cut}, [&] {
      cloud_.process().signal(SIGSTOP);
      start = std::chrono::steady_clock::now();
    });
    EXPECT_EQ(edge->wait(), 0) << edge->err();
    EXPECT_EQ(edge->out(), calm_);
    EXPECT_EQ(times(edge->err(), "the cloud does not answer"), 1u) << edge->err();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));  // --timeout
    cloud_.process().signal(SIGCONT);
  }
}

TEST_F(Rescue, WaitsWithStay) {
  for (const char* cut : {"4", "cloud"}) {
    const auto edge = disturbed({"--cut", cut, "--stay", "--retry-for", "2"}, kill());
    EXPECT_EQ(edge->wait(), 3) << edge->err();
    EXPECT_EQ(times(edge->err(), kHere), 0u) << edge->err();
    cloud_.again();
  }
  const auto edge = disturbed({"--cut", "4", "--stay"}, [this] {
    cloud_.process().kill();
    cloud_.again();
  });
  EXPECT_EQ(edge->wait(), 0) << edge->err();
  EXPECT_EQ(edge->out(), calm_);
  EXPECT_EQ(times(edge->err(), "cloud_lost"), 0u) << edge->err();
  for (const Arguments& beside : {Arguments{"--cut", "auto"}, {}}) {
    expect_refusal(run(Arguments{"--stay", "--prompt", kPrompt} + beside), 2,
                   "--stay: expected --cut K, --cut cloud or --moves beside it, not --cut auto");
  }
}

TEST_F(Rescue, WaitsWhereTheCacheLacksSomethingOrItIsDamaged) {
  const fs::path blob = blob_of_embed();
  const auto expect_waits = [&](const char* cut) {
    const auto edge = disturbed({"--cut", cut, "--retry-for", "3"}, kill());
    EXPECT_EQ(edge->wait(), 3) << edge->err();
    EXPECT_EQ(times(edge->err(), kHere), 0u) << edge->err();
    EXPECT_TRUE(calm_.starts_with(edge->out()));
    cloud_.again();
  };
  {
    std::fstream file(blob, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(blob) / 2));
    file.put('x').put('y').put('z');
  }
  expect_waits("4");
  fs::remove(blob);
  fs::remove(blob.string() + ".part");
  for (const char* cut : {"4", "cloud"}) expect_waits(cut);
  // And goes on where the cloud is back in time.
  const auto edge = disturbed({"--cut", "4"}, [this] {
    cloud_.process().kill();
    cloud_.again();
  });
  EXPECT_EQ(edge->wait(), 0) << edge->err();
  EXPECT_EQ(edge->out(), calm_);
}

// Blocks of q8_0 here, and halves there.
TEST_F(Rescue, ElsewhereTheLineSaysSoAndExactWaits) {
  const Arguments format = {"--format", "q8_0"};
  const EdgeResult all = run_edge(cloud_.url(), home_, long_text(Arguments{"--cut", "0"} + format));
  ASSERT_EQ(all.code, 0) << all.err;
  const auto differs = disturbed(Arguments{"--cut", "4"} + format, kill());
  EXPECT_EQ(differs->wait(), 0) << differs->err();
  EXPECT_NE(
      differs->err().find("goes on here alone, and may differ: the cloud's bits are others\n"),
      std::string::npos)
      << differs->err();
  cloud_.again();
  const auto waits =
      disturbed(Arguments{"--cut", "4", "--exact", "--retry-for", "3"} + format, kill());
  EXPECT_EQ(waits->wait(), 3) << waits->err();
  EXPECT_EQ(times(waits->err(), kHere), 0u) << waits->err();
  cloud_.again();
  const auto same = disturbed({"--cut", "4", "--exact"}, kill());
  EXPECT_EQ(same->wait(), 0) << same->err();
  EXPECT_EQ(same->out(), calm_);
}

TEST_F(Rescue, AnEdgeThatServesGoesOnToo) {
  for (const char* cut : {"4", "cloud"}) {
    SCOPED_TRACE(cut);
    Process edge(edge_command(cloud_.url(), kOnCpu + Arguments{"--serve", "127.0.0.1:0", "--cut",
                                                               cut, "--retry-for", "4"}),
                 {cat("XDG_CACHE_HOME=", home_.path.string())});
    const auto says = [&](std::string_view part) {
      return edge.until([&] { return edge.err().find(part) != std::string::npos; });
    };
    ASSERT_TRUE(says(" ready\n")) << edge.err();
    const std::string mark = "listening on ";
    const size_t at = edge.err().find(mark) + mark.size();
    const std::string url = edge.err().substr(at, edge.err().find(' ', at) - at);
    const Json body = {{"prompt", kSampled},
                       {"seed", 3},
                       {"max_tokens", 300},
                       {"ignore_eos", true},
                       {"temperature", 0.8},
                       {"stream", true},
                       {"stream_options", {{"include_usage", true}}}};
    Json usage;
    const auto stream = [&](const std::function<void()>& begun) {
      std::string text;
      int events = 0;
      http::SseParser parser([&](std::string_view data) {
        const Json event = Json::parse(data, nullptr, false);
        if (!event.is_object()) return true;
        if (event.contains("choices") && !event["choices"].empty()) {
          text += event["choices"][0].at("text").get<std::string>();
        }
        if (event.contains("usage") && event["usage"].is_object()) usage = event["usage"];
        if (++events == 3 && begun) begun();
        return true;
      });
      http::Client client(url);
      client.stream(
          "POST", "/v1/completions", body.dump(), "application/json", {},
          [&](Bytes bytes) {
            return parser.feed({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
          },
          64 << 20);
      return text;
    };
    const std::string calm = stream({});
    EXPECT_EQ(usage["splitcompute"]["moves"].size(), 0u) << usage;
    for (int tries = 0; tries < 10 && usage["splitcompute"]["moves"].empty(); ++tries) {
      cloud_.go_on();  // where a text was over before
      EXPECT_EQ(stream(kill()), calm);
    }
    ASSERT_EQ(usage["splitcompute"]["moves"].size(), 1u) << usage;
    EXPECT_EQ(usage["splitcompute"]["moves"][0]["why"], "cloud_lost");
    EXPECT_TRUE(says("the cloud does not answer: the text goes on here alone\n")) << edge.err();
    const auto status = [&] {
      return Json::parse(http::Client(url).request("GET", "/split/status").body);
    };
    EXPECT_FALSE(status().at("server").at("reachable").get<bool>());
    EXPECT_EQ(status().at("last").at("moves")[0].at("why"), "cloud_lost") << status();
    // The next one too; an embedding waits as it did.
    EXPECT_EQ(stream({}), calm);
    const http::Reply embeds = http::Client(url).request(
        "POST", "/v1/embeddings", R"({"input":"The king"})", "application/json");
    EXPECT_EQ(embeds.status, 503) << embeds.body;
    // And at its cut again, once the cloud is back.
    cloud_.again();
    EXPECT_EQ(stream({}), calm);
    EXPECT_EQ(usage["splitcompute"]["moves"].size(), 0u) << usage;
    edge.signal(SIGTERM);
    EXPECT_EQ(edge.wait(), 0) << edge.err();
  }
}

}  // namespace
}  // namespace split::test
