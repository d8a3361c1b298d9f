// The CPU's attention: against a softmax in double, and all instruction sets bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "support/cpu_kernels.h"

namespace split::test {
namespace {

// Pages of keys and of values as the device keeps them: the first at once, then in parts of odd
// lengths.
std::pair<std::vector<std::byte>, std::vector<std::byte>> kept(const CpuKernels& kernels,
                                                               const std::vector<float>& keys,
                                                               const std::vector<float>& values,
                                                               DType dtype, size_t channels,
                                                               size_t head_size) {
  std::pair<std::vector<std::byte>, std::vector<std::byte>> pages;
  pages.first.resize(kv_bytes(dtype, keys.size()));
  pages.second.resize(pages.first.size());
  const size_t page_bytes = kPageTokens * kv_bytes(dtype, channels);
  for (size_t token = 0, part = kPageTokens; token * channels < keys.size();) {
    StoreKvTask task;
    task.from = keys.data() + token * channels;
    task.stride = channels;
    task.slot = token % kPageTokens;
    task.rows = std::min(part, kPageTokens - task.slot);
    task.channels = channels;
    task.head_size = head_size;
    task.dtype = dtype;
    task.page = pages.first.data() + token / kPageTokens * page_bytes;
    kernels.store_kv(task);
    task.values = true;
    task.from = values.data() + token * channels;
    task.page = pages.second.data() + token / kPageTokens * page_bytes;
    kernels.store_kv(task);
    token += task.rows;
    part = part % kPageTokens + 1;
  }
  return pages;
}

// The keys that rows see which follow each other from `position` on.
std::vector<KeyRange> causal(size_t position, size_t rows) {
  std::vector<KeyRange> seen;
  for (size_t row = 0; row < rows; ++row) {
    seen.push_back({0, static_cast<uint32_t>(position + row + 1)});
  }
  return seen;
}

// The numbers that are kept.
std::vector<float> as_kept(const std::vector<float>& from, DType dtype) {
  if (dtype != DType::kQ8_0) return widened(narrowed(from, dtype), dtype);
  std::vector<std::byte> blocks(kv_bytes(dtype, from.size()));
  std::vector<float> out(from.size());
  kernel_sets()[0]->narrow(from.data(), dtype, blocks.data(), from.size());
  dequantise_row(dtype, blocks.data(), out.size(), out.data());
  return out;
}

TEST(Kernels, KeepTheSamePagesInEverySet) {
  constexpr size_t kChannels = 96, kHeadSize = 32;
  const auto k = ordinary(4 * kPageTokens * kChannels, 1), v = ordinary(k.size(), 2);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kBF16}) {
    const auto first = kept(*kernel_sets()[0], k, v, dtype, kChannels, kHeadSize);
    for (const CpuKernels* kernels : kernel_sets()) {
      EXPECT_EQ(kept(*kernels, k, v, dtype, kChannels, kHeadSize), first) << kernels->name;
    }
  }
}

// Some rows over scattered pages, against a softmax in double; each row has the bits that it has
// alone, in every set of the same order.
TEST(Kernels, AttendAgreesWithDoubleAndInEverySet) {
  constexpr size_t kPages = 20;
  std::vector<uint32_t> pages(kPages);
  for (size_t i = 0; i < kPages; ++i) pages[i] = static_cast<uint32_t>((7 * i + 9) % kPages);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kBF16}) {
    const bool rounds = dtype == DType::kQ8_0 || dtype == DType::kBF16;
    for (const size_t head_size : {1, 5, 16, 20, 32, 64, 96, 100}) {
      if (rounds && head_size % kBlock != 0) continue;
      const size_t heads = 3, channels = heads * head_size, head = 1;
      const auto all_keys = ordinary(kPages * kPageTokens * channels, 1);
      const auto all_values = ordinary(kPages * kPageTokens * channels, 2);
      const auto kv = kept(*kernel_sets()[0], all_keys, all_values, dtype, channels, head_size);
      const auto wide_keys = as_kept(all_keys, dtype), wide_values = as_kept(all_values, dtype);
      const size_t q_stride = head_size + 3, out_stride = head_size + 1;
      const auto q = ordinary(kAttendRows * q_stride, 3);
      for (const size_t position : {0, 1, 14, 15, 16, 100, 120, 127, 128, 250}) {
        const auto run = [&](const CpuKernels& kernels, size_t first, size_t rows) {
          std::vector<float> out(rows * out_stride), scratch(attend_scratch(head_size));
          AttendTask task;
          task.q = q.data() + first * q_stride;
          task.q_stride = q_stride;
          const auto seen = causal(position + first, rows);
          task.rows = rows;
          task.seen = seen.data();
          task.keys = kv.first.data();
          task.values = kv.second.data();
          task.dtype = dtype;
          task.pages = pages.data();
          task.kv_width = channels;
          task.head_offset = head * head_size;
          task.head_size = head_size;
          task.scale = 1.7f;
          task.out = out.data();
          task.out_stride = out_stride;
          task.scratch = scratch.data();
          kernels.attend(task);
          return out;
        };
        const std::vector<float> all = run(*kernel_sets()[0], 0, kAttendRows);
        std::vector<float> all_by_pairs = all;
        for (const CpuKernels* kernels : kernel_sets()) {
          const bool pairs = rounds && by_pairs(*kernels);
          if (pairs) all_by_pairs = run(*kernels, 0, kAttendRows);
          const std::span<const float> expected = pairs ? all_by_pairs : all;
          for (const size_t rows : {1, 3, 7, 16}) {
            for (size_t first = 0; first + rows <= kAttendRows; first += rows) {
              const std::vector<float> some = run(*kernels, first, rows);
              EXPECT_EQ(first_difference(some, expected.subspan(first * out_stride, some.size())),
                        -1)
                  << kernels->name << ": " << rows << " rows at " << position + first;
            }
          }
        }
        const std::vector<float>* const found[] = {&all, &all_by_pairs};
        for (size_t row = 0; row < kAttendRows; ++row) {
          const auto at = [&](size_t key, size_t d) {
            return (pages[key / kPageTokens] * kPageTokens + key % kPageTokens) * channels +
                   head * head_size + d;
          };
          std::vector<double> scores;
          double largest = -INFINITY, sum = 0;
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
            // Queries and weights in bf16: 2^-9 of each, of sums of numbers below 1.
            for (const auto* out : found) {
              EXPECT_NEAR((*out)[row * out_stride + d], total / sum, rounds ? 2e-2 : 1e-5)
                  << head_size << ", position " << position + row;
            }
          }
        }
      }
    }
  }
}

// Rows that do not see all keys before them, or see some behind them: against a softmax in double.
// Each has the bits that it has alone, whatever the keys are that it does not see.
TEST(Kernels, AttendSeesTheKeysOfEachRow) {
  constexpr size_t kPages = 20, kTokens = kPages * kPageTokens;
  std::vector<uint32_t> pages(kPages);
  for (size_t i = 0; i < kPages; ++i) pages[i] = static_cast<uint32_t>((7 * i + 9) % kPages);
  const auto window = [](uint32_t position, uint32_t size) {
    std::vector<KeyRange> seen;
    for (uint32_t p = position; p < position + kAttendRows; ++p) {
      seen.push_back({p + 1 < size ? 0 : p + 1 - size, p + 1});
    }
    return seen;
  };
  const std::pair<std::vector<KeyRange>, float> cases[] = {
      {std::vector<KeyRange>(7, {0, 37}), 0},  // a text whose rows see all of it
      {std::vector<KeyRange>(16, {0, 300}), 0},
      {window(8, 12), 0},  // windows that begin within a page,
      {window(120, 50), 0},
      {window(250, 5), 0},  // and within different splits
      {window(300, 130), 0},
      {{{17, 18}}, 0},
      {{{0, 10}, {3, 10}, {200, 203}, {300, 320}}, 0},
      {window(120, 50), 0.5f},  // scores with a cap
      {{{0, 10}, {3, 10}, {200, 203}, {300, 320}}, 3.0f}};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kBF16}) {
    const bool rounds = dtype == DType::kQ8_0 || dtype == DType::kBF16;
    for (const size_t head_size : {20, 64}) {
      if (rounds && head_size % kBlock != 0) continue;
      const size_t channels = 2 * head_size;
      const auto place = [&](size_t key) {
        return (pages[key / kPageTokens] * kPageTokens + key % kPageTokens) * channels;
      };
      const auto all_keys = ordinary(kTokens * channels, 1);
      const auto all_values = ordinary(kTokens * channels, 2);
      // The pages that are kept where all keys but these are no numbers.
      const auto kept_of = [&](const KeyRange& seen) {
        auto k = all_keys, v = all_values;
        for (size_t key = 0; key < kTokens; ++key) {
          if (key >= seen.first && key < seen.end) continue;
          std::fill_n(k.begin() + static_cast<ptrdiff_t>(place(key)), channels, NAN);
          std::fill_n(v.begin() + static_cast<ptrdiff_t>(place(key)), channels, NAN);
        }
        return kept(*kernel_sets()[0], k, v, dtype, channels, head_size);
      };
      const auto wide_keys = as_kept(all_keys, dtype), wide_values = as_kept(all_values, dtype);
      const auto q = ordinary(kAttendRows * head_size, 3);
      for (const auto& [seen, cap] : cases) {
        const auto run = [&, &seen = seen, cap = cap](const CpuKernels& kernels, const auto& all,
                                                      size_t row, size_t rows) {
          std::vector<float> out(rows * head_size), scratch(attend_scratch(head_size));
          AttendTask task;
          task.q = q.data() + row * head_size;
          task.q_stride = task.head_offset = task.head_size = task.out_stride = head_size;
          task.rows = rows;
          task.seen = seen.data() + row;
          task.keys = all.first.data();
          task.values = all.second.data();
          task.dtype = dtype;
          task.pages = pages.data();
          task.kv_width = channels;
          task.scale = 1.7f;
          task.cap = cap;
          task.out = out.data();
          task.scratch = scratch.data();
          kernels.attend(task);
          return out;
        };
        const auto everything = kept_of({0, kTokens});
        const auto together = kept_of({seen.front().first, seen.back().end});
        for (size_t row = 0; row < seen.size(); ++row) {
          const auto own = kept_of(seen[row]);
          std::vector<double> scores, expected(head_size);
          double sum = 0;
          for (size_t key = seen[row].first; key < seen[row].end; ++key) {
            double dot = 0;
            for (size_t d = 0; d < head_size; ++d) {
              dot += double(q[row * head_size + d]) * wide_keys[place(key) + head_size + d];
            }
            scores.push_back(cap > 0 ? cap * std::tanh(dot * 1.7f / cap) : dot * 1.7f);
          }
          const double largest = *std::max_element(scores.begin(), scores.end());
          for (double& score : scores) sum += score = std::exp(score - largest);
          for (size_t d = 0; d < head_size; ++d) {
            for (size_t i = 0; i < scores.size(); ++i) {
              expected[d] +=
                  scores[i] / sum * wide_values[place(seen[row].first + i) + head_size + d];
            }
          }
          for (const CpuKernels* kernels : kernel_sets()) {
            const std::string what =
                cat(kernels->name, ", ", dtype_name(dtype), ", row ", row, " of ", seen.size(),
                    ": [", seen[row].first, ", ", seen[row].end, ")");
            const std::vector<float> alone = run(*kernels, own, row, 1);
            for (size_t d = 0; d < head_size; ++d) {
              ASSERT_NEAR(alone[d], expected[d], rounds ? 2e-2 : 1e-5) << what;
            }
            for (const auto* all : {&everything, &together}) {
              const std::vector<float> rows = run(*kernels, *all, 0, seen.size());
              ASSERT_EQ(
                  first_difference(std::span(rows).subspan(row * head_size, head_size), alone), -1)
                  << what;
            }
            // Where keys that it does not see are no numbers, which others of them do see.
            const std::vector<float> rows = run(*kernels, own, 0, seen.size());
            ASSERT_EQ(first_difference(std::span(rows).subspan(row * head_size, head_size), alone),
                      -1)
                << what;
          }
        }
      }
    }
  }
}

// Any number of heads at once: each as alone.
TEST(Kernels, AttendHeadsTogether) {
  constexpr size_t kHead = 64, kHeads = 19, kChannels = kHeads * kHead, kPosition = 150;
  constexpr size_t kPages = 11;
  std::vector<uint32_t> pages(kPages);
  for (size_t i = 0; i < kPages; ++i) pages[i] = static_cast<uint32_t>((4 * i + 3) % kPages);
  const auto all_keys = ordinary(kPages * kPageTokens * kChannels, 1);
  const auto all_values = ordinary(all_keys.size(), 2), q = ordinary(kAttendRows * kChannels, 3);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kBF16}) {
    const auto kv = kept(*kernel_sets()[0], all_keys, all_values, dtype, kChannels, kHead);
    for (const CpuKernels* kernels : kernel_sets()) {
      for (const size_t rows : {1, 2, 5, 16}) {
        const auto run = [&](size_t heads) {
          std::vector<float> out(rows * kChannels), scratch(attend_scratch(kHead));
          for (size_t head = 0; head < kHeads; head += heads) {
            AttendTask task;
            task.q = q.data() + head * kHead;
            task.q_stride = task.kv_width = task.out_stride = kChannels;
            const auto seen = causal(kPosition, rows);
            task.rows = rows;
            task.seen = seen.data();
            task.keys = kv.first.data();
            task.values = kv.second.data();
            task.dtype = dtype;
            task.pages = pages.data();
            task.heads = std::min(heads, kHeads - head);
            task.head_offset = head * kHead;
            task.head_size = kHead;
            task.scale = 0.125f;
            task.out = out.data() + head * kHead;
            task.scratch = scratch.data();
            kernels->attend(task);
          }
          return out;
        };
        const auto alone = run(1);
        for (const size_t heads : {2, 7, 19}) {
          EXPECT_EQ(first_difference(run(heads), alone), -1)
              << kernels->name << ": " << heads << " heads, " << rows << " rows, "
              << dtype_name(dtype);
        }
      }
    }
  }
}

// Queries that share a head of keys and values: each as with a head of its own that holds the same.
TEST(Kernels, AttendSharesHeadsOfKeys) {
  constexpr size_t kHeads = 3, kPages = 11;
  std::vector<uint32_t> pages(kPages);
  for (size_t i = 0; i < kPages; ++i) pages[i] = static_cast<uint32_t>((4 * i + 3) % kPages);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kBF16}) {
    for (const size_t head_size : {20, 64}) {
      if (dtype != DType::kF32 && head_size % kBlock != 0) continue;
      const size_t width = kHeads * head_size;
      const auto all_keys = ordinary(kPages * kPageTokens * width, 1);
      const auto all_values = ordinary(all_keys.size(), 2);
      const auto [keys, values] =
          kept(*kernel_sets()[0], all_keys, all_values, dtype, width, head_size);
      for (const CpuKernels* kernels : kernel_sets()) {
        for (const size_t group : {2, 5, 19}) {
          const size_t rows = attend_rows(group), stride = group * width;
          const auto q = ordinary(rows * stride, 3);
          const auto seen = causal(150, rows);
          std::vector<float> alone(rows * stride), together(alone.size());
          std::vector<float> scratch(attend_scratch(head_size));
          AttendTask task;
          task.q_stride = task.out_stride = stride;
          task.rows = rows;
          task.seen = seen.data();
          task.keys = keys.data();
          task.values = values.data();
          task.dtype = dtype;
          task.pages = pages.data();
          task.kv_width = width;
          task.head_size = head_size;
          task.scale = 0.125f;
          task.scratch = scratch.data();
          for (size_t head = 0; head < kHeads * group; ++head) {
            task.q = q.data() + head * head_size;
            task.out = alone.data() + head * head_size;
            task.head_offset = head / group * head_size;
            kernels->attend(task);
          }
          task.q = q.data();
          task.out = together.data();
          task.head_offset = 0;
          task.heads = kHeads;
          task.group = group;
          kernels->attend(task);
          EXPECT_EQ(first_difference(together, alone), -1)
              << kernels->name << ": " << rows << " rows in groups of " << group << ", "
              << dtype_name(dtype);
        }
      }
    }
  }
}

// On the device too: the bits of four heads whose keys and values are two, each twice, whether
// they are columns of one product or products of their own.
TEST(CpuDevice, AttendsWithFewerHeadsOfKeys) {
  constexpr int kInner = 32, kHeads = 4, kSize = 32;
  constexpr uint32_t kRowCount = 40, kPages = 3;
  const auto device = make_cpu_device(2);
  const auto values = ordinary(2 * kHeads * kInner * kSize, 1);
  const auto xs = ordinary(kRowCount * kInner, 2);
  // From head `first` on of the matrix [heads, kSize, kInner], each `times` times.
  const auto add_heads = [&](std::vector<float>& to, int64_t first, int64_t count, int64_t times) {
    for (int64_t head = first; head < first + count; ++head) {
      for (int64_t i = 0; i < times; ++i) {
        const auto from = values.begin() + head * kSize * kInner;
        to.insert(to.end(), from, from + kSize * kInner);
      }
    }
  };
  const auto run = [&](int kv_heads, bool apart, DType matrix, DType cache) {
    const int64_t width = (kHeads + 2 * kv_heads) * kSize, kv_width = kv_heads * kSize;
    std::vector<float> w;
    add_heads(w, 0, kHeads, 1);
    add_heads(w, kHeads, 2, kv_heads / 2);
    add_heads(w, kHeads + 2, 2, kv_heads / 2);
    const Tensor x = input("x", DType::kF32, {kRows, kInner});
    std::map<std::string, std::pair<int64_t, int64_t>> weights;  // rows of w
    const auto product = [&](const std::string& name, int64_t first, int64_t rows) {
      weights[name] = {first, rows};
      return matmul(x, transpose(weight(name, matrix, {rows, kInner})));
    };
    const int64_t firsts[] = {0, kHeads * kSize, kHeads * kSize + kv_width};
    const Tensor all = product("w", 0, width);
    const auto part = [&](const std::string& name, size_t i, int64_t rows) {
      return apart ? product(name, firsts[i], rows) : columns(all, firsts[i], rows);
    };
    const Tensor y = attention(part("wq", 0, kHeads * kSize), part("wk", 1, kv_width),
                               part("wv", 2, kv_width), input("k", cache, {kv_width}),
                               input("v", cache, {kv_width}), {kHeads, kv_heads, kSize, 0.25f});
    const Program program = compile("a", {{"y", y}}, device->fuse_rules());
    Limits limits;
    limits.rows = kRowCount;
    limits.sequences = 1;
    limits.pages = limits.pages_per_sequence = kPages;
    limits.arena_row_bytes = program.arena_row_bytes;
    limits.matrix = true;
    const auto workspace = device->workspace(limits);
    const auto bytes = narrowed(w, matrix);
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<Binding> bindings;
    for (const Slot& slot : program.slots) {
      if (slot.kind != SlotKind::kWeight) continue;
      const auto [first, rows] = weights.at(slot.name);
      const size_t row_bytes = kInner * dtype_size(matrix);
      buffers.push_back(
          device->upload(slot, {matrix, slot.dims,
                                Bytes(bytes).subspan(static_cast<size_t>(first) * row_bytes,
                                                     static_cast<size_t>(rows) * row_bytes)}));
      bindings.push_back({slot.name, buffers.back().get()});
    }
    const auto k = device->alloc_pages(limits, kv_heads * kSize, cache);
    const auto v = device->alloc_pages(limits, kv_heads * kSize, cache);
    const auto in = device->alloc(xs.size() * sizeof(float));
    std::vector<float> out(kRowCount * kHeads * kSize);
    const auto y_buffer = device->alloc(out.size() * sizeof(float));
    bindings.insert(bindings.end(),
                    {{"x", in.get()}, {"k", k.get()}, {"v", v.get()}, {"y", y_buffer.get()}});
    const auto executable = device->load(program, *workspace, bindings);
    std::vector<int32_t> positions(kRowCount);
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<uint32_t> sequences(kRowCount);
    const std::vector<uint32_t> table = {2, 0, 1};
    const auto seen = causal(0, kRowCount);
    RowBatch batch;
    batch.rows = kRowCount;
    batch.positions = positions;
    batch.sequences = sequences;
    batch.seen = seen;
    batch.page_tables = table;
    batch.in = in.get();
    batch.in_bytes = std::as_bytes(std::span(xs));
    batch.out = y_buffer.get();
    batch.out_bytes = std::as_writable_bytes(std::span(out));
    Executable* const programs[] = {executable.get()};
    device->run(*workspace, programs, batch);
    return out;
  };
  for (const DType matrix : {DType::kF32, DType::kBF16}) {
    for (const DType cache : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kBF16}) {
      const auto expected = run(4, false, matrix, cache);
      for (const bool apart : {false, true}) {
        EXPECT_EQ(first_difference(run(2, apart, matrix, cache), expected), -1)
            << dtype_name(matrix) << ", " << dtype_name(cache) << (apart ? ", apart" : "");
      }
    }
  }
}

// Later tokens of the same step, and what another sequence left in a page, may be no numbers.
TEST(Kernels, AttendSeesNothingOfLaterTokens) {
  constexpr size_t kHead = 64, kTokens = 3 * kPageTokens, kFirst = 21, kBad = 26;
  const uint32_t pages[] = {1, 0, 2};
  const auto q = ordinary(kAttendRows * kHead, 3);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kBF16}) {
    auto k = ordinary(kTokens * kHead, 1), v = ordinary(kTokens * kHead, 2);
    const auto with = [&](float value) {  // from token kBad on; pages 0 and 1 have changed places
      for (size_t token = kBad; token < kTokens; ++token) {
        const size_t at = (pages[token / kPageTokens] * kPageTokens + token % kPageTokens) * kHead;
        std::fill_n(k.begin() + static_cast<ptrdiff_t>(at), kHead, value);
        std::fill_n(v.begin() + static_cast<ptrdiff_t>(at), kHead, value);
      }
      return kept(*kernel_sets()[0], k, v, dtype, kHead, kHead);
    };
    const auto clean = with(0.5f), bad = with(NAN);
    for (const CpuKernels* kernels : kernel_sets()) {
      for (const size_t rows : {kBad - kFirst, kAttendRows}) {
        const auto run = [&](const auto& kept_pages) {
          std::vector<float> out(kAttendRows * kHead), scratch(attend_scratch(kHead));
          AttendTask task;
          task.q = q.data();
          task.q_stride = task.kv_width = task.head_size = task.out_stride = kHead;
          const auto seen = causal(kFirst, rows);
          task.rows = rows;
          task.seen = seen.data();
          task.keys = kept_pages.first.data();
          task.values = kept_pages.second.data();
          task.dtype = dtype;
          task.pages = pages;
          task.scale = 0.125f;
          task.out = out.data();
          task.scratch = scratch.data();
          kernels->attend(task);
          return out;
        };
        const auto expected = run(clean), got = run(bad);
        const size_t seen = (kBad - kFirst) * kHead;
        EXPECT_EQ(first_difference(std::span(got).first(seen), std::span(expected).first(seen)), -1)
            << kernels->name << ": " << rows << " rows, " << dtype_name(dtype);
        if (rows > kBad - kFirst) {
          EXPECT_TRUE(std::isnan(got[seen])) << kernels->name;
        }
      }
    }
  }
}

// The first two pages' sum underflows to a negative zero, to which a third adds a zero.
TEST(Kernels, AttendGivesAZeroTheSameSignInCompany) {
  constexpr size_t kHead = 64, kTokens = 3 * kPageTokens, kPosition = 2 * kPageTokens - 1;
  const uint32_t pages[] = {0, 1, 2};
  std::vector<float> k(kTokens * kHead), v(k.size());
  std::fill_n(v.begin(), kHead, 0x1.8p-126f);
  std::fill_n(v.begin() + kPageTokens * kHead, kHead, -0x1.cp-126f);
  const std::vector<float> q(kAttendRows * kHead);
  for (const CpuKernels* kernels : kernel_sets()) {
    const auto all = kept(*kernels, k, v, DType::kBF16, kHead, kHead);
    const auto run = [&](size_t rows) {
      std::vector<float> out(kAttendRows * kHead), scratch(attend_scratch(kHead));
      AttendTask task;
      task.q = q.data();
      task.q_stride = task.kv_width = task.head_size = task.out_stride = kHead;
      const auto seen = causal(kPosition, rows);
      task.rows = rows;
      task.seen = seen.data();
      task.keys = all.first.data();
      task.values = all.second.data();
      task.dtype = DType::kBF16;
      task.pages = pages;
      task.scale = 0.125f;
      task.out = out.data();
      task.scratch = scratch.data();
      kernels->attend(task);
      out.resize(kHead);
      return out;
    };
    const auto alone = run(1);
    for (const size_t rows : {2, 3, 8}) {
      EXPECT_EQ(first_difference(run(rows), alone), -1) << kernels->name << ": " << rows;
    }
  }
}

}  // namespace
}  // namespace split::test
