// Every op and every model on every registered device, unasked: here pointwise ops and reductions,
// views and kernels in test_every_kernel.cpp, models in test_every_model.cpp. A new device is
// tested by its line of the registry (device/device.cpp), a new pointwise op or reduction by its
// row of ops.def and its line of support/op_references.h. A device's own features are tested beside
// this.
#include <algorithm>
#include <set>

#include "device/every_device.h"
#include "device/kernel_values.h"
#include "support/op_references.h"
#include "support/run_program.h"

namespace split::test {
namespace {

// Values that GLSL makes promises about: numbers below the smallest normal one, and what is no
// number, are left to the CPU's own tests.
constexpr float kOften[] = {0.0f,       -0.0f, 87.0f,   -87.0f, kInfinity,
                            -kInfinity, 1e-7f, 0.6249f, -4.3f};

std::vector<float> mixed(size_t n, uint32_t seed) {
  std::vector<float> values;
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t pick = (i * 7 + i / 9 + seed) % 16;
    values.push_back(pick < std::size(kOften) ? kOften[pick] : noise(i + seed * 7919, 4.0f));
  }
  return values;
}

// The last is more than a GPU's lanes hold.
constexpr int64_t kColumns[] = {1, 5, 7, 256, 257, 4099};
constexpr uint32_t kRowCounts[] = {1, 3, 5};
constexpr uint32_t kMostRows = 5;

// Results of one or several kernels, by name: alone where `alone`, else a few in each kernel, since
// a software GPU takes a tenth of a second to compile one.
std::vector<Program> programs_of(const std::vector<NamedOutput>& outputs, bool alone,
                                 const FuseRules& rules) {
  const size_t each = alone ? 1 : 6;  // with inputs, fewer buffers than every GPU binds
  std::vector<Program> programs;
  for (size_t i = 0; i < outputs.size(); i += each) {
    const auto first = outputs.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end = first + static_cast<std::ptrdiff_t>(std::min(each, outputs.size() - i));
    programs.push_back(compile(cat("p", i), {first, end}, rules));
  }
  return programs;
}

// Compares each output with the reference, for each set of values.
void expect_as_reference(Device& device, const std::vector<Program>& programs,
                         const std::vector<Values>& sets, const std::string& what) {
  Limits limits;
  limits.rows = kMostRows;
  Bench bench(device, limits);
  for (const auto& [name, given] : sets[0]) bench.set(name, given);
  for (const Program& program : programs) bench.add(program);
  bench.load();
  for (const Values& values : sets) {
    for (const auto& [name, given] : values) {
      if (&values != &sets[0]) bench.write(name, given);
    }
    for (const uint32_t rows : kRowCounts) {
      bench.run(rows_only(rows));
      bench.run_reference(rows_only(rows));
      for (const Program& program : programs) {
        for (const Slot& slot : program.slots) {
          if (slot.kind != SlotKind::kOutput) continue;
          const auto& want = bench.reference.values.at(slot.name);
          expect_close(bench.read(slot.name, want.size()), want, slot.name + what);
        }
      }
    }
  }
}

TEST_P(EveryDevice, UnaryRowsAgreeWithDouble) {
  for (const int64_t columns : kColumns) {
    std::vector<NamedOutput> outputs;
    const Tensor x = input("x", DType::kF32, {kRows, columns});
    for (const Op op : ops_of(OpKind::kUnary)) {
      outputs.push_back({std::string(op_info(op).name), unary(op, x)});
    }
    std::vector<Values> sets;
    for (uint32_t seed = 0; seed < 3; ++seed) {
      sets.push_back({{"x", mixed(static_cast<size_t>(kMostRows * columns), seed)}});
    }
    expect_as_reference(*device_, programs_of(outputs, columns == 257, rules()), sets,
                        cat(" x ", columns));
  }
}

TEST_P(EveryDevice, BinaryRowsAgreeWithDoubleHoweverBroadcast) {
  for (const int64_t columns : kColumns) {
    const auto size = static_cast<size_t>(kMostRows * columns);
    const Tensor x = input("x", DType::kF32, {kRows, columns});
    const std::pair<const char*, Tensor> sides[] = {
        {"rows", input("rows", DType::kF32, {kRows, columns})},
        {"vector", weight("vector", DType::kF32, {columns})},
        {"each", input("each", DType::kF32, {kRows, 1})},
        {"constant", Tensor(0.75f)}};
    for (const auto& [side, z] : sides) {
      std::vector<NamedOutput> outputs;
      for (const bool left : {false, true}) {
        for (const Op op : ops_of(OpKind::kBinary)) {
          outputs.push_back({cat(op_info(op).name, left ? " of left " : " of right ", side),
                             left ? binary(op, z, x) : binary(op, x, z)});
        }
      }
      const bool alone = columns == 7 && side == std::string("rows");
      expect_as_reference(*device_, programs_of(outputs, alone, rules()),
                          {{{"x", mixed(size, 3)},
                            {"rows", mixed(size, 14)},
                            {"vector", mixed(static_cast<size_t>(columns), 14)},
                            {"each", mixed(kMostRows, 14)}}},
                          cat(" x ", columns));
    }
  }
}

TEST_P(EveryDevice, ReductionsAgreeWithDouble) {
  for (const int64_t columns : kColumns) {
    const auto width = static_cast<size_t>(columns);
    const Tensor x = input("x", DType::kF32, {kRows, columns});
    Limits limits;
    limits.rows = kMostRows;
    Bench bench(*device_, limits);
    bench.set("x", std::vector<float>(kMostRows * width));
    // Alone, and spread over its row again.
    for (const Op op : ops_of(OpKind::kReduce)) {
      const std::string name(op_info(op).name);
      bench.add(compile(name, {{name, reduce(op, x)}, {name + "+", neg(x) * 0.0f + reduce(op, x)}},
                        rules()));
    }
    bench.load();
    for (const uint32_t rows : kRowCounts) {
      for (const float special : {0.0f, 87.0f, -kInfinity, kInfinity}) {
        auto in = ordinary(kMostRows * width, 5);
        if (special != 0) in[rows * width - 1] = special;
        bench.write("x", in);
        bench.run(rows_only(rows));
        for (const Op op : ops_of(OpKind::kReduce)) {
          const std::string name(op_info(op).name);
          const ReduceReference& expected = reference(kReduceReferences, name);
          const auto y = bench.read(name, rows), spread = bench.read(name + "+", rows * width);
          for (size_t row = 0; row < rows; ++row) {
            double want = expected.start, size = 0;
            for (size_t c = 0; c < width; ++c) {
              want = expected.combine(want, in[row * width + c]);
              size += std::abs(in[row * width + c]);
            }
            // A sum is close for the size of what is summed, in whatever order.
            const double absolute = std::isinf(size) ? 1e-6 : 1e-6 + 2e-7 * size;
            expect_close({y[row]}, {want}, cat(name, " x ", columns), absolute);
            if (std::isinf(special) && row + 1 == rows) continue;  // 0 x inf
            for (size_t c = 0; c < width; ++c) {
              ASSERT_EQ(spread[row * width + c], y[row]) << name << " x " << columns;
            }
          }
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Registered, EveryDevice, testing::ValuesIn(device_kind_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace split::test
