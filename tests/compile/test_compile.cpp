// compile/: what lies where, and that neither fusing nor planning changes a bit. Programs run on
// the CPU device.
#include <gtest/gtest.h>

#include "graph_testing.h"
#include "models/functional.h"

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

TEST(Device, NamesTheOpThatItHasNoKernelFor) {
  Program program = compile("norm", {demo()->stage("norm").trace({half})}, {});
  const auto device = make_cpu_device(1);
  EXPECT_NO_THROW(check_supported(*device, program));
  program.steps.emplace_back().op = Op::k_scan;
  const auto workspace = device->workspace({.rows = 1});
  try {
    device->load(program, *workspace, {});
    ADD_FAILURE() << "it was loaded";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("program 'norm': no kernel for scan"),
              std::string::npos)
        << error.what();
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

}  // namespace
}  // namespace split::test
