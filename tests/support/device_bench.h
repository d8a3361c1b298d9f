// Programs on any device with everything they name, beside the reference's: the values that tests
// of devices share, and how results are compared.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <list>
#include <numeric>

#include "device/device.h"
#include "io/quantize.h"
#include "support/reference_device.h"
#include "tensor/blocks.h"

namespace split::test {

inline float noise(uint32_t i, float scale = 1.0f) {
  i ^= i >> 16;
  i *= 0x7feb352du;
  i ^= i >> 15;
  i *= 0x846ca68bu;
  i ^= i >> 16;
  return (static_cast<float>(i & 0xffff) / 32768.0f - 1.0f) * scale;
}

// A matrix in super-blocks of noise, whose values are of about this size at most. Nothing of ours
// makes them of floats.
inline OwnedTensor super_blocks(DType dtype, const Dims& dims, float size) {
  OwnedTensor made;
  made.storage.resize(tensor_bytes(dtype, dims).value());
  for (uint32_t i = 0; i < made.storage.size(); ++i) {
    made.storage[i] = static_cast<std::byte>(static_cast<int>(noise(i + 5, 128.0f)) & 255);
  }
  // The largest number times the largest scale.
  const float largest = dtype == DType::kQ6_K ? 32.0f * 127.0f : 15.0f * 63.0f;
  const auto put = [&](size_t at, float value) {
    const uint16_t half = f32_to_f16(value);
    std::memcpy(made.storage.data() + at, &half, sizeof half);
  };
  for (size_t at = 0; at < made.storage.size(); at += block_bytes(dtype)) {
    const float d = size / largest * (1.5f + noise(static_cast<uint32_t>(at), 0.5f));
    if (dtype == DType::kQ6_K) {
      put(at + 208, d);
    } else {
      put(at, d);
      put(at + 2, d * 8);
    }
  }
  made.view = {dtype, dims, made.storage};
  return made;
}

// Programs on a device with everything they name, and the same in the reference.
class Bench {
 public:
  Bench(Device& device, const Limits& limits) : device_(device), limits_(limits) {
    limits_.sequences = std::max(limits_.sequences, 1u);
  }

  void add(const Program& program, DType cache = DType::kF32) {
    limits_.arena_row_bytes = std::max(limits_.arena_row_bytes, program.arena_row_bytes);
    programs_.push_back(program);
    cache_ = cache;
  }
  // Values of a weight (rounded to its type) or of a rowwise input.
  void set(const std::string& name, std::vector<float> values) { given_[name] = std::move(values); }

  void load() {
    workspace_ = device_.workspace(limits_);
    device_.prepare(programs_, *workspace_);
    for (const Program& program : programs_) {
      std::vector<Binding> bindings;
      for (const Slot& slot : program.slots) {
        if (slot.kind == SlotKind::kTemp || slot.dtype == DType::kI32) continue;
        const std::string key = slot.dims.size() == 1 && slot.kind == SlotKind::kInput
                                    ? program.name + slot.name
                                    : slot.name;
        if (buffers_.count(key) == 0) buffers_[key] = make(slot);
        bindings.push_back({slot.name, buffers_[key].get()});
      }
      executables_.push_back(device_.load(program, *workspace_, bindings));
    }
  }

  void run(const RowBatch& batch) {
    std::vector<Executable*> all;
    for (const auto& executable : executables_) all.push_back(executable.get());
    device_.run(*workspace_, all, batch);
  }
  void run_reference(const RowBatch& batch) {
    for (const Program& program : programs_) reference.run(program, batch);
  }

  // Other values of a rowwise input.
  void write(const std::string& name, const std::vector<float>& values) {
    device_.write(*buffers_.at(name), 0, std::as_bytes(std::span(values)));
    reference.values[name] = {values.begin(), values.end()};
  }
  std::vector<float> read(const std::string& name, size_t count) {
    std::vector<float> values(count);
    device_.read(*buffers_.at(name), 0, std::as_writable_bytes(std::span(values)));
    return values;
  }
  Buffer* buffer(const std::string& name) { return buffers_.at(name).get(); }
  // A weight's values as its type holds them.
  const std::vector<float>& rounded(const std::string& name) const { return rounded_.at(name); }

  Reference reference;

 private:
  std::unique_ptr<Buffer> make(const Slot& slot) {
    if (slot.kind == SlotKind::kWeight) {
      const std::vector<float>& values = given_.at(slot.name);
      const TensorView view{DType::kF32, slot.dims, std::as_bytes(std::span(values))};
      const bool blocks = is_quantised(slot.dtype);
      const OwnedTensor& stored = storage_.emplace_back(
          is_k_quant(slot.dtype)
              ? super_blocks(slot.dtype, slot.dims, *std::ranges::max_element(values))
          : blocks ? quantised(view, slot.dtype, false, slot.name)
                   : converted(view, slot.dtype));
      const OwnedTensor wide =
          blocks ? dequantised(stored.view) : converted(stored.view, DType::kF32);
      std::vector<float>& rounded = rounded_[slot.name];
      rounded.resize(values.size());
      std::memcpy(rounded.data(), wide.storage.data(), wide.storage.size());
      reference.values[slot.name] = {rounded.begin(), rounded.end()};
      return device_.upload(slot, stored.view);
    }
    if (slot.dims.size() == 1) return device_.alloc_pages(limits_, slot.dims[0], cache_);
    auto buffer = device_.alloc(size_t{limits_.rows} * static_cast<size_t>(slot.dims[1]) * 4);
    if (const auto at = given_.find(slot.name); at != given_.end()) {
      device_.write(*buffer, 0, std::as_bytes(std::span(at->second)));
      reference.values[slot.name] = {at->second.begin(), at->second.end()};
    }
    return buffer;
  }

  Device& device_;
  Limits limits_;
  DType cache_ = DType::kF32;
  std::vector<Program> programs_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<std::unique_ptr<Executable>> executables_;
  std::map<std::string, std::unique_ptr<Buffer>> buffers_;
  std::map<std::string, std::vector<float>> given_;
  std::list<OwnedTensor> storage_;
  std::map<std::string, std::vector<float>> rounded_;
};

inline void expect_close(const std::vector<float>& got, const std::vector<double>& want,
                         const std::string& what, double absolute = 1e-6, double relative = 1e-5) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto w = static_cast<double>(static_cast<float>(want[i]));
    if (std::isnan(w) && std::isnan(got[i])) continue;
    if (std::isinf(w) && double{got[i]} == w) continue;
    const double bound = std::max(absolute, relative * std::fabs(w));
    ASSERT_LE(std::fabs(got[i] - w), bound)
        << what << " [" << i << "] got " << got[i] << " want " << w;
  }
}

// Rows of one sequence, for programs without attention.
inline RowBatch rows_only(uint32_t rows) {
  static const std::vector<int32_t> positions(512);
  static const std::vector<uint32_t> sequences(512);
  CHECK(rows <= positions.size());
  RowBatch batch;
  batch.rows = rows;
  batch.positions = std::span(positions).first(rows);
  batch.sequences = std::span(sequences).first(rows);
  return batch;
}

// Runs rows of "x" through the program in slices of `slice`, and returns output "y".
inline std::vector<float> in_slices(Bench& bench, const std::vector<float>& x, size_t columns,
                                    size_t out, uint32_t rows, uint32_t slice,
                                    Phase phase = Phase::kPrompt) {
  std::vector<float> result;
  for (uint32_t first = 0; first < rows; first += slice) {
    const uint32_t count = std::min(slice, rows - first);
    RowBatch batch = rows_only(count);
    batch.phase = phase;
    std::vector<float> y(count * out);
    batch.in = bench.buffer("x");
    batch.in_bytes = std::as_bytes(std::span(x).subspan(first * columns, count * columns));
    batch.out = bench.buffer("y");
    batch.out_bytes = std::as_writable_bytes(std::span(y));
    bench.run(batch);
    result.insert(result.end(), y.begin(), y.end());
  }
  return result;
}

inline void expect_equal_bits(const std::vector<float>& a, const std::vector<float>& b,
                              const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
        << what << " [" << i << "] " << a[i] << " and " << b[i];
  }
}

// Rows of two sequences, pages handed out in no order.
struct Steps {
  static constexpr uint32_t kPages = 48, kTable = 20;
  std::vector<uint32_t> tables = std::vector<uint32_t>(2 * kTable);
  std::vector<int32_t> positions, tokens;
  std::vector<uint32_t> sequences, out_rows;
  std::vector<KeyRange> seen;

  Steps() {
    for (uint32_t i = 0; i < tables.size(); ++i) tables[i] = i * 29 % (kPages - 1) + 1;
  }
  static Limits limits(uint32_t rows) {
    Limits limits;
    limits.rows = rows;
    limits.sequences = 2;
    limits.pages_per_sequence = kTable;
    limits.pages = kPages;
    return limits;
  }
  RowBatch batch(uint32_t sequence, int32_t first, uint32_t count) {
    positions.clear(), sequences.clear(), tokens.clear(), seen.clear();
    add(sequence, first, count);
    return batch();
  }
  void add(uint32_t sequence, int32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      positions.push_back(first + static_cast<int32_t>(i));
      sequences.push_back(sequence);
      seen.push_back({0, static_cast<uint32_t>(positions.back()) + 1});
      tokens.push_back(static_cast<int32_t>(
          (static_cast<uint32_t>(positions.back()) * 37 + sequence * 11) % 61));
    }
  }
  RowBatch batch() {
    RowBatch result;
    result.rows = static_cast<uint32_t>(positions.size());
    result.positions = positions;
    result.sequences = sequences;
    result.seen = seen;
    result.tokens = tokens;
    result.page_tables = tables;
    out_rows.resize(positions.size());
    std::iota(out_rows.begin(), out_rows.end(), 0u);
    result.out_rows = out_rows;
    return result;
  }
};

}  // namespace split::test
