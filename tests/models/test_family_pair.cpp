// The Llama family between a cloud and an edge: every cut and either head gives transformers'
// greedy text, also of blocks from a GGUF file.
#include <gtest/gtest.h>

#include "support/edge_world.h"
#include "support/gguf/families.h"

namespace split::test {
namespace {

// A model behind the real routes, without its tokenizer: texts are tokens here.
class ServedFamily {
 public:
  explicit ServedFamily(const std::string& name, std::optional<int> context = {},
                        Profile profile = Profile::kF32) {
    const bool own = name.starts_with('/');
    const std::filesystem::path from = own ? name : source("tests/golden/models/" + name);
    cloud::ModelOptions options;
    options.id = "family";
    options.path = from;
    if (std::filesystem::is_directory(from)) {
      for (const auto& entry : std::filesystem::directory_iterator(from)) {
        const std::string file = entry.path().filename().string();
        if (file != "config.json" && !file.starts_with("model")) continue;
        std::filesystem::create_symlink(entry.path(), dir_.path / file);
      }
      options.path = dir_.path;
    }
    options.device = "cpu";
    options.threads = 1;
    options.kv_budget = 64 << 20;
    options.context = context;
    options.profile = profile;
    options.formats = cloud::parse_formats("f32,f16,q8_0,q4_0");
    cloud_.models.push_back(std::make_unique<cloud::ServedModel>(options));
    cloud_.ready = true;
    running_.emplace([this](http::Server& server) { cloud::add_routes(server, cloud_); });
  }
  Outcome run(std::vector<std::string> arguments, const std::string& device = "cpu") {
    arguments.insert(arguments.end(), {"--server=" + running_->url(), "--device=" + device,
                                       "--threads=1", "--cache=" + (dir_.path / "cache").string(),
                                       "--temperature=0", "--ignore-eos", "--json", "--quiet"});
    return run_edge(arguments);
  }

  std::string url() const { return running_->url(); }

 private:
  TemporaryFolder dir_;
  cloud::Cloud cloud_;
  std::optional<Running> running_;
};

void expect_for_cuts(ServedFamily& family, const std::vector<int32_t>& prompt,
                     const std::vector<int32_t>& expected) {
  for (const std::string cut : {"0", "1", "2", "cloud"}) {
    for (const std::string head : {"edge", "cloud"}) {
      const Outcome got = family.run({"--prompt-ids=" + joined(prompt), "--cut=" + cut,
                                      "--head=" + head, cat("--max-tokens=", expected.size())});
      ASSERT_EQ(got.code, 0) << got.err;
      EXPECT_EQ(got.json()["tokens"].get<std::vector<int32_t>>(), expected)
          << "cut " << cut << ", head " << head;
      if (cut == "cloud") break;
    }
  }
}

TEST(FamilyPair, EachCutGivesTransformersText) {
  for (const char* name :
       {"llama3", "llama2", "qwen3", "gemma3", "qwen35", "qwen35-text", "gemma4", "gemma4-dense"}) {
    const GoldenValues golden(cat("models/", name));
    ServedFamily family(name);
    auto greedy = golden.values<int32_t>("p1.greedy_ids");
    greedy.resize(std::min<size_t>(greedy.size(), 8));
    expect_for_cuts(family, golden.ids(1), greedy);
  }
}

// Files as llama.cpp's converter writes them: in floats transformers' text, and in blocks one text
// at each cut, whose rows have parts, and whose table an edge has in blocks at cut 0.
TEST(FamilyPair, EachCutGivesTheTextOfAGgufFile) {
  const TemporaryFolder dir;
  const std::string path = dir.path / "model.gguf";
  for (const char* const name : {"qwen35", "gemma4"}) {
    const GoldenValues golden(cat("models/", name));
    const Checkpoint checkpoint(model_dir(cat("models/", name)));
    const Json config = golden_json(name, "config.json")["text_config"];
    const auto write = name == std::string("qwen35") ? gguf_qwen35 : gguf_gemma4;
    write(config, floats_of(checkpoint), [](auto&) { return GgmlType::kF32; }).write(path);
    ServedFamily family(path);
    auto greedy = golden.values<int32_t>("p1.greedy_ids");
    greedy.resize(8);
    expect_for_cuts(family, golden.ids(1), greedy);
  }
  for (const std::string name : {"qwen35", "gemma4"}) {
    const char* const config = name == "qwen35" ? kWideQwen35 : kWideGemma4;
    const auto write = name == "qwen35" ? gguf_qwen35 : gguf_gemma4;
    write(parse_json(config, 16, "config"), random_tensors(config), q4_k_m).write(path);
    ServedFamily family(path);
    const std::vector<int32_t> prompt = {5, 250, 17, 90, 3, 3, 211};
    const Outcome whole =
        family.run({"--prompt-ids=" + joined(prompt), "--cut=cloud", "--max-tokens=8"});
    ASSERT_EQ(whole.code, 0) << whole.err;
    const auto text = whole.json()["tokens"].get<std::vector<int32_t>>();
    expect_for_cuts(family, prompt, text);
    const Outcome moved = family.run({"--prompt-ids=" + joined(prompt), "--cut=3", "--head=edge",
                                      "--moves=2:cloud,5:0", "--max-tokens=8"});
    ASSERT_EQ(moved.code, 0) << moved.err;
    EXPECT_EQ(moved.json()["tokens"].get<std::vector<int32_t>>(), text);
  }
}

// A row between the two has inputs of the blocks above, and keys and values of those below that
// they read: another width at each cut. The cut moves past them in both directions.
TEST(FamilyPair, RowsWithPartsCrossAtEachCutAndMove) {
  const GoldenValues golden("models/gemma4");
  ServedFamily family("gemma4");
  auto greedy = golden.values<int32_t>("p4.greedy_ids");
  greedy.resize(12);
  const auto run = [&](const std::string& cut, const std::string& moves) {
    std::vector<std::string> arguments = {"--prompt-ids=" + joined(golden.ids(4)), "--cut=" + cut,
                                          "--head=edge", cat("--max-tokens=", greedy.size())};
    if (!moves.empty()) arguments.push_back("--moves=" + moves);
    const Outcome got = family.run(arguments);
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_EQ(got.json()["tokens"].get<std::vector<int32_t>>(), greedy) << cut << " " << moves;
    EXPECT_EQ(got.json()["receipt"]["moves"].size(), std::ranges::count(moves, ':')) << got.out;
  };
  for (int cut = 3; cut <= 7; ++cut) run(cat(cut), "");
  run("6", "4:2,8:5");
  run("5", "3:cloud,6:0,9:7");
  run("1", "5:7");
}

// Any client may bring such a row to the server, at any point.
TEST(FamilyPair, RowsWithPartsAreTakenBack) {
  const GoldenValues golden("models/gemma4");
  ServedFamily family("gemma4");
  const auto model =
      make_model(read_file(source("tests/golden/models/gemma4/config.json"), 1 << 20));
  edge::Remote remote(family.url(), std::chrono::seconds(60), in_process());
  const edge::AskedModel asked{
      .id = "family", .channels = 42, .vocab = 815, .row_parts = model->config().row_parts};
  const auto ids = golden.ids(4);
  const auto forward = [&](SequenceRows rows) {
    edge::Traffic traffic;
    return remote.ask({edge::Send::kForward, {}, std::move(rows), &traffic}, asked);
  };
  const auto want = forward({.tokens = ids});
  for (int cut = 0; cut <= 7; ++cut) {
    const auto rows = forward({.range = {.to = cut}, .tokens = ids, .wanted = Wanted::kAll});
    const auto width = static_cast<uint32_t>(model->config().row_width(cut));
    EXPECT_EQ(rows.size(), ids.size() * width);
    EXPECT_EQ(forward({.range = {cut, Point::head()}, .hidden = rows, .width = width}), want)
        << cut;
  }
}

// Weights in Q4_K, Q6_K, Q8_0, Q4_0, f16 and bf16, as the file has them.
TEST(FamilyPair, BlocksOfAGgufFileAreServedAsSuch) {
  const GoldenValues golden("models/gguf");
  ServedFamily family("gguf/llama-q4_k_m.gguf");
  const auto prompt = golden.values<int32_t>("llama-q4_k_m.p1.ids");
  const Outcome whole =
      family.run({"--prompt-ids=" + joined(prompt), "--cut=cloud", "--max-tokens=6"});
  ASSERT_EQ(whole.code, 0) << whole.err;
  expect_for_cuts(family, prompt, whole.json()["tokens"].get<std::vector<int32_t>>());
}

// Blocks of several types in one stage, and rows in int8 for all of them.
TEST(FamilyPair, BlocksOfAGgufFileAreComputedWithInInt8) {
  const auto prompt = GoldenValues("models/gguf").values<int32_t>("llama-q4_k_m.p1.ids");
  ServedFamily family("gguf/llama-q4_k_m.gguf", {}, Profile::kInt8);
  const Outcome got =
      family.run({"--prompt-ids=" + joined(prompt), "--cut=cloud", "--max-tokens=6"});
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.json()["tokens"].size(), 6u);
}

// An edge takes them for its part: their first one is Q8_0, and not all of them are.
TEST(FamilyPair, AnInt8EdgeTakesTheBlocksOfAGgufFile) {
  const auto prompt = GoldenValues("models/gguf").values<int32_t>("llama-q4_k_m.p1.ids");
  ServedFamily family("gguf/llama-q4_k_m.gguf", {}, Profile::kInt8);
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--prompt-ids=" + joined(prompt), "--max-tokens=6"});
    return family.run(arguments);
  };
  const Outcome there = run({"--cut=cloud"});
  ASSERT_EQ(there.code, 0) << there.err;
  for (const char* cut : {"--cut=0", "--cut=1", "--cut=auto"}) {
    const Outcome got = run({"--profile=int8", cut});
    ASSERT_EQ(got.code, 0) << cut << "\n" << got.err;
    EXPECT_EQ(got.json()["tokens"], there.json()["tokens"]) << cut;
  }
}

// A Vulkan edge multiplies by them without rounding its rows: its text is that of floats.
TEST(FamilyPair, AVulkanEdgeMultipliesByBlocksOfAGgufFile) {
  try {
    (void)make_device({"vulkan:0", 1});
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const GoldenValues golden("models/gguf");
  ServedFamily family("gguf/llama-q4_k_m.gguf");
  auto expected = golden.values<int32_t>("llama-q4_k_m.p3.greedy_ids");
  expected.resize(8);  // each ahead of the next best by 0.57 or more
  const auto prompt = golden.values<int32_t>("llama-q4_k_m.p3.ids");
  const Outcome got = family.run(
      {"--prompt-ids=" + joined(prompt), "--cut=0", "--head=edge", "--max-tokens=8"}, "vulkan:0");
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.json()["tokens"].get<std::vector<int32_t>>(), expected);
}

TEST(FamilyPair, AnEdgeTakesNoMorePositionsThanItsServer) {
  ServedFamily family("qwen3", 20);
  const std::string prompt = "--prompt-ids=1,2,3";
  const Outcome got = family.run({prompt, "--cut=1", "--max-tokens=40"});
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.json()["tokens"].size(), 17u);
  const Outcome more = family.run({prompt, "--cut=1", "--context=21"});
  EXPECT_EQ(more.code, 2);
  EXPECT_NE(more.err.find("--context: the server has 20 positions of a text at most, got 21"),
            std::string::npos)
      << more.err;
  EXPECT_EQ(
      family.run({prompt, "--cut=1", "--context=10", "--max-tokens=40"}).json()["tokens"].size(),
      7u);
}

}  // namespace
}  // namespace split::test
