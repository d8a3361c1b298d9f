// cloud_server and edge_client together, as a user runs them: text and ids against what PyTorch
// computes, for every cut and device.
#include <algorithm>
#include <cstdlib>

#include "support/golden_model.h"
#include "support/programs.h"

namespace split::test {
namespace {

// Below it the next id may differ, and everything after it (tests/golden/README.md: ten times the
// float32 error of the demo's logits).
constexpr float kMargin = 2e-4f;

const Arguments kGreedy = {"--json",    "--quiet", "--temperature", "0", "--ignore-eos",
                           "--threads", "1"};

Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// The text of prompt `n` in `golden`, and whether a run of edge_client says the same.
struct Expected {
  Expected(const Golden& golden, int n)
      : ids(golden.values<int32_t>(cat("p", n, ".ids"))),
        greedy(golden.values<int32_t>(cat("p", n, ".greedy_ids"))),
        margin(golden.values<float>(cat("p", n, ".greedy_margin"))) {}

  void expect(const EdgeResult& got, size_t most) const {
    ASSERT_EQ(got.code, 0) << got.err;
    ASSERT_EQ(got.json["prompt_tokens"].get<std::vector<int32_t>>(), ids);
    const std::vector<int32_t> tokens = got.tokens();
    ASSERT_EQ(tokens.size(), std::min(most, greedy.size()));
    EXPECT_EQ(got.json["finish_reason"], "length");
    for (size_t i = 0; i < tokens.size() && margin[i] >= kMargin; ++i) {
      ASSERT_EQ(tokens[i], greedy[i]) << "token " << i << " of " << list_of(tokens);
    }
  }
  std::vector<int32_t> ids, greedy;
  std::vector<float> margin;
};

class Demo : public ::testing::Test {
 protected:
  Demo() {
    const Json json = Json::parse(read_file(source("tests/golden/demo.json"), 100 << 20));
    for (const Json& prompt : json.at("prompts")) {
      texts_.push_back(prompt.at("text").get<std::string>());
      CHECK(prompt.at("text_encodes_to_ids").get<bool>());
    }
    CHECK(static_cast<int>(texts_.size()) == golden_.prompts());
  }
  int layers() const { return golden_.model->config().layers; }

  void expect_greedy(const std::string& url, size_t prompt, const Arguments& extra,
                     size_t most = 64) {
    std::string what = cat("prompt ", prompt);
    for (const std::string& argument : extra) what += " " + argument;
    SCOPED_TRACE(what);
    const EdgeResult got = run_edge(
        url, home_,
        kGreedy + Arguments{"--prompt", texts_[prompt], "--max-tokens", cat(most)} + extra);
    Expected(golden_, static_cast<int>(prompt)).expect(got, most);
    if (got.code == 0) device_ = got.json["device"].get<std::string>();
  }
  std::vector<int> corner_cuts() const { return {0, 1, 4, layers()}; }
  // One short text at two cuts, because a software device takes 10 s to start and 50 ms a token;
  // SPLIT_LONG: all of them.
  void expect_greedy_on_vulkan(const std::string& url) {
    const bool all = std::getenv("SPLIT_LONG") != nullptr;
    for (const int cut : all ? corner_cuts() : std::vector{0, 4}) {
      for (size_t prompt = 0; prompt < (all ? texts_.size() : 1); ++prompt) {
        expect_greedy(url, prompt, {"--device", "vulkan", "--cut", cat(cut)}, all ? 64 : 8);
        EXPECT_TRUE(device_.starts_with("vulkan:")) << device_;
      }
    }
  }

  const Golden golden_{"demo"};
  std::vector<std::string> texts_;
  Folder home_;
  std::string device_;  // of the last run
};

const Arguments kOnCpu = {"--device", "cpu", "--threads", "1"};

TEST_F(Demo, GreedyTokensArePyTorchsForEveryPromptAtTheCornerCuts) {
  CloudProcess cloud(kOnCpu);
  for (const int cut : corner_cuts()) {
    if (cut == 1) continue;
    for (size_t prompt = 0; prompt < texts_.size(); ++prompt) {
      expect_greedy(cloud.url(), prompt, {"--device", "cpu", "--cut", cat(cut)});
    }
  }
  EXPECT_TRUE(device_.starts_with("cpu")) << device_;
}

TEST_F(Demo, GreedyTokensArePyTorchsForEveryCut) {
  CloudProcess cloud(kOnCpu);
  for (int cut = 0; cut <= layers(); ++cut) {
    for (const size_t prompt : {0, 1}) {
      expect_greedy(cloud.url(), prompt, {"--device", "cpu", "--cut", cat(cut)});
    }
  }
}

TEST_F(Demo, GreedyTokensArePyTorchsWhenTheCloudHasTheHeadOrAll) {
  CloudProcess cloud(kOnCpu);
  for (size_t prompt = 0; prompt < texts_.size(); ++prompt) {
    expect_greedy(cloud.url(), prompt, {"--cut", "cloud"});
    EXPECT_EQ(device_, "none");
  }
  for (const int cut : corner_cuts()) {
    expect_greedy(cloud.url(), 0, {"--device", "cpu", "--head", "cloud", "--cut", cat(cut)});
  }
}

TEST_F(Demo, OneSeedGivesOneTextForEveryCut) {
  CloudProcess cloud(kOnCpu);
  const auto text_of = [&](const char* seed, const Arguments& extra) {
    const EdgeResult got = run_edge(
        cloud.url(), home_,
        Arguments{"--json", "--quiet", "--device", "cpu", "--threads", "1", "--temperature", "0.8",
                  "--seed", seed, "--max-tokens", "48", "--prompt", texts_[0]} +
            extra);
    EXPECT_EQ(got.code, 0) << got.err;
    return got.code == 0 ? got.text() : std::string();
  };
  const std::string text = text_of("7", {"--cut", "cloud"});
  EXPECT_NE(text, "");
  EXPECT_NE(text, text_of("8", {"--cut", "cloud"}));
  for (int cut = 0; cut <= layers(); ++cut) {
    EXPECT_EQ(text_of("7", {"--cut", cat(cut)}), text) << "cut " << cut;
  }
  for (const int cut : corner_cuts()) {
    EXPECT_EQ(text_of("7", {"--cut", cat(cut), "--head", "cloud"}), text) << "cut " << cut;
  }
}

// Lavapipe at the least; says so when there is none.
bool has_vulkan() {
  Process process({program_path("edge_client"), "--list-devices"});
  EXPECT_EQ(process.wait(), 0) << process.err();
  EXPECT_NE(process.out().find("cpu"), std::string::npos) << process.out();
  if (process.out().find("vulkan:0") != std::string::npos) return true;
  std::printf("no Vulkan device: not tested\n");
  return false;
}

TEST_F(Demo, GreedyTokensArePyTorchsFromCpuToVulkan) {
  if (!has_vulkan()) return;
  CloudProcess cloud(kOnCpu);
  expect_greedy_on_vulkan(cloud.url());
}

TEST_F(Demo, GreedyTokensArePyTorchsFromVulkanToVulkan) {
  if (!has_vulkan()) return;
  CloudProcess cloud({"--device", "vulkan"});
  expect_greedy_on_vulkan(cloud.url());
  EXPECT_NE(cloud.process().err().find("on vulkan:"), std::string::npos) << cloud.process().err();
}

// The weights of the tail in each format; the same text a second time, from the cache.
TEST_F(Demo, EveryFormatGivesTextOnCpuAndVulkan) {
  CloudProcess cloud(kOnCpu);
  const bool vulkan = has_vulkan();
  const auto run = [&](const Arguments& extra) {
    const EdgeResult got = run_edge(
        cloud.url(), home_,
        kGreedy + Arguments{"--prompt", texts_[0], "--max-tokens", "6", "--cut", "6"} + extra);
    EXPECT_EQ(got.code, 0) << got.err;
    return got;
  };
  const Expected expected(golden_, 0);
  uint64_t last = ~uint64_t{0};
  for (const char* format : {"f32", "f16", "q8_0", "q4_0", "q4_0,head=q4_0"}) {
    SCOPED_TRACE(format);
    const EdgeResult cold = run({"--device", "cpu", "--format", format});
    if (cold.code != 0) continue;
    ASSERT_EQ(cold.tokens().size(), 6u);
    if (!std::string_view(format).starts_with("q4_0")) {  // four bits prefer a boy to a girl
      EXPECT_EQ(cold.tokens(),
                std::vector<int32_t>(expected.greedy.begin(), expected.greedy.begin() + 6));
    }
    const uint64_t bytes = cold.receipt("bytes_downloaded").get<uint64_t>() +
                           cold.receipt("bytes_from_cache").get<uint64_t>();
    EXPECT_LT(bytes, last);
    last = bytes;
    const EdgeResult warm = run({"--device", "cpu", "--format", format});
    if (warm.code != 0) continue;
    EXPECT_EQ(warm.tokens(), cold.tokens());
    EXPECT_EQ(warm.receipt("bytes_downloaded"), 0);
    // Drivers compile each format's kernels anew: the short suite has two of them there.
    const bool drawn = std::string_view(format) == "f16" || std::string_view(format) == "q4_0";
    if (!vulkan || (!drawn && std::getenv("SPLIT_LONG") == nullptr)) continue;
    const EdgeResult gpu = run({"--device", "vulkan", "--format", format});
    if (gpu.code == 0) {
      EXPECT_EQ(gpu.tokens(), cold.tokens());
    }
  }
}

TEST_F(Demo, ACloudComputesWithBlocks) {
  for (const char* profile : {"q8_0", "q4_0"}) {
    CloudProcess cloud(kOnCpu + Arguments{"--profile", profile, "--formats", profile});
    const EdgeResult got =
        run_edge(cloud.url(), home_,
                 kGreedy + Arguments{"--prompt", texts_[0], "--max-tokens", "6", "--cut", "cloud"});
    ASSERT_EQ(got.code, 0) << got.err;
    ASSERT_EQ(got.tokens().size(), 6u);
    if (profile == std::string("q4_0")) continue;
    const Expected expected(golden_, 0);
    EXPECT_EQ(got.tokens(),
              std::vector<int32_t>(expected.greedy.begin(), expected.greedy.begin() + 6));
  }
  for (const Arguments& bad : {Arguments{"--formats", "q5_0"}, Arguments{"--formats", "f16,f16"},
                               Arguments{"--profile", "q5_0"}}) {
    Process process(Arguments{program_path("cloud_server"), "--port", "0"} + bad);
    EXPECT_EQ(process.wait(), 2);
    EXPECT_EQ(std::ranges::count(process.err(), '\n'), 1) << process.err();
    EXPECT_NE(process.err().find(bad[0]), std::string::npos) << process.err();
  }
}

TEST(RandomModels, GreedyTokensArePyTorchsForEveryCut) {
  const std::vector<std::string> names = {"rand-a", "rand-b", "rand-c"};
  Arguments arguments = kOnCpu;
  for (const std::string& name : names) {
    arguments = arguments + Arguments{"--model", source("tests/golden/" + name)};
  }
  CloudProcess cloud(arguments);
  const Folder home;
  for (const std::string& name : names) {
    const Golden golden(name);
    for (int cut = 0; cut <= golden.model->config().layers; ++cut) {
      for (int prompt = 0; prompt < golden.prompts(); ++prompt) {
        SCOPED_TRACE(cat(name, " cut ", cut, " prompt ", prompt));
        const Expected expected(golden, prompt);
        const EdgeResult got = run_edge(
            cloud.url(), home,
            kGreedy + Arguments{"--model", name, "--cut", cat(cut), "--device", "cpu",
                                "--max-tokens", "16", "--prompt-ids", list_of(expected.ids)});
        expected.expect(got, 16);
        ASSERT_EQ(got.text(), "");
      }
    }
  }
}

TEST(RandomModels, OneOfTheScriptIsServedAndGeneratesTheSameForEveryCut) {
  std::string python;
  for (const char* name : {"python3", "/usr/bin/python3"}) {
    if (python.empty() && exit_code({name, "-c", "import numpy"}) == 0) python = name;
  }
  if (python.empty()) {
    std::printf("no python3 with numpy: not tested\n");
    return;
  }
  const Folder folder;
  const std::string model = (folder.path / "tiny").string();
  ASSERT_EQ(exit_code({python, source("scripts/make_random_model.py"), "--size", "tiny", "--seed",
                       "3", "--out", model}),
            0);
  CloudProcess cloud(kOnCpu + Arguments{"--model", model});
  std::vector<std::vector<int32_t>> seen;
  for (const char* cut : {"0", "1", "2", "cloud"}) {
    const EdgeResult got = run_edge(cloud.url(), folder,
                                    kGreedy + Arguments{"--cut", cut, "--prompt-ids",
                                                        "11,22,33,50256,0", "--max-tokens", "20"});
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_EQ(got.json["model"], "tiny");
    seen.push_back(got.tokens());
    EXPECT_EQ(seen.back().size(), 20u);
    EXPECT_EQ(seen.back(), seen[0]) << "cut " << cut;
  }
}

}  // namespace
}  // namespace split::test
