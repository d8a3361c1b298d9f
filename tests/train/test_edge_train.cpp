// edge_client train against a cloud: what leaves, what comes out, what goes on and what is refused.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <regex>

#include "support/edge_server.h"

namespace split::test {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) { return read_file(path, 64 << 20); }

// A cloud of a small model with a tokenizer, and a text of some windows.
struct TrainPair {
  explicit TrainPair(int sentences = 260) : cloud(source("tests/golden/models/llama3")) {
    std::ofstream text(folder.path / "text.txt");
    for (int i = 0; i < sentences; ++i)
      text << "The " << i % 7 << " men went on to the house of " << i % 11 << ". ";
  }
  std::vector<std::string> arguments(const std::string& out, std::vector<std::string> more) const {
    more.insert(more.begin(), "train");
    more.insert(more.end(),
                {cat("--server=", cloud.url()), cat("--cache=", cache.path.string()),
                 cat("--text=", (folder.path / "text.txt").string()),
                 cat("--out=", (folder.path / out).string()), "--threads=2", "--retry-for=1"});
    return more;
  }
  Outcome train(const std::string& out, std::vector<std::string> more) const {
    return run_edge(arguments(out, std::move(more)));
  }

  TemporaryFolder folder, cache;
  GatedCloud cloud;
};

TEST(EdgeTrain, MakesAnAdapterThatPeftReadsAndTellsWhatItLearnt) {
  TrainPair pair;
  const Outcome out = pair.train("a.safetensors", {"--lora=4", "--steps=30"});
  ASSERT_EQ(out.code, 0) << out.err;
  std::smatch found;
  ASSERT_TRUE(std::regex_match(out.out, found,
                               std::regex("perplexity of the text's last fifth (.*) -> (.*)\n")))
      << out.out;
  EXPECT_LT(std::stod(found[2]), 0.9 * std::stod(found[1]));
  EXPECT_NE(out.err.find("token ids, which are the text, go to"), std::string::npos) << out.err;
  EXPECT_NE(out.err.find(" of memory with the program's own; this machine grants "),
            std::string::npos)
      << out.err;
  EXPECT_EQ(pair.cloud.steps, 0);
  const auto config = nlohmann::json::parse(bytes_of(pair.folder.path / "adapter_config.json"));
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["layers_to_transform"], (std::vector<int>{1, 2}));
  const std::string file = bytes_of(pair.folder.path / "a.safetensors");
  EXPECT_NE(file.find("base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(pair.folder.path / "a.safetensors.part"));
  // A second run gives equal bits.
  ASSERT_EQ(pair.train("b.safetensors", {"--lora=4", "--steps=30", "--threads=1"}).code, 0);
  EXPECT_EQ(bytes_of(pair.folder.path / "b.safetensors"), file);
  ASSERT_EQ(pair.train("c.safetensors", {"--lora=4", "--steps=30", "--seed=1"}).code, 0);
  EXPECT_NE(bytes_of(pair.folder.path / "c.safetensors"), file);
}

// A GPU has bits of its own, so that it goes on from its own part alone.
TEST(EdgeTrain, TrainsOnVulkanWithTheLossesOfTheCpu) {
  if (run_edge({"--list-devices"}).out.find("vulkan:0") == std::string::npos) {
    GTEST_SKIP() << "no Vulkan device";
  }
  TrainPair pair(90);  // lavapipe takes its time
  const std::vector<std::string> flags{"--lora=4", "--steps=3"};
  auto on_gpu = flags;
  on_gpu.emplace_back("--device=vulkan:0");
  const Outcome cpu = pair.train("a.safetensors", flags), gpu = pair.train("b.safetensors", on_gpu);
  ASSERT_EQ(gpu.code, 0) << gpu.err;
  std::smatch of_cpu, of_gpu;
  const std::regex line("perplexity of the text's last fifth (.*) -> (.*)\n");
  ASSERT_TRUE(std::regex_match(cpu.out, of_cpu, line) && std::regex_match(gpu.out, of_gpu, line));
  EXPECT_NEAR(std::stod(of_gpu[1]), std::stod(of_cpu[1]), 0.11);
  EXPECT_NEAR(std::stod(of_gpu[2]), std::stod(of_cpu[2]), 0.11);
  EXPECT_NE(bytes_of(pair.folder.path / "a.safetensors"),
            bytes_of(pair.folder.path / "b.safetensors"));
  EXPECT_EQ(pair.train("c.safetensors", {"--lora=4", "--device=vulkan:77"}).code, 6);
  EXPECT_EQ(pair.train("c.safetensors", {"--lora=4", "--device=abacus"}).code, 2);
}

// All is downloaded, and no text is sent.
TEST(EdgeTrain, TrainsBlocksWithoutTheCloud) {
  TrainPair pair;
  const std::string known = (pair.folder.path / "text.txt").string();
  const Outcome out =
      pair.train("a.safetensors", {"--blocks=1", "--steps=8", "--cut=0", "--known=" + known});
  ASSERT_EQ(out.code, 0) << out.err;
  EXPECT_NE(out.err.find("nothing of the text leaves this machine"), std::string::npos) << out.err;
  EXPECT_NE(out.out.find(cat(", of ", known, " ")), std::string::npos) << out.out;
  const std::string file = bytes_of(pair.folder.path / "a.safetensors");
  EXPECT_NE(file.find("\"model.layers.2.mlp.up_proj.weight\""), std::string::npos);
  EXPECT_NE(file.find("\"model.norm.weight\""), std::string::npos);
  EXPECT_EQ(file.find("layers.1."), std::string::npos);
  EXPECT_FALSE(fs::exists(pair.folder.path / "adapter_config.json"));
}

// Ctrl-C behind the second step; then the same command.
TEST(EdgeTrain, GoesOnAfterCtrlCWithTheBitsOfAnUnbrokenRun) {
  TrainPair pair;
  const std::vector<std::string> how{"--lora=2", "--blocks=1", "--steps=7"};
  ASSERT_EQ(pair.train("whole.safetensors", how).code, 0);
  Interrupt interrupt;
  World world;
  std::string said;
  world.console.out = [](std::string_view) { return true; };
  world.console.err = [&](std::string_view text) {
    said += text;
    if (text.find("steps take about") != text.npos) interrupt.raise(SIGINT);
  };
  world.environment = [](const char*) -> const char* { return nullptr; };
  EXPECT_EQ(edge::edge_main(pair.arguments("a.safetensors", how), world, interrupt), 130);
  EXPECT_NE(said.find("2 of 7 steps are kept in"), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(pair.folder.path / "a.safetensors"));
  const Outcome other = pair.train("a.safetensors", {"--lora=2", "--blocks=1", "--steps=8"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("is of another text, model or flags"), std::string::npos) << other.err;
  const Outcome out = pair.train("a.safetensors", how);
  ASSERT_EQ(out.code, 0) << out.err;
  EXPECT_NE(out.err.find("goes on behind step 2 of 7"), std::string::npos) << out.err;
  EXPECT_EQ(bytes_of(pair.folder.path / "a.safetensors"),
            bytes_of(pair.folder.path / "whole.safetensors"));
}

TEST(EdgeTrain, RefusesInOneLineWhatItCannotTake) {
  TrainPair pair;
  std::ofstream(pair.folder.path / "short.txt") << "a few words";
  std::ofstream(pair.folder.path / "there.safetensors") << "x";
  const auto refused = [&](const std::string& out, std::vector<std::string> more, int code,
                           const std::string& why) {
    const Outcome outcome = pair.train(out, std::move(more));
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  };
  const std::string folder = pair.folder.path.string();
  refused("a", {"--steps=3"}, 2, "expected --blocks K or --lora R");
  refused("a", {"--lora=2", "--cut=2"}, 2, "--cut: expected 0");
  refused("a", {"--lora=2", "--steps=0"}, 2, "--steps");
  refused("a", {"--blocks=4"}, 2, "expected 1 to 3 blocks, got 4");
  refused("there.safetensors", {"--lora=2"}, 2, "is there already");
  refused("no/folder/a", {"--lora=2"}, 4, "no/folder/a");
  const auto other_text = [&](const std::string& text) {
    auto arguments = pair.arguments("a", {"--lora=2"});
    for (std::string& one : arguments) one = one.starts_with("--text=") ? "--text=" + text : one;
    return run_edge(arguments);
  };
  const Outcome short_text = other_text(folder + "/short.txt"), no_file = other_text(folder);
  EXPECT_EQ(short_text.code, 2);
  EXPECT_NE(short_text.err.find("--text: expected 8 windows of 129 tokens"), std::string::npos)
      << short_text.err;
  EXPECT_EQ(no_file.code, 4) << no_file.err;
  refused("a", {"--lora=2", "--known=" + folder + "/short.txt"}, 2, "--known: expected a window");
}

// The text with a tail is one text at every cut that is allowed, also of a LoRA over blocks.
TEST(EdgeTrain, ATailIsUsedAtEveryCutUpToItsFirstBlock) {
  TrainPair pair;
  ASSERT_EQ(pair.train("a.safetensors", {"--blocks=1", "--steps=20"}).code, 0);
  ASSERT_EQ(pair.train("l.safetensors", {"--lora=4", "--blocks=1", "--steps=20"}).code, 0);
  const auto text = [&](std::vector<std::string> more) {
    more.insert(more.end(),
                {cat("--server=", pair.cloud.url()), cat("--cache=", pair.cache.path.string()),
                 "--prompt=The men went", "--temperature=0", "--max-tokens=12", "--device=cpu",
                 "--threads=1", "--quiet"});
    return run_edge(more);
  };
  const std::string a = cat("--tail=", (pair.folder.path / "a.safetensors").string());
  const std::string l = cat("--tail=", (pair.folder.path / "l.safetensors").string());
  const Outcome plain = text({"--cut=2"}), first = text({a}), lora = text({l});
  ASSERT_EQ(plain.code, 0) << plain.err;
  ASSERT_EQ(first.code, 0) << first.err;
  ASSERT_EQ(lora.code, 0) << lora.err;
  EXPECT_NE(first.out, plain.out);
  EXPECT_NE(lora.out, plain.out);
  for (const char* cut : {"--cut=0", "--cut=1", "--cut=2", "--cut=auto"}) {
    EXPECT_EQ(text({a, cut}).out, first.out) << cut;
    EXPECT_EQ(text({l, cut}).out, lora.out) << cut;
  }
  EXPECT_EQ(text({l, "--format=q8_0"}).code, 0);
  const auto refused = [&](std::vector<std::string> more, const std::string& why) {
    const Outcome outcome = text(std::move(more));
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  };
  refused({a, "--cut=3"}, "--cut: expected at most 2, where the tail begins, got 3");
  refused({a, "--cut=cloud"}, "--tail: expected no --cut cloud");
  refused({a, "--head=cloud"}, "--tail: expected no --cut cloud");
  refused({a, "--moves=0:1,4:3"}, "--moves: expected at most 2, where the tail begins, got 3");
  // Cut short, of another shape, of another model.
  const std::string whole = bytes_of(pair.folder.path / "a.safetensors");
  std::ofstream(pair.folder.path / "short") << whole.substr(0, whole.size() / 2);
  refused({cat("--tail=", (pair.folder.path / "short").string())}, "short");
  GatedCloud other(source("tests/golden/models/llama2"));
  const Outcome elsewhere = run_edge(
      {a, cat("--server=", other.url()), "--prompt=x", cat("--cache=", pair.cache.path.string())});
  EXPECT_EQ(elsewhere.code, 2) << elsewhere.err;
  std::string base = whole;
  const size_t at = base.find(":", base.find("split_base") + 13);
  base[at + 1] = base[at + 1] == '0' ? '1' : '0';
  std::ofstream(pair.folder.path / "base") << base;
  refused({cat("--tail=", (pair.folder.path / "base").string())},
          "whose weights are not those of the server's");
}

TEST(EdgeTrain, RefusesAnEncoder) {
  const TemporaryFolder folder;
  GatedCloud cloud(source("tests/golden/models/st-minilm"));
  std::ofstream(folder.path / "text.txt") << "a few words";
  const Outcome out = run_edge({"train", cat("--server=", cloud.url()), "--lora=2",
                                cat("--cache=", folder.path.string()),
                                cat("--text=", (folder.path / "text.txt").string()),
                                cat("--out=", (folder.path / "a").string())});
  EXPECT_EQ(out.code, 2);
  EXPECT_NE(out.err.find("expected a model that writes text, got an encoder"), std::string::npos)
      << out.err;
}

}  // namespace
}  // namespace split::test
