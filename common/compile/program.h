// A Program: a device's work, as plain data. Traced and fused once, planned into one arena,
// replayed for every step. Names its weights and inputs; knows no device, no file and no sequence.
//
//   Slot   a tensor: an input, a weight, an output, or a temporary with its place in the arena
//   Tape   pointwise and reduction ops over one row (or a segment of it)
//   Step   one kernel: an op of ops.def, or a group of rows (a Tape)
#pragma once

#include <bit>
#include <optional>
#include <string>
#include <vector>

#include "compile/tape.h"
#include "tensor/state_shape.h"

namespace split {

enum class SlotKind : uint8_t {
  kInput,   // bound at load: hidden states, K and V caches; or a symbol of the step (I32: tokens,
            // positions, marks, out_rows)
  kWeight,  // bound at load
  kOutput,  // bound at load
  kTemp,    // in the arena
};

// The numbers of a step that an I32 input is, by its name.
enum class StepInput : uint8_t { kTokens, kPositions, kMarks, kOutRows };
inline constexpr size_t kStepInputs = 4;

struct Slot {
  SlotKind kind = SlotKind::kTemp;
  std::string name;  // name of an input, weight or output
  DType dtype = DType::kF32;
  Dims dims;  // [C], [N, C], or [kRows | kOutRows, C]
  // A matrix [M, K] that a matmul reads as [K, M]; all readers of a slot read it one way.
  bool transposed = false;
  // Temporaries: bytes from the arena's start for one row of a step; times the step's largest row
  // count.
  size_t offset = 0;
  bool operator==(const Slot&) const = default;
};
StepInput step_input_of(const Slot& slot);  // an I32 input's

// How a slot is read or written: for row r and column c of a step, or by its kernel.
struct Access {
  enum Kind : uint8_t {
    kRowwise,    // slot[r, c]
    kVector,     // slot[c]
    kPerRow,     // slot[r, 0]
    kGather,     // slot[index[r], c], index an I32 slot
    kImmediate,  // a number
    kResult,     // the kernel's result, for its epilogue
    kWhole,      // the whole slot, for a kernel's matrix or cache
  };
  Kind kind = kRowwise;
  int index = -1;                               // kGather
  float value = 0;                              // kImmediate
  int64_t first = 0;                            // first of the slot's columns in a kernel's rows
  bool operator==(const Access& other) const {  // a number by its bits
    return kind == other.kind && index == other.index && first == other.first &&
           std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(other.value);
  }
};

struct Operand {
  int slot = -1;
  Access access;
  bool operator==(const Operand&) const = default;
};

using Tape = BasicTape<Operand>;  // a step's: loads stand before ops

struct Step {
  Op op = Op::k_group;  // a kernel's, or k_group: the tape is all there is
  int64_t rows = 0;     // kRows or kOutRows
  int64_t columns = 0;  // columns of a group, or of the kernel's result
  int64_t inner = 0;    // columns of a kernel's first input
  // A kernel's operands and numbers, by the names of the op's row in ops.def.
  std::vector<Operand> inputs;
  std::vector<double> attributes;
  // Where a kernel without an epilogue leaves its result.
  std::vector<Operand> outputs;
  // A group's work; or a kernel's epilogue, which also brings its result to the outputs.
  Tape tape;
  // Number of the next matmuls if only they read this step's result. A device may let them make
  // their x themselves, by a group or by merging an attention's splits. This step and those named
  // below can also be run by themselves.
  size_t joins = 0;
  // The neighbours, by index, whose work a device may do in this step's kernel. For a matmul:
  std::optional<size_t> twin;      // a matmul of the same x that only its epilogue reads,
  std::optional<size_t> rotation;  // the rotation that alone reads its result
  // The later matmuls of the same x that differ only in their columns and in their weights, which
  // no other step reads: one matmul by all of the matrices would compute them all.
  std::vector<size_t> siblings;
  // The attention whose keys or values this may put into their pages: set for a rotation, and a
  // matmul that may do it or makes them itself.
  std::optional<size_t> attention;
  // Whether this step reads results of steps since the last one that waits. A step that does not
  // wait can run beside those before it: their memory is apart.
  bool waits = true;

  // Slots, and an attribute: step.in(inputs::matmul::w), step.attribute<float>(...).
  int in(size_t input) const { return inputs[input].slot; }
  int out() const { return outputs[0].slot; }
  template <typename Number>
  Number attribute(size_t i) const {
    return static_cast<Number>(attributes[i]);
  }
  bool operator==(const Step&) const = default;
};

// The heads of an attention's step.
struct Heads {
  explicit Heads(const Step& attention)
      : count(attention.attribute<size_t>(attributes::attention::heads)),
        kv(attention.attribute<size_t>(attributes::attention::kv_heads)),
        dim(attention.attribute<size_t>(attributes::attention::head_dim)),
        window(attention.attribute<uint32_t>(attributes::attention::window)),
        both_ways(attention.attribute<int>(attributes::attention::causal) == 0),
        biased(attention.in(inputs::attention::bias) >= 0) {}
  size_t width() const { return count * dim; }  // columns of a query, and of the result
  size_t kv_width() const { return kv * dim; }  // columns of a key or value
  size_t group() const { return count / kv; }   // consecutive heads that share a key

  size_t count, kv, dim;  // heads of queries, of keys and values, channels of each
  uint32_t window;        // keys that a row sees at most; 0: all
  bool both_ways;         // the window holds as many keys behind the row
  bool biased;            // scores, by their keys' places beside the row's
};

// The operands and numbers of a rotation's step, whose heads may be normed first.
struct Turn {
  explicit Turn(const Step& step)
      : normed(step.op == Op::k_norm_rotate),
        x(step.inputs[0]),
        weight(normed ? step.in(inputs::norm_rotate::weight) : -1),
        cos(step.in(normed ? size_t{inputs::norm_rotate::cos} : size_t{inputs::rotate::cos})),
        sin(step.in(normed ? size_t{inputs::norm_rotate::sin} : size_t{inputs::rotate::sin})),
        heads(step.attribute<size_t>(0)),
        head_dim(static_cast<size_t>(step.columns) / heads),
        eps(normed ? step.attribute<float>(attributes::norm_rotate::eps) : 0),
        plus(normed ? step.attribute<float>(attributes::norm_rotate::plus) : 0) {}

  bool normed;
  const Operand& x;
  int weight, cos, sin;  // slots; -1 for tables: nothing turns
  size_t heads, head_dim;
  float eps, plus;
};

// The state of a step that keeps one.
inline StateShape state_of(const Step& step) {
  const auto number = [&](size_t i) { return step.attribute<size_t>(i); };
  return {number(attributes::delta::key_heads), number(attributes::delta::value_heads),
          number(attributes::delta::key_dim),   number(attributes::delta::value_dim),
          number(attributes::delta::taps),      number(attributes::delta::tiled) != 0};
}

struct Program {
  std::string name;
  std::vector<Slot> slots;
  std::vector<Step> steps;
  size_t arena_row_bytes = 0;  // the arena's bytes for each row of the largest step

  int find(std::string_view slot_name) const;  // -1: no such slot
  bool operator==(const Program&) const = default;
};

// Whether a rotation turns all channels of its heads.
bool turns_whole_heads(const Program& program, const Step& rotation);

// A step that reads a slot, and by which input of its kernel.
struct Reader {
  size_t step = 0;
  size_t input = kInTape;
  static constexpr size_t kInTape = ~size_t{0};
};
std::vector<Reader> readers(const Program& program, int slot);
// The step before whose result step i, a matmul, may make itself.
std::optional<size_t> joined_before(const Program& program, size_t i);
// The slots that a step reads, and the slots that it writes.
std::vector<int> slots_read(const Step& step);
std::vector<int> results(const Step& step);

// A listing, one line a step, that tests pin: a change of fusion shows as a diff. A plus stands
// between two steps that may be one kernel.
std::string to_string(const Program& program);

}  // namespace split
