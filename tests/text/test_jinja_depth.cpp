// text/jinja on a worker's stack: every construct at its limit of levels, on a thread of 1 MiB.
#include <gtest/gtest.h>

#include "base/json.h"
#include "support/depth/deep_templates.h"
#include "support/depth/worker_stack.h"
#include "text/jinja/jinja.h"

namespace split {
namespace {

// The text of a template, or the error's.
std::string told(const std::string& text) {
  try {
    return JinjaTemplate(text).render(parse_json(test::kDeepNames, 64, "names"));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return cat("refused: ", error.what());
  }
}

// 400 levels of a run take 256 KiB; the rest is a thread's own, and what the deepest level does.
TEST(JinjaDepth, EveryConstructEndsOnAWorkersStack) {
  constexpr size_t kMost = (256 + 32) << 10;
  for (const test::DeepTemplate& one : test::kDeepTemplates) {
    std::vector<std::string> texts;
    const size_t used = test::stack_of([&] {
      for (const int n : test::kDepths) {
        const std::string text = one.of(n);
        if (text.size() <= JinjaLimits::kTemplate) texts.push_back(told(text));
      }
    });
    if (test::kFramesOfARelease) {
      EXPECT_LE(used, kMost) << one.name;
    }
    EXPECT_FALSE(texts.front().starts_with("refused")) << one.name << ": " << texts.front();
    EXPECT_EQ(texts.back().starts_with("refused"), one.bounded) << one.name << ": " << texts.back();
  }
}

}  // namespace
}  // namespace split
