// edge_client/engine/ with a cloud in this process and no HTTP between them: an engine needs no
// socket, neither its own nor its client's.
#include <gtest/gtest.h>

#include <filesystem>

#include "cloud_server/routes/routes.h"
#include "edge_client/engine/request.h"
#include "edge_client/options/command_line.h"
#include "http/server/server.h"
#include "support/golden_model.h"
#include "support/in_process/in_process.h"
#include "support/temporary_folder.h"

namespace split::test {
namespace {

using edge::EngineRequest;

// The real routes, asked by functions.
struct Cloud {
  explicit Cloud(const std::string& name) : golden(name) {
    cloud::ModelOptions options;
    options.id = std::filesystem::path(name).filename().string();
    options.path = model_dir(name);
    options.device = "cpu";
    options.threads = 1;
    options.kv_budget = 64 << 20;
    options.formats = cloud::parse_formats("f32");
    cloud.models.push_back(std::make_unique<cloud::ServedModel>(options));
    cloud.ready = true;
    cloud::add_routes(server, cloud);
    here.emplace(server.router());
  }
  std::vector<int32_t> prompt() const { return golden.values<int32_t>("p1.ids"); }
  // The text that one machine alone writes.
  std::vector<int32_t> alone(const GenerateOptions& options) {
    cloud::ServedModel& model = *cloud.models[0];
    LocalForward forward(model.batcher());
    return generate(forward, model.config(), model.tokenizer(), prompt(), options, {}).tokens;
  }
  Golden golden;
  http::Server server{{}};  // never runs
  cloud::Cloud cloud;
  std::optional<InProcess> here;
};

struct Heard : edge::EngineObserver {
  void moved(const edge::Move& move, const std::string&) override { moves.push_back(move); }
  void begun(const edge::PlacedModel&) override { ++begins; }
  std::vector<edge::Move> moves;
  int begins = 0;
};

// An engine as a program would hold it.
struct Held {
  Held(const Cloud& cloud, const std::string& cut, const std::filesystem::path& cache,
       int retry_for = 5, const char* flag = "cut")
      : options(options_of(Json({{"server", cloud.here->url()},
                                 {flag, cut},
                                 {"cache", cache.string()},
                                 {"device", "cpu"},
                                 {"threads", 1},
                                 {"retry-for", retry_for}}))),
        engine(options, options.placement, environment, interrupt, heard) {}
  // Writes a text; calls `at` behind each token with how many there are.
  std::vector<int32_t> text(std::span<const int32_t> prompt, const GenerateOptions& wanted,
                            const std::function<void(int)>& at = {}) {
    EngineRequest request(engine);
    const auto running = request.begin(prompt, wanted);
    int tokens = 0;
    const auto count = [&](const TextPiece&, const ScoredToken* token) {
      if (token != nullptr && at) at(++tokens);
      return true;
    };
    while (running->next(count)) continue;
    return running->take().tokens;
  }
  static edge::Options options_of(const Json& given) {
    edge::Options options = edge::read_engine_options(given);
    options.connector = InProcess::connect;
    return options;
  }
  const Flags::Environment environment = [](const char*) { return nullptr; };
  edge::Options options;
  Interrupt interrupt;
  Heard heard;
  edge::Engine engine;
};

GenerateOptions wanted(float temperature) {
  GenerateOptions options;
  options.max_tokens = 12;
  options.sampling.temperature = temperature;
  options.sampling.seed = 7;
  options.seeded = options.ignore_end = true;
  return options;
}

// Sockets that this process has open.
int sockets() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += std::filesystem::read_symlink(entry.path(), gone).string().starts_with("socket:");
  }
  return count;
}

TEST(EngineAlone, WritesTheCloudsTextAtEveryCut) {
  Cloud cloud("rand-a");
  const int before = sockets();
  for (const float temperature : {0.0f, 0.9f}) {
    const std::vector<int32_t> expected = cloud.alone(wanted(temperature));
    for (const char* cut : {"0", "1", "3", "cloud"}) {
      const TemporaryFolder cache;
      Held held(cloud, cut, cache.path);
      held.engine.load();
      const int loaded = cloud.here->asked;
      EXPECT_EQ(held.text(cloud.prompt(), wanted(temperature)), expected) << cut;
      EXPECT_EQ(held.heard.begins, 1);
      EXPECT_EQ(cloud.here->asked > loaded, std::string(cut) != "0") << "at 0 nobody is asked";
      EXPECT_EQ(sockets(), before);
    }
  }
}

TEST(EngineAlone, MovesATextThatRunsAndThoseThatFollow) {
  Cloud cloud("rand-a");
  const std::vector<int32_t> expected = cloud.alone(wanted(0.9f));
  const TemporaryFolder cache;
  Held held(cloud, "0:3,4:1,8:0", cache.path, 5, "moves");
  held.engine.load();
  EXPECT_EQ(held.text(cloud.prompt(), wanted(0.9f)), expected);
  ASSERT_EQ(held.heard.moves.size(), 2u);
  EXPECT_EQ(held.heard.moves[0].to, 1);
  EXPECT_EQ(held.heard.moves[1].to, 0);

  Held other(cloud, "3", cache.path);
  other.engine.load();
  other.engine.move_cut(1);
  EXPECT_EQ(other.engine.state().split->place.cut, 1);
  EXPECT_EQ(other.text(cloud.prompt(), wanted(0.9f)), expected);
}

TEST(EngineAlone, GoesOnHereWhenTheCloudIsLost) {
  Cloud cloud("rand-a");
  const std::vector<int32_t> expected = cloud.alone(wanted(0));
  const TemporaryFolder cache;
  {
    Held all(cloud, "0", cache.path);  // brings the weights
    all.engine.load();
  }
  Held held(cloud, "2", cache.path);
  held.engine.load();
  const auto lose = [&](int tokens) {
    if (tokens == 5) cloud.here->lost = true;
  };
  EXPECT_EQ(held.text(cloud.prompt(), wanted(0), lose), expected);
  ASSERT_EQ(held.heard.moves.size(), 1u);
  EXPECT_EQ(held.heard.moves[0].why, edge::Why::kCloudLost);
}

TEST(EngineAlone, SaysWhyThereIsNoModel) {
  Cloud cloud("rand-a");
  cloud.here->lost = true;
  const TemporaryFolder cache;
  Held held(cloud, "1", cache.path, 0);
  EXPECT_THROW(held.engine.load(), Error);
  EXPECT_TRUE(held.engine.settled());
  EXPECT_EQ(held.engine.loaded(), nullptr);
}

}  // namespace
}  // namespace split::test
