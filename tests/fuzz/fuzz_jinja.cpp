// Any bytes as a chat template: refused with Error(kInput), or a text within the limits.
#include "base/json.h"
#include "fuzz.h"
#include "text/jinja/jinja.h"

using namespace split;  // NOLINT(google-build-using-namespace): a program of its own

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Json names = parse_json(
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "<a>"}],
          "tools": [{"name": "f", "arguments": {"x": 1}}], "add_generation_prompt": true})",
      16, "names");
  fuzz::refused_or([&] {
    CHECK(JinjaTemplate(fuzz::text_of(data, size)).render(names).size() <= JinjaLimits::kOutput);
  });
  return 0;
}
