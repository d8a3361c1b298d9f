// The CPU's inner loops, compiled once for each instruction set (kernels.cpp; rounded.cpp if a set
// differs from another in these alone) and chosen at run time. Every set sums in one order with
// fused multiply-adds, so that all of them give the same bits (but for the products in bf16 of one
// set: StepTask).
//
// Orders. Matrix [K, M]: each result is one chain over k = 0, 1, ... Matrix [M, K] ("transposed"):
// 16 chains, k modulo 16, then a tree (8, 4, 2, 1). Rows of a reduction: 256 chains, then a tree
// (128, 64, .. 1). Rows rounded to bf16 or to blocks of int8: StepTask. None depends on the number
// of rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cpu/kernels/state/state_tasks.h"
#include "device/device.h"
#include "tensor/op.h"
#include "tensor/shape.h"

namespace split {

// y [rows, columns] = x [rows, K] times columns [first, first + columns) of a matrix. matmul()
// reads a packed one (below), matmul_transposed() one in place.
struct MatmulTask {
  const float* x = nullptr;  // [rows, inner], dense
  size_t rows = 0;
  const std::byte* w = nullptr;  // the whole matrix
  DType dtype = DType::kF32;     // F32, F16 or BF16
  size_t inner = 0;              // K
  size_t width = 0;              // M: all columns of the matrix
  size_t first = 0;              // a panel's first column
  size_t columns = 0;            // at most kTaskColumns
  float* y = nullptr;            // its rows have room for whole panels
  size_t y_stride = 0;           // floats from one row to the next
  float* panel = nullptr;        // scratch of kPanelFloats
};
inline constexpr size_t kPanelColumns = 48;  // three 512-bit vectors: tiles are 8 rows high
inline constexpr size_t kPanelDepth = 256;   // K of a widened panel: 48 KiB, a part of L2
inline constexpr size_t kPanelFloats = kPanelColumns * kPanelDepth;
inline constexpr size_t kTaskColumns = 2 * kPanelColumns;

// Packs a matrix [K, M] in matmul()'s order: panels of kPanelColumns columns, one after another,
// each [K, columns of the panel] and dense; the last may be narrower. Type and size stay. One call
// does rows [first, last) of K.
void pack_matrix(const std::byte* w, DType dtype, size_t inner, size_t width, size_t first,
                 size_t last, std::byte* packed);

// A product of rows rounded to bf16 (to nearest even) by a matrix in BF16, Q8_0 or Q4_0, which is
// packed in strips. K goes in steps of kBlock, the last filled up with zeros. A step sums two
// chains from zero, over its even and its odd k, and adds the two, like TDPBF16PS of AMX. For BF16
// the result is the chain of these sums; for blocks a chain of fused multiply-adds: each sum times
// its block's scale. Denormals count as zeros on x86, and everywhere values of rows below 2^-50; in
// rows of a product by blocks values from 2^48 on count as infinite. The set "avx512bf16" has an
// order of its own, which VDPBF16PS computes in half the time: one chain over all pairs, the odd k
// of each first; for blocks a step's sum is such a chain, from zero, of rows without that bound.
// Its own bits pay on Zen 4 (commit 5e37fd9): a prompt in bf16 873 -> 1,761 tokens/s, 32 sequences
// 575 -> 1,038. On a Xeon with AMX it is slower than "vnni", and never chosen.
//
// Or a product of rows rounded to blocks of int8 (RowStep), by a matrix in blocks or super-blocks:
// tests/support/exact/specification.h is its specification. A step sums whole numbers, exactly; a
// segment is the chain of eight steps, at absolute multiples of eight: each sum times the product
// of the matrix's and the row's scale; the result is the chain of segments. For Q6_K a sum is s
// times that of each half, which a float holds exactly; for Q4_K another term subtracts dmin m
// times the sum of the row's numbers. Nothing is fused.
enum class Rounding : uint8_t { kBF16, kInt8 };
struct StepTask {
  const std::byte* x = nullptr;  // from RoundedKernels::Steps::round
  size_t rows = 0;
  const std::byte* w = nullptr;  // the whole matrix
  DType dtype = DType::kBF16;    // BF16, Q8_0 or Q4_0; for rows in int8 Q4_K or Q6_K too
  bool cached = false;           // just written: no prefetch needed
  size_t inner = 0;              // K
  size_t first = 0;              // a strip's first column
  size_t columns = 0;            // at most kTaskColumns
  float* y = nullptr;            // its rows have room for whole strips
  size_t y_stride = 0;           // floats from one row to the next
  std::byte* scratch = nullptr;  // kStepScratch bytes, on a cache line
};
// Rounds some columns of one row for the product. The first column is a multiple of kBlock, and so
// is the count, unless it reaches the row's end; the rest is padded with zeros.
struct RoundTask {
  const float* from = nullptr;  // column `first`
  size_t inner = 0;             // K
  size_t row = 0;
  size_t first = 0;
  size_t count = 0;
  std::byte* x = nullptr;  // all rows, which begin at rounded_bytes()
};
inline constexpr size_t kStripColumns = 32;
inline constexpr size_t kStepScratch = 32 << 10;
constexpr size_t steps_of(size_t inner) { return (inner + kBlock - 1) / kBlock; }
// Bytes of the scales before the numbers in a strip's step, and of the whole step: Q4_K has halves
// d and dmin, bytes s and m [kStripColumns] each; Q6_K halves d and twice signed bytes s.
constexpr size_t step_scales(DType dtype) {
  return dtype == DType::kBF16   ? 0
         : dtype == DType::kQ4_K ? kStripColumns * 6
         : dtype == DType::kQ6_K ? kStripColumns * 4
                                 : kStripColumns * sizeof(uint16_t);
}
constexpr size_t step_bytes(DType dtype) {
  const size_t numbers = kStripColumns * kBlock;
  return dtype == DType::kBF16                            ? 2 * numbers
         : dtype == DType::kQ8_0 || dtype == DType::kQ6_K ? numbers + step_scales(dtype)
                                                          : numbers / 2 + step_scales(dtype);
}
// A step of a row in int8: numbers times a scale, the largest of which is 127 or -127.
inline constexpr size_t kStepSums = 2;
struct RowStep {
  int8_t numbers[kBlock];
  float scale;
  int16_t sums[kStepSums];  // sums of the numbers' halves
};
// Bytes before row `rows`, a multiple of 16, of rows rounded, `step` bytes each step.
constexpr size_t rounded_bytes(size_t rows, size_t inner, size_t step) {
  return rows * steps_of(inner) * step;
}
inline constexpr size_t kMostRounded = kBlock * sizeof(float);  // bytes of a step
constexpr size_t strips_of(size_t width) { return (width + kStripColumns - 1) / kStripColumns; }

// Packs strip `strip` of a matrix of `width` columns: one step after another, each the scales
// [kStripColumns] and then, for each sixteen columns,
//   BF16  [kBlock / 2][16] pairs: k = 2 p, then 2 p + 1
//   Q8_0  [kBlock][16] bytes
//   Q4_0  [kBlock / 8][16] words; word g has k = 8 g + 2 p at bit 4 p, 8 g + 2 p + 1 at 16 + 4 p
// for rows in int8, fours of k together,
//   Q8_0  [kBlock / 4][16][4] bytes; of Q6_K 32 more than a number is
//   Q4_0  [kBlock / 8][16][4] bytes; those of group g have k = 8 g + i below, 8 g + 4 + i above
// Super-blocks have their numbers like these two.
// The last strip is filled up with zeros. A matrix in blocks has the columns as its rows, and so
// has one in BF16 if `transposed`.
void pack_strip(const std::byte* w, DType dtype, Rounding rounding, bool transposed, size_t inner,
                size_t width, size_t strip, std::byte* packed);

// Keys and values in BF16 lie in a tile's order: a page of keys is [channels / 2] rows of sixteen
// pairs, one a token: channels 2 p and 2 p + 1. A page of values is, for each sixteen channels,
// [kPageTokens / 2] rows of sixteen pairs, one a channel: tokens 2 p and 2 p + 1. In Q8_0 each step
// of channels has the scales of its sixteen tokens and then bytes, keys' [kBlock][16] tokens,
// values' for each sixteen channels [kPageTokens][16]. A head has whole steps of channels and takes
// as many bytes of both. Of other types a page is [heads, kPageTokens, head_size].
//
// Keys, or values, of some rows of one page: whole heads, or whole steps where steps lie together.
struct StoreKvTask {
  const float* from = nullptr;  // [rows, channels], `stride` floats apart
  size_t stride = 0;
  size_t rows = 0;
  size_t slot = 0;  // the first row's: 0 .. kPageTokens - 1
  size_t channels = 0;
  size_t head_size = 0;
  DType dtype = DType::kF32;
  bool values = false;
  std::byte* page = nullptr;  // from the first of the channels on
};

// Attends some rows of some heads of one sequence: row r sees the keys [first, end) of seen[r], in
// splits that begin at multiples of kSplitKeys. Ranges begin and end in the rows' order. Over keys
// and values in BF16 or Q8_0, queries and weights are rounded to bf16 too, and summed like
// StepTask: scores in steps of 32 channels, values in steps of a page ("avx512bf16" sums a step
// like one of blocks). The scales of values are in the weights before they are rounded.
struct AttendTask {
  const float* q = nullptr;  // [rows, heads, group, head_size], q_stride floats from row to row
  size_t q_stride = 0;
  size_t rows = 0;                  // at most attend_rows(group)
  const KeyRange* seen = nullptr;   // [rows]
  const std::byte* keys = nullptr;  // all pages
  const std::byte* values = nullptr;
  DType dtype = DType::kF32;        // F32, F16, BF16 or Q8_0
  const uint32_t* pages = nullptr;  // the sequence's
  size_t kv_width = 0;              // channels of a key, over all heads
  size_t heads = 1;                 // heads of keys and values,
  size_t group = 1;                 // each shared by as many queries of a row
  size_t head_offset = 0;           // the first head's: h * head_size
  size_t head_size = 0;
  float scale = 0;
  float cap = 0;  // scaled scores become cap * tanh(score / cap); 0: unchanged
  // Bias of a head of queries, added to scores: row r and key k have bias[k - r], the next head's
  // is bias_stride floats on. Null: none. Vectors of sixteen keys are read whole.
  const float* bias = nullptr;
  size_t bias_stride = 0;
  float* out = nullptr;  // [rows, heads, group, head_size], out_stride floats from row to row
  size_t out_stride = 0;
  float* scratch = nullptr;  // attend_scratch() floats
};
inline constexpr size_t kAttendRows = 16;
constexpr size_t attend_rows(size_t group) { return group < kAttendRows ? kAttendRows / group : 1; }
constexpr size_t size_of(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }  // floats, halves
// Bytes of `n` channels of a key or value, whole blocks of them.
constexpr size_t kv_bytes(DType dtype, size_t n) {
  return dtype == DType::kQ8_0 ? n / kBlock * 34 : n * size_of(dtype);
}
constexpr size_t attend_scratch(size_t head_size) {
  const size_t padded = (head_size + 15) / 16 * 16;
  return (kPageTokens + 3 * kAttendRows) * padded + 2 * kAttendRows * kSplitKeys;
}

// Turns one row's heads by the tables' row, each normed first if there is a weight: y may be x.
struct RotateTask {
  const float* x = nullptr;  // [heads, head_size]
  float* y = nullptr;
  const float* cos = nullptr;  // [half]
  const float* sin = nullptr;
  size_t half = 0;  // so many pairs of leading channels turn, at most head_size / 2
  size_t heads = 0;
  size_t head_size = 0;
  const float* weight = nullptr;  // [head_size], or null
  float eps = 0;
  float plus = 0;            // added to each weight
  float* scratch = nullptr;  // [head_size]
};

// The kernels of rounded rows, and of keys and values: an instruction set with dot products of bf16
// or of bytes has its own.
struct RoundedKernels {
  // Rounds rows into the product's order; and the product.
  struct Steps {
    void (*round)(const RoundTask& task);
    void (*matmul)(const StepTask& task);
    size_t step;  // bytes of a rounded step of a row
    size_t part;  // steps of K for all rows and columns at a time; 0: all
  };
  // `few`: by fused multiply-adds; `many`, from many_from rows on (0: never): by tiles, with equal
  // bits, or by pairs.
  struct ByRows {
    Steps few, many;
    size_t many_from;
  };
  ByRows bf16, blocks;  // Rounding::kBF16, by the matrix's type
  Steps int8;           // Rounding::kInt8
  const Steps& steps(Rounding rounding, DType dtype, size_t rows) const {
    if (rounding == Rounding::kInt8) return int8;
    const ByRows& of = dtype == DType::kBF16 ? bf16 : blocks;
    return of.many_from > 0 && rows >= of.many_from ? of.many : of.few;
  }
  // Turns a strip in blocks into BF16: each number times its scale, rounded to nearest even. Dearer
  // for a weight than a product in blocks, cheaper for a row. `packing`: the rows it is packed for.
  void (*dequantise)(const std::byte* strip, DType dtype, Rounding packing, size_t steps,
                     std::byte* to);
  void (*store_kv)(const StoreKvTask& task);
  void (*attend_rounded)(const AttendTask& task);  // over keys and values in BF16 or Q8_0
};

struct CpuKernels : RoundedKernels {
  const char* name;
  bool rounds_products;  // a product is rounded before it is added
  bool by_pairs;         // products of bf16 are summed by pairs: an order of their own
  using Unary = void (*)(const float* x, float* y, size_t n);
  using Binary = void (*)(const float* x, const float* z, float* y, size_t n);
  using BinaryBy = void (*)(const float* x, float z, float* y, size_t n);
  // y [rows] of rows of n numbers, `stride` apart.
  using Reduce = void (*)(const float* x, size_t stride, size_t rows, size_t n, float* y);
  // Null for ops of another kind.
  ByOp<Unary> unary;
  ByOp<Binary> binary;
  ByOp<BinaryBy> binary_by;  // by one number
  ByOp<Reduce> reduce;
  void (*matmul)(const MatmulTask& task);
  void (*matmul_transposed)(const MatmulTask& task);
  // `int8`: of a Program whose rows are all rounded to int8.
  void attend(const AttendTask& task, bool int8 = false) const {
    const bool rounded = task.dtype == DType::kBF16 || task.dtype == DType::kQ8_0;
    const auto by = !rounded ? attend_floats : int8 ? attend_by_chains : attend_rounded;
    by(task);
  }
  void (*attend_by_chains)(const AttendTask& task);  // attend_rounded() in the order of every set
  void (*attend_floats)(const AttendTask& task);
  void (*rotate)(const RotateTask& task);
  void (*conv_rows)(const ConvTask& task);
  void (*delta)(const DeltaTask& task);
  void (*decays)(const float* a_log, size_t heads, float* to);  // -e^a_log
  int (*relative_bucket)(int places);                           // as in ops.def
  // n values of F32, F16 or BF16 as float, and float as F32, F16 or (whole blocks) Q8_0.
  void (*widen)(const std::byte* from, DType dtype, float* to, size_t n);
  void (*narrow)(const float* from, DType dtype, std::byte* to, size_t n);
};

extern const CpuKernels kKernelsScalar;
#ifdef SPLIT_X86_KERNELS
extern const CpuKernels kKernelsAvx2;
extern const RoundedKernels::Steps kInt8AvxVnni;  // joins kKernelsAvx2
extern const CpuKernels kKernelsAvx512;
extern const RoundedKernels::Steps kInt8Vnni;  // joins kKernelsAvx512
// Joins kKernelsAvx512.
extern const RoundedKernels kRoundedAvx512bf16;
extern const RoundedKernels kRoundedAmx;
#endif
#ifdef SPLIT_WASM_KERNELS
extern const CpuKernels kKernelsWasm;  // with relaxed-simd or without, as the program is linked
#endif
#ifdef SPLIT_NEON_KERNELS
extern const CpuKernels kKernelsNeon;
extern const RoundedKernels::Steps kInt8Dotprod;  // joins kKernelsNeon
#endif

// The best set that this processor has and `limit` allows: "scalar", "avx2", "avxvnni", "avx512",
// "vnni", "avx512bf16", "amx", "neon", "dotprod", or "" for no limit. Throws Error(kInput) for
// another word.
const CpuKernels& choose_kernels(std::string_view limit);

}  // namespace split
