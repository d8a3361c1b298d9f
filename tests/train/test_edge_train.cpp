// edge_client train against a cloud: what leaves, what comes out, what goes on and what is refused.
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <random>
#include <regex>

#include "edge_client/train/train_command.h"
#include "support/edge_server.h"
#include "text/tokenizer.h"

namespace split::test {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) { return read_file(path, 64 << 20); }

Outcome run_train(const std::vector<std::string>& arguments) {
  EdgeOptions options;
  options.program = edge::train_main;
  return run_edge(arguments, options);
}

// A cloud of a small model with a tokenizer, and a text of some windows.
struct TrainPair {
  explicit TrainPair(int sentences = 260) : cloud(source("tests/golden/models/llama3")) {
    std::ofstream text(folder.path / "text.txt");
    for (int i = 0; i < sentences; ++i)
      text << "The " << i % 7 << " men went on to the house of " << i % 11 << ". ";
  }
  // A text of the bundled model, of letters that nobody knows but for the end of what is not
  // trained on: so many of its tokens are a tale, which the model knows.
  explicit TrainPair(size_t tale_tokens, const std::string& model) : cloud(source(model)) {
    constexpr size_t kUnseen = 270;
    const auto tokenizer = load_tokenizer(fs::path(source(model)));
    std::mt19937 random(3);
    const auto some = [&](size_t tokens, const auto& more) {
      std::string text;
      while (tokenizer->encode(text).size() < tokens) text += more();
      return text;
    };
    const auto letters = [&] {
      std::string word;
      for (int i = 0; i < 7; ++i) word += static_cast<char>('a' + random() % 26);
      return word + " ";
    };
    const auto tale = [&] {
      return std::string(random() % 2 == 0
                             ? "Once upon a time there was a king who had a daughter. "
                             : "Then the old woman went into the forest. ");
    };
    std::ofstream(folder.path / "text.txt")
        << some(4 * kUnseen, letters) << some(kUnseen - tale_tokens, letters)
        << some(tale_tokens, tale);
  }
  std::vector<std::string> arguments(const std::string& out, std::vector<std::string> more) const {
    more.insert(more.end(),
                {cat("--server=", cloud.url()), cat("--cache=", cache.path.string()),
                 cat("--text=", (folder.path / "text.txt").string()),
                 cat("--out=", (folder.path / out).string()), "--threads=2", "--retry-for=1"});
    return more;
  }
  Outcome train(const std::string& out, std::vector<std::string> more) const {
    return run_train(arguments(out, std::move(more)));
  }

  TemporaryFolder folder, cache;
  GatedCloud cloud;
};

TEST(EdgeTrain, MakesAnAdapterThatPeftReadsAndTellsWhatItLearnt) {
  TrainPair pair;
  const Outcome out = pair.train("a.safetensors", {"--lora=4", "--steps=30"});
  ASSERT_EQ(out.code, 0) << out.err;
  std::smatch found;
  ASSERT_TRUE(std::regex_match(
      out.out, found,
      std::regex("perplexity of the text's last fifth (.*) -> (.*): better, as it was after "
                 "(.*) of 30 steps\n(.*) is written; this uses it:\n(.*)\n")))
      << out.out;
  EXPECT_LT(std::stod(found[2]), 0.9 * std::stod(found[1]));
  const std::string path = (pair.folder.path / "a.safetensors").string();
  EXPECT_EQ(found[4], path);
  EXPECT_EQ(found[5], cat("edge_client --server ", pair.cloud.url(), " --serve --tail ", path));
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
  const std::regex line("perplexity of the text's last fifth ([^ ]*) -> ([^ :]*)");
  ASSERT_TRUE(std::regex_search(cpu.out, of_cpu, line) && std::regex_search(gpu.out, of_gpu, line));
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
  EXPECT_NE(out.out.find(cat("; of ", known, " ")), std::string::npos) << out.out;
  const std::string file = bytes_of(pair.folder.path / "a.safetensors");
  EXPECT_NE(file.find("\"model.layers.2.mlp.up_proj.weight\""), std::string::npos);
  EXPECT_NE(file.find("\"model.norm.weight\""), std::string::npos);
  EXPECT_EQ(file.find("layers.1."), std::string::npos);
  EXPECT_FALSE(fs::exists(pair.folder.path / "adapter_config.json"));
}

// At a terminal, until the line of that step is drawn; then Ctrl-C. What it said on stderr.
std::string interrupted(const TrainPair& pair, const std::string& out,
                        const std::vector<std::string>& how, const std::string& step) {
  Interrupt interrupt;
  World world;
  world.connector = InProcess::connect;
  std::string said;
  world.console.err_is_terminal = true;
  world.console.out = [](std::string_view) { return true; };
  world.console.err = [&](std::string_view text) {
    said += text;
    if (text.find(step) != text.npos) interrupt.raise(SIGINT);
  };
  world.environment = [](const char*) -> const char* { return nullptr; };
  EXPECT_EQ(edge::train_main(pair.arguments(out, how), world, interrupt), 130) << said;
  EXPECT_FALSE(fs::exists(pair.folder.path / out));
  return said;
}

// Ctrl-C behind the second step; then the same command.
TEST(EdgeTrain, GoesOnAfterCtrlCWithTheBitsOfAnUnbrokenRun) {
  TrainPair pair;
  const std::vector<std::string> how{"--lora=2", "--blocks=1", "--steps=7"};
  ASSERT_EQ(pair.train("whole.safetensors", how).code, 0);
  const std::string said = interrupted(pair, "a.safetensors", how, "step 2 of 7");
  EXPECT_NE(said.find("\n2 of 7 steps are kept in"), std::string::npos) << said;
  const Outcome other = pair.train("a.safetensors", {"--lora=2", "--blocks=1", "--steps=8"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("is of another text, model or flags"), std::string::npos) << other.err;
  const Outcome out = pair.train("a.safetensors", how);
  ASSERT_EQ(out.code, 0) << out.err;
  EXPECT_NE(out.err.find("goes on behind step 2 of 7"), std::string::npos) << out.err;
  EXPECT_EQ(bytes_of(pair.folder.path / "a.safetensors"),
            bytes_of(pair.folder.path / "whole.safetensors"));
}

// Half of what it does not see is of another kind, which it knows less and less.
TEST(EdgeTrain, WritesItsBestStepAlsoAfterAPause) {
  TrainPair pair(135, "weights/demo");
  const std::vector<std::string> how{"--blocks=1", "--lora=8", "--steps=20"};
  const Outcome whole = pair.train("whole.safetensors", how);
  ASSERT_EQ(whole.code, 0) << whole.err;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(whole.out, found, std::regex("as it was after (.*) of 20 steps")))
      << whole.out;
  const int best = std::stoi(found[1]);
  ASSERT_GT(best, 1);
  ASSERT_LT(best, 16);
  // Before that step and behind it, twice.
  for (const int step : {best - 1, best + 2, 19}) {
    const std::string said = interrupted(pair, "a.safetensors", how, cat("step ", step, " of 20"));
    EXPECT_NE(said.find(cat("\n", step, " of 20 steps are kept in")), std::string::npos) << said;
  }
  const Outcome out = pair.train("a.safetensors", how);
  ASSERT_EQ(out.code, 0) << out.err;
  EXPECT_EQ(bytes_of(pair.folder.path / "a.safetensors"),
            bytes_of(pair.folder.path / "whole.safetensors"));
  const size_t words = whole.out.find('\n');
  EXPECT_EQ(out.out.substr(0, words), whole.out.substr(0, words));
}

TEST(EdgeTrain, WritesNothingWhereNothingGotBetter) {
  TrainPair pair(270, "weights/demo");
  const Outcome out = pair.train("a.safetensors", {"--steps=4"});
  EXPECT_EQ(out.code, 0) << out.err;
  EXPECT_TRUE(std::regex_match(
      out.out, std::regex("perplexity of the text's last fifth .* -> .*: it got no better after "
                          "any pass; nothing is written\n")))
      << out.out;
  for (const char* file : {"a.safetensors", "a.safetensors.part", "adapter_config.json"}) {
    EXPECT_FALSE(fs::exists(pair.folder.path / file)) << file;
  }
}

TEST(EdgeTrain, EachOfItsLinesIsOne) {
  TrainPair pair;
  const std::string said = interrupted(pair, "a.safetensors", {"--steps=9"}, "step 3 of 9");
  EXPECT_NE(said.find("\n9 steps take about "), std::string::npos) << said;
  size_t drawn = 0;
  for (size_t at = 0; (at = said.find("\r\x1b[K", at)) != said.npos; ++drawn) {
    at += 4;
    const std::string line = said.substr(at, said.find_first_of("\r\n", at) - at);
    EXPECT_EQ(line.ends_with(" left"), drawn > 0) << line;
    EXPECT_LT(line.size(), 80u) << line;
  }
  EXPECT_EQ(drawn, 3u) << said;
}

// Its figures are read from no text, and others than a course's are refused.
TEST(EdgeTrain, RefusesAPartWhoseFiguresNoCourseHas) {
  TrainPair pair;
  const std::vector<std::string> how{"--blocks=1", "--steps=5"};
  interrupted(pair, "a.safetensors", how, "step 3 of 5");
  const fs::path path = pair.folder.path / "a.safetensors.part";
  const std::string part = bytes_of(path);
  const uint64_t header = load_le64(std::as_bytes(std::span(part)).data());
  const auto json = nlohmann::json::parse(part.substr(8, header));
  const size_t at = 8 + header + json["best.figures"]["data_offsets"][0].get<size_t>();
  for (const float before : {1e38f * 10, -1.0f, 0.0f, 1.5f}) {
    std::string other = part;
    std::memcpy(other.data() + at, &before, sizeof before);
    std::ofstream(path, std::ios::binary) << other;
    const Outcome out = pair.train("a.safetensors", how);
    EXPECT_EQ(out.code, 2) << before;
    EXPECT_NE(out.err.find("a.safetensors.part"), std::string::npos) << out.err;
    EXPECT_EQ(out.out, "");
  }
  std::ofstream(path, std::ios::binary) << part;
  EXPECT_EQ(pair.train("a.safetensors", how).code, 0);
}

// A file without our own metadata goes by the description beside it, as PEFT's do.
TEST(EdgeTrain, AnAdapterIsWhatItsDescriptionSaysOrIsRefused) {
  TrainPair pair;
  ASSERT_EQ(pair.train("a.safetensors", {"--lora=4", "--steps=20"}).code, 0);
  const std::string file = bytes_of(pair.folder.path / "a.safetensors");
  const uint64_t size = load_le64(std::as_bytes(std::span(file)).data());
  const auto header = nlohmann::json::parse(file.substr(8, size));
  const fs::path path = pair.folder.path / "own.safetensors",
                 beside = pair.folder.path / "adapter_config.json";
  const auto write = [&](const nlohmann::json& metadata) {
    nlohmann::json all = header;
    all.erase("__metadata__");
    if (!metadata.is_null()) all["__metadata__"] = metadata;
    std::string text = all.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    std::ofstream(path, std::ios::binary)
        << std::string(reinterpret_cast<const char*>(&length), 8) << text << file.substr(8 + size);
  };
  const auto text = [&] {
    return run_edge({cat("--server=", pair.cloud.url()), cat("--cache=", pair.cache.path.string()),
                     "--prompt=The men went", "--temperature=0", "--max-tokens=12", "--logprobs=1",
                     "--json", "--device=cpu", "--threads=1", "--tail=" + path.string()});
  };
  const auto logprobs = [&] {
    const Outcome out = text();
    EXPECT_EQ(out.code, 0) << out.err;
    return out.code == 0 ? out.json()["logprobs"] : nlohmann::json();
  };
  const auto as_made = nlohmann::json::parse(bytes_of(beside));
  const auto with = [&](const char* name, const nlohmann::json& value) {
    nlohmann::json config = as_made;
    config[name] = value;
    std::ofstream(beside) << config;
  };
  write(header["__metadata__"]);
  const auto own = logprobs();
  ASSERT_FALSE(own.empty());
  write(nullptr);
  EXPECT_EQ(logprobs(), own);
  using Members = std::vector<std::pair<const char*, nlohmann::json>>;
  for (const auto& [name, value] : Members{{"use_rslora", false},
                                           {"use_dora", false},
                                           {"alpha_pattern", nlohmann::json::object()},
                                           {"rank_pattern", nlohmann::json::object()},
                                           {"init_lora_weights", true},
                                           {"fan_in_fan_out", true},
                                           {"bias", "none"}}) {
    with(name, value);
    EXPECT_EQ(logprobs(), own) << name;
  }
  // Rank 4: alpha / sqrt(4) is 2 alpha / 4.
  with("lora_alpha", 2 * as_made["lora_alpha"].get<double>());
  const auto doubled = logprobs();
  EXPECT_NE(doubled, own);
  with("use_rslora", true);
  EXPECT_EQ(logprobs(), doubled);

  const auto refused = [&](const std::string& where, const std::string& why) {
    const Outcome out = text();
    EXPECT_EQ(out.code, 2) << out.err;
    EXPECT_NE(out.err.find(where), std::string::npos) << out.err;
    EXPECT_NE(out.err.find(why), std::string::npos) << out.err;
  };
  const nlohmann::json pattern = {{"up_proj", 9}};
  for (const auto& [name, value] : Members{{"use_dora", true},
                                           {"alpha_pattern", pattern},
                                           {"rank_pattern", pattern},
                                           {"alora_invocation_tokens", {1, 2}},
                                           {"init_lora_weights", "pissa_niter_4"},
                                           {"use_rslora", "yes"},
                                           {"r", "4"},
                                           {"r", nullptr},
                                           {"lora_alpha", "8"},
                                           {"lora_alpha", {8}}}) {
    with(name, value);
    refused(beside.string(), cat("'", name, "': expected "));
  }
  with("lora_alpha", 1e308);
  refused(beside.string(), "expected a rank and an alpha");
  std::ofstream(beside) << "[]";
  refused(beside.string(), "'r': expected a number, got 'null'");
  std::ofstream(beside) << "{";
  refused(beside.string(), "");
  fs::remove(beside);
  const Outcome alone = text();
  EXPECT_EQ(alone.code, 2);
  EXPECT_NE(alone.err.find("adapter_config.json: No such file"), std::string::npos) << alone.err;
  for (const char* value : {"x", "", "nan", "4 ", "1e999"}) {
    for (const char* name : {"lora_rank", "lora_alpha"}) {
      nlohmann::json metadata = header["__metadata__"];
      metadata[name] = value;
      write(metadata);
      refused(path.string(), cat("'", name, "': expected a number, got '", value, "'"));
    }
  }
  std::ofstream(path) << "# A page of notes, which is no tail.\n";
  refused(path.string(), "no safetensors file: ");
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
  const Outcome out =
      run_train({cat("--server=", cloud.url()), "--lora=2", cat("--cache=", folder.path.string()),
                 cat("--text=", (folder.path / "text.txt").string()),
                 cat("--out=", (folder.path / "a").string())});
  EXPECT_EQ(out.code, 2);
  EXPECT_NE(out.err.find("expected a model that writes text, got an encoder"), std::string::npos)
      << out.err;
}

}  // namespace
}  // namespace split::test
