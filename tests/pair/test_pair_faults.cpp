// A server that dies and comes back, is busy, or is no server at all: the same text, or one line.
#include "pair_faults.h"

namespace split::test {
namespace {

// At ten points; a hundred with SPLIT_LONG.
TEST_F(Pair, TextIsTheSameWhenTheServerIsKilledAtTenPoints) {
  const int texts = std::getenv("SPLIT_LONG") != nullptr ? 10 : 1;
  for (int i = 0; i < texts; ++i) {
    expect_same_text({"--cut", "4"}, 10, [this] {
      EXPECT_EQ(cloud_.process().kill(), -SIGKILL);
      cloud_.again();
    });
  }
}

TEST_F(Pair, TextIsTheSameWhenTheServerIsKilledAndHasTheHeadOrAll) {
  const auto kill = [this] {
    EXPECT_EQ(cloud_.process().kill(), -SIGKILL);
    cloud_.again();
  };
  expect_same_text({"--cut", "8", "--head", "cloud"}, 1, kill);
  expect_same_text({"--cut", "cloud"}, 2, kill);
}

TEST_F(Pair, TextIsTheSameWhenTheServerIsToldToEndAndStartedAgain) {
  expect_same_text({"--cut", "6"}, 2, [this] {
    cloud_.process().signal(SIGTERM);
    EXPECT_EQ(cloud_.process().wait(), 0) << cloud_.process().err();
    cloud_.again();
  });
}

// Each text alone fills more than half of the server's pages: they take them from one another, and
// wait for them as long as the other needs.
TEST_F(Pair, TextsThatCompeteForTheServersMemoryAreTheSame) {
  CloudProcess small(kOnCpu + Arguments{"--kv-budget", "11M"});
  for (const char* cut : {"4", "cloud"}) {
    SCOPED_TRACE(cut);
    const Arguments arguments = long_text({"--cut", cut, "--retry-for", "600"}, 360);
    const EdgeResult calm = run_edge(cloud_.url(), home_, arguments);
    const auto first = begin(small.url(), arguments), second = begin(small.url(), arguments);
    EXPECT_EQ(first->wait(), 0) << first->err();
    EXPECT_EQ(second->wait(), 0) << second->err();
    EXPECT_EQ(first->out(), calm.out);
    EXPECT_EQ(second->out(), calm.out);
  }
}

// Two answers lost further apart than --retry-for: the second has the whole of it again.
TEST_F(Pair, TheTimeForRetriesStartsAnewWhenTheCloudsAnswerHasGoneOn) {
  const Arguments arguments = long_text({"--cut", "cloud", "--retry-for", "2"});
  const EdgeResult calm = run_edge(cloud_.url(), home_, arguments);
  const auto edge = begin(cloud_.url(), arguments);
  std::chrono::steady_clock::time_point lost;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(more(*edge, 5)) << edge->err();
    edge->signal(SIGSTOP);  // its time begins when the cloud is there again
    if (i == 1) {
      ASSERT_TRUE(poll_for([&] {
        return std::chrono::steady_clock::now() - lost > std::chrono::milliseconds(2100);
      }));
    }
    cloud_.process().kill();
    lost = std::chrono::steady_clock::now();
    cloud_.again();
    ASSERT_TRUE(poll_for(
        [&] { return http::Client(cloud_.url()).request("GET", "/readyz").status == 200; }));
    edge->signal(SIGCONT);
  }
  EXPECT_EQ(edge->wait(), 0) << edge->err();
  EXPECT_EQ(edge->out(), calm.out);
}

TEST_F(Pair, AServerThatDoesNotComeBackIsExitThreeInTime) {
  std::chrono::steady_clock::time_point start;
  const auto edge = disturbed({"--cut", "4", "--retry-for", "1"}, [&] {
    cloud_.process().kill();
    start = std::chrono::steady_clock::now();
  });
  EXPECT_EQ(edge->wait(), 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_NE(edge->err().find(cloud_.url()), std::string::npos) << edge->err();
}

TEST_F(Pair, CutZeroGoesOnWithoutTheServer) {
  const EdgeResult calm = run_edge(cloud_.url(), home_, long_text({"--cut", "0"}));
  const auto edge = begin(cloud_.url(), long_text({"--cut", "0"}));
  ASSERT_TRUE(more(*edge, 1)) << edge->err();
  cloud_.process().kill();
  EXPECT_EQ(edge->wait(), 0) << edge->err();
  EXPECT_EQ(edge->out(), calm.out);
  EXPECT_NE(calm.out, "");
}

}  // namespace
}  // namespace split::test
