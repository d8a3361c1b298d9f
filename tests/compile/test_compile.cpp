// compile/: what lies where, and that neither fusing nor planning changes a bit. Programs run on
// the CPU device.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>

#include "compile_testing.h"
#include "models/functional.h"
#include "support/op_references.h"
#include "support/run_program.h"

namespace split::test {
namespace {

TEST(Planner, KeepsLiveTemporariesApartInEveryStage) {
  const auto model = demo();
  for (const FuseRules& rules : {FuseRules{}, kNothing, kWithPrologue}) {
    const Program block =
        compile("block", {model->stage("block.0").trace({half, DType::kF32})}, rules);
    EXPECT_EQ(wrong_with(block), "");
    EXPECT_LT(block.arena_row_bytes, without_reuse(block).arena_row_bytes);
    EXPECT_EQ(wrong_with(compile("embed", {model->stage("embed").trace({half})}, rules)), "");
    EXPECT_EQ(wrong_with(compile("norm", {model->stage("norm").trace({half})}, rules)), "");
    EXPECT_EQ(wrong_with(compile("head", {model->stage("head").trace({half})}, rules)), "");
  }
}

TEST(Planner, CheckSeesAnOverlap) {
  Program block = compile("block", {demo()->stage("block.0").trace({half, DType::kF32})}, {});
  for (Slot& slot : block.slots) slot.offset = 0;
  EXPECT_NE(wrong_with(block), "");
}

// A graph with the values of its leaves.
class Graph {
 public:
  explicit Graph(uint32_t seed, uint32_t rows = 5) : random_(seed) {
    step.rows = rows;
    for (uint32_t row = 0; row < rows; ++row) {
      step.tokens.push_back(static_cast<int32_t>(below(kTableRows)));
      step.positions.push_back(static_cast<int32_t>(below(rows)));
      if (row % 2 == 0) step.out_rows.push_back(row);
    }
  }

  static constexpr int64_t kTableRows = 11;

  uint32_t below(size_t n) { return static_cast<uint32_t>(random_() % n); }
  Tensor input(Dims dims) {
    const std::string name = cat("input", step.values.size());
    fill(name, dims);
    return split::input(name, DType::kF32, std::move(dims));
  }
  Tensor weight(Dims dims, DType dtype = DType::kF32) {
    const std::string name = cat("weight", step.values.size());
    fill(name, dims);
    return split::weight(name, dtype, std::move(dims));
  }
  Tensor tokens() { return split::input("tokens", DType::kI32, {kRows}); }
  Tensor positions() { return split::input("positions", DType::kI32, {kRows}); }
  Tensor out_rows() { return split::input("out_rows", DType::kI32, {kOutRows}); }

  StepValues step;

 private:
  void fill(const std::string& name, const Dims& dims) {
    size_t count = 1;
    for (const int64_t n : dims) count *= n == kRows ? step.rows : size_t(n);
    std::vector<float>& values = step.values[name];
    for (size_t i = 0; i < count; ++i) {
      values.push_back(static_cast<float>(below(4001)) / 1000.0f - 2.0f);
    }
  }
  std::mt19937 random_;
};

// Every way of compiling gives the bits of the unfused program with no reuse of memory.
void expect_same_bits_however_compiled(const Graph& graph, const std::vector<NamedOutput>& outputs,
                                       const std::string& what) {
  const auto device = make_cpu_device(2);
  const Program plain = compile("plain", outputs, kNothing);
  ASSERT_EQ(wrong_with(plain), "") << what << "\n" << to_string(plain);
  const auto expected = run_program(*device, without_reuse(plain), graph.step);
  for (const FuseRules& rules :
       {kNothing, FuseRules{}, kWithPrologue, FuseRules{.epilogue = false},
        FuseRules{.epilogue = false, .prologue = true}, FuseRules{.groups = false}}) {
    const Program program = compile("fused", outputs, rules);
    ASSERT_EQ(wrong_with(program), "") << what << "\n" << to_string(program);
    ASSERT_LE(program.steps.size(), plain.steps.size());
    for (const auto& [name, values] : run_program(*device, program, graph.step)) {
      ASSERT_EQ(first_difference(values, expected.at(name)), -1)
          << what << ", output " << name << "\n"
          << to_string(plain) << to_string(program);
    }
  }
}

// A random DAG of pointwise ops, reductions, gathers and products, of widths that collide often.
std::vector<NamedOutput> random_graph(Graph& graph, size_t size) {
  constexpr int64_t kWidths[] = {1, 3, 16, 40};
  const auto any_width = [&] { return kWidths[graph.below(4)]; };
  std::vector<Tensor> pool;
  for (const int64_t width : kWidths) pool.push_back(graph.input({kRows, width}));
  const auto any = [&] {
    // Recent ones more often, so that graphs are deep as well as wide.
    const size_t n = pool.size();
    return pool[graph.below(3) == 0 ? graph.below(n) : n - 1 - graph.below(std::min<size_t>(n, 4))];
  };
  const auto any_of = [&](OpKind kind) {
    for (;;) {
      const size_t op = graph.below(op_table().size());
      if (op_table()[op].kind == kind) return static_cast<Op>(op);
    }
  };
  // Something that can stand beside `x` in a binary op.
  const auto partner = [&](const Tensor& x) -> Tensor {
    for (int tries = 0; tries < 8; ++tries) {
      const Tensor z = any();
      const bool rows = z.dims()[0] == x.dims()[0];
      if (rows && (z.dims() == x.dims() || z.dims()[1] == 1 || x.dims()[1] == 1)) return z;
    }
    switch (graph.below(3)) {
      case 0:
        return Tensor(0.75f);
      case 1:
        return graph.weight({x.dims()[1]}, graph.below(2) == 0 ? DType::kF16 : DType::kF32);
      default:
        return x;
    }
  };
  for (size_t i = 0; i < size; ++i) {
    const Tensor x = any();
    switch (graph.below(10)) {
      case 0:
      case 1:
        pool.push_back(unary(any_of(OpKind::kUnary), x));
        break;
      case 2:
        pool.push_back(reduce(any_of(OpKind::kReduce), x));
        break;
      case 3: {
        const int64_t width = any_width();
        pool.push_back(graph.below(2) == 0
                           ? matmul(x, graph.weight({x.dims()[1], width}, DType::kF16))
                           : matmul(x, transpose(graph.weight({width, x.dims()[1]}))));
        break;
      }
      case 4: {
        if (x.dims()[0] != kRows) break;
        const Tensor table = graph.weight({Graph::kTableRows, x.dims()[1]}, DType::kF16);
        pool.push_back(x + gather(table, graph.tokens()));
        break;
      }
      case 5: {
        if (x.dims()[0] != kRows) break;
        const Tensor other = gather(x, graph.positions());  // other rows of a computed value
        const Tensor beside = partner(x);
        pool.push_back(beside.dims() == other.dims() ? other * beside : neg(other));
        break;
      }
      case 6:
        if (x.dims()[0] == kRows && graph.below(3) == 0) {
          pool.push_back(square(gather(x, graph.out_rows())));
        }
        break;
      default: {
        const Tensor z = partner(x);
        const Op op = any_of(OpKind::kBinary);
        pool.push_back(graph.below(2) == 0 ? binary(op, x, z) : binary(op, z, x));
      }
    }
  }
  std::vector<NamedOutput> outputs;
  std::set<const Node*> named;
  for (size_t i = 0; i < 4 && i < pool.size(); ++i) {
    const Tensor t = i == 0 ? pool.back() : any();
    if (op_info(t.node()->op).kind == OpKind::kLeaf || !named.insert(t.node().get()).second) {
      continue;
    }
    outputs.push_back({cat("out", i), t});
  }
  return outputs;
}

TEST(Fusion, ChangesNoBitOfRandomGraphs) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    Graph graph(seed);
    const auto outputs = random_graph(graph, 4 + seed % 25);
    if (outputs.empty()) continue;
    expect_same_bits_however_compiled(graph, outputs, cat("seed ", seed));
    if (HasFatalFailure()) return;
  }
}

TEST(Fusion, ChangesNoBitOfABlocksParts) {
  Graph graph(1, 9);
  const Tensor x = graph.input({kRows, 48});
  const Tensor normed = layer_norm(x, graph.weight({48}), graph.weight({48}), 1e-5f);
  const Tensor inner =
      gelu_new(linear(normed, graph.weight({48, 192}, DType::kF16), graph.weight({192})));
  const Tensor out = x + linear(inner, graph.weight({192, 48}, DType::kBF16), graph.weight({48}));
  const Tensor last = gather(out, graph.out_rows());
  const Tensor head = matmul(layer_norm(last, graph.weight({48}), graph.weight({48}), 1e-5f),
                             transpose(graph.weight({77, 48}, DType::kF16)));
  expect_same_bits_however_compiled(graph, {{"out", out}, {"logits", head}}, "block");
}

// Softmax, from reductions and pointwise ops alone, is one step.
TEST(Fusion, MakesOneGroupOfASoftmax) {
  Graph graph(2);
  const Tensor x = graph.input({kRows, 40});
  const Tensor weights = exp(x - reduce_max(x));
  const Tensor softmax = weights / reduce_sum(weights);
  EXPECT_EQ(compile("softmax", {{"y", softmax}}, {}).steps.size(), 1u);
  expect_same_bits_however_compiled(graph, {{"y", softmax}}, "softmax");
}

// c is of one value a row, made from rows of two widths: it belongs to one of them only.
TEST(Fusion, KeepsGroupsOfUnlikeWidthsApart) {
  Graph graph(3);
  const Tensor c = reduce_sum(graph.input({kRows, 3})) + reduce_sum(graph.input({kRows, 40}));
  expect_same_bits_however_compiled(graph, {{"c", c}}, "two widths");
}

TEST(Fusion, KeepsAVectorOfOneOutOfWiderGroups) {
  Graph graph(4);
  const Tensor sum = reduce_sum(graph.input({kRows, 40}));
  const Tensor picked = gather(graph.weight({Graph::kTableRows, 1}), graph.tokens());
  expect_same_bits_however_compiled(graph, {{"a", sum + graph.weight({1})}, {"b", picked * sum}},
                                    "width 1");
}

// Row r of the result needs another row of what its group would compute.
TEST(Fusion, DoesNotGatherFromTheGroupItJoins) {
  Graph graph(5);
  const Tensor x = square(graph.input({kRows, 16}));
  expect_same_bits_however_compiled(graph, {{"y", x + gather(x, graph.positions())}}, "same group");
}

TEST(Fusion, MakesNoCycleThroughAGather) {
  Graph graph(6);
  const Tensor x = square(graph.input({kRows, 16}));
  const Tensor product = matmul(x, graph.weight({16, 16}));
  expect_same_bits_however_compiled(graph, {{"y", x + gather(product, graph.positions())}},
                                    "cycle");
}

TEST(Fusion, MakesNoCycleThroughAProduct) {
  Graph graph(7);
  const Tensor x = square(graph.input({kRows, 16}));
  const Tensor product = relu(matmul(x, graph.weight({16, 16})));
  expect_same_bits_however_compiled(graph, {{"y", x + tanh(product) * x}, {"x", x}}, "cycle");
}

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
