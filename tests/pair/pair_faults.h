// cloud_server and edge_client together when things go wrong: what those tests share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/programs.h"

namespace split::test {

namespace fs = std::filesystem;

inline const std::string kPrompt = "Once upon a time there was a little";
inline const Arguments kOnCpu = {"--device", "cpu", "--threads", "1"};

inline Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// The N of "; N replays" in the receipt for people; 0 without.
inline int replays_of(const std::string& err) {
  const size_t end = err.find(" replay");
  if (end == std::string::npos) return 0;
  const size_t begin = err.rfind(' ', end - 1);
  return std::atoi(err.c_str() + begin);
}

// For what no pipe tells of.
inline bool poll_for(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    ::poll(nullptr, 0, 2);
  }
  return true;
}

inline size_t lines_of(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

class Pair : public ::testing::Test {
 protected:
  Arguments long_text(const Arguments& extra, int tokens = 400) const {
    return kOnCpu + Arguments{"--prompt",     kPrompt,     "--seed",      "5",
                              "--max-tokens", cat(tokens), "--ignore-eos"} +
           extra;
  }
  EdgeResult run(const Arguments& arguments, const std::string& input = "/dev/null") {
    return run_edge(cloud_.url(), home_, kOnCpu + arguments, input);
  }
  std::unique_ptr<Process> begin(const std::string& url, const Arguments& arguments) {
    return std::make_unique<Process>(edge_command(url, arguments),
                                     Arguments{cat("XDG_CACHE_HOME=", home_.path.string())});
  }
  // Waits until it has printed so many bytes more.
  static bool more(Process& edge, size_t bytes) {
    const size_t have = edge.out().size();
    return edge.until([&] { return edge.out().size() >= have + bytes; });
  }
  void expect_refusal(const EdgeResult& got, int code, const std::string& part) {
    EXPECT_EQ(got.code, code) << got.err;
    EXPECT_EQ(got.out, "");
    EXPECT_EQ(lines_of(got.err), 1u) << got.err;
    EXPECT_NE(got.err.find(part), std::string::npos) << got.err;
  }
  // A text during which that was done to the cloud when so many bytes of it were here, at its end.
  // On a busy machine one may be over before: then another one is disturbed.
  std::unique_ptr<Process> disturbed(const Arguments& extra, const std::function<void()>& disturb,
                                     size_t bytes = 1);
  // The text is the undisturbed one when `disturb` is done to the server `times` times.
  void expect_same_text(const Arguments& extra, int times, const std::function<void()>& disturb);
  std::vector<fs::path> blobs() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(home_.path)) {
      const bool named = entry.path().filename() == "names";  // what the others are, for people
      if (entry.is_regular_file() && !named) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  CloudProcess cloud_{kOnCpu};
  Folder home_;
  std::mt19937 random_{7};
};

inline std::unique_ptr<Process> Pair::disturbed(const Arguments& extra,
                                                const std::function<void()>& disturb,
                                                size_t bytes) {
  for (int tries = 1;; ++tries) {
    auto edge = begin(cloud_.url(), long_text(extra));
    EXPECT_TRUE(more(*edge, bytes)) << edge->err();
    disturb();
    const bool calm = edge->wait() == 0 && edge->err().find("cloud_lost") == std::string::npos &&
                      edge->err().find("does not answer") == std::string::npos &&
                      replays_of(edge->err()) == 0;
    if (!calm || tries == 10) return edge;
    cloud_.go_on();
  }
}

inline void Pair::expect_same_text(const Arguments& extra, int times,
                                   const std::function<void()>& disturb) {
  const EdgeResult calm = run_edge(cloud_.url(), home_, long_text(extra));
  ASSERT_EQ(calm.code, 0) << calm.err;
  EXPECT_EQ(replays_of(calm.err), 0) << calm.err;
  // On a busy machine a text may be over before the last time: then another one is disturbed.
  int replays = 0;
  std::string told;
  for (int tries = 0; replays < times && tries < 10; ++tries) {
    const auto edge = begin(cloud_.url(), long_text(extra));
    // The first byte is the first token's, the later points are some tokens apart, more than a pipe
    // may have held.
    for (int i = 0; i < times && more(*edge, i == 0 ? 1 : 10 + random_() % 30); ++i) disturb();
    ASSERT_EQ(edge->wait(), 0) << edge->err();
    ASSERT_EQ(edge->out(), calm.out);
    told = edge->err();
    replays = replays_of(told);
  }
  EXPECT_GE(replays, times) << told;
}

}  // namespace split::test
