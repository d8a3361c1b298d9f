// compile/: the work that a step takes over from its neighbours.
#include <functional>

#include "graph_testing.h"
#include "models/functional.h"

namespace split::test {
namespace {

// How many steps those of a graph, compiled with prologues, join.
size_t joins_of(const std::vector<NamedOutput>& outputs) {
  const Program program = compile("joins", outputs, kWithPrologue);
  size_t all = 0;
  for (const Step& step : program.steps) all += step.joins;
  return all;
}

// A matmul whose epilogue reads the group that makes its x: the group cannot be a prologue.
TEST(Fusion, KeepsAGroupThatTheEpilogueReads) {
  Graph graph(8);
  const Tensor x = tanh(graph.input({kRows, 16}));
  const std::vector<NamedOutput> outputs{{"y", x + matmul(x, graph.weight({16, 16}))}};
  EXPECT_EQ(joins_of(outputs), 0u);
  expect_same_bits_however_compiled(graph, outputs, "post norm");
}

// The caller or another step reads it too: nobody may take it over.
TEST(Fusion, JoinsOnlyWhatNobodyElseReads) {
  Graph graph(10);
  const Tensor x = tanh(graph.input({kRows, 16})), w = graph.weight({16, 16});
  EXPECT_EQ(joins_of({{"y", matmul(x, w)}}), 1u);
  EXPECT_EQ(joins_of({{"y", matmul(x, w)}, {"x", x}}), 0u);
  EXPECT_EQ(joins_of({{"y", matmul(x, w)}, {"z", x + matmul(x, transpose(w))}}), 0u);
  const Tensor caches[] = {input("k_cache", DType::kF32, {16}),
                           input("v_cache", DType::kF32, {16})};
  const Tensor qkv = matmul(graph.input({kRows, 16}), graph.weight({16, 48}));
  const Tensor attended = attention(qkv, caches[0], caches[1], {2, 2, 8, 1.0f});
  EXPECT_EQ(joins_of({{"y", matmul(attended, w)}}), 1u);
  EXPECT_EQ(joins_of({{"y", attended + relu(attended)}, {"z", matmul(attended, w)}}), 0u);
  EXPECT_EQ(compile("put", {{"y", attended}}, kWithPrologue).steps[0].attention, 1u);
  const Program shown = compile("put", {{"y", attended}, {"qkv", qkv}}, kWithPrologue);
  EXPECT_EQ(shown.steps[0].attention, std::nullopt);
}

// A norm before several products that do not wait for each other, as those of queries, keys and
// values: each may make it itself.
TEST(Fusion, JoinsAllProductsOfWhatTheyAloneRead) {
  Graph graph(12);
  const Tensor x = tanh(graph.input({kRows, 16}));
  const Tensor q = matmul(x, graph.weight({16, 16})), k = matmul(x, graph.weight({16, 8})),
               v = matmul(x, graph.weight({16, 8}));
  const std::vector<NamedOutput> outputs{{"q", tanh(q)}, {"k", k}, {"v", relu(v)}};
  EXPECT_EQ(joins_of(outputs), 3u);
  EXPECT_EQ(joins_of({{"q", q}, {"k", k}, {"x", x}}), 0u);
  EXPECT_EQ(joins_of({{"y", matmul(relu(q), graph.weight({16, 16}))}, {"k", k}}), 2u);
  const Program program = compile("beside", outputs, kWithPrologue);
  std::vector<bool> waits;
  for (const Step& step : program.steps) waits.push_back(step.waits);
  EXPECT_EQ(waits, std::vector({true, true, false, false}));  // the group, and its readers
  expect_same_bits_however_compiled(graph, outputs, "three products");
}

// Gate runs after up, and may make their norm again from rows that nothing else needs any more.
TEST(Fusion, KeepsTheRowsOfAPrologueForItsLastReader) {
  Graph graph(13);
  const auto product = [&](const Tensor& x) { return matmul(x, graph.weight({16, 16})); };
  const Tensor x = product(graph.input({kRows, 16})), normed = x * reduce_sum(square(x));
  const Tensor up = product(normed), gate = relu(product(normed)) * up;
  const Program program = compile("mlp", {{"y", product(gate)}}, kWithPrologue);
  EXPECT_EQ(program.steps[1].joins, 2u) << to_string(program);
  EXPECT_EQ(wrong_with(program), "");
}

// The attention of a Llama's block, whose products may do what their neighbours do.
struct SmallBlock {
  explicit SmallBlock(Graph& graph)
      : x(tanh(graph.input({kRows, 16}))),
        rotation{graph.weight({64, 4}), graph.weight({64, 4}), graph.positions()},
        k(matmul(x, graph.weight({16, 16}))),
        v(matmul(x, graph.weight({16, 16}))),
        q(matmul(x, graph.weight({16, 16}))) {}
  // Steps: the group, then k, v and q, then the rotations, then the attention.
  Program with(const Tensor& keys, const std::vector<NamedOutput>& more = {}) const {
    const AttentionHeads heads{.heads = 2, .kv_heads = 2, .head_dim = 8};
    std::vector<NamedOutput> outputs = more;
    outputs.push_back({"y", attention(rotate(q, rotation, 2), keys, v, k_cache, v_cache, heads)});
    return compile("block", outputs, kWithNeighbours);
  }
  Tensor x;
  Rotation rotation;
  Tensor k, v, q;
  Tensor k_cache = input("k_cache", DType::kF32, {16}),
         v_cache = input("v_cache", DType::kF32, {16});
};

const Step* product_of(const Program& program, const Step& of, size_t input) {
  for (const Step& step : program.steps) {
    if (step.op == Op::k_matmul && results(step)[0] == of.in(input)) return &step;
  }
  return nullptr;
}

TEST(Fusion, RotatesAndPutsWhatNobodyElseReads) {
  Graph graph(14);
  const SmallBlock block(graph);
  const Tensor turned = rotate(block.k, block.rotation, 2);
  const auto marks = [](const Program& program) {
    EXPECT_EQ(wrong_with(program), "") << to_string(program);
    std::pair<int, int> count;
    for (const Step& step : program.steps) {
      count.first += step.rotation.has_value();
      count.second += step.attention.has_value();
    }
    return count;
  };
  // The rotation and the product of the keys, and the product of the values.
  EXPECT_EQ(marks(block.with(turned)), std::pair(2, 3));
  EXPECT_EQ(marks(block.with(turned, {{"k", block.k}})), std::pair(1, 2));
  EXPECT_EQ(marks(block.with(turned, {{"turned", turned}})), std::pair(2, 0));
  EXPECT_EQ(marks(block.with(turned, {{"v", block.v}})), std::pair(2, 0));
  EXPECT_EQ(marks(block.with(relu(turned))), std::pair(2, 0));
  // A product does not rotate a part of its columns, nor behind a norm.
  const Tensor both = matmul(block.x, graph.weight({16, 32}));
  EXPECT_EQ(marks(block.with(rotate(columns(both, 0, 16), block.rotation, 2))), std::pair(1, 2));
  const HeadNorm norm{graph.weight({8})};
  EXPECT_EQ(marks(block.with(rotate(block.k, norm, block.rotation, 2))), std::pair(1, 2));
  const Program program = block.with(turned);
  const Step& attention = program.steps.back();
  ASSERT_EQ(attention.op, Op::k_attention);
  EXPECT_EQ(product_of(program, attention, inputs::attention::v)->rotation, std::nullopt);
}

// How many products are made with the queries of an attention over heads of 8 channels, where `k`
// makes the keys of x by a matrix and `turn` is done to queries and keys.
size_t siblings_of(Graph& graph, const std::function<Tensor(const Tensor&, const Tensor&)>& k,
                   const std::function<Tensor(const Tensor&)>& turn, bool reads_v = false) {
  const Tensor x = tanh(graph.input({kRows, 16}));
  const auto matrix = [&](int64_t columns) { return transpose(graph.weight({columns, 16})); };
  const Tensor q = matmul(x, matrix(32)) + graph.weight({32}), keys = k(x, matrix(16)),
               v = matmul(x, matrix(16)) + graph.weight({16});
  const Tensor k_cache = input("k_cache", DType::kF32, {16}),
               v_cache = input("v_cache", DType::kF32, {16});
  const AttentionHeads heads{.heads = 4, .kv_heads = 2, .head_dim = 8};
  std::vector<NamedOutput> outputs{
      {"y", attention(turn(q), turn(keys), v, k_cache, v_cache, heads)}};
  if (reads_v) outputs.push_back({"v", v});
  const Program program = compile("block", outputs, kWithNeighbours);
  EXPECT_EQ(wrong_with(program), "") << to_string(program);
  size_t count = 0;
  for (const Step& step : program.steps) count += step.siblings.size();
  return count;
}

TEST(Fusion, MakesQueriesKeysAndValuesInOne) {
  Graph graph(16);
  const Rotation rotation{graph.weight({64, 4}), graph.weight({64, 4}), graph.positions()};
  const auto biased = [&](const Tensor& x, const Tensor& w) {
    return matmul(x, w) + graph.weight({16});
  };
  const auto as_is = [](const Tensor& t) { return t; };
  const auto rotated = [&](const Tensor& t) {
    return rotate(t, rotation, static_cast<int>(t.dims()[1] / 8));
  };
  EXPECT_EQ(siblings_of(graph, biased, as_is), 2u);
  EXPECT_EQ(siblings_of(graph, biased, rotated), 2u);
  const HeadNorm norm{graph.weight({8})};
  EXPECT_EQ(siblings_of(graph, biased,
                        [&](const Tensor& t) {
                          return rotate(t, norm, rotation, static_cast<int>(t.dims()[1] / 8));
                        }),
            2u);
  // Values that something else reads are made apart; queries alone have no siblings.
  EXPECT_EQ(siblings_of(graph, biased, rotated, true), 1u);
  const auto plain = [](const Tensor& x, const Tensor& w) { return matmul(x, w); };
  EXPECT_EQ(siblings_of(graph, plain, as_is), 0u);
  const auto of_others = [&](const Tensor&, const Tensor& w) {
    return matmul(graph.input({kRows, 16}), w) + graph.weight({16});
  };
  EXPECT_EQ(siblings_of(graph, of_others, as_is), 0u);
  const auto in_halves = [&](const Tensor& x, const Tensor&) {
    return matmul(x, transpose(graph.weight({16, 16}, DType::kF16))) + graph.weight({16});
  };
  EXPECT_EQ(siblings_of(graph, in_halves, as_is), 0u);
  // Queries that are rotated, and keys that are not.
  EXPECT_EQ(siblings_of(graph, biased,
                        [&](const Tensor& t) { return t.dims()[1] == 32 ? rotated(t) : t; }),
            0u);
}

TEST(Fusion, MakesATwinThatItsEpilogueAloneReads) {
  Graph graph(15);
  const Tensor x = graph.input({kRows, 16});
  const auto product = [&](int64_t columns) { return matmul(x, graph.weight({16, columns})); };
  const auto twins = [&](const std::vector<NamedOutput>& outputs) {
    const Program program = compile("mlp", outputs, kWithNeighbours);
    EXPECT_EQ(wrong_with(program), "");
    return std::ranges::count_if(program.steps, [](const Step& s) { return s.twin.has_value(); });
  };
  const Tensor up = product(24);
  EXPECT_EQ(twins({{"y", relu(product(24)) * up}}), 1);
  EXPECT_EQ(twins({{"y", relu(product(24)) * tanh(up)}}), 1);
  EXPECT_EQ(twins({{"y", relu(product(24)) * up}, {"up", up}}), 0);
  const Tensor other = matmul(graph.input({kRows, 16}), graph.weight({16, 24}));
  EXPECT_EQ(twins({{"y", relu(product(24)) * other}}), 0);  // of other rows
  const Tensor halves = matmul(x, graph.weight({16, 24}, DType::kF16));
  EXPECT_EQ(twins({{"y", relu(product(24)) * halves}}), 0);  // by a matrix of another type
  // Rows that its epilogue reads may be gone when the other runs.
  EXPECT_EQ(twins({{"y", relu(product(16)) * (x + product(16))}}), 0);
}

TEST(Fusion, KeepsAProloguesWidth) {
  Graph graph(9);
  const Tensor x = reduce_sum(square(graph.input({kRows, 16})));
  const std::vector<NamedOutput> outputs{{"y", matmul(x, graph.weight({1, 16}))}};
  EXPECT_EQ(joins_of(outputs), 0u);
  expect_same_bits_however_compiled(graph, outputs, "K = 1");
}

}  // namespace
}  // namespace split::test
