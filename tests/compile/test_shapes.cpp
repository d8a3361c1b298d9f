// compile/: graphs that no step could run are refused, in words.
#include <gtest/gtest.h>

#include "compile/compile.h"

namespace split::test {
namespace {

template <typename Build>
std::string refusal(Build build) {
  try {
    build();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kShape);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Shapes, ErrorsNameWhatWasExpectedAndGot) {
  const Tensor x = input("x", DType::kF32, {kRows, 16});
  const Tensor index = input("index", DType::kI32, {kRows});
  const Tensor w = weight("w", DType::kF32, {12, 16});
  const Tensor v = weight("v", DType::kF32, {12});
  EXPECT_EQ(refusal([&] { matmul(x, w); }),
            "[matmul] expected [rows, K] and [K, M], got [-1, 16] and [12, 16]");
  EXPECT_EQ(refusal([&] { add(x, v); }),
            "[add] expected shapes that are equal or broadcast, got [-1, 16] and [12]");
  EXPECT_EQ(refusal([&] {
              add(x, input("y", DType::kF32, {kOutRows, 1}));
            }),
            "[add] expected shapes that are equal or broadcast, got [-1, 16] and [-2, 1]");
  EXPECT_EQ(refusal([&] { reduce_max(v); }), "[max] expected [rows, C], got [12]");
  EXPECT_EQ(refusal([&] { gather(v, index); }),
            "[gather] expected a table [N, C] and an I32 index [rows], got [12] and [-1]");
  EXPECT_EQ(refusal([&] { gather(w, v); }),
            "[gather] expected a table [N, C] and an I32 index [rows], got [12, 16] and [12]");
  EXPECT_EQ(refusal([&] { transpose(x); }), "[transpose] expected a weight [M, K], got [-1, 16]");
  const Tensor q = input("q", DType::kF32, {kRows, 12}), k = input("k", DType::kF32, {kRows, 8}),
               cache = input("k_cache", DType::kF32, {8});
  const auto attend = [&](const Tensor& k, const Tensor& cache, int heads, int kv_heads) {
    return refusal([&] { attention(q, k, k, cache, cache, {heads, kv_heads, 4, 1.0f}); });
  };
  EXPECT_EQ(attend(k, cache, 3, 2),
            "[attention] expected heads of keys that divide those of queries, got 2 and 3 of 4");
  EXPECT_EQ(attend(k, cache, 3, 0),
            "[attention] expected heads of keys that divide those of queries, got 0 and 3 of 4");
  EXPECT_EQ(attend(k, cache, 4, 2), "[attention] expected q [-1, 16], got [-1, 12]");
  EXPECT_EQ(attend(k, cache, 3, 1), "[attention] expected k [-1, 4], got [-1, 8]");
  EXPECT_EQ(attend(q, cache, 3, 3), "[attention] expected a cache [12], got [8]");
  EXPECT_EQ(refusal([&] { columns(v, 0, 1); }), "[columns] expected [rows, C], got [12]");
  EXPECT_EQ(refusal([&] { columns(q, 8, 5); }), "[columns] expected some of 12, got [8, 13)");
  EXPECT_EQ(refusal([&] { columns(q, -1, 5); }), "[columns] expected some of 12, got [-1, 4)");
  EXPECT_EQ(refusal([&] { topk(v, 1); }), "[topk] expected [rows, C <= 2^24], got [12]");
  EXPECT_EQ(refusal([&] {
              topk(input("x", DType::kF32, {kRows, (1 << 24) + 1}), 1);
            }),
            "[topk] expected [rows, C <= 2^24], got [-1, 16777217]");
  EXPECT_EQ(refusal([&] { topk(x, 0); }), "[topk] expected k from 1 to 16, got 0");
  EXPECT_EQ(refusal([&] { topk(x, 17); }), "[topk] expected k from 1 to 16, got 17");
}

// A graph that no step can run is refused by compile(), not run wrongly.
TEST(Shapes, CompileRefusesWhatNoStepRuns) {
  const Tensor x = input("x", DType::kF32, {kRows, 16});
  const Tensor index = input("index", DType::kI32, {kRows});
  const Tensor w = weight("w", DType::kF32, {16, 16});
  const Tensor v = weight("v", DType::kF32, {16});
  const auto compiled = [](const Tensor& y) {
    return refusal([&] { compile("graph", {{"y", y}}, {}); });
  };
  EXPECT_EQ(compiled(x), "[compile] output 'y' is not computed");
  EXPECT_EQ(compiled(gather(w, index)), "[compile] output 'y' is not computed");
  EXPECT_EQ(compiled(square(v)), "[compile] square: expected a result [rows, C], got [16]");
  EXPECT_EQ(compiled(square(w)), "[compile] square: expected a result [rows, C], got [16, 16]");
  EXPECT_EQ(compiled(matmul(gather(w, index), w)),
            "[compile] matmul: expected a value that a step has made, got gather");
  EXPECT_EQ(compiled(x + gather(gather(w, index), index)),
            "[compile] gather: expected a value that a step has made, got gather");
  EXPECT_EQ(compiled(matmul(x, w) + x * gather(transpose(w), index)),
            "[compile] gather: expected a value that a step has made, got transpose");
  EXPECT_EQ(compiled(matmul(x, input("z", DType::kF32, {16, 16}))),
            "[compile] matmul: expected a weight [K, M], got input");
  EXPECT_EQ(compiled(x + gather(weight("one", DType::kF32, {9, 1}), index)),
            "[compile] add: expected gathered rows of 16, got 1");
  const Tensor y = square(x);
  EXPECT_EQ(refusal([&] {
              compile("graph", {{"a", y}, {"b", y}}, {});
            }),
            "[compile] outputs 'a' and 'b' are one tensor");
}

}  // namespace
}  // namespace split::test
