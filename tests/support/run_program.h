// Runs one Program on a device over values given by name, for tests that state a graph and look at
// its numbers.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "device/device.h"

namespace split::test {

using Values = std::map<std::string, std::vector<float>>;

// A step without sequences. The vectors for slots of rows hold `rows` (or out_rows.size()) rows.
struct StepValues {
  uint32_t rows = 0;
  Values values;  // of inputs and weights
  std::vector<int32_t> tokens, positions;
  std::vector<uint32_t> out_rows;
  std::vector<int32_t> marks = {};
};

// The program's outputs by name.
inline Values run_program(Device& device, const Program& program, const StepValues& step) {
  Limits limits;
  limits.rows = step.rows;
  limits.sequences = 1;
  limits.pages_per_sequence = 1;
  limits.pages = 1;
  limits.arena_row_bytes = program.arena_row_bytes;
  const auto workspace = device.workspace(limits);
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<std::vector<std::byte>> stored;  // what devices may keep pointing at
  std::vector<Binding> bindings;
  std::map<std::string, std::pair<Buffer*, size_t>> outputs;  // and floats
  for (const Slot& slot : program.slots) {
    if (slot.kind == SlotKind::kTemp || slot.dtype == DType::kI32) continue;
    size_t floats = 1;
    for (const int64_t n : slot.dims) {
      floats *= n == kRows ? step.rows : n == kOutRows ? step.out_rows.size() : size_t(n);
    }
    if (slot.kind == SlotKind::kOutput) {
      buffers.push_back(device.alloc(floats * sizeof(float)));
      outputs[slot.name] = {buffers.back().get(), floats};
    } else {
      const std::vector<float>& from = step.values.at(slot.name);
      CHECK(from.size() == floats);
      const Bytes bytes = std::as_bytes(std::span(from));
      if (slot.kind == SlotKind::kWeight) {
        stored.emplace_back(floats * dtype_size(slot.dtype));
        convert({DType::kF32, slot.dims, bytes}, slot.dtype, stored.back());
        buffers.push_back(device.upload(slot, {slot.dtype, slot.dims, stored.back()}));
      } else {
        buffers.push_back(device.alloc(bytes.size()));
        device.write(*buffers.back(), 0, bytes);
      }
    }
    bindings.push_back({slot.name, buffers.back().get()});
  }
  const auto executable = device.load(program, *workspace, bindings);
  const std::vector<uint32_t> sequences(step.rows, 0), tables(1, 0);
  std::vector<int32_t> positions = step.positions;
  positions.resize(step.rows);
  RowBatch batch;
  batch.rows = step.rows;
  batch.tokens = step.tokens;
  batch.positions = positions;
  batch.marks = step.marks;
  batch.sequences = sequences;
  batch.page_tables = tables;
  batch.out_rows = step.out_rows;
  Executable* const programs[] = {executable.get()};
  device.run(*workspace, programs, batch);
  Values result;
  for (const auto& [name, output] : outputs) {
    result[name].resize(output.second);
    device.read(*output.first, 0, std::as_writable_bytes(std::span(result[name])));
  }
  return result;
}

// Equal bits, or both NaN: whose payload no standard fixes.
inline bool same_bits(float a, float b) {
  uint32_t x = 0, y = 0;
  std::memcpy(&x, &a, sizeof x);
  std::memcpy(&y, &b, sizeof y);
  return x == y || (a != a && b != b);
}

// The first place where two differ, -1 when none does.
inline ptrdiff_t first_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return static_cast<ptrdiff_t>(i);
  }
  return -1;
}

}  // namespace split::test
