// compile/: what is fused, where it lies, that the listing says so, and that neither fusing nor
// planning changes a bit. Programs run on the CPU device.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/file.h"
#include "compile/compile.h"
#include "nn/functional.h"
#include "nn/model.h"
#include "run_program.h"

namespace split {
namespace {

using test::first_difference;
using test::run_program;
using test::StepValues;

constexpr FuseRules kNothing{false, false, false};
constexpr FuseRules kWithPrologue{true, true, true};

std::unique_ptr<Model> demo() {
  return make_model(
      read_file(std::string(SPLIT_SOURCE_DIR) + "/weights/demo/config.json", 1 << 20));
}

DType half(const std::string&) { return DType::kF16; }

// --- Listings -----------------------------------------------------------------------------------

constexpr const char* kEmbed = R"(program embed: arena 0 bytes a row
  group [R, 320]
    %0 = add wte.weight[tokens], wpe.weight[positions]
    hidden <- %0
)";

constexpr const char* kBlock = R"(program block.0: arena 7680 bytes a row
  group [R, 320]
    %0 = sum over row of hidden
    %1 = mul %0, 0.003125
    %2 = sub hidden, %1
    %3 = square %2
    %4 = sum over row of %3
    %5 = mul %4, 0.003125
    %6 = add %5, 1e-05
    %7 = rsqrt %6
    %8 = mul %2, %7
    %9 = mul %8, h.0.ln_1.weight
    %10 = add %9, h.0.ln_1.bias
    t4@0 <- %10
  matmul [R, 960] = t4@0 x h.0.attn.c_attn.weight F16 over 320
    %0 = add product, h.0.attn.c_attn.bias
    t7@1280 <- %0
  attention [R, 320], 5 heads: t10@0 <- t7@1280, k_cache, v_cache
  matmul [R, 320] = t10@0 x h.0.attn.c_proj.weight F16 over 320
    %0 = add product, h.0.attn.c_proj.bias
    %1 = add hidden, %0
    t13@1280 <- %1
  group [R, 320]
    %0 = sum over row of t13@1280
    %1 = mul %0, 0.003125
    %2 = sub t13@1280, %1
    %3 = square %2
    %4 = sum over row of %3
    %5 = mul %4, 0.003125
    %6 = add %5, 1e-05
    %7 = rsqrt %6
    %8 = mul %2, %7
    %9 = mul %8, h.0.ln_2.weight
    %10 = add %9, h.0.ln_2.bias
    t16@0 <- %10
  matmul [R, 1280] = t16@0 x h.0.mlp.c_fc.weight F16 over 320
    %0 = add product, h.0.mlp.c_fc.bias
    %1 = gelu_new %0
    t19@2560 <- %1
  matmul [R, 320] = t19@2560 x h.0.mlp.c_proj.weight F16 over 1280
    %0 = add product, h.0.mlp.c_proj.bias
    %1 = add t13@1280, %0
    hidden_out <- %1
)";

constexpr const char* kBlockWithPrologue = R"(program block.0: arena 6400 bytes a row
  prologue
    %0 = sum over row of hidden
    %1 = mul %0, 0.003125
    %2 = sub hidden, %1
    %3 = square %2
    %4 = sum over row of %3
    %5 = mul %4, 0.003125
    %6 = add %5, 1e-05
    %7 = rsqrt %6
    %8 = mul %2, %7
    %9 = mul %8, h.0.ln_1.weight
    %10 = add %9, h.0.ln_1.bias
  matmul [R, 960] = %10 x h.0.attn.c_attn.weight F16 over 320
    %0 = add product, h.0.attn.c_attn.bias
    t6@0 <- %0
  attention [R, 320], 5 heads: t9@3840 <- t6@0, k_cache, v_cache
  matmul [R, 320] = t9@3840 x h.0.attn.c_proj.weight F16 over 320
    %0 = add product, h.0.attn.c_proj.bias
    %1 = add hidden, %0
    t12@0 <- %1
  prologue
    %0 = sum over row of t12@0
    %1 = mul %0, 0.003125
    %2 = sub t12@0, %1
    %3 = square %2
    %4 = sum over row of %3
    %5 = mul %4, 0.003125
    %6 = add %5, 1e-05
    %7 = rsqrt %6
    %8 = mul %2, %7
    %9 = mul %8, h.0.ln_2.weight
    %10 = add %9, h.0.ln_2.bias
  matmul [R, 1280] = %10 x h.0.mlp.c_fc.weight F16 over 320
    %0 = add product, h.0.mlp.c_fc.bias
    %1 = gelu_new %0
    t17@1280 <- %1
  matmul [R, 320] = t17@1280 x h.0.mlp.c_proj.weight F16 over 1280
    %0 = add product, h.0.mlp.c_proj.bias
    %1 = add t12@0, %0
    hidden_out <- %1
)";

constexpr const char* kHead = R"(program head: arena 1280 bytes a row
  group [O, 320]
    %0 = sum over row of hidden[out_rows]
    %1 = mul %0, 0.003125
    %2 = sub hidden[out_rows], %1
    %3 = square %2
    %4 = sum over row of %3
    %5 = mul %4, 0.003125
    %6 = add %5, 1e-05
    %7 = rsqrt %6
    %8 = mul %2, %7
    %9 = mul %8, ln_f.weight
    %10 = add %9, ln_f.bias
    t5@0 <- %10
  matmul [O, 8192] = t5@0 x wte.weight^T F16 over 320
    logits <- product
)";

constexpr const char* kHeadWithPrologue = R"(program head: arena 0 bytes a row
  prologue
    %0 = sum over row of hidden[out_rows]
    %1 = mul %0, 0.003125
    %2 = sub hidden[out_rows], %1
    %3 = square %2
    %4 = sum over row of %3
    %5 = mul %4, 0.003125
    %6 = add %5, 1e-05
    %7 = rsqrt %6
    %8 = mul %2, %7
    %9 = mul %8, ln_f.weight
    %10 = add %9, ln_f.bias
  matmul [O, 8192] = %10 x wte.weight^T F16 over 320
    logits <- product
)";

TEST(Listing, OfTheEmbedding) {
  EXPECT_EQ(to_string(compile("embed", demo()->trace_embed(half), {})), kEmbed);
}

TEST(Listing, OfABlock) {
  EXPECT_EQ(to_string(compile("block.0", demo()->trace_block(0, half, DType::kF32), {})), kBlock);
}

TEST(Listing, OfABlockWithPrologues) {
  const Program program =
      compile("block.0", demo()->trace_block(0, half, DType::kF32), kWithPrologue);
  EXPECT_EQ(to_string(program), kBlockWithPrologue);
  EXPECT_EQ(program.steps.size(), 5u);  // qkv | attention | projection | fc | out
}

TEST(Listing, OfTheHead) {
  EXPECT_EQ(to_string(compile("head", demo()->trace_head(half), {})), kHead);
  EXPECT_EQ(to_string(compile("head", demo()->trace_head(half), kWithPrologue)), kHeadWithPrologue);
}

// The device's own rules, so that the listings above are of what runs.
TEST(Listing, RulesOfTheCpuAreTheDefault) {
  const FuseRules rules = make_cpu_device(1)->fuse_rules();
  EXPECT_TRUE(rules.groups && rules.epilogue && !rules.prologue);
}

// --- An independent check of a Program
// ------------------------------------------------------------

void read_by(const Tape& tape, std::vector<int>& slots) {
  for (const Operand& operand : tape.operands) {
    slots.push_back(operand.slot);
    slots.push_back(operand.index);
  }
}

std::vector<int> read_by(const Step& step) {
  std::vector<int> slots{step.x, step.w, step.qkv, step.k_cache, step.v_cache};
  read_by(step.tape, slots);
  read_by(step.prologue, slots);
  std::erase(slots, -1);
  return slots;
}

std::vector<int> written_by(const Step& step) {
  std::vector<int> slots{step.out};
  for (const TapeOutput& output : step.tape.outputs) slots.push_back(output.slot);
  std::erase(slots, -1);
  return slots;
}

// A tape reads and writes rows of its own width, or one value a row.
bool widths_fit(const Program& program, const Tape& tape, int64_t columns) {
  const auto width = [&](int slot) { return program.slots[static_cast<size_t>(slot)].dims.back(); };
  for (const Operand& operand : tape.operands) {
    if (operand.slot < 0) continue;
    if (width(operand.slot) != (operand.access == Access::kPerRow ? 1 : columns)) return false;
  }
  const auto per_row = tape.per_row();
  for (const TapeOutput& output : tape.outputs) {
    const bool one = per_row[static_cast<size_t>(output.value)];
    if (output.slot >= 0 && width(output.slot) != (one ? 1 : columns)) return false;
  }
  return true;
}

// Plays the steps over the arena, byte by byte: a temporary is read only where its last writer was
// its own step and nobody has written over it since. Empty when all is well.
std::string wrong_with(const Program& program) {
  std::map<int, size_t> writer;  // of outputs
  std::vector<int> owner(program.arena_row_bytes, -1);
  const auto size = [](const Slot& slot) {
    return static_cast<size_t>(slot.dims[1]) * dtype_size(slot.dtype);
  };
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    const auto intact = [&](int s) {
      const Slot& slot = program.slots[static_cast<size_t>(s)];
      for (size_t b = slot.offset; b < slot.offset + size(slot); ++b) {
        if (owner[b] != s) return false;
      }
      return true;
    };
    if (!widths_fit(program, step.tape, step.columns) ||
        !widths_fit(program, step.prologue, step.inner)) {
      return cat("step ", i, " has operands of another width");
    }
    const auto read = read_by(step);
    for (const int s : read) {
      const Slot& slot = program.slots[static_cast<size_t>(s)];
      if (slot.kind == SlotKind::kTemp && !intact(s)) {
        return cat("step ", i, " reads t", s, ", which is not there");
      }
      if (slot.kind == SlotKind::kOutput && writer.count(s) == 0) {
        return cat("step ", i, " reads ", slot.name, " before it is written");
      }
    }
    for (const int s : written_by(step)) {
      const Slot& slot = program.slots[static_cast<size_t>(s)];
      if (!writer.emplace(s, i).second) return cat("slot ", s, " is written twice");
      if (std::count(read.begin(), read.end(), s) != 0) return cat("step ", i, " reads its result");
      if (slot.kind != SlotKind::kTemp) continue;
      if (slot.offset % 64 != 0) return cat("t", s, " is at ", slot.offset);
      if (slot.offset + size(slot) > owner.size()) return cat("t", s, " is past the arena");
      std::fill_n(owner.begin() + static_cast<ptrdiff_t>(slot.offset), size(slot), s);
    }
    // A step has no order within: what it reads must still be there when it ends.
    for (const int s : read) {
      if (program.slots[static_cast<size_t>(s)].kind == SlotKind::kTemp && !intact(s)) {
        return cat("step ", i, " writes over t", s, ", which it reads");
      }
    }
  }
  for (size_t s = 0; s < program.slots.size(); ++s) {
    if (program.slots[s].kind == SlotKind::kOutput && writer.count(static_cast<int>(s)) == 0) {
      return cat("nobody writes ", program.slots[s].name);
    }
  }
  return "";
}

// The same program with every temporary at a place of its own.
Program without_reuse(Program program) {
  program.arena_row_bytes = 0;
  for (Slot& slot : program.slots) {
    if (slot.kind != SlotKind::kTemp) continue;
    slot.offset = program.arena_row_bytes;
    program.arena_row_bytes += (static_cast<size_t>(slot.dims[1]) * 4 + 63) / 64 * 64;
  }
  return program;
}

TEST(Planner, KeepsLiveTemporariesApartInEveryStage) {
  const auto model = demo();
  for (const FuseRules& rules : {FuseRules{}, kNothing, kWithPrologue}) {
    const Program block = compile("block", model->trace_block(0, half, DType::kF32), rules);
    EXPECT_EQ(wrong_with(block), "");
    EXPECT_LT(block.arena_row_bytes, without_reuse(block).arena_row_bytes);
    EXPECT_EQ(wrong_with(compile("embed", model->trace_embed(half), rules)), "");
    EXPECT_EQ(wrong_with(compile("norm", model->trace_norm(half), rules)), "");
    EXPECT_EQ(wrong_with(compile("head", model->trace_head(half), rules)), "");
  }
}

TEST(Planner, CheckSeesAnOverlap) {
  Program block = compile("block", demo()->trace_block(0, half, DType::kF32), {});
  for (Slot& slot : block.slots) slot.offset = 0;
  EXPECT_NE(wrong_with(block), "");
}

// --- Graphs
// ----------------------------------------------------------------------------------------

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
  const Program prologue = compile("prologue", outputs, kWithPrologue);
  ASSERT_EQ(wrong_with(prologue), "") << what << "\n" << to_string(prologue);
  for (const FuseRules& rules : {kNothing, FuseRules{true, true, false},
                                 FuseRules{true, false, false}, FuseRules{false, true, false}}) {
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

// A matmul whose epilogue reads the group that makes its x: the group cannot be a prologue.
TEST(Fusion, KeepsAGroupThatTheEpilogueReads) {
  Graph graph(8);
  const Tensor x = tanh(graph.input({kRows, 16}));
  expect_same_bits_however_compiled(graph, {{"y", x + matmul(x, graph.weight({16, 16}))}},
                                    "post norm");
}

TEST(Fusion, KeepsAProloguesWidth) {
  Graph graph(9);
  const Tensor x = reduce_sum(square(graph.input({kRows, 16})));
  expect_same_bits_however_compiled(graph, {{"y", matmul(x, graph.weight({1, 16}))}}, "K = 1");
}

// --- Refusals
// --------------------------------------------------------------------------------------

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
  EXPECT_EQ(refusal([&] { attention(x, v, v, 2, 1.0f); }),
            "[attention] expected qkv [rows, 3 C] and caches [C], got [-1, 16] and [12]");
  const Tensor qkv = input("qkv", DType::kF32, {kRows, 36});
  EXPECT_EQ(refusal([&] { attention(qkv, v, v, 5, 1.0f); }),
            "[attention] expected heads that divide 12, got 5");
  EXPECT_EQ(refusal([&] { attention(qkv, v, v, 0, 1.0f); }),
            "[attention] expected heads that divide 12, got 0");
}

// What no step could run is refused by compile(), not run wrongly.
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
}  // namespace split
