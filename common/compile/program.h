// A Program: what a device runs, as plain data. Traced and fused once, planned into one arena,
// replayed for every step. It names its weights and inputs; it knows no device, no file and no
// sequence.
//
//   Slot   a tensor: an input, a weight, an output, or a temporary with its place in the arena
//   Tape   pointwise and reduction ops over one row (or a segment of it), values numbered as they
//   come Step   one kernel: a group of rows (a Tape), a matrix product, attention, or the top k
#pragma once

#include <bit>
#include <string>
#include <vector>

#include "tensor/op.h"
#include "tensor/shape.h"

namespace split {

enum class SlotKind : uint8_t {
  kInput,   // bound at load: hidden states, K and V caches; or a symbol of the step (I32: tokens,
            // positions, out_rows)
  kWeight,  // bound at load
  kOutput,  // bound at load
  kTemp,    // in the arena
};

struct Slot {
  SlotKind kind = SlotKind::kTemp;
  std::string name;  // of inputs, weights and outputs
  DType dtype = DType::kF32;
  Dims dims;  // [C], [N, C], or [kRows | kOutRows, C]
  bool transposed =
      false;  // a matrix [M, K] that a matmul reads as [K, M]; one slot has one way of being read
  // Temporaries: bytes from the arena's start for one row of a step; times the step's largest row
  // count.
  size_t offset = 0;
  bool operator==(const Slot&) const = default;
};

// Where a Tape's value comes from, for row r and column c.
enum class Access : uint8_t {
  kRowwise,    // slot[r, c]
  kVector,     // slot[c]
  kPerRow,     // slot[r, 0]
  kGather,     // slot[index[r], c], index an I32 slot
  kImmediate,  // a number
  kResult,     // the matrix product this tape is the epilogue of
};

struct Operand {
  Access access = Access::kRowwise;
  int slot = -1;
  int index = -1;                                // kGather
  float value = 0;                               // kImmediate
  bool operator==(const Operand& other) const {  // a number by its bits
    return access == other.access && slot == other.slot && index == other.index &&
           std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(other.value);
  }
};

// y = op(x) or op(x, z); operands count first, then instructions: value i is operands[i] or
// instructions[i - operands].
struct Instruction {
  Op op = Op::k_add;
  int x = -1;
  int z = -1;
  bool operator==(const Instruction&) const = default;
};

struct TapeOutput {
  int value = -1;
  int slot = -1;
  bool operator==(const TapeOutput&) const = default;
};

struct Tape {
  std::vector<Operand> operands;
  std::vector<Instruction> instructions;
  std::vector<TapeOutput> outputs;

  bool empty() const { return outputs.empty(); }
  // True when value `i` has one element a row (a reduction, or computed from such values only).
  std::vector<bool> per_row() const;
  bool operator==(const Tape&) const = default;
};

enum class StepKind : uint8_t { kGroup, kMatmul, kAttention, kTopK };

struct Step {
  StepKind kind = StepKind::kGroup;
  int64_t rows = 0;     // kRows or kOutRows
  int64_t columns = 0;  // groups: C; matmul: M; attention: C; top k: 2 k
  // Groups: the work. Matmul: what makes its result into the outputs (Access::kResult is the
  // product).
  Tape tape;
  // Matmul: slots x and w; or a prologue tape whose one output, of slot -1, is x.
  int x = -1, w = -1;
  Tape prologue;
  int64_t inner = 0;  // K
  // Attention: slots. Top k: from slot x, [rows, inner], to slot out.
  int qkv = -1, k_cache = -1, v_cache = -1, out = -1;
  int heads = 0;
  float scale = 0;
  bool operator==(const Step&) const = default;
};

struct Program {
  std::string name;
  std::vector<Slot> slots;
  std::vector<Step> steps;
  size_t arena_row_bytes = 0;  // the arena's bytes for each row of the largest step

  int find(std::string_view slot_name) const;  // -1 when there is none
  bool operator==(const Program&) const = default;
};

// A listing, one line a step, that tests pin: a change of fusion shows as a diff.
std::string to_string(const Program& program);

}  // namespace split
