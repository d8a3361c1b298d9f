// A graph to compile, beside what its Programs give.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "compile_testing.h"
#include "support/op_references.h"
#include "support/run_program.h"

namespace split::test {

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
inline void expect_same_bits_however_compiled(const Graph& graph,
                                              const std::vector<NamedOutput>& outputs,
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

}  // namespace split::test
