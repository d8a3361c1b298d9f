// A row's sum and its squared distances from the mean, as a norm needs them, in one pass: lanes
// wait for each other once. Distances are taken from an element of the row instead, x_0, and moved
// to the mean afterwards: with d = x - x_0, D = sum d, E = sum d^2 and m = mean - x_0,
//   sum x = D + K x_0,   sum (x - mean)^2 = E - m (2 D - K m).
// x_0 is the median of three elements, so that one that is far from all others does not matter.
// Another of them is at least as far from the mean on the same side: x_0 is at most sqrt(K / 2)
// standard deviations from it, and E at most K / 2 + 1 times what is left of it.
#include "device/vulkan/codegen/tape_glsl.h"

namespace split::vulkan {

std::string moments_glsl() {
  return R"(float median(float a, float b, float c) { return max(min(a, b), min(max(a, b), c)); }
// Each in the order of tree_sum.
void tree_sums(inout float a, inout float b, uint lane) {
  if (SUBGROUP == 1) {
    a = tree_sum(a, lane);
    b = tree_sum(b, lane);
    return;
  }
  [[unroll]] for (uint offset = 1; offset < SUBGROUP && offset < SUM_LANES; offset <<= 1) {
    const float other_a = lane_xor(a, offset), other_b = lane_xor(b, offset);
    a = a + other_a;
    b = b + other_b;
  }
  if (SUM_LANES <= SUBGROUP) return;
  const uint part = lane / SUBGROUP;
  barrier();
  if (lane % SUBGROUP == 0 && SUMS_ROW) {
    exchange[2 * part] = a;
    exchange[2 * part + 1] = b;
  }
  barrier();
  float parts_a[SUM_LANES / SUBGROUP], parts_b[SUM_LANES / SUBGROUP];
  [[unroll]] for (uint i = 0; i < SUM_LANES / SUBGROUP; ++i) {
    parts_a[i] = exchange[2 * i];
    parts_b[i] = exchange[2 * i + 1];
  }
  JOIN_IN_PAIRS(parts_a, SUM_LANES / SUBGROUP, PLUS)
  JOIN_IN_PAIRS(parts_b, SUM_LANES / SUBGROUP, PLUS)
  a = parts_a[0];
  b = parts_b[0];
}
)";
}

std::optional<TapeWriter::Moments> TapeWriter::moments() const {
  const auto is = [&](int value, Op op) { return value >= 0 && tape_[value].op == op; };
  for (int value = 0; value < static_cast<int>(tape_.values.size()); ++value) {
    if (!is(value, Op::k_reduce_sum) || !is(tape_[value].x, Op::k_square)) continue;
    const int distance = tape_[tape_[value].x].x;
    if (!is(distance, Op::k_sub) || !is(tape_[distance].z, Op::k_mul)) continue;
    const int of = tape_[distance].x, mean = tape_[distance].z, sum = tape_[mean].x;
    if (tape_[of].loads() && tape_[of].full && is(sum, Op::k_reduce_sum) && tape_[sum].x == of) {
      return Moments{sum, mean, value, static_cast<size_t>(of)};
    }
  }
  return {};
}

std::string TapeWriter::three_elements(const Moments& moments, std::string_view columns) const {
  return cat("  [[unroll]] for (uint i = 0; i < 3; ++i) {\n    const uint c = i * (", columns,
             " - 1) / 2;\n", load(moments.of, "    ", columns, "const float "), "    three", base_,
             "[i] = ", name(static_cast<int>(moments.of)), ";\n  }\n");
}

std::string TapeWriter::both_moments(const Moments& moments, const std::string& loop,
                                     std::string_view columns, bool held) const {
  const auto of = static_cast<int>(moments.of);
  const std::string id = std::to_string(base_), three = "three" + id, near = "near" + id,
                    d = "off" + id, e = "off_squared" + id;
  return cat(held ? "" : cat("  float ", three, "[3];\n", three_elements(moments, columns)),
             "  const float ", near, " = median(", three, "[0], ", three, "[1], ", three,
             "[2]);\n  float ", d, " = 0.0, ", e, " = 0.0;\n", loop, slice({of}, columns, held),
             "    const float distance = ", name(of), " - ", near, ";\n    ", d, " = ", d,
             " + distance;\n    ", e, " = fma(distance, distance, ", e,
             ");\n  } END_ROW\n  tree_sums(", d, ", ", e, ", lane);\n  float ", name(moments.sum),
             " = fma(float(", columns, "), ", near, ", ", d, ");\n");
}

std::string TapeWriter::squares(const Moments& moments, std::string_view columns) const {
  const std::string id = std::to_string(base_), m = "to_mean" + id;
  return cat("  const float ", m, " = ", name(moments.mean), " - near", id, ";\n  float ",
             name(moments.squares), " = max(fma(-", m, ", fma(-float(", columns, "), ", m,
             ", 2.0 * off", id, "), off_squared", id, "), 0.0);\n");
}

}  // namespace split::vulkan
