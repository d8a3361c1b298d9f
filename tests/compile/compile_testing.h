// Helpers that the tests of compile/ share: a model to compile and an independent check of a
// Program.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "compile/compile.h"
#include "models/model.h"

namespace split::test {

inline constexpr FuseRules kNothing{
    .groups = false, .epilogue = false, .prologue = false, .kv_store = false};
inline constexpr FuseRules kWithPrologue{.prologue = true};
inline constexpr FuseRules kWithNeighbours{
    .prologue = true, .rotation = true, .twins = true, .siblings = true};

inline std::unique_ptr<Model> demo() {
  return make_model(
      read_file(std::string(SPLIT_SOURCE_DIR) + "/weights/demo/config.json", 1 << 20));
}

inline DType half(const std::string&) { return DType::kF16; }

inline void read_by(const Tape& tape, std::vector<int>& slots) {
  for (const auto& value : tape.values) {
    slots.push_back(value.load.slot);
    slots.push_back(value.load.access.index);
  }
}

inline std::vector<int> read_by(const Step& step) {
  std::vector<int> slots;
  for (const Operand& input : step.inputs) slots.push_back(input.slot);
  read_by(step.tape, slots);
  std::erase(slots, -1);
  return slots;
}

inline std::vector<int> written_by(const Step& step) {
  std::vector<int> slots;
  for (const Operand& output : step.outputs) slots.push_back(output.slot);
  for (const TapeOutput& output : step.tape.outputs) slots.push_back(output.slot);
  std::erase(slots, -1);
  return slots;
}

// A tape reads and writes rows of its own width, or one value a row.
inline bool widths_fit(const Program& program, const Tape& tape, int64_t columns) {
  const auto width = [&](int slot) { return program.slots[static_cast<size_t>(slot)].dims.back(); };
  for (const auto& value : tape.values) {
    const Operand& operand = value.load;
    if (operand.slot < 0) continue;
    if (width(operand.slot) != (operand.access.kind == Access::kPerRow ? 1 : columns)) return false;
  }
  for (const TapeOutput& output : tape.outputs) {
    const int64_t own = tape.of(output).full ? columns : 1;
    if (output.slot >= 0 && width(output.slot) != own) return false;
  }
  return true;
}

// Plays the steps over the arena, byte by byte: a temporary is read only where its last writer was
// its own step and nobody has written over it since. Empty when all is well.
inline std::string wrong_with(const Program& program) {
  std::map<int, size_t> writer;  // of outputs
  std::vector<int> owner(program.arena_row_bytes, -1);
  std::set<int> held, made;  // by the steps since the last that waits
  const auto read_by_all = [&](const Step& step) {
    for (const int s : read_by(step)) held.insert(s);
  };
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
    if (!widths_fit(program, step.tape, step.columns)) {
      return cat("step ", i, " has operands of another width");
    }
    if (step.waits) {
      held.clear();
      made.clear();
    }
    const auto read = read_by(step);
    for (const int s : read) {
      if (made.contains(s)) return cat("step ", i, " reads t", s, ", which is made beside it");
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
    // A product that does the work of its siblings, or rotates what it makes, leaves their results
    // while others are read.
    std::vector<int> made_now = written_by(step);
    std::vector<size_t> taken = step.siblings;
    for (const size_t sibling : step.siblings) {
      if (const auto rotation = program.steps[sibling].rotation) taken.push_back(*rotation);
    }
    if (step.rotation) taken.push_back(*step.rotation);
    for (const size_t other : taken) {
      const std::vector<int> results = written_by(program.steps[other]);
      made_now.insert(made_now.end(), results.begin(), results.end());
      for (const int s : results) {
        const Slot& slot = program.slots[static_cast<size_t>(s)];
        if (slot.kind != SlotKind::kTemp) continue;
        std::fill_n(owner.begin() + static_cast<ptrdiff_t>(slot.offset), size(slot), s);
      }
    }
    // A step has no order within, nor has a group with the steps that it joins, nor one that does
    // not wait with those before it: what they read and make must still be there when they end.
    const auto joined = joined_before(program, i);
    if (step.op == Op::k_matmul && joined && program.steps[*joined].op == Op::k_group) {
      read_by_all(program.steps[*joined]);
    }
    read_by_all(step);
    for (const int s : written_by(step)) made.insert(s);
    held.insert(made_now.begin(), made_now.end());
    for (const int s : held) {
      if (program.slots[static_cast<size_t>(s)].kind == SlotKind::kTemp && !intact(s)) {
        return cat("step ", i, " writes over t", s, ", which is in use");
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

// A copy of the program with every temporary at a place of its own.
inline Program without_reuse(Program program) {
  program.arena_row_bytes = 0;
  for (Slot& slot : program.slots) {
    if (slot.kind != SlotKind::kTemp) continue;
    slot.offset = program.arena_row_bytes;
    program.arena_row_bytes += (static_cast<size_t>(slot.dims[1]) * 4 + 63) / 64 * 64;
  }
  return program;
}

}  // namespace split::test
