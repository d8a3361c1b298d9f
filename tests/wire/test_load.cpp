// A cloud's load: what is written is read as it was, and what is not said is not there.
#include <gtest/gtest.h>

#include "base/error.h"
#include "wire/load.h"

namespace split::wire {
namespace {

constexpr char kQuiet[] =
    R"({"block_ms":null,"block_row_ms":null,"busy":0.0,"draft":7,"head_ms":null,"head_row_ms":null,)"
    R"("kv_free_bytes":0,"price":0.0,"prices":{"egress_gb":null,"hour":null},"prompt_row_ms":null,)"
    R"("queue_depth":0,"sessions":0,"step_ms":{"p50":null,"p99":null},"want":null})";

TEST(ModelLoad, IsReadAsItWasWritten) {
  EXPECT_EQ(to_json(Load{}), kQuiet);
  const Load load{.busy = 0.5,
                  .queue_depth = 3,
                  .sessions = 2,
                  .kv_free_bytes = uint64_t{1} << 40,
                  .p50_ms = 4,
                  .p99_ms = 9.5,
                  .costs = StepCosts{1, 0.25, 2, 0.5, 0.125},
                  .note = {.want = 6, .price = 0.4, .draft = 3},
                  .price_hour = 3.6,
                  .price_egress_gb = 0.09};
  const std::string json = to_json(load);
  const Load read = parse_load(json);
  EXPECT_EQ(to_json(read), json);
  EXPECT_EQ(read.kv_free_bytes, load.kv_free_bytes);
  EXPECT_EQ(read.note, load.note);
  ASSERT_TRUE(read.costs);
  EXPECT_EQ(read.costs->prompt_row_ms, 0.125);
}

TEST(ModelLoad, AFigureThatIsNoneIsNotSaid) {
  const Load quiet = parse_load(kQuiet);
  EXPECT_FALSE(quiet.costs || quiet.p50_ms || quiet.note.want || quiet.price_hour);
  std::string text = kQuiet;
  text.replace(text.find("null"), 4, "-1");  // a block's
  EXPECT_FALSE(parse_load(text).costs);
  text.replace(text.find("\"want\":null") + 7, 4, "1025");
  EXPECT_FALSE(parse_load(text).note.want);
  for (const char* other : {"[]", "{}", "null", "{\"busy\":0}", ""}) {
    EXPECT_THROW(parse_load(other), Error) << other;
  }
}

}  // namespace
}  // namespace split::wire
