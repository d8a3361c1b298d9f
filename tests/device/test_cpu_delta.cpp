// The CPU's kernels of gated DeltaNet: against double, a row after another and without pages;
// against PyTorch's rows and states; and bit for bit whatever rows are cut into, and in every set.
#include <gtest/gtest.h>

#include <cmath>

#include "device/cpu/kernels/state/exact.h"
#include "support/cpu_kernels.h"
#include "support/states/qwen35_by_double.h"

namespace split::test {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Rows before the convolution, a and b, and the weights of a block.
struct Block {
  StateShape shape;
  std::vector<float> x, a, b, w, decay, dt_bias;
};
constexpr StateShape kShapes[] = {
    {2, 4, 12, 12, 4}, {3, 3, 8, 20, 2}, {1, 3, 128, 128, 4}, {1, 1, 256, 40, 8}, {2, 2, 1, 1, 3}};

Block random_block(const StateShape& shape, size_t rows, uint32_t seed) {
  Block block = {shape,
                 ordinary(rows * shape.width(), seed),
                 ordinary(rows * shape.value_heads, seed + 1),
                 ordinary(rows * shape.value_heads, seed + 2),
                 ordinary(shape.taps * shape.width(), seed + 3),
                 {},
                 {}};
  for (size_t head = 0; head < shape.value_heads; ++head) {
    // Decays from slow to fast.
    block.decay.push_back(-std::exp(2.0f * static_cast<float>(head) - 3.0f));
    block.dt_bias.push_back(0.5f - static_cast<float>(head));
  }
  return block;
}

// A sequence: its state, whose memory is full of NaN at first.
struct Sequence {
  Sequence(const CpuKernels& set, const Block& of)
      : kernels(set), block(of), state(of.shape.floats(), NAN) {}
  // The next rows; their results go where they belong among those of all rows.
  void run(size_t rows) {
    const StateShape& shape = block.shape;
    const size_t width = shape.width(), values = shape.value_heads * shape.value_dim;
    const size_t all = block.x.size() / width;
    if (mixed.empty()) mixed.resize(all * width), y.resize(all * values);
    for (size_t first = 0; first < width; first += kConvColumns - 10) {
      ConvTask task;
      task.shape = shape;
      task.x = block.x.data() + length * width + first;
      task.x_stride = task.y_stride = width;
      task.rows = rows;
      task.position = length;
      task.w = block.w.data();
      task.first = first;
      task.columns = std::min(kConvColumns - 10, width - first);
      task.state = state.data();
      task.y = mixed.data() + length * width + first;
      kernels.conv_rows(task);
    }
    std::vector<float> scratch(delta_scratch(shape), NAN);
    DeltaTask task;
    task.shape = shape;
    task.x = mixed.data() + length * width;
    task.x_stride = width;
    task.a = block.a.data() + length * shape.value_heads;
    task.b = block.b.data() + length * shape.value_heads;
    task.decay = block.decay.data();
    task.dt_bias = block.dt_bias.data();
    task.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.key_dim)));
    task.rows = rows;
    task.position = length;
    task.state = state.data();
    task.y = y.data() + length * values;
    task.y_stride = values;
    task.scratch = scratch.data();
    for (task.head = 0; task.head < shape.key_heads; ++task.head) kernels.delta(task);
    length += rows;
  }
  // S behind the last row, of all value heads: [value_heads, key_dim, value_dim].
  std::vector<double> s() const {
    const StateShape& shape = block.shape;
    const size_t half = length / kPageTokens % 2, open = length % kPageTokens;
    const size_t room = shape.value_room();
    std::vector<double> out;
    for (size_t head = 0; head < shape.value_heads; ++head) {
      const float* const g = &state[shape.decays(half) + head * kPageTokens];
      for (size_t d = 0; d < shape.key_dim; ++d) {
        for (size_t c = 0; c < shape.value_dim; ++c) {
          const auto part = [&](size_t at) { return static_cast<double>(state[at]); };
          double sum = part(shape.anchors(half) + (head * shape.key_dim + d) * room + c);
          if (open > 0) sum *= std::exp(static_cast<double>(g[open - 1]));
          for (size_t l = 0; l < open; ++l) {
            const size_t key_head = head / shape.group();
            sum += std::exp(static_cast<double>(g[open - 1]) - static_cast<double>(g[l])) *
                   part(shape.keys(half) + (key_head * shape.key_dim + d) * kPageTokens + l) *
                   part(shape.deltas(half) + (head * kPageTokens + l) * room + c);
          }
          out.push_back(sum);
        }
      }
    }
    return out;
  }

  const CpuKernels& kernels;
  const Block& block;
  std::vector<float> state, mixed, y;
  size_t length = 0;
};

// Computes a block in double, token by token.
struct ByDouble {
  std::vector<double> y, s;
};
ByDouble by_double(const Block& block) {
  const StateShape& shape = block.shape;
  const size_t width = shape.width(), rows = block.x.size() / width;
  const size_t n = shape.key_dim, m = shape.value_dim;
  ByDouble out;
  out.s.resize(shape.value_heads * n * m);
  for (size_t t = 0; t < rows; ++t) {
    std::vector<double> c(width);
    for (size_t i = 0; i < width; ++i) {
      for (size_t tap = 0; tap < shape.taps; ++tap) {
        if (t + tap + 1 < shape.taps) continue;
        c[i] += double{block.w[tap * width + i]} *
                double{block.x[(t + tap + 1 - shape.taps) * width + i]};
      }
      c[i] *= sigmoid(c[i]);
    }
    for (size_t head = 0; head < 2 * shape.key_heads; ++head) {
      double sum = 1e-6;
      for (size_t d = 0; d < n; ++d) sum += c[head * n + d] * c[head * n + d];
      const double scale = head < shape.key_heads ? std::sqrt(1 / static_cast<double>(n)) : 1;
      for (size_t d = 0; d < n; ++d) c[head * n + d] *= scale / std::sqrt(sum);
    }
    for (size_t head = 0; head < shape.value_heads; ++head) {
      const double* const q = &c[head / shape.group() * n];
      const double* const k = q + shape.key_heads * n;
      const double* const v = &c[2 * shape.key_heads * n + head * m];
      const size_t at = t * shape.value_heads + head;
      const double z = double{block.a[at]} + double{block.dt_bias[head]};
      const double left = std::exp(double{block.decay[head]} * std::log1p(std::exp(z)));
      for (size_t i = 0; i < m; ++i) {
        double* const s = &out.s[head * n * m + i];
        double seen = 0, o = 0;
        for (size_t d = 0; d < n; ++d) seen += (s[d * m] *= left) * k[d];
        const double delta = sigmoid(double{block.b[at]}) * (v[i] - seen);
        for (size_t d = 0; d < n; ++d) o += (s[d * m] += k[d] * delta) * q[d];
        out.y.push_back(o);
      }
    }
  }
  return out;
}

// The largest difference, as a part of the largest number.
double error(const auto& got, const std::vector<double>& expected) {
  double largest = 0, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double d = std::abs(static_cast<double>(got[i]) - expected[i]);
    difference = std::isnan(d) ? kInfinity : std::max(difference, d);
  }
  return difference / largest;
}

// Errors in units of 2^-24 of the result: those that the functions' comments name, and some room.
TEST(ExactFunctions, AreCloseToDouble) {
  const auto check = [](const char* name, float (*f)(float), double (*g)(double), float low,
                        float high, double bound, double absolute) {
    for (int i = 0; i <= 200000; ++i) {
      const float x = low + (high - low) * static_cast<float>(i) / 200000.0f;
      const double expected = g(double{x});
      ASSERT_LE(std::abs(double{f(x)} - expected),
                (bound * std::abs(expected) + absolute) * 0x1p-24)
          << name << " of " << x;
    }
  };
  const auto recip = [](double x) { return 1 / x; };
  check("recip", exact::recip_x, recip, 1e-3f, 5, 2, 0);
  check("recip", exact::recip_x, recip, 1, 1e25f, 2, 0);
  const auto rsqrt = [](double x) { return 1 / std::sqrt(x); };
  check("rsqrt", exact::rsqrt_x, rsqrt, 1e-6f, 5, 2.5, 0);
  check("rsqrt", exact::rsqrt_x, rsqrt, 1, 1e20f, 2.5, 0);
  check(
      "exp", exact::exp_x, [](double x) { return std::exp(x); }, -60, 60, 2, 0);
  check(
      "log", exact::log_x, [](double x) { return std::log(x); }, 1, 2, 4, 0);
  check("sigmoid", exact::sigmoid_x, sigmoid, -50, 50, 5, 0);
  check(
      "silu", exact::silu_x, [](double x) { return x * sigmoid(x); }, -50, 50, 6, 0);
  check(
      "softplus", exact::softplus_x,
      [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }, -50, 50, 8,
      0);
}

TEST(ExactFunctions, KeepDenormalsOut) {
  EXPECT_EQ(exact::small(0x1p-50f), 0x1p-50f);
  EXPECT_EQ(exact::small(-0x1.fffffep-51f), 0.0f);
  EXPECT_EQ(exact::clean(-0x1p-101f), -0x1p-101f);
  EXPECT_EQ(std::bit_cast<uint32_t>(exact::clean(-0.0f)), 0u);
  EXPECT_EQ(exact::exp_x(-1e30f), exact::exp_x(-60.0f));
  EXPECT_EQ(exact::exp_x(0.0f), 1.0f);
}

// Token by token the same arithmetic in float has errors up to 1.1e-6.
TEST(DeltaKernels, AgreeWithDoubleAndInEverySet) {
  for (const StateShape& shape : kShapes) {
    const Block block = random_block(shape, 150, 5);
    const ByDouble expected = by_double(block);
    std::optional<Sequence> first;
    for (const CpuKernels* kernels : kernel_sets()) {
      Sequence sequence(*kernels, block);
      sequence.run(150);
      EXPECT_LE(error(sequence.y, expected.y), 2e-6) << kernels->name << ", " << shape.key_dim;
      EXPECT_LE(error(sequence.s(), expected.s), 2e-6) << kernels->name << ", " << shape.key_dim;
      if (!first) first.emplace(sequence);
      EXPECT_EQ(first_difference(sequence.y, first->y), -1) << kernels->name;
      EXPECT_EQ(first_difference(sequence.state, first->state), -1) << kernels->name;
    }
  }
}

// Numbers that are tiny, zero of either sign or huge beside others, where denormals and the order
// of sums would show.
TEST(DeltaKernels, GiveEqualBitsOfOddNumbersInEverySet) {
  for (const StateShape& shape : kShapes) {
    Block block = random_block(shape, 70, 15);
    std::mt19937 random(3);
    for (auto* const numbers : {&block.x, &block.a, &block.b, &block.w}) {
      for (float& x : *numbers) {
        const uint32_t kind = random() % 8;
        x = kind == 0   ? 0.0f
            : kind == 1 ? -0.0f
            : kind == 2 ? std::ldexp(x, -60)
            : kind == 3 ? std::ldexp(x, -140)
            : kind == 4 ? std::ldexp(x, 12)
                        : x;
      }
    }
    std::optional<Sequence> first;
    for (const CpuKernels* kernels : kernel_sets()) {
      Sequence sequence(*kernels, block);
      sequence.run(70);
      if (!first) first.emplace(sequence);
      EXPECT_EQ(first_difference(sequence.y, first->y), -1) << kernels->name;
      EXPECT_EQ(first_difference(sequence.state, first->state), -1) << kernels->name;
      for (const float y : sequence.y) ASSERT_TRUE(std::isfinite(y));
    }
  }
}

// One row at a time, pieces that begin and end anywhere in a page, and all rows at once.
TEST(DeltaKernels, GiveEqualBitsWhateverRowsAreCutInto) {
  for (const StateShape& shape : kShapes) {
    const Block block = random_block(shape, 300, 25);
    for (const CpuKernels* kernels : kernel_sets()) {
      Sequence all(*kernels, block);
      all.run(300);
      for (const std::vector<size_t>& pieces :
           {std::vector<size_t>(300, 1), {7, 16, 97, 1, 179}, {16, 15, 1, 17, 251}, {299, 1}}) {
        Sequence cut(*kernels, block);
        for (const size_t rows : pieces) cut.run(rows);
        ASSERT_EQ(cut.length, 300u);
        ASSERT_EQ(first_difference(cut.y, all.y), -1) << kernels->name;
        ASSERT_EQ(first_difference(cut.state, all.state), -1) << kernels->name;
      }
    }
  }
}

// Wrong rows are computed behind each position of two pages, and cut back by nothing but a smaller
// length: up to 16 rows before the furthest row that was begun, also twice with 0 or 1 right row
// between. Right rows then have the bits of a text without wrong ones, and so has the state.
TEST(DeltaKernels, CutBackToTheLastSixteenRowsWithoutATrace) {
  for (const StateShape& shape : {kShapes[0], kShapes[1]}) {
    const Block right = random_block(shape, 80, 35);
    const Block wrong = random_block(shape, 80, 45);
    for (const CpuKernels* kernels : kernel_sets()) {
      Sequence plain(*kernels, right);
      plain.run(80);
      for (size_t at = 16; at < 48; ++at) {
        for (size_t rows = 1; rows <= 16; ++rows) {
          for (const size_t between : {0, 1, 16}) {
            Block drafts = right;  // the rows behind `at` are wrong ones, for a while
            Sequence sequence(*kernels, drafts);
            sequence.run(at);
            const auto draft = [&](size_t count) {
              drafts.x = wrong.x, drafts.a = wrong.a, drafts.b = wrong.b;
              const size_t before = sequence.length;
              sequence.run(count);
              drafts.x = right.x, drafts.a = right.a, drafts.b = right.b;
              sequence.length = before;
            };
            draft(rows);
            // 16: what was right is cut back, too, and no further than 16 rows before the furthest.
            if (between == 16) {
              sequence.length -= 16 - rows;
            } else if (between + rows <= 16) {
              sequence.run(between);
              draft(16 - between);
            }
            sequence.run(80 - sequence.length);
            ASSERT_EQ(first_difference(sequence.y, plain.y), -1)
                << kernels->name << ": " << rows << " at " << at << ", " << between;
            ASSERT_EQ(first_difference(sequence.state, plain.state), -1)
                << kernels->name << ": " << rows << " at " << at << ", " << between;
          }
        }
      }
    }
  }
}

// A row one too far back is not there: the test above would notice.
TEST(DeltaKernels, DoNotCutBackSeventeenRows) {
  const Block block = random_block(kShapes[0], 80, 35);
  const CpuKernels& kernels = *kernel_sets()[0];
  Sequence plain(kernels, block), sequence(kernels, block);
  plain.run(80);
  sequence.run(48);
  sequence.length -= 17;
  sequence.run(80 - sequence.length);
  EXPECT_NE(first_difference(sequence.y, plain.y), -1);
}

// PyTorch's rows at every point, and its states behind 5, 70 and 300 rows: all else in double, so
// that what is left is the kernels' own error.
TEST(DeltaKernels, GiveTheRowsAndStatesOfTheGoldens) {
  for (const char* const name : {"qwen35", "qwen35-text"}) {
    const std::string path = cat("models/", name);
    const Qwen35ByDouble model(path);
    const GoldenValues golden(path);
    const Json notes = parse_json(
        read_file(source("tests/golden/" + path + "/golden.json"), 1 << 20), 16, "[golden.json]");
    size_t states = 0;
    for (int prompt = 0; prompt < golden.prompts(); ++prompt) {
      const std::string p = cat("p", prompt, ".");
      const Json& errors = notes["prompts"][static_cast<size_t>(prompt)]["float32_error"];
      const auto mix = [&](size_t b, const Qwen35ByDouble::Linear& linear, const Rows& qkv,
                           const Rows& a, const Rows& beta) {
        Block block;
        block.shape = {linear.key_heads, linear.value_heads, linear.key_dim, linear.value_dim,
                       linear.taps};
        const auto put = [](const Rows& rows, std::vector<float>& to) {
          for (const auto& row : rows) to.insert(to.end(), row.begin(), row.end());
        };
        put(qkv, block.x);
        put(a, block.a);
        put(beta, block.b);
        for (size_t tap = 0; tap < linear.taps; ++tap) {
          for (size_t i = 0; i < linear.width(); ++i) {
            block.w.push_back(static_cast<float>(linear.conv[i * linear.taps + tap]));
          }
        }
        block.decay.assign(linear.decay.begin(), linear.decay.end());
        block.dt_bias.assign(linear.dt_bias.begin(), linear.dt_bias.end());
        Sequence sequence(*kernel_sets().back(), block);
        sequence.run(qkv.size());
        if (golden.has(cat(p, "state.", b))) {
          ++states;
          const double bound = 10 * errors["state"].get<double>();
          const auto s = golden.values<float>(cat(p, "state.", b));
          const std::vector<double> got = sequence.s();
          for (size_t i = 0; i < s.size(); ++i) {
            EXPECT_NEAR(got.at(i), s[i], bound) << name << " " << p << "state." << b << " " << i;
          }
          const auto conv = golden.values<float>(cat(p, "conv.", b));
          const size_t kept = conv.size() / linear.width(), rows = qkv.size();
          for (size_t i = 0; i < conv.size(); ++i) {
            const size_t back = kept - i % kept;  // 1: the last row
            const float row =
                back > rows
                    ? 0.0f
                    : sequence.state[block.shape.taken() +
                                     (rows - back) % block.shape.taken_rows() * linear.width() +
                                     i / kept];
            EXPECT_NEAR(row, conv[i], 10 * errors["conv"].get<double>())
                << name << " " << p << "conv." << b << " " << i;
          }
        }
        Rows out;
        const size_t values = linear.value_heads * linear.value_dim;
        for (size_t t = 0; t < qkv.size(); ++t) {
          const auto from = sequence.y.begin() + static_cast<ptrdiff_t>(t * values);
          out.emplace_back(from, from + static_cast<ptrdiff_t>(values));
        }
        return out;
      };
      const std::vector<Rows> points = model.run(golden.ids(prompt), mix);
      const bool all = golden.has(p + "hidden_all");
      const auto hidden = golden.values<float>(p + (all ? "hidden_all" : "hidden_at"));
      std::vector<int32_t> at;
      if (!all) at = golden.values<int32_t>(p + "at");
      for (size_t t = 0; all && t < points[0].size(); ++t) at.push_back(static_cast<int32_t>(t));
      const double bound = 10 * errors["hidden"].get<double>();
      size_t i = 0;
      for (size_t point = 0; point < points.size(); ++point) {
        for (const int32_t row : at) {
          for (const double x : points[point][static_cast<size_t>(row)]) {
            ASSERT_NEAR(x, hidden.at(i), bound) << name << " " << p << " point " << point;
            ++i;
          }
        }
      }
      EXPECT_EQ(i, hidden.size());
    }
    EXPECT_EQ(states, 3 * static_cast<size_t>(std::ranges::count(model.full, false)));
  }
}

}  // namespace
}  // namespace split::test
