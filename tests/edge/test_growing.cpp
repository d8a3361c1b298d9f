// Weights that arrive stage by stage, into a shard that answers use meanwhile.
#include <gtest/gtest.h>

#include <thread>

#include "edge_client/weights/stage_progress.h"
#include "edge_client/weights/tail_builder.h"
#include "run/sequences.h"
#include "support/edge_world.h"
#include "support/failing_device.h"

namespace split::test {
namespace {

using edge::FetchPace;
using edge::GrowthNote;
using edge::GrowthStep;
using std::chrono::duration;
using std::chrono::seconds;

// --- Decisions

const GatedCloud& some_cloud() {
  static ForAllTests<GatedCloud> cloud;
  return cloud.get("rand-a");
}

wire::ModelInfo info_of(const GatedCloud& cloud) {
  return wire::parse_model_info(Client(cloud.url()).request("GET", "/v1/models/rand-a").body);
}

TEST(GrowthSteps, BeginWithTheHeadAndEndWithTheEmbedding) {
  const Golden golden("rand-a");
  const wire::ModelInfo info = info_of(some_cloud());
  const auto steps = edge::growth_steps(*golden.model, info, {});
  std::string order;
  uint64_t bytes = 0;
  for (const GrowthStep& step : steps) {
    order += cat(step.floor.name(), ":");
    for (const std::string& stage : step.stages) order += cat(" ", stage);
    for (const wire::BlobInfo& blob : step.blobs) order += cat(" ", blob.name);
    order += "; ";
    bytes += step.bytes();
  }
  EXPECT_EQ(order,
            "3: norm head ln_f wte; 2: block.2 h.2; 1: block.1 h.1; 0: block.0 h.0; "
            "tokens: embed wpe; ");  // a tied head is the embedding's blob
  uint64_t all = 0;
  for (const auto& blob : edge::blobs_of(*golden.model, info, {}, {})) all += blob.bytes;
  EXPECT_EQ(bytes, all);
  // Quantised, the head has a blob of its own, and the embedding both.
  const auto q8_0 = edge::growth_steps(*golden.model, info, StageFormats::parse("q8_0"));
  EXPECT_EQ(q8_0.front().blobs.back().name, "lm_head");
  EXPECT_EQ(q8_0.back().blobs.size(), 2u);
}

TEST(FetchPaces, ATextGetsTheLineBackWithinATenthOfASecond) {
  FetchPace pace(4);
  EXPECT_EQ(pace.connections(), 4u);
  EXPECT_EQ(pace.range(1 << 20), 1u << 20);
  pace.text_runs(true);
  EXPECT_EQ(pace.connections(), 1u);
  EXPECT_EQ(pace.range(1 << 20), 64u << 10);
  pace.came(100, duration<double>(1e-6));  // too little to say anything
  EXPECT_EQ(pace.bytes_per_second(), 0);
  pace.came(250'000, duration<double>(0.4));  // 5 Mbit/s
  EXPECT_EQ(pace.range(1 << 20), 62'500u);
  EXPECT_EQ(pace.range(1000), 1000u);
  pace.came(62'500, duration<double>(1e-5));  // out of a buffer
  EXPECT_LE(pace.bytes_per_second(), 1.3 * 625'000);
  for (int i = 0; i < 50; ++i) pace.came(20'000, duration<double>(0.4));
  EXPECT_NEAR(pace.bytes_per_second(), 50'000, 500);
  EXPECT_EQ(pace.range(1 << 20), 16u << 10);  // a shorter one would be all round trip
  pace.text_runs(false);
  EXPECT_EQ(pace.range(1 << 20), 1u << 20);
}

TEST(StageProgress, TellsTheRateOfWhatComesInAndNotOfWhatWasHere) {
  using std::chrono::milliseconds;
  const auto blob = [](const char* hash) {
    wire::BlobInfo info;
    info.sha256 = hash;
    info.bytes = wire::kChunkBytes + 1000;
    info.chunks = {"a", "b"};
    return info;
  };
  edge::StageProgress progress;
  progress.expect({{"head", {blob("1")}}, {"block.1", {blob("2")}}});
  const auto start = std::chrono::steady_clock::now();
  const auto counts = [&](int ms) { return progress.counts(start + milliseconds(ms)); };
  EXPECT_FALSE(counts(0)["head"].seconds_left);
  progress.came("1", 0, wire::kChunkBytes, false, start);  // was here
  EXPECT_EQ(counts(1000)["head"].done, wire::kChunkBytes);
  EXPECT_FALSE(counts(1000)["head"].seconds_left);
  for (int ms = 1000; ms <= 1500; ms += 100) {  // 1,000 bytes a second
    progress.came("2", 0, static_cast<uint64_t>(ms - 900), true, start + milliseconds(ms));
  }
  EXPECT_DOUBLE_EQ(*counts(1500)["head"].seconds_left, 1);
  EXPECT_DOUBLE_EQ(*counts(1500)["block.1"].seconds_left,
                   1 + (static_cast<double>(wire::kChunkBytes) + 1000 - 600) / 1000);
  progress.came("2", 0, 100, true, start + milliseconds(1500));  // the chunk was wrong
  EXPECT_EQ(counts(1500)["block.1"].done, 100u);
  EXPECT_FALSE(counts(9000)["head"].seconds_left);  // nothing comes any more
}

// --- A tail that grows

class Grown : public testing::Test {
 protected:
  static constexpr uint32_t kRows = 5;

  Grown() : cloud("rand-a"), info(info_of(cloud)) {
    const auto device = make_cpu_device(1);
    Shard whole(*device, *golden.model, golden.weights(), options_for(*golden.model));
    Batcher batcher(whole);
    for (int from = 0; from <= layers(); ++from) want.push_back(answer(batcher, from));
  }
  ~Grown() override {
    end();
    cloud.reset({});
  }

  int layers() const { return golden.model->config().layers; }
  // Begins to; the cloud may keep some blobs back.
  void grow(std::unique_ptr<Device> device) {
    std::vector<GrowthStep> steps = edge::growth_steps(*golden.model, info, {});
    std::vector<wire::BlobInfo> blobs;
    for (const GrowthStep& step : steps) {
      blobs.insert(blobs.end(), step.blobs.begin(), step.blobs.end());
    }
    edge::LoadOptions load;
    load.beside_texts = true;
    tail.emplace(
        std::move(device), *golden.model, StageRange{}, StageFormats{}, Profile::kF32, blobs,
        std::make_unique<edge::BlobLoad>(
            edge::ShardCache(cache.path),
            edge::blob_origin(info, cloud.url(), seconds(60), in_process()), blobs, load,
            interrupt),
        kv_bytes_for(*golden.model, {}, Profile::kF32, 8), 1, edge::LocalTail::Begins::kEmpty);
    ends.emplace();
    grows = std::thread([this, steps] {
      edge::grow(*tail, steps, layers(), *ends, [this](const GrowthNote& note) { tell(note); });
    });
  }
  void tell(const GrowthNote& note) {
    const std::lock_guard lock(mutex_);
    notes.push_back(note);
    changed_.notify_all();
  }
  // Ends it in whatever step it is.
  void end() {
    if (!grows.joinable()) return;
    ends->raise(SIGTERM);
    tail->load().cancel();
    grows.join();
    tail->load().end();
  }
  // Marks a text that runs.
  void text_runs(int more) {
    const std::lock_guard lock(mutex_);
    tail->load().text_runs((texts += more) > 0);
  }
  GrowthNote wait_done() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, seconds(60), [&] { return !notes.empty() && notes.back().done; }));
    return notes.back();
  }
  bool done() {
    const std::lock_guard lock(mutex_);
    return !notes.empty() && notes.back().done;
  }

  // Logits of the last of a few rows that are fed at `from`, in a prompt and a step of one row.
  // Begins again where a lost device took the sequence.
  std::vector<float> answer(Batcher& batcher, int from) const {
    const auto channels = static_cast<uint32_t>(golden.model->config().channels);
    std::vector<float> hidden(kRows * channels);
    for (size_t i = 0; i < hidden.size(); ++i) {
      hidden[i] = static_cast<float>((i + static_cast<size_t>(from)) * 2654435761u % 2048) / 1024;
    }
    for (;;) {
      const Sequence sequence(batcher.shard());
      const auto part = [&](uint32_t past, uint32_t count) {
        std::vector<float> out(batcher.shard().width(Point::head()));
        Job job{sequence.id,
                {.range = {.from = from},
                 .past = past,
                 .hidden = std::span(hidden).subspan(past * channels, count * channels),
                 .width = channels,
                 .phase = past == 0 ? Phase::kPrompt : Phase::kGenerate},
                out.data()};
        batcher.run(job);
        return out;
      };
      try {
        part(0, kRows - 1);
        return part(kRows - 1, 1);
      } catch (const SequenceLost&) {
      }
    }
  }
  // Checks the answer from each point that can be fed.
  void expect_right() {
    for (int from = lowest(); from <= layers(); ++from) {
      EXPECT_EQ(first_difference(answer(tail->batcher(), from), want[static_cast<size_t>(from)]),
                -1)
          << from;
    }
  }
  // The lowest point for hidden states; above the blocks where there is no head.
  int lowest() const {
    const Point floor = tail->floor();
    return floor.is_tokens() ? 0 : floor > Point(layers()) ? layers() + 1 : floor.block();
  }
  // Several answers at once until the tail is done, and one more each.
  void answer_all_the_while() {
    std::vector<std::thread> threads;
    for (int n = 0; n < 3; ++n) {
      threads.emplace_back([&] {
        for (bool last = false; !last;) {
          last = done();
          const int from = lowest();
          if (from > layers()) continue;
          text_runs(1);
          const std::shared_ptr<void> text(nullptr, [this](void*) { text_runs(-1); });
          ASSERT_EQ(
              first_difference(answer(tail->batcher(), from), want[static_cast<size_t>(from)]), -1)
              << from;
          ++answered;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // Keeps the blobs of each step back until there were answers with those before it.
  void slow_down() {
    std::map<std::string, int> steps;
    for (const GrowthStep& step : edge::growth_steps(*golden.model, info, {})) {
      const int before = layers() - std::min(step.floor, Point(layers())).blocks_before(layers());
      for (const wire::BlobInfo& blob : step.blobs) steps[blob.sha256] = before;
    }
    cloud.reset({},
                [this, steps](const http::Request& request, int) -> std::optional<http::Response> {
                  const auto end = std::chrono::steady_clock::now() + seconds(20);
                  while (answered < 5 * steps.at(request.path_params[0])) {
                    EXPECT_LT(std::chrono::steady_clock::now(), end);
                    if (std::chrono::steady_clock::now() > end) break;
                    std::this_thread::yield();
                  }
                  return std::nullopt;
                });
  }

  const Golden golden{"rand-a"};
  GatedCloud cloud;
  const wire::ModelInfo info;
  std::vector<std::vector<float>> want;  // by the point
  TemporaryFolder cache;
  Interrupt interrupt;
  std::atomic<int> answered{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<GrowthNote> notes;
  std::optional<edge::LocalTail> tail;
  int texts = 0;
  std::optional<Interrupt> ends;
  std::thread grows;
};

TEST_F(Grown, BeneathSeveralAnswersChangesNoBit) {
  slow_down();
  grow(make_cpu_device(2));
  answer_all_the_while();
  const GrowthNote last = wait_done();
  EXPECT_EQ(last.floor, Point::tokens());
  EXPECT_EQ(last.line(), "3/3 layers here");
  ASSERT_EQ(notes.size(), size_t(layers()) + 2);
  EXPECT_EQ(notes[0].line(), "0/3 layers here");
  EXPECT_EQ(notes[2].line(), "2/3 layers here");
  EXPECT_GT(answered, 8);
  expect_right();
  // With tokens it is a whole model.
  const auto device = make_cpu_device(1);
  Shard whole(*device, *golden.model, golden.weights(), options_for(*golden.model));
  const std::vector<int32_t> tokens{5, 11, 2, 40, 33, 17};
  Sequence a(tail->batcher().shard()), b(whole);
  expect_same(a.run(Point::head(), tokens, 4), b.run(Point::head(), tokens, 4), "tokens");
}

TEST_F(Grown, SurvivesADeviceThatIsLostMeanwhile) {
  for (const bool for_good : {false, true}) {
    for (const int at : {0, 3, 9}) {
      end();
      tail.reset();
      notes.clear();
      answered = 0;
      std::filesystem::remove_all(cache.path);
      auto device = std::make_unique<FailingDevice>(at, for_good);
      const FailingDevice& failing = *device;
      slow_down();
      testing::internal::CaptureStderr();
      grow(std::move(device));
      answer_all_the_while();
      testing::internal::GetCapturedStderr();
      EXPECT_EQ(wait_done().line(), "3/3 layers here") << at;
      EXPECT_EQ(failing.restarts, 1);
      expect_right();
    }
  }
}

TEST_F(Grown, WithoutRoomItsFloorStaysAndALineSaysSo) {
  class Small : public ForwardingDevice {
   public:
    Small() : ForwardingDevice(make_cpu_device(1)) {}
    std::unique_ptr<Buffer> alloc_pages(const Limits& limits, int64_t channels,
                                        DType dtype) override {
      if (++caches > 2) throw Error(ErrorKind::kDevice, "[test] no room for 5 bytes");
      return ForwardingDevice::alloc_pages(limits, channels, dtype);
    }
    int caches = 0;
  };
  grow(std::make_unique<Small>());
  answer_all_the_while();
  const GrowthNote last = wait_done();
  EXPECT_EQ(last.floor, Point(layers() - 1));
  EXPECT_EQ(last.line(), "1/3 layers here; no room for 5 bytes");
  expect_right();
}

TEST_F(Grown, TriesAgainAfterALandingWhatHadNoRoom) {
  class FullAtTimes : public ForwardingDevice {
   public:
    FullAtTimes() : ForwardingDevice(make_cpu_device(1)) {}
    std::unique_ptr<Buffer> alloc_pages(const Limits& limits, int64_t channels,
                                        DType dtype) override {
      if (++caches == 3 || caches == 4) throw Error(ErrorKind::kDevice, "[test] no room");
      return ForwardingDevice::alloc_pages(limits, channels, dtype);
    }
    int caches = 0;
  };
  grow(std::make_unique<FullAtTimes>());
  EXPECT_EQ(wait_done().line(), "3/3 layers here");
  std::string lines;
  for (const GrowthNote& note : notes) lines += note.line() + "\n";
  EXPECT_NE(lines.find("1/3 layers here; no room\n2/3 layers here\n"), std::string::npos) << lines;
  expect_right();
}

// The first stage's blob comes when all others have.
TEST_F(Grown, TakesStagesInTheirOrderWheneverTheyCome) {
  const auto steps = edge::growth_steps(*golden.model, info, {});
  const std::string first = steps[0].blobs[0].sha256;
  const auto is_here = [&](const wire::BlobInfo& blob) {
    return blob.sha256 == first ||
           std::filesystem::exists(edge::ShardCache(cache.path).path_of(blob.sha256));
  };
  cloud.reset({}, [&](const http::Request& request, int) -> std::optional<http::Response> {
    const auto end = std::chrono::steady_clock::now() + seconds(20);
    const auto all_here = [&](const GrowthStep& step) {
      return std::ranges::all_of(step.blobs, is_here);
    };
    while (request.path_params[0] == first && !std::ranges::all_of(steps, all_here)) {
      EXPECT_LT(std::chrono::steady_clock::now(), end);
      if (std::chrono::steady_clock::now() > end) break;
      std::this_thread::yield();
    }
    return std::nullopt;
  });
  grow(make_cpu_device(1));
  EXPECT_EQ(wait_done().line(), "3/3 layers here");
  std::string floors;
  for (const GrowthNote& note : notes) floors += note.floor.name() + " ";
  EXPECT_EQ(floors, "3 2 1 0 tokens ");
  expect_right();
}

TEST_F(Grown, WithoutADamagedStageGoesOnAboveIt) {
  const auto steps = edge::growth_steps(*golden.model, info, {});
  const std::string damaged = steps[2].blobs[0].sha256;  // block.1
  cloud.reset({}, [&](const http::Request& request, int) -> std::optional<http::Response> {
    http::Response response = cloud.real(request);
    if (request.path_params[0] == damaged) response.body[1000] ^= 1;
    return response;
  });
  grow(make_cpu_device(1));
  const GrowthNote last = wait_done();
  EXPECT_EQ(last.floor, Point(2));
  EXPECT_NE(last.line().find("1/3 layers here; blob 'h.1'"), std::string::npos) << last.line();
  EXPECT_EQ(last.line().find('\n'), std::string::npos);
  expect_right();
  tail->finish();  // all others came
  for (const GrowthStep& step : steps) {
    for (const wire::BlobInfo& blob : step.blobs) {
      EXPECT_EQ(std::filesystem::exists(edge::ShardCache(cache.path).path_of(blob.sha256)),
                blob.sha256 != damaged)
          << blob.name;
    }
  }
}

TEST_F(Grown, EndsInTheMiddle) {
  std::atomic<bool> go{false};
  const auto steps = edge::growth_steps(*golden.model, info, {});
  cloud.reset({}, [&](const http::Request& request, int) -> std::optional<http::Response> {
    if (request.path_params[0] == steps[2].blobs[0].sha256) go.wait(false);
    return std::nullopt;
  });
  grow(make_cpu_device(1));
  {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [&] { return !notes.empty(); }));
  }
  end();
  expect_right();
  tail.reset();
  go = true;
  go.notify_all();
  cloud.reset({});
}

TEST_F(Grown, ByTheBuilderKeepsItsLimitAndStartsFromTheCache) {
  edge::EngineOptions options;
  options.server = cloud.url();
  options.connector = InProcess::connect;
  options.cache = cache.path;
  edge::PlacementRequest request;
  request.device = {"cpu", 1};
  const auto nothing = [](const char*) -> const char* { return nullptr; };
  uint64_t bytes = 0;
  const auto steps = edge::growth_steps(*golden.model, info, {});
  for (const GrowthStep& step : steps) bytes += step.bytes();
  const auto grow_by = [&](uint64_t max_weights) {
    edge::ModelChoice choice(options, request, {}, nothing, interrupt);
    edge::TailBuilder tails(choice);
    choice.select_model();
    notes.clear();
    const wire::ModelInfo found = choice.manifest(nullptr);
    const edge::Growth growth = tails.coming(found, max_weights);
    if (growth.steps.empty()) return std::pair(std::optional<Point>(), edge::FetchCounts());
    const auto split = tails.begin_growth(found, growth, {});
    EXPECT_EQ(split->floor(), std::nullopt);
    edge::grow(*split->tail, growth.steps, layers(), interrupt,
               [this](const GrowthNote& note) { tell(note); });
    EXPECT_TRUE(notes.back().done);
    split->tail->finish();
    return std::pair(split->floor(), split->counts());
  };
  EXPECT_EQ(grow_by(0).first, std::nullopt);
  EXPECT_EQ(grow_by(steps[0].bytes() - 1).first, std::nullopt);
  const auto [some, first] = grow_by(steps[0].bytes() + steps[1].bytes());
  EXPECT_EQ(some, Point(2));
  EXPECT_EQ(first.downloaded, steps[0].bytes() + steps[1].bytes());
  const auto [all, second] = grow_by(edge::kMaxWeights);
  EXPECT_EQ(all, Point::tokens());
  EXPECT_EQ(second.downloaded, bytes - first.downloaded);
  const auto [again, third] = grow_by(edge::kMaxWeights);
  EXPECT_EQ(again, Point::tokens());
  EXPECT_EQ(third.downloaded, 0u);
  EXPECT_EQ(third.from_cache, bytes);
}

}  // namespace
}  // namespace split::test
