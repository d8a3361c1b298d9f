// The CPU's attention: against a softmax in double, and all instruction sets bit for bit.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu_kernels.h"

namespace split::test {
namespace {

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
          double largest = -HUGE_VAL, sum = 0;
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

}  // namespace
}  // namespace split::test
