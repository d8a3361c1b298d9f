// An edge or a cloud whose device fails in the middle of a text.
#include <gtest/gtest.h>

#include "edge_client/engine/request.h"
#include "edge_client/options/options.h"
#include "run/text/generate.h"
#include "support/edge_world.h"
#include "support/failing_device.h"

namespace split::test {
namespace {

constexpr int kTokens = 5;
constexpr int kAnswers = 3;  // at once

struct Fixture {
  Golden golden{"rand-a"};
  GatedCloud cloud{"rand-a"};
  wire::ModelInfo info =
      wire::parse_model_info(Client(cloud.url()).request("GET", "/v1/models/rand-a").body);

  const std::vector<int32_t> prompt{5, 11, 2, 40, 33, 17};

  static GenerateOptions wanted() {
    GenerateOptions options;
    options.max_tokens = kTokens;
    options.sampling.seed = 3;
    options.ignore_end = true;
    return options;
  }
  std::vector<int32_t> answer(Device& device, int cut) {
    const Model& model = *golden.model;
    Shard shard(device, model, golden.weights(),
                options_for(model, StageRange::from_block(cut, Point::head())));
    Batcher tail(shard);
    edge::Remote remote(cloud.url(), std::chrono::seconds(60), in_process());
    Interrupt interrupt;
    edge::SplitCounts counts;
    edge::ModelLink link(remote, {info, model.config(), {}, interrupt});
    edge::SplitForward forward(link, model, cut, &tail, {}, interrupt, counts);
    return generate(forward, model.config(), nullptr, prompt, wanted(), {}).tokens;
  }
  // The model that edge_client --serve shares among its answers, from downloaded blobs.
  std::shared_ptr<edge::PlacedModel> downloaded(std::unique_ptr<Device> device, unsigned threads) {
    const Model& model = *golden.model;
    const ModelConfig& config = model.config();
    edge::PlacementRequest request;
    request.cut = 1;
    auto split = std::make_shared<edge::PlacedModel>();
    split->place = place(request, config);
    split->info = info;
    const auto blobs = edge::blobs_of(model, info, split->place.range, {});
    auto load = std::make_unique<edge::BlobLoad>(
        edge::ShardCache(cache.path),
        edge::blob_origin(info, cloud.url(), std::chrono::seconds(60), in_process()), blobs,
        edge::LoadOptions{}, interrupt);
    split->tail = std::make_shared<edge::LocalTail>(
        std::move(device), model, split->place.range, StageFormats{}, Profile::kF32, blobs,
        std::move(load), kv_bytes_for(model, {}, Profile::kF32, kAnswers), threads);
    split->tail->finish();
    return split;
  }
  std::vector<std::vector<int32_t>> answers(const std::shared_ptr<edge::PlacedModel>& split) {
    edge::Options options;
    options.server = cloud.url();
    options.placement.cut = edge::Cut::cloud();
    options.connector = InProcess::connect;
    options.cache = cache.path.string();
    World world;
    world.environment = [](const char*) -> const char* { return nullptr; };
    edge::EngineObserver nobody;
    edge::Engine engine(options, options.placement, world.environment, interrupt, nobody);
    engine.load();
    std::vector<std::vector<int32_t>> all(kAnswers);
    std::vector<std::thread> threads;
    for (std::vector<int32_t>& one : all) {
      threads.emplace_back([&] {
        edge::EngineRequest work(engine, split);
        const auto text = work.begin(prompt, wanted());
        while (text->next([](std::string_view, const ScoredToken*) { return true; })) continue;
        one = text->take().tokens;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return all;
  }
  TemporaryFolder cache;
  Interrupt interrupt;
};

TEST(EdgeDevice, ThatFailsAtAnyStepWritesTheSameText) {
  Fixture world;
  for (const int cut : {0, 1, world.golden.model->config().layers}) {
    FailingDevice calm(-1);
    const std::vector<int32_t> want = world.answer(calm, cut);
    ASSERT_EQ(want.size(), size_t{kTokens});
    for (int at = 0; at < kTokens; ++at) {
      FailingDevice device(at, at % 2 == 1);
      EXPECT_EQ(world.answer(device, cut), want) << "cut " << cut << ", step " << at;
      EXPECT_EQ(device.restarts, 1);
    }
  }
}

TEST(EdgeDevice, IsReplacedUnderAllAnswersOfAServer) {
  Fixture world;
  FailingDevice calm(-1);
  const std::vector<std::vector<int32_t>> want(kAnswers, world.answer(calm, 1));
  for (const int at : {0, 2, 6}) {
    for (const bool for_good : {false, true}) {
      auto device = std::make_unique<FailingDevice>(at, for_good);
      const FailingDevice& failing = *device;
      const auto split = world.downloaded(std::move(device), 2);
      EXPECT_EQ(world.answers(split), want) << at;
      EXPECT_EQ(failing.restarts, 1);
      EXPECT_EQ(split->device().find("2 threads") != std::string::npos, for_good)
          << split->device();
    }
  }
}

TEST(EdgeDevice, ACloudThatLostItsSessionsIsSentThemAgain) {
  Fixture world;
  FailingDevice device(-1);
  const std::vector<int32_t> want = world.answer(device, 1);
  for (int at = 1; at < kTokens; ++at) {
    world.cloud.reset([&, at](const http::Request&, int n) -> std::optional<http::Response> {
      if (n == at) world.cloud.model().batcher().shard().pages().forget();
      return std::nullopt;
    });
    EXPECT_EQ(world.answer(device, 1), want) << at;
    EXPECT_GT(world.cloud.steps, kTokens);
  }
}

}  // namespace
}  // namespace split::test
