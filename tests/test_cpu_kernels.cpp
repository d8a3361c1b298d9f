// The CPU's kernels: every fast one against a plain one, and all instruction sets bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "compile/compile.h"
#include "device/cpu/kernels.h"
#include "kernel_values.h"
#include "run_program.h"
#include "tensor/blocks.h"
#include "tensor/tensor.h"

namespace split::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The kernels this processor can run, the plain ones first.
std::vector<const CpuKernels*> kernel_sets() {
  std::vector<const CpuKernels*> sets;
  for (const char* limit : {"scalar", "avx2", "avx512", "amx", "neon"}) {
    const CpuKernels& kernels = choose_kernels(limit);
    if (sets.empty() || sets.back() != &kernels) sets.push_back(&kernels);
  }
  return sets;
}

TEST(InstructionSets, AreChosenByName) {
  EXPECT_STREQ(choose_kernels("scalar").name, "scalar");
  EXPECT_THROW(choose_kernels("sse9"), Error);
}

TEST(InstructionSets, GiveEqualBitsForEveryOp) {
  const auto sets = kernel_sets();
  for (size_t i = 0; i < op_table().size(); ++i) {
    const OpInfo& info = op_table()[i];
    for (const size_t n : {1, 7, 15, 16, 17, 33, 256, 257, 5003}) {
      const auto x = values(n, 3, takes_nan(info.name)), z = values(n, 20, takes_nan(info.name));
      std::vector<float> first;
      for (const CpuKernels* kernels : sets) {
        std::vector<float> y(n);
        if (info.kind == OpKind::kUnary) kernels->unary[i](x.data(), y.data(), n);
        if (info.kind == OpKind::kBinary) kernels->binary[i](x.data(), z.data(), y.data(), n);
        if (info.kind == OpKind::kReduce) y[0] = kernels->reduce[i](ordinary(n, 9).data(), n);
        if (first.empty()) first = y;
        EXPECT_EQ(first_difference(y, first), -1) << info.name << " in " << kernels->name;
      }
    }
  }
}

std::vector<std::byte> narrowed(const std::vector<float>& from, DType dtype) {
  std::vector<std::byte> bytes(from.size() * dtype_size(dtype));
  convert({DType::kF32, {static_cast<int64_t>(from.size())}, std::as_bytes(std::span(from))}, dtype,
          bytes);
  return bytes;
}
std::vector<float> widened(const std::vector<std::byte>& from, DType dtype) {
  std::vector<float> out(from.size() / dtype_size(dtype));
  convert({dtype, {static_cast<int64_t>(out.size())}, from}, DType::kF32,
          std::as_writable_bytes(std::span(out)));
  return out;
}

// In two calls that part at an odd row.
std::vector<std::byte> packed(const std::vector<std::byte>& w, DType dtype, size_t inner,
                              size_t width) {
  std::vector<std::byte> result(w.size());
  const size_t part = std::min<size_t>(inner, 5);
  pack_matrix(w.data(), dtype, inner, width, part, inner, result.data());
  pack_matrix(w.data(), dtype, inner, width, 0, part, result.data());
  return result;
}

// All columns of a product, cut as the device cuts them: `w` is packed unless transposed.
std::vector<float> product(const CpuKernels& kernels, bool transposed, DType dtype,
                           const std::vector<float>& x, const std::vector<std::byte>& w,
                           size_t rows, size_t inner, size_t width) {
  const size_t each = rows % 2 == 0 ? kPanelColumns : kTaskColumns;
  std::vector<float> y(rows * width), part(rows * kTaskColumns), panel(kPanelFloats);
  for (size_t first = 0; first < width; first += each) {
    MatmulTask task;
    task.x = x.data();
    task.rows = rows;
    task.w = w.data();
    task.dtype = dtype;
    task.inner = inner;
    task.width = width;
    task.first = first;
    task.columns = std::min(each, width - first);
    task.y = part.data();
    task.y_stride = kTaskColumns;
    task.panel = panel.data();
    (transposed ? kernels.matmul_transposed : kernels.matmul)(task);
    for (size_t row = 0; row < rows; ++row) {
      std::copy_n(part.data() + row * kTaskColumns, task.columns, y.data() + row * width + first);
    }
  }
  return y;
}

// Against plain sums in double, to 1e-6 of the sum of magnitudes (a chain of K = 300 roundings of
// 6e-8 grows to about 1e-6); every set of kernels and every number of rows gives the same bits.
void check_products(bool transposed, DType dtype) {
  const auto sets = kernel_sets();
  for (const size_t inner : {1, 7, 16, 20, 64, 100, 257, 300}) {
    for (const size_t width : {1, 7, 16, 20, 32, 48, 64, 96, 100, 128, 257}) {
      const auto w = narrowed(ordinary(inner * width, 6), dtype);
      const auto wide = widened(w, dtype);
      const auto x = ordinary(33 * inner, 7);
      const auto read = transposed ? w : packed(w, dtype, inner, width);
      const auto all = product(*sets[0], transposed, dtype, x, read, 33, inner, width);
      for (size_t row = 0; row < 33; ++row) {
        for (size_t m = 0; m < width; ++m) {
          double sum = 0, size = 0;
          for (size_t k = 0; k < inner; ++k) {
            const double term =
                double(x[row * inner + k]) * wide[transposed ? m * inner + k : k * width + m];
            sum += term;
            size += std::abs(term);
          }
          ASSERT_NEAR(all[row * width + m], sum, 1e-6 * size + 1e-30)
              << inner << " x " << width << ", row " << row << ", column " << m;
        }
      }
      for (const CpuKernels* kernels : sets) {
        for (const size_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33}) {
          const auto y = product(*kernels, transposed, dtype, x, read, rows, inner, width);
          ASSERT_EQ(first_difference(y, std::span(all).first(y.size())), -1)
              << kernels->name << ": " << rows << " rows, " << inner << " x " << width;
        }
      }
    }
  }
}

// Blocks of any numbers, with scales of all kinds: of either sign, zero, subnormal.
std::vector<std::byte> random_blocks(DType dtype, size_t rows, size_t inner, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> out(rows * blocks_of(static_cast<int64_t>(inner)) * block_bytes(dtype));
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  for (size_t at = 0; at < out.size(); at += block_bytes(dtype)) {
    const uint32_t kind = random() % 8;
    const auto sign = static_cast<uint16_t>(random() % 2 << 15);
    const auto ordinary = static_cast<uint16_t>(0x2000 + random() % 0x1c00);  // 2^-7 .. 1
    const auto d = static_cast<uint16_t>(sign | (kind == 0   ? 0
                                                 : kind == 1 ? random() % 0x400
                                                             : ordinary));
    std::memcpy(out.data() + at, &d, sizeof d);
  }
  return out;
}

// A number of a block, and its scale.
float number_at(DType dtype, const std::byte* block, size_t k) {
  const auto* const q = reinterpret_cast<const uint8_t*>(block) + sizeof(uint16_t);
  if (dtype == DType::kQ8_0) return static_cast<int8_t>(q[k]);
  return static_cast<float>((k < kBlock / 2 ? q[k] & 15 : q[k - kBlock / 2] >> 4) - 8);
}
float scale_of(const std::byte* block) {
  uint16_t d = 0;
  std::memcpy(&d, block, sizeof d);
  return f16_to_f32(d);
}

// Bit for bit what plain loops make of rows rounded to bf16: in every set, by tiles where there are
// some, for every number of rows and columns, whole steps of K or not.
void check_step_products(DType dtype, bool transposed) {
  for (const size_t inner : {1, 7, 31, 32, 33, 64, 100, 255, 257, 320}) {
    for (const size_t width : {1, 7, 16, 20, 32, 47, 48, 49, 96, 100, 145}) {
      const size_t steps = steps_of(inner);
      const auto w = is_quantised(dtype)
                         ? random_blocks(dtype, width, inner, static_cast<uint32_t>(inner + width))
                         : narrowed(ordinary(inner * width, 6), dtype);
      const auto weights = is_quantised(dtype) ? std::vector<float>() : widened(w, dtype);
      std::vector<std::byte> read(strips_of(width) * steps * step_bytes(dtype));
      for (size_t strip = strips_of(width); strip-- > 0;) {
        pack_strip(w.data(), dtype, transposed, inner, width, strip, read.data());
      }
      const size_t most = 70;  // rows: two blocks of tiles and some
      const auto x = ordinary(most * inner, 7);
      const auto rounded = widened(narrowed(x, DType::kBF16), DType::kBF16);
      std::vector<float> all(most * width);
      for (size_t m = 0; m < width; ++m) {
        for (size_t r = 0; r < most; ++r) {
          float total = 0;
          for (size_t s = 0; s < steps; ++s) {
            const std::byte* const block =
                is_quantised(dtype) ? w.data() + (m * steps + s) * block_bytes(dtype) : nullptr;
            float chains[2] = {0, 0};
            for (size_t k = 0; k < kBlock && s * kBlock + k < inner; ++k) {
              const size_t at = s * kBlock + k;
              const float weight = block != nullptr ? number_at(dtype, block, k)
                                   : transposed     ? weights[m * inner + at]
                                                    : weights[at * width + m];
              chains[k % 2] = std::fma(rounded[r * inner + at], weight, chains[k % 2]);
            }
            const float sum = chains[0] + chains[1];
            total = block != nullptr ? std::fma(sum, scale_of(block), total) : total + sum;
          }
          all[r * width + m] = total;
        }
      }
      struct alignas(64) Scratch {
        std::byte bytes[kStepScratch];
      };
      const auto scratch = std::make_unique<Scratch>();
      std::vector<float> part(most * kTaskColumns);
      const auto check = [&](const CpuKernels& kernels, const CpuKernels::Steps& set,
                             const char* kind) {
        std::vector<std::byte> form(rounded_bytes((most + 15) / 16 * 16, inner, set.element));
        for (size_t r = 0; r < most; ++r) set.round(x.data() + r * inner, inner, r, form.data());
        for (const size_t rows : {1, 2, 3, 6, 7, 15, 16, 17, 31, 32, 33, 70}) {
          const size_t each = rows % 2 == 0 ? kStripColumns : kTaskColumns;
          for (size_t first = 0; first < width; first += each) {
            StepTask task;
            task.x = form.data();
            task.rows = rows;
            task.w = read.data();
            task.dtype = dtype;
            task.inner = inner;
            task.first = first;
            task.columns = std::min(each, width - first);
            task.y = part.data();
            task.y_stride = kTaskColumns;
            task.scratch = scratch->bytes;
            set.matmul(task);
            for (size_t r = 0; r < rows; ++r) {
              ASSERT_EQ(first_difference(std::span(part).subspan(r * kTaskColumns, task.columns),
                                         std::span(all).subspan(r * width + first, task.columns)),
                        -1)
                  << kernels.name << kind << ": row " << r << " of " << rows << ", " << inner
                  << " x " << width << " from column " << first;
            }
          }
        }
      };
      for (const CpuKernels* kernels : kernel_sets()) {
        check(*kernels, kernels->few, "");
        if (kernels->many_blocks > 0) check(*kernels, kernels->many, ", tiles");
      }
    }
  }
}

// A matrix [K, M] is copied into the kernels' order at load and read no more, unless another step
// reads it where it lies.
TEST(CpuDevice, LetsGoOfTheMatricesItPacks) {
  const auto device = make_cpu_device(2);
  const Tensor x = input("x", DType::kF32, {kRows, 20});
  const Tensor index = input("tokens", DType::kI32, {kRows});
  const Tensor w = weight("w", DType::kF32, {20, 20});
  const auto borrows = [&](const Tensor& y, DType dtype = DType::kF32) {
    const Program program = compile("op", {{"y", y}}, device->fuse_rules());
    Limits limits;
    limits.rows = 1;
    limits.arena_row_bytes = program.arena_row_bytes;
    const auto workspace = device->workspace(limits);
    const auto in = device->alloc(80), out = device->alloc(80);
    const std::vector<float> bytes(400);
    const auto size = tensor_bytes(dtype, {20, 20}).value();
    const auto matrix =
        device->upload(program.slots[static_cast<size_t>(program.find("w"))],
                       {dtype, {20, 20}, std::as_bytes(std::span(bytes)).first(size)});
    EXPECT_TRUE(matrix->borrows());
    const Binding bindings[] = {{"x", in.get()}, {"w", matrix.get()}, {"y", out.get()}};
    device->load(program, *workspace, bindings);
    return matrix->borrows();
  };
  EXPECT_FALSE(borrows(matmul(x, w)));
  EXPECT_TRUE(borrows(matmul(x, transpose(w))));
  EXPECT_TRUE(borrows(matmul(x, w) + gather(w, index)));
  const Tensor q = weight("w", DType::kQ8_0, {20, 20});
  EXPECT_FALSE(borrows(matmul(x, transpose(q)), DType::kQ8_0));
}

TEST(Blocks, AreReadByProductsAloneAndAlongK) {
  const Tensor x = input("x", DType::kF32, {kRows, 20});
  const Tensor index = input("tokens", DType::kI32, {kRows});
  const Tensor q = weight("w", DType::kQ4_0, {20, 20});
  EXPECT_NO_THROW(matmul(x, transpose(q)));
  EXPECT_THROW(matmul(x, q), Error);
  EXPECT_THROW(gather(q, index), Error);
}

TEST(Kernels, MatmulF32) { check_products(false, DType::kF32); }
TEST(Kernels, MatmulF16) { check_products(false, DType::kF16); }
TEST(Kernels, MatmulBF16) { check_products(false, DType::kBF16); }
TEST(Kernels, MatmulTransposedF32) { check_products(true, DType::kF32); }
TEST(Kernels, MatmulTransposedF16) { check_products(true, DType::kF16); }
TEST(Kernels, MatmulTransposedBF16) { check_products(true, DType::kBF16); }
TEST(Kernels, RoundedBF16) { check_step_products(DType::kBF16, false); }
TEST(Kernels, RoundedBF16Transposed) { check_step_products(DType::kBF16, true); }
TEST(Kernels, RoundedQ8) { check_step_products(DType::kQ8_0, true); }
TEST(Kernels, RoundedQ4) { check_step_products(DType::kQ4_0, true); }

#ifdef SPLIT_X86_KERNELS
// As in a tile: of a row, and of a product.
TEST(Kernels, RoundedDenormalsAreZeros) {
  const std::vector<float> x = {1e-39f, 1e-20f};
  const auto w = narrowed({1.0f, 1e-20f}, DType::kBF16);
  alignas(64) std::byte scratch[kStepScratch], read[step_bytes(DType::kBF16)], form[16 << 10];
  pack_strip(w.data(), DType::kBF16, true, 2, 1, 0, read);
  for (const CpuKernels* kernels : kernel_sets()) {
    for (const CpuKernels::Steps* set : {&kernels->few, &kernels->many}) {
      if (set->matmul == nullptr) continue;
      float y[kTaskColumns] = {1};
      set->round(x.data(), 2, 0, form);
      StepTask task;
      task.x = form;
      task.rows = 1;
      task.w = read;
      task.inner = 2;
      task.columns = 1;
      task.y = y;
      task.y_stride = kTaskColumns;
      task.scratch = scratch;
      set->matmul(task);
      EXPECT_EQ(y[0], 0.0f) << kernels->name;
    }
  }
}
#endif

// To nearest even, as the table of types does it; zeros behind.
TEST(Kernels, RoundToBF16) {
  std::vector<float> x = ordinary(100, 3);
  for (const float odd : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 3.4e38f, -3.4e38f, 1.00390625f,
                          1.01171875f, 1e-40f}) {
    x.push_back(odd);
  }
  for (const CpuKernels* kernels : kernel_sets()) {
    std::vector<float> floats(128, 7);
    kernels->few.round(x.data(), x.size(), 0, reinterpret_cast<std::byte*>(floats.data()));
    std::vector<uint16_t> tiles(16 * 128, 7);
    if (kernels->many_blocks > 0) {
      kernels->many.round(x.data(), x.size(), 3, reinterpret_cast<std::byte*>(tiles.data()));
    }
    for (size_t i = 0; i < 128; ++i) {
      const uint16_t expected = i < x.size() ? f32_to_bf16(x[i]) : 0;
      EXPECT_EQ(std::bit_cast<uint32_t>(floats[i]), uint32_t{expected} << 16) << kernels->name << i;
      if (kernels->many_blocks == 0) continue;
      EXPECT_EQ(tiles[i / 32 * 512 + 3 * 32 + i % 32], expected) << kernels->name << i;
    }
  }
}

// Some rows over scattered pages, against a softmax in double; each row has the bits that it has
// alone, in every set.
TEST(Kernels, AttendAgreesWithDoubleAndInEverySet) {
  constexpr size_t kPages = 20;
  std::vector<uint32_t> pages(kPages);
  for (size_t i = 0; i < kPages; ++i) pages[i] = static_cast<uint32_t>((7 * i + 9) % kPages);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    for (const size_t head_size : {1, 5, 16, 20, 64, 96, 100}) {
      if (dtype == DType::kQ8_0 && head_size % kBlock != 0) continue;
      const size_t heads = 3, channels = heads * head_size, head = 1;
      const auto kept = [&](uint32_t seed) {
        const auto from = ordinary(kPages * kPageTokens * channels, seed);
        std::vector<std::byte> bytes(kv_bytes(dtype, from.size()));
        kernel_sets()[0]->narrow(from.data(), dtype, bytes.data(), from.size());
        return bytes;
      };
      const auto read = [&](const std::vector<std::byte>& bytes) {
        if (dtype != DType::kQ8_0) return widened(bytes, dtype);
        std::vector<float> out(kPages * kPageTokens * channels);
        dequantise_row(dtype, bytes.data(), out.size(), out.data());
        return out;
      };
      const auto keys = kept(1), values = kept(2);
      const auto wide_keys = read(keys), wide_values = read(values);
      const size_t q_stride = head_size + 3, out_stride = head_size + 1;
      const auto q = ordinary(kAttendRows * q_stride, 3);
      for (const size_t position : {0, 1, 14, 15, 16, 100, 120, 127, 128, 250}) {
        const auto run = [&](const CpuKernels& kernels, size_t first, size_t rows) {
          std::vector<float> out(rows * out_stride), scratch(attend_scratch(head_size));
          AttendTask task;
          task.q = q.data() + first * q_stride;
          task.q_stride = q_stride;
          task.rows = rows;
          task.position = position + first;
          task.keys = keys.data();
          task.values = values.data();
          task.dtype = dtype;
          task.pages = pages.data();
          task.channels = channels;
          task.head_offset = head * head_size;
          task.head_size = head_size;
          task.scale = 1.7f;
          task.out = out.data();
          task.out_stride = out_stride;
          task.scratch = scratch.data();
          kernels.attend(task);
          return out;
        };
        const auto sets = kernel_sets();
        const std::vector<float> all = run(*sets[0], 0, kAttendRows);
        for (const CpuKernels* kernels : sets) {
          for (const size_t rows : {1, 3, 7, 16}) {
            for (size_t first = 0; first + rows <= kAttendRows; first += rows) {
              const std::vector<float> some = run(*kernels, first, rows);
              EXPECT_EQ(
                  first_difference(some, std::span(all).subspan(first * out_stride, some.size())),
                  -1)
                  << kernels->name << ": " << rows << " rows at " << position + first;
            }
          }
        }
        for (size_t row = 0; row < kAttendRows; ++row) {
          const auto at = [&](size_t key, size_t d) {
            return (pages[key / kPageTokens] * kPageTokens + key % kPageTokens) * channels +
                   head * head_size + d;
          };
          std::vector<double> scores;
          double largest = -kInf, sum = 0;
          for (size_t key = 0; key <= position + row; ++key) {
            double dot = 0;
            for (size_t d = 0; d < head_size; ++d) {
              dot += double(q[row * q_stride + d]) * wide_keys[at(key, d)];
            }
            scores.push_back(dot * 1.7f);
            largest = std::max(largest, scores.back());
          }
          for (double& score : scores) sum += score = std::exp(score - largest);
          for (size_t d = 0; d < head_size; ++d) {
            double total = 0;
            for (size_t key = 0; key < scores.size(); ++key) {
              total += scores[key] * wide_values[at(key, d)];
            }
            EXPECT_NEAR(all[row * out_stride + d], total / sum, 1e-5)
                << head_size << ", position " << position + row;
          }
        }
      }
    }
  }
}

// Every half there is; and floats that halves lie between.
// Each number is the nearest multiple of the block's scale, the largest of which is 127.
TEST(Kernels, NarrowToBlocksInEverySet) {
  auto x = ordinary(40 * kBlock, 5);
  std::fill_n(x.begin(), kBlock, 0.0f);
  x[kBlock] = 1e30f;  // no scale holds it
  std::vector<std::byte> first;
  for (const CpuKernels* kernels : kernel_sets()) {
    std::vector<std::byte> blocks(kv_bytes(DType::kQ8_0, x.size()));
    kernels->narrow(x.data(), DType::kQ8_0, blocks.data(), x.size());
    if (first.empty()) first = blocks;
    EXPECT_EQ(blocks, first) << kernels->name;
  }
  std::vector<float> back(x.size());
  dequantise_row(DType::kQ8_0, first.data(), x.size(), back.data());
  EXPECT_FALSE(std::isfinite(back[kBlock]));
  for (size_t i = 0; i < x.size(); ++i) {
    if (i / kBlock == 1) continue;
    const float scale = scale_of(first.data() + kv_bytes(DType::kQ8_0, i / kBlock * kBlock));
    // Half a step, and what the largest lost to the rounding of the scale.
    EXPECT_NEAR(back[i], x[i], 0.57f * scale) << i;
  }
}

TEST(Kernels, WidenAndNarrowAgreeWithConvertInEverySet) {
  std::vector<std::byte> halves(2 * 65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto word = static_cast<uint16_t>(bits);
    std::memcpy(&halves[2 * bits], &word, 2);
  }
  std::vector<float> floats = widened(halves, DType::kF16);
  const size_t exact = floats.size();
  for (size_t i = 0; i + 1 < exact; ++i) {
    floats.push_back((floats[i] + floats[i + 1]) / 2);  // ties
    floats.push_back(floats[i] * 1.0001f);
  }
  for (const CpuKernels* kernels : kernel_sets()) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const auto expected = widened(halves, dtype);
      for (const size_t n : {65536, 65535, 1, 15, 17}) {
        std::vector<float> got(n);
        kernels->widen(halves.data(), dtype, got.data(), n);
        EXPECT_EQ(first_difference(got, std::span(expected).first(n)), -1) << kernels->name;
      }
    }
    const auto expected = narrowed(floats, DType::kF16);
    for (const size_t n : {floats.size(), size_t{1}, size_t{15}, size_t{17}}) {
      std::vector<std::byte> got(2 * n, std::byte{1});
      kernels->narrow(floats.data(), DType::kF16, got.data(), n);
      for (size_t i = 0; i < n; ++i) {
        if (std::isnan(floats[i])) continue;  // the payload is the hardware's
        ASSERT_EQ(std::memcmp(&got[2 * i], &expected[2 * i], 2), 0)
            << kernels->name << ": " << floats[i];
      }
    }
  }
}

}  // namespace
}  // namespace split::test
