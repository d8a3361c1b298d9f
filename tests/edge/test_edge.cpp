// edge_client: the same text wherever the model is cut, and whatever happens to the server on the
// way.
#include <gtest/gtest.h>

#include "edge_client/cloud/remote.h"
#include "edge_client/split/placement.h"
#include "run/text/generate.h"
#include "support/edge_world.h"
#include "wire/codes.h"

namespace split::test {
namespace {

using Json = nlohmann::json;

// One cloud of each model, and a cache, for all tests of this process.
struct Shared {
  static Shared& of(const std::string& name) {
    static std::map<std::string, ForAllTests<Shared>> all;
    Shared& one = all[name].get(name);
    one.cloud.reset({});
    return one;
  }
  explicit Shared(const std::string& name) : cloud(name), golden(name) {}

  // At the cut before the last two blocks, unless the arguments say what runs here.
  Outcome run(std::vector<std::string> arguments, const EdgeOptions& options = {}) {
    const bool says = std::ranges::any_of(arguments, [](const std::string& argument) {
      return argument.starts_with("--cut") || argument.starts_with("--head") ||
             argument.starts_with("--moves");
    });
    if (!says) arguments.push_back(cat("--cut=", cloud.model().config().layers - 2));
    for (const auto& argument :
         {cat("--server=", cloud.url()), cat("--cache=", cache.path.string()),
          std::string("--device=cpu"), std::string("--threads=1"), std::string("--retry-for=5")}) {
      arguments.insert(arguments.begin(), argument);
    }
    return cloud.ended(run_edge(arguments, options));
  }
  std::string prompt(int n) const {
    return "--prompt-ids=" + joined(golden.values<int32_t>(cat("p", n, ".ids")));
  }
  // The text that one machine alone writes.
  Generated alone(int n, float temperature, uint64_t seed, int tokens) {
    GenerateOptions options;
    options.max_tokens = tokens;
    options.sampling.temperature = temperature;
    options.sampling.seed = seed;
    options.ignore_end = true;
    LocalForward forward(cloud.model().batcher());
    return generate(forward, cloud.model().config(), cloud.model().tokenizer(),
                    golden.values<int32_t>(cat("p", n, ".ids")), options, {});
  }

  GatedCloud cloud;
  Golden golden;
  TemporaryFolder cache;
};

void expect_same_for_cuts(const std::string& name, const std::vector<std::string>& cuts,
                          int prompts, int tokens) {
  Shared& shared = Shared::of(name);
  for (int p = 0; p < prompts; ++p) {
    for (const float temperature : {0.0f, 0.9f}) {
      const Generated expected = shared.alone(p, temperature, 11, tokens);
      for (const std::string& cut : cuts) {
        for (const char* head : {"edge", "cloud"}) {
          const Outcome got = shared.run(
              {shared.prompt(p), cat("--cut=", cut), cat("--head=", head), "--seed=11", "--json",
               cat("--temperature=", temperature), cat("--max-tokens=", tokens), "--ignore-eos"});
          ASSERT_EQ(got.code, 0) << got.err;
          const Json json = got.json();
          ASSERT_EQ(json["tokens"].get<std::vector<int32_t>>(), expected.tokens)
              << "cut " << cut << " head " << head << " prompt " << p << " at " << temperature;
          EXPECT_EQ(json["finish_reason"], std::string(name_of(expected.finish_reason)));
          if (cut == "cloud") break;
        }
      }
    }
  }
}

TEST(Edge, TextOfTheRandomModelIsThatOfOneMachineForEveryCut) {
  expect_same_for_cuts("rand-a", {"0", "1", "2", "3", "cloud"}, 2, 16);
}

TEST(Edge, TextOfTheDemoIsThatOfOneMachineForCuts) {
  expect_same_for_cuts("demo", {"0", "1", "4", "8", "cloud"}, 1, 12);
}

TEST(Edge, GreedyTextIsPyTorchs) {
  Shared& shared = Shared::of("demo");
  const auto expected = shared.golden.values<int32_t>("p0.greedy_ids");
  const Outcome got = shared.run({shared.prompt(0), "--temperature=0", "--ignore-eos", "--json",
                                  cat("--max-tokens=", expected.size())});
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.json()["tokens"].get<std::vector<int32_t>>(), expected);
  EXPECT_EQ(got.json()["cut"], 6);
}

TEST(Edge, WritesTheTextAloneToStdoutAndTheReceiptToStderr) {
  Shared& shared = Shared::of("demo");
  const std::vector<std::string> same = {"--seed=3", "--max-tokens=8"};
  auto arguments = same;
  const Outcome text = shared.run(arguments, {.input = "Once upon a time", .environment = {}});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.err.find("seed 3"), std::string::npos) << text.err;
  EXPECT_NE(text.err.find("blocks 6-7, norm, head on cpu"), std::string::npos) << text.err;
  arguments.insert(arguments.end(), {"--json", "--prompt", "Once upon a time", "--logprobs=2"});
  const Outcome json = shared.run(arguments);
  EXPECT_EQ(json.json()["text"], text.out);
  EXPECT_EQ(json.json()["receipt"]["seed"], 3);
  EXPECT_EQ(json.json()["logprobs"].size(), 8u);
  EXPECT_EQ(json.json()["logprobs"][0]["top"].size(), 2u);
  EXPECT_EQ(json.json()["receipt"]["bytes_downloaded"], 0);
  EXPECT_EQ(json.json()["receipt"]["cloud_layer_rows"],
            6 * (json.json()["prompt_tokens"].size() + 7));
  const Outcome quiet =
      shared.run({"--quiet", "--prompt=Once upon a time", "--seed=3", "--max-tokens=8"});
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(quiet.out, text.out);
}

TEST(Edge, LogProbabilitiesAreTheSameWhereverTheModelRuns) {
  Shared& shared = Shared::of("demo");
  const auto logprobs = [&](const char* cut) {
    const Outcome got = shared.run(
        {shared.prompt(0), cut, "--temperature=0", "--max-tokens=4", "--logprobs=3", "--json"});
    EXPECT_EQ(got.code, 0) << got.err;
    return got.json()["logprobs"];
  };
  const Json here = logprobs("--cut=4");
  ASSERT_EQ(here.size(), 4u);
  EXPECT_EQ(here[0]["top"].size(), 3u);
  EXPECT_EQ(logprobs("--cut=cloud"), here);
}

TEST(Edge, ReadsTokenizerJsonWhereTheModelHasNoOther) {
  const TemporaryFolder folder;
  const std::filesystem::path demo = std::string(SPLIT_SOURCE_DIR) + "/weights/demo";
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"}) {
    std::filesystem::create_symlink(demo / file, folder.path / file);
  }
  cloud::Cloud cloud;
  cloud::ModelOptions options;
  options.id = "demo";
  options.path = folder.path;
  options.device = "cpu";
  options.threads = 1;
  options.kv_budget = 64 << 20;
  cloud.models.push_back(std::make_unique<cloud::ServedModel>(options));
  const Running server([&](http::Server& s) { cloud::add_routes(s, cloud); });
  const TemporaryFolder cache;
  const Outcome got =
      run_edge({cat("--server=", server.url()), cat("--cache=", cache.path.string()),
                "--device=cpu", "--threads=1", "--temperature=0", "--max-tokens=2",
                "--prompt=Once upon a time there was a little", "--quiet"});
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.out, " girl who");
}

TEST(Edge, APromptThatFillsTheContextGivesNoTokens) {
  Shared& shared = Shared::of("rand-a");
  const std::vector<int32_t> full(64, 5);
  const Outcome got = shared.run({"--prompt-ids=" + joined(full), "--json"});
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.json()["tokens"].size(), 0u);
  EXPECT_EQ(got.json()["finish_reason"], "length");
  const std::vector<int32_t> over(65, 5);
  const Outcome refused = shared.run({"--prompt-ids=" + joined(over)});
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(std::ranges::count(refused.err, '\n'), 1) << refused.err;
}

TEST(Edge, EmbeddingsAreTheGoldens) {
  for (const char* name : {"rand-a", "demo"}) {
    Shared& shared = Shared::of(name);
    for (const char* cut : {"0", "1", "3", "cloud"}) {
      const Outcome got = shared.run({shared.prompt(0), "--embed", "--json", cat("--cut=", cut)});
      ASSERT_EQ(got.code, 0) << got.err;
      const auto mean = got.json()["mean"].get<std::vector<float>>();
      const auto last = got.json()["last"].get<std::vector<float>>();
      EXPECT_LT(relative(mean, shared.golden.values<float>("p0.embed_mean")), 2e-5) << cut;
      EXPECT_LT(relative(last, shared.golden.values<float>("p0.embed_last")), 2e-5) << cut;
    }
  }
}

struct Fault {
  const char* name;
  std::function<std::optional<http::Response>(GatedCloud&, const http::Request&)> act;
};

const Fault kFaults[] = {
    {"the session is lost",
     [](GatedCloud& cloud, const http::Request& r) -> std::optional<http::Response> {
       EXPECT_TRUE(cloud.cloud.sessions.remove(r.path_params[0]));
       return std::nullopt;
     }},
    {"503 before the step",
     [](GatedCloud&, const http::Request&) -> std::optional<http::Response> {
       throw http::HttpError(503, wire::codes::kBusy, "busy", {}, {{"Retry-After", "0"}});
     }},
    {"502 without our JSON",
     [](GatedCloud&, const http::Request&) -> std::optional<http::Response> {
       return http::Response::text(502, "<html>bad gateway</html>");
     }},
    {"the connection is lost after the step",
     [](GatedCloud& cloud, const http::Request& r) -> std::optional<http::Response> {
       cloud.real(r);
       return cut_short();
     }},
    {"the session is lost with its connection",
     [](GatedCloud& cloud, const http::Request& r) -> std::optional<http::Response> {
       EXPECT_TRUE(cloud.cloud.sessions.remove(r.path_params[0]));
       return cut_short();
     }},
};

TEST(Edge, TextIsTheSameWhenTheServerFailsAtAnyStep) {
  Shared& shared = Shared::of("rand-a");
  const Generated expected = shared.alone(1, 0.9f, 5, 12);
  for (const Fault& fault : kFaults) {
    for (int n = 0; n <= 10; ++n) {
      int hits = 0;
      shared.cloud.reset(
          [&](const http::Request& request, int step) -> std::optional<http::Response> {
            if (step != n) return std::nullopt;
            ++hits;
            return fault.act(shared.cloud, request);
          });
      const Outcome got = shared.run({shared.prompt(1), "--cut=2", "--seed=5", "--temperature=0.9",
                                      "--max-tokens=12", "--ignore-eos", "--json"});
      ASSERT_EQ(got.code, 0) << fault.name << " at step " << n << ": " << got.err;
      EXPECT_EQ(hits, 1) << fault.name << " at step " << n;
      ASSERT_EQ(got.json()["tokens"].get<std::vector<int32_t>>(), expected.tokens)
          << fault.name << " at step " << n;
    }
  }
}

TEST(Edge, RefusesAnswersThatMakeNoSense) {
  Shared& shared = Shared::of("rand-a");
  const auto frame = [](uint32_t rows, uint32_t columns, float value) {
    http::Response response;
    response.content_type = "application/octet-stream";
    response.body =
        wire::frame("hidden", rows, columns, std::vector<float>(size_t{rows} * columns, value));
    return response;
  };
  const auto rows = static_cast<uint32_t>(shared.golden.values<int32_t>("p1.ids").size());
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  const std::pair<http::Response, const char*> answers[] = {
      {frame(rows, 96, nan), "not finite"},
      {frame(rows, 95, 0), "expected F32 [rows, 96]"},
      {frame(rows + 1, 96, 0), "rows"},
      {frame(rows - 1, 96, 0), "rows"},
      {http::Response::json(200, "{}"), "hidden"},
      {http::Response::json(400, R"({"error":{"message":"no\u001b[31m\nway","code":"x"}})"),
       "no [31m way"},
  };
  for (const auto& [answer, expected] : answers) {
    // A lambda captures no structured binding in clang 14.
    shared.cloud.reset([&given = answer](const http::Request&,
                                         int) -> std::optional<http::Response> { return given; });
    const Outcome got = shared.run({shared.prompt(1), "--cut=1", "--quiet"});
    EXPECT_EQ(got.code, 3);
    EXPECT_EQ(got.out, "");
    EXPECT_NE(got.err.find(expected), std::string::npos) << got.err;
    EXPECT_EQ(std::ranges::count(got.err, '\n'), 1) << got.err;
    EXPECT_EQ(shared.cloud.steps, 1) << "tried again: " << got.err;
  }
}

TEST(Edge, GivesUpWhenTheServerStaysBusy) {
  Shared& shared = Shared::of("rand-a");
  shared.cloud.reset([](const http::Request&, int) -> std::optional<http::Response> {
    throw http::HttpError(503, wire::codes::kBusy, "come back");
  });
  const Outcome got = shared.run({shared.prompt(1), "--cut=1", "--quiet", "--retry-for=0"});
  EXPECT_EQ(got.code, 3);
  EXPECT_EQ(shared.cloud.steps, 1);
  EXPECT_NE(got.err.find("answered 503: come back"), std::string::npos) << got.err;
}

// A server that says how far it is with the weights is waited for, however long it takes; one that
// says the same again and again is silent.
TEST(Edge, WaitsForAServerThatMakesProgress) {
  Shared& shared = Shared::of("rand-a");
  const auto busy_until = [&](int last, bool progress) {
    shared.cloud.reset({}, {}, [=](const http::Request&, int n) -> std::optional<http::Response> {
      if (n >= last) return std::nullopt;
      throw http::HttpError(503, wire::codes::kBusy, cat("made ", progress ? n : 7, " of 9"), {},
                            {{"Retry-After", "0"}});
    });
  };
  constexpr int kAnswers = 320;  // 10 ms apart, at least
  busy_until(kAnswers, true);
  const Outcome patient =
      shared.run({shared.prompt(1), "--max-tokens=1", "--retry-for=3", "--seed=1"});
  EXPECT_EQ(patient.code, 0) << patient.err;
  EXPECT_EQ(shared.cloud.models, kAnswers + 1);
  EXPECT_NE(patient.err.find("\nmade 5 of 9\n"), std::string::npos) << patient.err;
  EXPECT_EQ(patient.err.find("answered 503"), std::string::npos) << patient.err;  // asks again
  busy_until(INT_MAX, false);
  const Outcome got = shared.run({shared.prompt(1), "--quiet", "--retry-for=0"});
  EXPECT_EQ(got.code, 3);
  EXPECT_EQ(std::ranges::count(got.err, '\n'), 1) << got.err;
}

// An edge does not wait for formats that the server is still making for others.
TEST(Edge, AsksForItsStagesAndFormatsAlone) {
  Shared& shared = Shared::of("rand-a");
  const auto asked = [&](std::vector<std::string> arguments) {
    std::string query;
    shared.cloud.reset({}, {}, [&](const http::Request& request, int) {
      for (const auto& [name, value] : request.query_params) query += cat(name, "=", value, " ");
      return std::nullopt;
    });
    arguments.insert(arguments.end(), {shared.prompt(1), "--max-tokens=1"});
    const Outcome got = shared.run(arguments);
    EXPECT_EQ(got.code, 0) << got.err;
    return query;
  };
  EXPECT_EQ(asked({}), "format=auto from=1 to=head ");
  EXPECT_EQ(asked({"--cut=0", "--format=q4_0"}), "format=block=q4_0,head=q8_0 to=head ");
  EXPECT_EQ(asked({"--cut=2", "--head=cloud"}), "format=auto from=2 to=3 ");
  EXPECT_EQ(asked({"--cut=2", "--embed"}), "format=auto from=2 to=norm ");
  EXPECT_EQ(asked({"--cut=cloud"}), "format=auto from=1 to=1 ");
  EXPECT_EQ(asked({"--plan"}), "ready=true ");  // has none made
}

TEST(Edge, CutZeroNeedsNoServerOnceLoaded) {
  Shared& shared = Shared::of("rand-a");
  shared.cloud.reset([](const http::Request&, int) -> std::optional<http::Response> {
    ADD_FAILURE() << "a step was sent";
    return std::nullopt;
  });
  const Outcome got = shared.run({shared.prompt(0), "--cut=0", "--json"});
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.json()["receipt"]["bytes_up"], 0);
  EXPECT_EQ(got.json()["receipt"]["cloud_layer_rows"], 0);
}

TEST(Edge, DraftsWhatRunsHereAlone) {
  Shared& shared = Shared::of("demo");
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--prompt=And the king said yes, and the king said yes,",
                                          "--json", "--max-tokens=40", "--ignore-eos"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome got = shared.run(arguments);
    EXPECT_EQ(got.code, 0) << got.err;
    return got.json();
  };
  for (const char* temperature : {"--temperature=0", "--temperature=0.8"}) {
    const auto plain = run({temperature, "--seed=3", "--cut=0", "--draft=off"});
    EXPECT_EQ(plain["receipt"]["drafted"], 0);
    EXPECT_EQ(plain["receipt"]["steps"], 40);
    for (const char* draft : {"--draft=auto", "--draft=3", "--draft=7"}) {
      const auto drafted = run({temperature, "--seed=3", "--cut=0", draft});
      EXPECT_EQ(drafted["tokens"], plain["tokens"]) << draft;
      // Each that was right saved a step.
      EXPECT_EQ(drafted["receipt"]["steps"].get<int>() + drafted["receipt"]["accepted"].get<int>(),
                40);
    }
  }
  EXPECT_GT(run({"--temperature=0", "--cut=0", "--draft=7"})["receipt"]["accepted"], 0);
  // Over a cut each step is a trip.
  const auto cut = run({"--temperature=0", "--seed=3", "--cut=2", "--draft=7"})["receipt"];
  EXPECT_GT(cut["accepted"], 0);
  EXPECT_EQ(cut["trips"], cut["steps"]);
  EXPECT_EQ(run({"--temperature=0", "--cut=2", "--head=cloud"})["receipt"]["drafted"], 0);
}

// Rows of guesses that were wrong led to no text, and the head is here.
TEST(Edge, SaysHowMuchTheCloudDidWhateverWasGuessed) {
  const double head = edge::head_in_blocks(*Golden("demo").model);
  edge::TextWork work{.heads = 60};
  for (const char* draft : {"--draft=off", "--draft=7"}) {
    const Outcome got = Shared::of("demo").run(
        {"--prompt=a a a a a", "--cut=6", "--seed=4", "--max-tokens=60", "--ignore-eos", draft});
    EXPECT_EQ(got.code, 0) << got.err;
    const size_t prompt = std::stoul(got.err.substr(got.err.find("prompt    ") + 10));
    work.rows = prompt + 59;
    work.cloud_layer_rows = work.rows * 6;
    const int percent = *edge::cloud_percent(work, 8, head);
    EXPECT_NE(got.err.find(cat("the cloud did ", percent, " % of the work")), std::string::npos)
        << draft << "\n"
        << got.err;
  }
}

TEST(Edge, SaysWhatIsWrongInOneLine) {
  Shared& shared = Shared::of("demo");
  const std::tuple<std::vector<std::string>, int, const char*> cases[] = {
      {{"--model=nope", "--prompt=x"}, 3, "has no model 'nope', it has 'demo'"},
      {{"--cut=9", "--prompt=x"}, 2, "--cut: the model has 8 blocks"},
      {{"--cut=-1", "--prompt=x"},
       2,
       "--cut: expected a number of blocks, cloud or auto, got '-1'"},
      {{"--prompt=x", "--prompt-ids=1"}, 2, "expected one of --prompt"},
      {{"--prompt-ids=1,"}, 2, "--prompt-ids"},
      {{"--prompt-ids=8192"}, 2, "token id"},
      {{"--prompt-file=/nowhere"}, 2, "--prompt-file"},
      {{"--prompt=x", "--device=gpu"}, 2, "got 'gpu'"},
      {{"--prompt=x", "--draft=8"}, 2, "--draft: expected auto, off or 1..7, got '8'"},
      {{"--prompt=x", "--format=f32", "--stop="}, 2, "--stop"},
      {{"--server=http://127.0.0.1:1", "--prompt=x"}, 3, "is cloud_server running there?"},
      {{"--server=ftp://x", "--prompt=x"}, 2, "URL"},
      {{"--server=https" + shared.cloud.http().substr(4), "--prompt=x"},
       3,
       "a server of http:// is there, it seems"},
      {{"--server=" + shared.cloud.http() + "/nope", "--prompt=x"}, 3, "is the path right?"},
      {{"--cache=/proc/nowhere", "--prompt=x"}, 4, "--cache DIR"},
  };
  for (const auto& [arguments, code, text] : cases) {
    const Outcome got = shared.run(arguments);
    EXPECT_EQ(got.code, code) << got.err;
    EXPECT_NE(got.err.find(text), std::string::npos) << got.err;
    // An address that is tried three times may have been waited for: a line says so.
    const bool waited = got.err.starts_with("waiting for the cloud");
    EXPECT_EQ(std::ranges::count(got.err, '\n'), waited ? 2 : 1) << got.err;
    EXPECT_EQ(got.err.find("[http]"), std::string::npos) << got.err;
    EXPECT_EQ(got.out, "");
  }
  const Outcome variable =
      shared.run({"--prompt=x"}, {.input = "", .environment = {{"SPLIT_TOP_K", "x"}}});
  EXPECT_EQ(variable.code, 2);
  EXPECT_NE(variable.err.find("SPLIT_TOP_K: expected"), std::string::npos) << variable.err;
  const std::string help = run_edge({"--help"}).out;
  EXPECT_NE(help.find("tokens/s that offloading keeps"), std::string::npos) << help;
  EXPECT_LE(std::ranges::count(help, '\n'), 114);
  EXPECT_NE(help.find("Exit codes: 0 all is well"), std::string::npos) << help;
}

TEST(Edge, ReadsServerTiming) {
  EXPECT_DOUBLE_EQ(edge::server_ms("queue;dur=1.5, compute;dur=2"), 3.5);
  EXPECT_DOUBLE_EQ(edge::server_ms("cache;desc=x, compute;dur=-3, a;dur=inf, b;dur=zz"), 0);
  EXPECT_DOUBLE_EQ(edge::server_ms("device;desc=\"x\", total;dur=9,queue;dur=1"), 1);
  EXPECT_DOUBLE_EQ(edge::server_ms(std::nullopt), 0);
  EXPECT_EQ(edge::path_segment("a/../b?c%"), "a%2f..%2fb%3fc%25");
}

}  // namespace
}  // namespace split::test
