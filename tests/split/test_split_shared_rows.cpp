// Rows of prompts that a tail's texts share, where they went bad: no text is told of that, and
// nobody takes them any more.
#include <gtest/gtest.h>

#include "split/split_by_hand.h"
#include "support/failing_device.h"

namespace split::test {
namespace {

class SharedRowsGoneBad : public SplitAlone {
 protected:
  SharedRowsGoneBad() : SplitAlone("rand-a", [] { return std::make_unique<BadMemory>(); }) {
    prompt.clear();
    for (int32_t i = 0; i < 40; ++i) prompt.push_back((i * 37 + 5) % 300);
  }
  BadMemory& memory() { return dynamic_cast<BadMemory&>(*device); }
  struct Made {
    std::vector<int32_t> tokens;
    edge::SplitCounts counts;
  };
  Made made(edge::SplitContext run, const char* owner = "me") {
    run.root = PrefixRoot{owner, ""};
    Made made;
    edge::SplitText text(run, prompt, wanted(), made.counts);
    while (text.next({})) continue;
    made.tokens = text.take().tokens;
    text.keep();
    return made;
  }
  // With a tail whose texts share rows, at each cut that leaves it blocks.
  void at_cuts(const std::function<void(const edge::SplitContext&, PrefixCache&)>& call) {
    for (int cut = 0; cut < layers(); ++cut) {
      SCOPED_TRACE(cat("cut ", cut));
      edge::PlacementRequest request;
      request.cut = cut;
      memory().pages.clear();
      with(edge::place(request, golden.model->config()), [&](const edge::SplitContext& run) {
        run.tail->keep_prefixes();
        call(run, *run.tail->prefixes());
      });
      cloud.forget_all();
    }
  }
};

TEST_F(SharedRowsGoneBad, ATextComputesThemOnceMoreAndNobodyTakesThem) {
  const std::vector<int32_t> expected = whole();
  at_cuts([&](const edge::SplitContext& run, PrefixCache& cache) {
    EXPECT_EQ(made(run).tokens, expected);
    EXPECT_EQ(made(run, "you").tokens, expected);
    EXPECT_EQ(cache.pages(), 6u);
    EXPECT_EQ(made(run).tokens, expected);
    EXPECT_EQ(cache.taken_rows(), 32u);
    memory().spoil();
    const Made second = made(run);
    EXPECT_EQ(second.tokens, expected);
    EXPECT_EQ(second.counts.cached_rows, 0u);
    EXPECT_EQ(cache.taken_rows(), 64u);  // and left again
    EXPECT_EQ(cache.pages(), 3u);        // another owner's, who finds out by himself
    EXPECT_EQ(made(run).tokens, expected);
    EXPECT_EQ(cache.taken_rows(), 64u);
    EXPECT_EQ(made(run, "you").tokens, expected);
    EXPECT_EQ(made(run).tokens, expected);
    EXPECT_EQ(cache.taken_rows(), 128u);
  });
}

}  // namespace
}  // namespace split::test
