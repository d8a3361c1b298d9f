// edge_client train as a process beside a cloud_server: what goes over the line, and runs that are
// broken or lose the server.
#include <csignal>
#include <fstream>
#include <random>
#include <regex>
#include <set>

#include "pair/memory_group.h"
#include "pair_faults.h"
#include "support/chaos_proxy.h"

namespace split::test {
namespace {

class PairTrain : public testing::Test {
 protected:
  PairTrain() {
    std::ofstream text(folder_.path / "text.txt");
    for (int i = 0; i < 120; ++i)
      text << "The " << i % 7 << " men went on to the house of " << i % 11 << ". ";
  }
  fs::path file(const std::string& name) const { return folder_.path / name; }
  std::string bytes(const std::string& name) const { return read_file(file(name), 64 << 20); }
  Process start(const std::string& url, const std::string& out, const Arguments& more = {}) const {
    return Process(edge_command(
        url, Arguments{"--cache", file("cache").string(), "--text", file("text.txt").string(),
                       "--out", file(out).string(), "--lora", "2", "--steps", "12", "--device",
                       "cpu", "--threads", "1", "--retry-for", "0"} +
                 more));
  }
  static Arguments edge_command(const std::string& url, const Arguments& arguments) {
    return Arguments{program_path("edge_client"), "train", "--server", url} + arguments;
  }
  // Waits until it has made two steps.
  static bool trains(Process& process) {
    return process.until(
        [&] { return process.err().find("steps take about") != std::string::npos; });
  }

  const Folder folder_;
  CloudProcess cloud_{
      {"--model", SPLIT_SOURCE_DIR "/tests/golden/models/llama3", "--formats", "f32"}};
};

struct Asked {
  std::string method, target, body;
};
std::vector<Asked> requests_in(const std::string& connection) {
  std::vector<Asked> all;
  for (size_t at = 0; at < connection.size();) {
    const size_t end = connection.find("\r\n\r\n", at);
    if (end == std::string::npos) break;
    const std::string head = connection.substr(at, end - at);
    std::smatch line, length;
    EXPECT_TRUE(std::regex_search(head, line, std::regex("^([A-Z]+) ([^ ]+) ")));
    Asked one{line[1], line[2], {}};
    at = end + 4;
    if (std::regex_search(head, length, std::regex("[Cc]ontent-[Ll]ength: *([0-9]+)"))) {
      one.body = connection.substr(at, std::stoul(length[1]));
      at += one.body.size();
    }
    EXPECT_EQ(head.find("chunked"), std::string::npos) << head;
    all.push_back(std::move(one));
  }
  return all;
}

// Bodies that leave are lists of token ids, each window in one of them.
TEST_F(PairTrain, SendsTokenIdsOnceAndNothingElse) {
  ChaosProxy proxy(cloud_.port());
  Process process = start(proxy.url(), "a.safetensors", {"--quiet"});
  ASSERT_EQ(process.wait(), 0) << process.err();
  size_t windows = 0;
  std::set<std::vector<int32_t>> different;
  for (const std::string& connection : proxy.asked()) {
    EXPECT_EQ(connection.find("The 3 men"), std::string::npos);
    for (const Asked& one : requests_in(connection)) {
      if (one.method == "GET") {
        EXPECT_TRUE(one.body.empty()) << one.target;
        EXPECT_LT(one.target.size(), 200u) << one.target;
        continue;
      }
      EXPECT_EQ(one.method, "POST");
      EXPECT_NE(one.target.find("/forward"), std::string::npos) << one.target;
      const Json body = Json::parse(one.body);
      for (const auto& [name, value] : body.items()) {
        EXPECT_TRUE(name == "tokens" || name == "to" || name == "rows" || name == "wire") << name;
        EXPECT_TRUE(name == "tokens" || value.dump().size() < 16) << value.dump();
      }
      for (const auto& window : body.at("tokens")) {
        EXPECT_EQ(window.size(), 128u);
        different.insert(window.get<std::vector<int32_t>>());
        ++windows;
      }
    }
  }
  EXPECT_EQ(different.size(), windows);
  EXPECT_GE(windows, 8u);
}

TEST_F(PairTrain, EndsWellWithoutTheServerBehindTheFirstPass) {
  ASSERT_EQ(start(cloud_.url(), "whole.safetensors").wait(), 0);
  Process process = start(cloud_.url(), "a.safetensors");
  ASSERT_TRUE(trains(process)) << process.err();
  cloud_.process().kill();
  ASSERT_EQ(process.wait(), 0) << process.err();
  EXPECT_NE(process.out().find("perplexity of the text's last fifth"), std::string::npos);
  EXPECT_EQ(bytes("a.safetensors"), bytes("whole.safetensors"));
}

// Stopped behind some steps a few times, and killed without a chance to save.
TEST_F(PairTrain, GoesOnFromWhateverStepWithTheSameBits) {
  ASSERT_EQ(start(cloud_.url(), "whole.safetensors").wait(), 0);
  std::mt19937 random(47);
  const auto breaks = 1 + random() % 3;
  int64_t kept = 0;
  for (size_t i = 0; i < breaks; ++i) {
    Process process = start(cloud_.url(), "a.safetensors");
    if (trains(process)) process.signal(SIGINT);  // it says so at its second step
    const int code = process.wait();
    if (code == 0) break;  // it was done
    ASSERT_EQ(code, 130) << process.err();
    std::smatch found;
    const std::string said = process.err();
    ASSERT_TRUE(std::regex_search(said, found, std::regex("([0-9]+) of 12 steps are kept")));
    EXPECT_GT(std::stoll(found[1]), kept);
    kept = std::stoll(found[1]);
  }
  if (!fs::exists(file("a.safetensors"))) {
    Process killed = start(cloud_.url(), "a.safetensors");
    (void)killed.until([&] { return killed.err().find("goes on behind") != std::string::npos; });
    killed.kill();
  }
  if (!fs::exists(file("a.safetensors"))) {
    Process last = start(cloud_.url(), "a.safetensors");
    ASSERT_EQ(last.wait(), 0) << last.err();
  }
  EXPECT_EQ(bytes("a.safetensors"), bytes("whole.safetensors"));
}

TEST_F(PairTrain, SaysWhatIsMissingWhereTheTrainerIsNotThere) {
  const fs::path alone = file("edge_client");
  fs::copy_file(program_path("edge_client"), alone);
  Process process(Arguments{alone.string(), "train", "--help"});
  EXPECT_EQ(process.wait(), 4);
  EXPECT_NE(process.err().find("scripts/build.sh edge_train builds it"), std::string::npos)
      << process.err();
  Process doctor(Arguments{alone.string(), "doctor", "--server", cloud_.url(), "--cache",
                           file("cache").string(), "--device", "cpu"});
  EXPECT_EQ(doctor.wait(), 0) << doctor.out();
  EXPECT_NE(doctor.out().find("training        not tried without edge_train (scripts/build.sh "
                              "edge_train)\n"),
            std::string::npos)
      << doctor.out();
}

// A long text's rows are most of what it takes. Within the figure that it told it ends well; where
// less is granted it says so before it asks for them.
TEST_F(PairTrain, TakesNoMoreMemoryThanItSays) {
  std::ofstream(file("text.txt")) << std::string(24 << 10, 'a');
  CloudProcess demo{kOnCpu};
  std::string said;
  const auto train = [&](const std::string& out, uint64_t limit) {
    const MemoryGroup group(limit);
    if (!group) return -1;
    Process process(group.around(edge_command(
        demo.url(),
        {"--cache", file("cache").string(), "--text", file("text.txt").string(), "--out",
         file(out).string(), "--steps", "1", "--device", "cpu", "--threads", "1"})));
    const int code = process.wait();
    said = process.err();
    return code;
  };
  constexpr uint64_t kPage = 4096;
  const int code = train("a.safetensors", 64 << 20);
  if (code == -1) GTEST_SKIP() << "no right to limit memory";
  EXPECT_EQ(code, 2) << said;
  std::smatch found;
  const std::regex takes(
      "training takes ([0-9.]+) MB of memory with the program's own; this "
      "machine grants 67.1 MB\n.*expected memory for ([0-9.]+) MB, ");
  ASSERT_TRUE(std::regex_search(said, found, takes)) << said;
  EXPECT_EQ(found[1], found[2]);
  const auto told = static_cast<uint64_t>(std::stod(found[1]) * 1e6);
  EXPECT_EQ(train("a.safetensors", told * 97 / 100 / kPage * kPage), 2) << said;
  EXPECT_EQ(train("a.safetensors", told * 102 / 100 / kPage * kPage), 0) << said;
}

}  // namespace
}  // namespace split::test
