// A cloud that is lost for good, or gives no sign of life, in the middle of a text at a cut that
// was named, or that --cut auto began just now: where the cache has all weights the text goes on
// here.
#include <deque>
#include <fstream>

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

// An edge that serves, and somebody who reads its streams.
struct ServingEdge {
  ServingEdge(const std::string& cloud, const fs::path& cache, const Arguments& more,
              const Arguments& before = {})
      : edge(before + edge_command(cloud, kOnCpu + Arguments{"--serve", "127.0.0.1:0"} + more),
             {cat("XDG_CACHE_HOME=", cache.string())}) {}
  bool says(std::string_view part) {
    return edge.until([&] { return edge.err().find(part) != std::string::npos; });
  }
  std::string url() {
    EXPECT_TRUE(says(" ready\n")) << edge.err();
    const std::string mark = "listening on ";
    const size_t at = edge.err().find(mark) + mark.size();
    return edge.err().substr(at, edge.err().find(' ', at) - at);
  }
  // The text of a stream, with `begun` done at its third event; its usage, or its error.
  std::string stream(const std::function<void()>& begun = {}, int tokens = 300) {
    const Json body = {{"prompt", kSampled},
                       {"seed", 3},
                       {"max_tokens", tokens},
                       {"ignore_eos", true},
                       {"temperature", 0.8},
                       {"stream", true},
                       {"stream_options", {{"include_usage", true}}}};
    std::string text;
    int events = 0;
    usage = error = {};
    http::SseParser parser([&](std::string_view data) {
      const Json event = Json::parse(data, nullptr, false);
      if (!event.is_object()) return true;
      if (event.contains("choices") && !event["choices"].empty()) {
        text += event["choices"][0].at("text").get<std::string>();
      }
      if (event.contains("usage") && event["usage"].is_object()) usage = event["usage"];
      if (event.contains("error")) error = event["error"];
      if (++events == 3 && begun) begun();
      return true;
    });
    http::Client client(url());
    client.stream(
        "POST", "/v1/completions", body.dump(), "application/json", {},
        [&](Bytes bytes) {
          return parser.feed({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        },
        64 << 20);
    return text;
  }
  Json get(const std::string& path) {
    return Json::parse(http::Client(url()).request("GET", path).body);
  }
  void expect_end() {
    edge.signal(SIGTERM);
    EXPECT_EQ(edge.wait(), 0) << edge.err();
  }

  Process edge;
  Json usage, error;
};

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
    ServingEdge edge(cloud_.url(), home_.path, {"--cut", cut, "--retry-for", "4"});
    const std::string calm = edge.stream();
    const auto moves = [&] { return edge.usage["splitcompute"]["moves"]; };
    EXPECT_EQ(moves().size(), 0u) << edge.usage;
    for (int tries = 0; tries < 10 && moves().empty(); ++tries) {
      cloud_.go_on();  // where a text was over before
      EXPECT_EQ(edge.stream(kill()), calm);
    }
    ASSERT_EQ(moves().size(), 1u) << edge.usage;
    EXPECT_EQ(moves()[0]["why"], "cloud_lost");
    EXPECT_TRUE(edge.says("the cloud does not answer: the text goes on here alone\n"))
        << edge.edge.err();
    const Json status = edge.get("/split/status");
    EXPECT_FALSE(status.at("server").at("reachable").get<bool>());
    EXPECT_EQ(status.at("last").at("moves")[0].at("why"), "cloud_lost") << status;
    // The next one too; an embedding waits as it did.
    EXPECT_EQ(edge.stream(), calm);
    const http::Reply embeds =
        http::Client(edge.url())
            .request("POST", "/v1/embeddings", R"({"input":"The king"})", "application/json");
    EXPECT_EQ(embeds.status, 503) << embeds.body;
    // And at its cut again, once the cloud is back.
    cloud_.again();
    EXPECT_EQ(edge.stream(), calm);
    EXPECT_EQ(moves().size(), 0u) << edge.usage;
    edge.expect_end();
  }
}

constexpr std::string_view kAllHere = "all weights are here: a text goes on if the cloud is lost\n";

// Its cache has nothing at the start. The cloud is killed in the middle of the second answer.
TEST_F(Pair, AnIdleEdgeThatServesAtACutFetchesWhatALostCloudWouldTake) {
  const Folder alone;
  const std::string calm = ServingEdge(cloud_.url(), alone.path, {"--cut", "0"}).stream();
  ASSERT_GT(calm.size(), 300u);
  for (const Arguments& cut : {Arguments{"--cut", "6"}, {"--cut", "3", "--head", "cloud"}}) {
    SCOPED_TRACE(cut[1]);
    const Folder home;
    ServingEdge edge(cloud_.url(), home.path, cut + Arguments{"--retry-for", "4"});
    EXPECT_EQ(edge.stream(), calm);
    ASSERT_TRUE(edge.says(kAllHere)) << edge.edge.err();
    EXPECT_EQ(times(edge.edge.err(), " of weights come while no text runs"), 1u) << edge.edge.err();
    const auto moves = [&] { return edge.usage["splitcompute"]["moves"]; };
    for (int tries = 0; tries < 10 && moves().empty(); ++tries) {
      cloud_.go_on();
      EXPECT_EQ(edge.stream([this] { cloud_.process().kill(); }), calm) << edge.error;
    }
    ASSERT_EQ(moves().size(), 1u) << edge.usage;
    EXPECT_EQ(moves()[0]["why"], "cloud_lost");
    EXPECT_EQ(edge.stream(), calm) << edge.error;
    edge.expect_end();
    cloud_.again();
  }
}

// By the time at which another edge, which began later, has fetched the rest.
TEST_F(Pair, NothingMoreIsFetchedWhereItIsNotWantedOrHasNoRoom) {
  struct Edge {
    Arguments flags, before;
    std::string says;
  };
  const Folder full, other;
  std::vector<Edge> edges{{{"--stay"}, {}, ""},
                          {{"--max-weights", "0"}, {}, ""},
                          {{"--max-weights", "20M"}, {}, "more than --max-weights 21.0 MB"},
                          {{"--cache-limit", "20M"}, {}, "more than --cache-limit"}};
  const std::string mount =
      cat("mount -t tmpfs -o size=12m none ", full.path.string(), " && exec \"$@\"");
  if (exit_code({"unshare", "-m", "sh", "-c", mount, "sh", "true"}) == 0) {
    edges.push_back({{"--cache", full.path.string()},
                     {"unshare", "-m", "sh", "-c", mount, "sh"},
                     "; texts wait for a lost cloud"});
  } else {
    std::printf("no right to mount: a small disk is not tested\n");
  }
  std::deque<Folder> homes;
  std::deque<ServingEdge> all;
  std::vector<uint64_t> kept;
  for (const Edge& one : edges) {
    all.emplace_back(cloud_.url(), homes.emplace_back().path,
                     Arguments{"--cut", "6", "--retry-for", "1"} + one.flags, one.before);
    EXPECT_FALSE(all.back().stream({}, 8).empty());
    kept.push_back(all.back().get("/split/cache").at("bytes").get<uint64_t>());
  }
  ServingEdge rest(cloud_.url(), other.path, {"--cut", "6"});
  ASSERT_TRUE(rest.says(kAllHere)) << rest.edge.err();
  EXPECT_GT(rest.get("/split/cache").at("bytes").get<uint64_t>(), 2 * kept[0]);
  for (size_t i = 0; i < edges.size(); ++i) {
    SCOPED_TRACE(edges[i].flags[0]);
    if (!edges[i].says.empty()) {
      EXPECT_TRUE(all[i].says(edges[i].says)) << all[i].edge.err();
    }
    EXPECT_EQ(all[i].get("/split/cache").at("bytes").get<uint64_t>(), kept[i]);
    EXPECT_EQ(times(all[i].edge.err(), "come while no text runs"), 0u) << all[i].edge.err();
  }
  cloud_.process().kill();
  for (ServingEdge& edge : all) {
    edge.stream({}, 8);
    EXPECT_FALSE(edge.error.empty() && edge.usage.is_object());
    edge.expect_end();
  }
}

// A cut that is moved has another rest; --cut auto fetches in its own way.
TEST_F(Pair, TheRestIsThatOfTheCutThatIsNamedNow) {
  ServingEdge edge(cloud_.url(), home_.path, {"--cut", "6", "--retry-for", "4"});
  const auto put = [&](const Json& cut) {
    const http::Reply reply =
        http::Client(edge.url())
            .request("PUT", "/split/cut", Json{{"cut", cut}}.dump(), "application/json");
    EXPECT_EQ(reply.status, 200) << reply.body;
  };
  put(3);
  put("cloud");
  put(5);
  const std::string calm = edge.stream();
  ASSERT_TRUE(edge.says(kAllHere)) << edge.edge.err();
  const auto moves = [&] { return edge.usage["splitcompute"]["moves"]; };
  for (int tries = 0; tries < 10 && moves().empty(); ++tries) {
    cloud_.go_on();
    EXPECT_EQ(edge.stream([this] { cloud_.process().kill(); }), calm) << edge.error;
  }
  EXPECT_EQ(moves().size(), 1u) << edge.usage;
  cloud_.again();
  put("auto");
  EXPECT_EQ(edge.stream(), calm);
  edge.expect_end();
}

}  // namespace
}  // namespace split::test
