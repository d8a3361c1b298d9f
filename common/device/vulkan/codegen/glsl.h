// GLSL from Steps. A kernel's text depends on what it computes, not on sizes, offsets, element
// types or immediate numbers: those are specialisation constants, so that one text (and one SPIR-V
// module, made at build time) serves every layer and every model of an architecture. Only quantised
// matrices have texts of their own.
//
// Binding 0 is the step's symbols; `binds` has the others. Sums over a row go in one order for a
// device: lanes strided over the row, then lanes in pairs (neighbours first).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compile/program.h"
#include "device/vulkan/codegen/constants.h"

namespace split::vulkan {

// A table or cache that exceeds the size limit of one binding is bound in pieces.
inline constexpr uint32_t kTablePieces = 4;
inline constexpr uint32_t kCachePieces = 6;
// Bindings at these rows and columns start at aligned offsets, whatever the sizes.
inline constexpr uint32_t kPieceAlign = 64;

struct Bind {
  enum class Kind : uint8_t {
    kRowwise,  // a row of the slot for each row of the step
    kWhole,    // all of the slot
    kTable,    // piece `piece` of the slot's rows
    kCache,    // all of a cache
    kPartial,  // attention's results for each split
  };
  Kind kind = Kind::kRowwise;
  int slot = -1;
  uint32_t piece = 0;
  bool operator==(const Bind&) const = default;
};

// The work that a matmul's kernel takes over from the steps beside its own.
struct FusedNeighbours {
  // The input that it reads: a slot, a group's result, or attention's results for each split.
  enum class Input : uint8_t { kSlot, kGroup, kSplits };
  Input input = Input::kSlot;
  const Step* group = nullptr;      // kGroup's
  const Step* splits = nullptr;     // kSplits': the attention
  const Step* twin = nullptr;       // a matmul that it computes, too
  const Step* rotation = nullptr;   // rotates its result
  const Step* attention = nullptr;  // stores its keys or values
  // Another matmul that it computes, by a matrix that lies behind its own.
  struct Sibling {
    const Step* step = nullptr;
    const Step* rotation = nullptr;  // rotates its result
    bool puts = false;               // into pages, and nowhere else
  };
  std::vector<Sibling> siblings;
  // Whether lanes have columns by pairs: of the two products, or of a rotation.
  bool in_pairs() const { return twin != nullptr || rotation != nullptr; }
};
// The neighbours that a matmul's kernel takes over, out of those that the program names.
struct Takes {
  bool input = false, twin = false, siblings = false, rotation = false, attention = false;
  auto operator<=>(const Takes&) const = default;
};
FusedNeighbours joined_to(const Program& program, size_t i, const Takes& takes);

// A kernel's text, with what follows from the slots of the Program it was made for.
struct Kernel {
  std::string text;
  std::vector<Bind> binds;          // from binding 1 (groups), or after the matrix's, on
  std::vector<uint32_t> constants;  // from kTapeConstants on
};

// Elements from one row of a slot to the next in device memory: matrices of weights have rows of
// whole chunks of 8.
uint32_t row_stride(const Slot& slot);
// 0: F32, 1: F16, 2: BF16. Throws Error(kDevice) for another.
uint32_t type_code(DType dtype);
// The code of a product's matrix, which may be quantised too: as constants.def has W_TYPE.
uint32_t matrix_code(DType dtype);
// Rows of a table in one piece when a binding has at most `max_range` bytes.
uint32_t table_piece_rows(const Slot& slot, size_t max_range);

// By slot: whether its rows are kept as halves. Empty: none are.
using Halves = std::vector<bool>;
// The temporaries that only matrix products `by_units` read, which take x as halves.
Halves half_slots(const Program& program, const std::function<bool(const Step&)>& by_units);

// `shuffle`: with subgroup shuffles. `halves`: of the program's slots that it writes.
Kernel group_kernel(const Program& program, const Step& step, bool shuffle, size_t max_range,
                    const Halves& halves = {});
// How lanes multiply by blocks: unpacked to floats, by halves' arithmetic or not; or with a row
// that they round to int8, or many rows that int8_round_text() rounded, by lanes or by matrix
// units.
enum class BlockProduct : uint8_t { kFloats, kHalves, kInt8, kInt8Rows, kInt8Units };
// Binding 1 is x, unless it is joined; then the matrix, and the scales of a quantised one; then a
// twin's matrix, bound alike.
Kernel matmul_kernel(const Program& program, const Step& step, const FusedNeighbours& joined,
                     bool shuffle, BlockProduct product, size_t max_range,
                     const Halves& halves = {}, bool dots = false);  // `dots`: of bytes
// Bindings: 1 x, 2 the rounded rows.
std::string int8_round_text();
// The product by matrix units, for many rows or for few; binding 1 is x in halves, 2 the matrix in
// halves, and behind these a twin's. Joins no input.
Kernel matrix_kernel(const Program& program, const Step& step, const FusedNeighbours& joined,
                     bool few, size_t max_range, const Halves& halves);
// `pieces` of each cache: 1 or kCachePieces. Bindings: 1 the keys, 2 the values, 3 the caches.
std::string kv_store_text(uint32_t pieces, bool shuffle);
// A workgroup of attention takes a split, a group of them, or all of a row. Unless `halves`
// is nothing the splits are joined to rows of floats or halves. Bindings: 1 the queries, 2 the
// splits' results or the row's, 3 the caches, and behind these the rows of joined splits, and the
// scores' bias where they are `biased`.
enum class AttentionOf : uint8_t { kSplit, kGroup, kRow };
std::string attention_text(uint32_t pieces, bool shuffle, AttentionOf of,
                           std::optional<bool> halves, bool biased);
// Over caches in bf16, in the CPU's order; bindings are those of joined splits.
std::string bf16_attention_text(uint32_t pieces, bool shuffle, bool halves, bool biased);
// The whole of attention by matrix units. Bindings: 1 the queries, 2 the result in halves, 3 and 4
// the caches, which are halves, 5 the scores' bias.
std::string tiled_attention_text(bool biased);
// Rotary positions of a head, behind its norm or not. Bindings: 1 x, 2 the result, 3 and 4 the
// tables of cosines and sines, 5 the norm's weight. With `puts` x is the keys, 2 their cache, and
// the last binding the values' cache.
std::string rotate_text(bool normed, bool puts);
// The largest of each block of a row, and then the row's k largest. Bindings: 1 x, 2 the blocks'
// largest, 3 the result.
std::string block_max_text();
std::string topk_text();
// The two steps that keep a state of each sequence. Bindings: 1 the sequences' states, by number, 2
// all states, then the step's other inputs in their order, and the result.
std::string conv_rows_text();
std::string delta_text();
// Bindings: 1 x, 2 the result.
std::string head_part_text();

}  // namespace split::vulkan
