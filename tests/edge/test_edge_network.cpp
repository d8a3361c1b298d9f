// The network between edge and cloud breaks at any byte of a step: the same text, and no token
// twice.
#include <gtest/gtest.h>

#include "edge_client/cloud/remote.h"
#include "support/chaos_proxy.h"
#include "support/edge_world.h"
#include "wire/codes.h"

namespace split::test {
namespace {

using Fault = ChaosProxy::Fault;
using Way = ChaosProxy::Way;

class Network : public ::testing::Test {
 protected:
  static constexpr int kTokens = 4;

  Network() : cloud_("rand-a"), golden_("rand-a"), proxy_(cloud_.port()) {
    calm_ = run();
    EXPECT_EQ(calm_.code, 0) << calm_.err;
  }
  Outcome run(const std::string& timeout = "30") {
    return cloud_.ended(
        run_edge({cat("--server=", proxy_.url()), cat("--cache=", cache_.path.string()),
                  "--device=cpu", "--threads=1", "--cut=2", "--seed=7", "--ignore-eos", "--json",
                  "--retry-for=20", cat("--timeout=", timeout), cat("--max-tokens=", kTokens),
                  "--prompt-ids=" + joined(golden_.values<int32_t>("p0.ids"))}));
  }
  static std::vector<int32_t> tokens(const Outcome& outcome) {
    return outcome.json()["tokens"].get<std::vector<int32_t>>();
  }
  // The fault at every `stride`-th byte of step `step`.
  void expect_same_at_every_byte(Fault fault, Way way, int step, uint64_t stride,
                                 const std::string& timeout = "30") {
    uint64_t size = 1;
    for (uint64_t at = 0; at < size; at += stride) {
      proxy_.plan({fault, way, at, step});
      const Outcome got = run(timeout);
      ASSERT_EQ(got.code, 0) << "byte " << at << ": " << got.err;
      ASSERT_EQ(tokens(got), tokens(calm_)) << "byte " << at;
      // An answer's times are some digits longer or shorter.
      ASSERT_TRUE(proxy_.struck() == 1 || at >= proxy_.passed(way)) << "byte " << at;
      if (at == 0) size = message_size(way, step);
    }
    EXPECT_GT(size, 100u);
  }
  // Bytes of a step that nothing happens to.
  uint64_t message_size(Way way, int step) {
    proxy_.plan({Fault::kCut, way, ~0ull, step});
    run();
    return proxy_.passed(way);
  }
  static uint64_t stride(uint64_t usual) { return std::getenv("SPLIT_LONG") ? 1 : usual; }

  GatedCloud cloud_;
  Golden golden_;
  TemporaryFolder cache_;
  ChaosProxy proxy_;
  Outcome calm_;
};

TEST_F(Network, CutsAtEveryByteOfAStepLeaveTheText) {
  for (const Way way : {Way::kRequest, Way::kAnswer})
    expect_same_at_every_byte(Fault::kCut, way, 2, stride(23));
}

TEST_F(Network, CutsAtEveryByteOfThePromptLeaveTheText) {
  for (const Way way : {Way::kRequest, Way::kAnswer})
    expect_same_at_every_byte(Fault::kCut, way, 0, stride(101));
}

// Refused as by a server that is only just being started.
TEST_F(Network, FirstRequestsThatFailAreMadeAgain) {
  proxy_.plan({Fault::kReset, Way::kRequest, 0, 0, 3, "GET /v1/models "});
  const Outcome got = run();
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(tokens(got), tokens(calm_));
  EXPECT_EQ(proxy_.struck(), 3);
}

TEST_F(Network, ResetsAtEveryByteOfAStepLeaveTheText) {
  for (const Way way : {Way::kRequest, Way::kAnswer})
    expect_same_at_every_byte(Fault::kReset, way, 1, stride(37));
}

TEST_F(Network, HalfClosedConnectionsLeaveTheText) {
  for (const Way way : {Way::kRequest, Way::kAnswer})
    expect_same_at_every_byte(Fault::kHalfClose, way, 1, stride(61));
}

// The cloud answers the edge's own request, whichever byte of either message changed.
TEST_F(Network, FlipsAtEveryByteOfAStepLeaveItsState) {
  const std::vector<int32_t> ids = golden_.values<int32_t>("p0.ids");
  const std::string session(32, 'f');
  edge::Traffic traffic;
  // Not long: a flip may announce bytes that never come.
  edge::Remote remote(proxy_.url(), std::chrono::milliseconds(300)),
      patient(proxy_.url(), std::chrono::minutes(1));
  const auto step = [&](edge::Remote& remote) {
    const SequenceRows rows{.tokens = ids, .wanted = Wanted::kAll};
    return remote.ask({edge::Send::kStep, session, rows, &traffic}, {.channels = 96});
  };
  patient.ask({edge::Send::kOpen, session, {.range = {.to = 2}}, &traffic}, {"rand-a"});
  const std::vector<float> expected = step(patient);
  const auto expect_step = [&](const std::string& what) {
    std::vector<float> got;
    for (int tries = 0; got.empty() && tries < 20; ++tries) {  // a loaded machine is late
      try {
        got = step(remote);
      } catch (const edge::RemoteError& error) {
        const bool passes = error.transient() || error.code == wire::codes::kSessionUnknown;
        ASSERT_TRUE(passes) << what << ": " << error.what();
      }
    }
    ASSERT_FALSE(got.empty()) << what;
    ASSERT_TRUE(got == expected) << what;
  };
  expect_step("no flip");  // and the server has said that it checks what it gets
  for (const Way way : {Way::kRequest, Way::kAnswer}) {
    proxy_.plan({Fault::kFlip, way, ~0ull});
    EXPECT_EQ(step(patient), expected);
    const uint64_t size = proxy_.passed(way);
    EXPECT_GT(size, 200u);
    for (uint64_t at = 0; at < size && !HasFatalFailure(); ++at) {
      proxy_.plan({Fault::kFlip, way, at});
      expect_step(cat("byte ", at));
    }
  }
}

TEST_F(Network, FlippedBytesLeaveTheText) {
  for (const Way way : {Way::kRequest, Way::kAnswer})
    expect_same_at_every_byte(Fault::kFlip, way, 1, stride(29), "1");
}

// A network that takes bytes and gives none: the edge's own timeout ends it.
TEST_F(Network, SilenceInTheMiddleOfAStepLeavesTheText) {
  for (const Way way : {Way::kRequest, Way::kAnswer}) {
    proxy_.plan({Fault::kSwallow, way, 90, 1});
    const Outcome got = run("1");
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_EQ(tokens(got), tokens(calm_));
    EXPECT_EQ(proxy_.struck(), 1);
  }
}

TEST_F(Network, SeveralLossesInARowLeaveTheText) {
  proxy_.plan({Fault::kReset, Way::kAnswer, 40, 1, 4});
  const Outcome got = run();
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(tokens(got), tokens(calm_));
  EXPECT_EQ(proxy_.struck(), 4);
}

TEST_F(Network, ASlowNetworkOfSmallPiecesLeavesTheText) {
  proxy_.pace({std::chrono::microseconds(100), std::chrono::microseconds(300), 97});
  const Outcome got = run();
  ASSERT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(tokens(got), tokens(calm_));
  EXPECT_EQ(got.json()["receipt"]["replays"], 0);
}

}  // namespace
}  // namespace split::test
