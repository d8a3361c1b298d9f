// edge_client with a tail of one's own: two models behind --serve, whose rows never mix, one text
// at every cut below the tail, and no token of it from the cloud's own stream.
#include <gtest/gtest.h>

#include <deque>
#include <fstream>
#include <set>

#include "base/file.h"
#include "edge_client/options/command_line.h"
#include "io/write_safetensors.h"
#include "support/edge_server.h"

namespace split::test {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;
using Change = std::function<void(NamedTensor& tensor, std::vector<float>& values)>;

// Writes those of a checkpoint's tensors for which `change` leaves values.
void write_changed(const fs::path& from, const fs::path& to, const Change& change) {
  const MappedFile file(from);
  const Safetensors parsed = Safetensors::parse(file.bytes(), from.string());
  std::deque<std::vector<float>> kept;
  std::vector<NamedTensor> tensors;
  for (const auto& [name, view] : parsed.tensors()) {
    NamedTensor tensor{name, view};
    std::vector<float> values(view.bytes.size() / sizeof(float));
    std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
    change(tensor, values);
    if (values.empty()) continue;
    tensor.view.bytes = std::as_bytes(std::span(kept.emplace_back(std::move(values))));
    tensors.push_back(tensor);
  }
  std::ofstream(to, std::ios::binary) << write_safetensors(tensors);
}

// A tail that is the model's last block and norm, and says other things.
fs::path write_tail(const fs::path& model, const fs::path& to, int block) {
  write_changed(model / "model.safetensors", to, [&](NamedTensor& tensor, auto& values) {
    const bool own = tensor.name.find(cat("h.", block, ".")) != std::string::npos ||
                     tensor.name.find("ln_f") != std::string::npos;
    if (!own) values.clear();
    for (size_t i = 0; i < values.size(); ++i) values[i] *= i % 3 == 0 ? -1.5f : 1.25f;
  });
  return to;
}

// A cloud with a prompt cache, which counts whole texts that it is asked for, and a tail of its
// model's last block of three.
struct TailPair {
  explicit TailPair(const std::string& name = "rand-a") {
    cloud::ModelOptions options;
    options.id = fs::path(name).filename().string();
    options.path = name.starts_with('/') ? name : model_dir(name);
    options.device = "cpu";
    options.threads = 1;
    options.kv_budget = 64 << 20;
    options.formats = cloud::parse_formats("f32,q8_0");
    cloud.models.push_back(std::make_unique<cloud::ServedModel>(options));
    cloud.models[0]->batcher().keep_prefixes();
    cloud.ready = true;
    running.emplace([this](http::Server& server) {
      cloud::add_routes(server, cloud);
      server.router().add_observer([this](const http::Request&, const http::Answered& answered) {
        if (answered.route.ends_with("completions")) ++texts;
      });
    });
    tail = write_tail(options.path, folder.path / "tail.safetensors", 2);
  }
  std::vector<std::string> arguments(std::vector<std::string> more, bool with_tail = true) const {
    more.insert(more.end(), {cat("--server=", running->url()),
                             cat("--cache=", (folder.path / "cache").string()), "--draft=off"});
    if (with_tail) more.push_back(cat("--tail=", tail.string()));
    return more;
  }
  Outcome text(std::vector<std::string> more, bool with_tail = true) const {
    more.insert(more.end(), {"--prompt-ids=5,17,200,31", "--max-tokens=12", "--ignore-eos",
                             "--seed=5", "--device=cpu", "--threads=1", "--json"});
    return run_edge(arguments(std::move(more), with_tail));
  }
  Json ids(std::vector<std::string> more, bool with_tail = true) const {
    const Outcome out = text(std::move(more), with_tail);
    EXPECT_EQ(out.code, 0) << out.err;
    return out.code == 0 ? out.json()["tokens"] : Json();
  }

  // Waits until so many whole texts were asked for: they are counted behind their answers.
  void await_texts(int count) const {
    while (texts < count) std::this_thread::yield();
    EXPECT_EQ(texts, count);
  }

  TemporaryFolder folder;
  fs::path tail;
  std::atomic<int> texts = 0;
  cloud::Cloud cloud;
  std::optional<Running> running;
};

Json body_of(const char* model, int32_t last, bool cache = true) {
  std::vector<int32_t> prompt(40);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = (7 + 3 * static_cast<int32_t>(i)) % 60;
  prompt.back() = last;
  Json body = {{"prompt", prompt},      {"temperature", 1},        {"seed", 5},
               {"max_tokens", 9},       {"ignore_eos", true},      {"logprobs", 2},
               {"cache_prompt", cache}, {"return_token_ids", true}};
  if (model != nullptr) body["model"] = model;
  return body;
}

constexpr const char* kAsked = "/v1/completions";
constexpr const char* kPersonal = "rand-a:personal";

TEST(EdgeTail, IsServedBesideItsBase) {
  TailPair pair;
  EdgeServer base(pair.arguments({"--cut=cloud"}, false));
  const Json of_cloud = base.ready().ask(kAsked, body_of("rand-a", 1))["choices"][0];
  const Json states = base.ask("/v1/embeddings", {{"input", Json::array({5, 17})}})["data"];
  base.stop();
  pair.await_texts(1);
  EdgeServer edge(pair.arguments({"--cut=2"}));
  edge.ready();
  const Json list = Json::parse(edge.get("/v1/models").body)["data"];
  ASSERT_EQ(list.size(), 2u) << list;
  EXPECT_EQ(list[0]["id"], kPersonal);
  EXPECT_EQ(list[1]["id"], "rand-a");
  for (const char* id : {"rand-a", kPersonal}) {
    EXPECT_EQ(Json::parse(edge.get(cat("/v1/models/", id)).body)["id"], id);
    EXPECT_EQ(edge.post("/api/show", {{"model", id}}).status, 200);
  }
  const Json tags = Json::parse(edge.get("/api/tags").body)["models"];
  ASSERT_EQ(tags.size(), 2u);
  EXPECT_EQ(tags[0]["name"], "rand-a:personal:latest");
  EXPECT_NE(tags[0]["digest"], tags[1]["digest"]);
  const http::Reply other = edge.post(kAsked, body_of("rand-b", 1));
  EXPECT_EQ(other.status, 404);
  EXPECT_NE(other.body.find("rand-a:personal, rand-a"), std::string::npos) << other.body;

  const Json unnamed = edge.ask(kAsked, body_of(nullptr, 1)),
             personal = edge.ask(kAsked, body_of(kPersonal, 1));
  EXPECT_EQ(pair.texts, 1);
  EXPECT_EQ(unnamed["model"], kPersonal);
  EXPECT_EQ(personal["choices"], unnamed["choices"]);
  EXPECT_EQ(personal["usage"]["splitcompute"]["cut"], 2);
  EXPECT_NE(personal["choices"][0]["token_ids"], of_cloud["token_ids"]);
  const Json whole = edge.ask(kAsked, body_of("rand-a", 1));
  pair.await_texts(2);
  EXPECT_EQ(whole["model"], "rand-a");
  EXPECT_EQ(whole["choices"][0], of_cloud);
  EXPECT_EQ(whole["usage"]["splitcompute"]["cut"], "cloud");
  for (const char* id : {static_cast<const char*>(nullptr), kPersonal, "rand-a"}) {
    const Json unsplit = edge.ask("/split/unsplit", body_of(id, 1));
    EXPECT_EQ(unsplit["choices"][0], of_cloud);
    EXPECT_EQ(unsplit["model"], "rand-a");
  }
  const auto embedded = [&](const char* id) {
    return edge.ask("/v1/embeddings", {{"model", id}, {"input", Json::array({5, 17})}})["data"];
  };
  EXPECT_EQ(embedded("rand-a"), states);
  EXPECT_NE(embedded(kPersonal), states);
  const Json status = edge.status();
  EXPECT_EQ(status["model"], "rand-a");
  EXPECT_EQ(status["tail"], (Json{{"model", kPersonal}, {"first", 2}}));
}

TEST(EdgeTail, StaysHereWhateverIsAskedOfAServer) {
  TailPair pair;
  EdgeServer edge(pair.arguments({}));
  edge.ready();
  EXPECT_EQ(edge.status()["cut"], 2);  // not all is here
  const Json expected = edge.ask(kAsked, body_of(nullptr, 1))["choices"];
  const auto refused = [&](const char* path, const Json& wish, const char* field) {
    const http::Reply reply = edge.send("PUT", path, wish);
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_EQ(Json::parse(reply.body)["error"]["param"], field) << reply.body;
  };
  refused("/split/cut", {{"cut", 3}}, "cut");
  refused("/split/cut", {{"cut", "cloud"}}, "cut");
  refused("/split/cut", {{"cut", "cloud"}, {"running", true}}, "cut");
  refused("/split/placement", {{"cut", "cloud"}}, "cut");
  refused("/split/placement", {{"cut", "cloud"}, {"format", "f32"}}, "cut");
  refused("/split/placement", {{"head", "cloud"}}, "head");
  EXPECT_EQ(edge.send("PUT", "/split/placement", {{"cut", 3}, {"format", "f32"}}).status, 400);
  pair.texts = 0;
  for (const Json& wish : {Json{{"cut", 1}}, {{"cut", "auto"}}, {{"cut", 0}}, {{"cut", 2}}}) {
    ASSERT_EQ(edge.send("PUT", "/split/cut", wish).status, 200);
    EXPECT_EQ(edge.ask(kAsked, body_of(nullptr, 1))["choices"], expected) << wish;
  }
  // By now all weights are in the cache.
  ASSERT_EQ(edge.send("PUT", "/split/cut", {{"cut", "auto"}}).status, 200);
  EXPECT_EQ(edge.status()["cut"], 0);
  const http::Reply placed =
      edge.send("PUT", "/split/placement", {{"cut", "auto"}, {"format", "f32"}});
  ASSERT_EQ(placed.status, 200) << placed.body;
  EXPECT_EQ(Json::parse(placed.body)["cut"], 0);
  EXPECT_EQ(edge.ask(kAsked, body_of(nullptr, 1))["choices"], expected);
  EXPECT_EQ(pair.texts, 0);
}

// Both models' prompts begin alike, and each side keeps rows: here of the tail, there of both.
TEST(EdgeTail, SharesNoRowsWithItsBase) {
  for (const char* cut : {"--cut=0", "--cut=1", "--cut=2"}) {
    TailPair pair;
    EdgeServer edge(pair.arguments({cut}));
    edge.ready();
    for (int32_t last = 1; last < 4; ++last) {
      std::set<std::string> different;
      for (const char* id : {"rand-a", kPersonal, kPersonal, "rand-a"}) {
        const Json warm = edge.ask(kAsked, body_of(id, last)),
                   cold = edge.ask(kAsked, body_of(id, last, false));
        EXPECT_EQ(warm["choices"], cold["choices"]) << cut << " " << id << " " << last;
        different.insert(warm["choices"].dump());
        EXPECT_EQ(cold["usage"]["splitcompute"]["cached_rows"], 0);
        if (last == 1) continue;
        EXPECT_GE(warm["usage"]["splitcompute"]["cached_rows"], 32) << cut << id;
      }
      EXPECT_EQ(different.size(), 2u) << cut;
    }
  }
}

TEST(EdgeTail, TextIsTheSameAtEveryCutBelowIt) {
  TailPair pair;
  const Json base = pair.ids({"--cut=2"}, false), first = pair.ids({});
  EXPECT_NE(first, base);
  const Outcome embedded = pair.text({"--embed"}), of_base = pair.text({"--embed"}, false);
  ASSERT_EQ(embedded.code, 0) << embedded.err;
  EXPECT_NE(embedded.out, of_base.out);
  for (const std::vector<std::string>& place : {std::vector<std::string>{"--cut=2"},
                                                {"--moves=0:1,4:2,8:0"},
                                                {"--moves=3:1"},
                                                {"--cut=1"},
                                                {"--stay"},
                                                {"--head=edge"},
                                                {"--cut=0"}}) {
    EXPECT_EQ(pair.ids(place), first) << place[0];
    if (!place[0].starts_with("--cut")) continue;
    EXPECT_EQ(pair.text({place[0], "--embed"}).out, embedded.out);
  }
  const auto refused = [&](std::vector<std::string> more, const std::string& why) {
    const Outcome outcome = pair.text(std::move(more));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  };
  refused({"--cut=3"}, "--cut: expected at most 2, where the tail begins, got 3");
  refused({"--moves=0:1,4:3"}, "--moves: expected at most 2, where the tail begins, got 3");
  refused({"--moves=0:3,4:1"}, "--cut: expected at most 2, where the tail begins, got 3");
  refused({"--moves=4:cloud"}, "--moves: expected numbers of blocks beside --tail");
  refused({"--moves=0:cloud,4:1"}, "--moves: expected numbers of blocks beside --tail");
  refused({"--cut=cloud"}, "--tail: expected no --cut cloud");
  refused({"--cut=2", "--head=cloud"}, "--tail: expected no --cut cloud or --head cloud");
  EXPECT_EQ(pair.texts, 0);
}

// With all weights in the cache no cut is the fastest, and the text needs no cloud.
TEST(EdgeTail, RunsHereAloneWhereAllWeightsAre) {
  TailPair pair;
  const Outcome first = pair.text({});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.json()["cut"], 2);
  ASSERT_EQ(pair.text({"--cut=0"}).code, 0);
  const Outcome whole = pair.text({});
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(whole.json()["cut"], 0);
  EXPECT_EQ(whole.json()["tokens"], first.json()["tokens"]);
  EXPECT_EQ(pair.texts, 0);

  EdgeServer edge(pair.arguments({"--cut=2", "--retry-for=4"}));
  const Json expected = edge.ready().ask(kAsked, body_of(nullptr, 1))["choices"];
  const std::string url = pair.running->url();
  pair.running.reset();
  const Json lost = edge.ask(kAsked, body_of(nullptr, 1));
  EXPECT_EQ(lost["choices"], expected);
  EXPECT_EQ(edge.post(kAsked, body_of("rand-a", 1)).status, 503);
  edge.stop();
  const Outcome alone = run_edge(
      {cat("--server=", url), cat("--cache=", (pair.folder.path / "cache").string()), "--draft=off",
       cat("--tail=", pair.tail.string()), "--prompt-ids=5,17,200,31", "--max-tokens=12",
       "--ignore-eos", "--seed=5", "--device=cpu", "--threads=1", "--json"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(alone.json()["tokens"], first.json()["tokens"]);
}

// A head of more than three blocks is the cloud's at a cut that is named, but for a tail, whose
// norm is before it.
TEST(EdgeTail, ItsHeadIsHereHoweverLargeItIs) {
  const TemporaryFolder folder;
  const fs::path model = folder.path / "large";
  fs::create_directory(model);
  constexpr int kTimes = 13;
  write_changed(fs::path(model_dir("rand-a")) / "model.safetensors", model / "model.safetensors",
                [](NamedTensor& tensor, std::vector<float>& values) {
                  if (!tensor.name.ends_with("wte.weight")) return;
                  const size_t rows = values.size();
                  tensor.view.dims[0] *= kTimes;
                  for (int i = 1; i < kTimes; ++i) {
                    const float scale = 1 - 0.03f * static_cast<float>(i);
                    for (size_t at = 0; at < rows; ++at) values.push_back(values[at] * scale);
                  }
                });
  Json config = Json::parse(read_file(fs::path(model_dir("rand-a")) / "config.json", 1 << 20));
  config["vocab_size"] = config["vocab_size"].get<int>() * kTimes;
  std::ofstream(model / "config.json") << config;
  TailPair pair(model.string());
  const auto placed = [&](std::vector<std::string> more, bool with_tail) {
    Outcome out = pair.text(std::move(more), with_tail);
    EXPECT_EQ(out.code, 0) << out.err;
    return out;
  };
  constexpr const char* kOnCloud = "stays on the cloud (--head edge)";
  const Outcome base = placed({"--cut=2"}, false), first = placed({}, true);
  EXPECT_NE(base.err.find(kOnCloud), std::string::npos) << base.err;
  EXPECT_EQ(first.err.find(kOnCloud), std::string::npos) << first.err;
  for (const char* cut : {"--cut=2", "--cut=1", "--cut=0"}) {
    EXPECT_EQ(placed({cut}, true).json()["tokens"], first.json()["tokens"]) << cut;
  }
}

TEST(EdgeTail, IsAnOptionOfTheLibraryToo) {
  const edge::Options options = edge::read_engine_options({{"tail", "t"}});
  EXPECT_EQ(options.tail, "t");
  EXPECT_FALSE(options.placement.auto_cut || options.placement.cut);
  EXPECT_THROW(edge::read_engine_options({{"tail", "t"}, {"cut", "cloud"}}), Error);
}

TEST(EdgeTail, IsNotOfAnEncoder) {
  TailPair pair;
  GatedCloud cloud(source("tests/golden/models/st-minilm"));
  const Outcome out =
      run_edge({cat("--server=", cloud.url()), cat("--cache=", (pair.folder.path / "c").string()),
                cat("--tail=", pair.tail.string()), "--prompt=x", "--embed"});
  EXPECT_EQ(out.code, 2) << out.err;
  EXPECT_NE(out.err.find("expected a model that writes text, got an encoder"), std::string::npos);
}

}  // namespace
}  // namespace split::test
