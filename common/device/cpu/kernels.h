// The CPU's inner loops, compiled once for each instruction set (kernels.cpp) and chosen at run
// time. Every set sums in the same order with the same fused multiply-adds, so that all of them
// give the same bits.
//
// Orders. Matrix [K, M]: each result is one chain over k = 0, 1, ... Matrix [M, K] ("transposed"):
// 16 chains, k modulo 16, then a tree (8, 4, 2, 1), but one chain when it is quantised. Rows of a
// reduction: the same 16 chains and tree. None depends on the number of rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/op.h"
#include "tensor/shape.h"

namespace split {

// y [rows, columns] = x [rows, K] times columns [first, first + columns) of a matrix. matmul()
// reads a packed one (below), matmul_transposed() one as it lies. A quantised weight is the float
// that it stands for, exactly: the result has the bits of the same matrix in F32.
struct MatmulTask {
  const float* x = nullptr;  // [rows, inner], dense
  size_t rows = 0;
  const std::byte* w = nullptr;  // the whole matrix
  DType dtype = DType::kF32;     // F32, F16 or BF16; matmul() takes Q8_0 and Q4_0 too
  size_t inner = 0;              // K
  size_t width = 0;              // M: all columns of the matrix
  size_t first = 0;              // of a panel
  size_t columns = 0;            // at most kTaskColumns
  float* y = nullptr;            // its rows have room for whole panels
  size_t y_stride = 0;           // floats from one row to the next
  float* panel = nullptr;        // scratch of kPanelFloats
};
inline constexpr size_t kPanelColumns = 48;  // three 512-bit vectors: tiles are 8 rows high
inline constexpr size_t kPanelDepth = 256;   // K of a widened panel: 48 KiB, a part of L2
inline constexpr size_t kPanelFloats = kPanelColumns * kPanelDepth;
inline constexpr size_t kTaskColumns = 2 * kPanelColumns;

// A matrix [K, M] in the order in which matmul() reads it: panels of kPanelColumns columns, one
// after another, each [K, columns of the panel] and dense; the last may be narrower. Same type,
// same size. One call does rows [first, last) of K.
void pack_matrix(const std::byte* w, DType dtype, size_t inner, size_t width, size_t first,
                 size_t last, std::byte* packed);
// Panel `panel` of a quantised matrix, whose rows of blocks (tensor/blocks.h) are the columns here.
// A panel has for each kBlock of K the scales [columns], then the numbers: Q8_0 [kBlock][columns],
// Q4_0 [kBlock / 2][columns] bytes, of which row i has k = 2 i in the low nibble and 2 i + 1 in the
// high one. Same size.
void pack_blocks(const std::byte* w, DType dtype, size_t inner, size_t width, size_t panel,
                 std::byte* packed);

// One query over the keys [first, first + count) of one split, count <= kSplitKeys, in pages.
struct AttendTask {
  const float* q = nullptr;         // [head_size]
  const std::byte* keys = nullptr;  // pages [kPageTokens, channels]
  const std::byte* values = nullptr;
  DType dtype = DType::kF32;        // F32 or F16
  const uint32_t* pages = nullptr;  // of the sequence
  size_t channels = 0;
  size_t head_offset = 0;  // h * head_size
  size_t head_size = 0;
  size_t first = 0, count = 0;
  float scale = 0;
  float* out = nullptr;        // [head_size]: sum of p v, p = exp(score - largest)
  float largest = 0, sum = 0;  // results: the largest score, the sum of p
};

struct CpuKernels {
  const char* name;
  using Unary = void (*)(const float* x, float* y, size_t n);
  using Binary = void (*)(const float* x, const float* z, float* y, size_t n);
  using Reduce = float (*)(const float* x, size_t n);
  // Null where the op is of another kind; indexed by Op.
  Unary unary[64];
  Binary binary[64];
  Reduce reduce[64];
  void (*matmul)(const MatmulTask& task);
  void (*matmul_transposed)(const MatmulTask& task);
  void (*attend)(AttendTask& task);
  // n values of F32, F16 or BF16 as float, and float as F32 or F16.
  void (*widen)(const std::byte* from, DType dtype, float* to, size_t n);
  void (*narrow)(const float* from, DType dtype, std::byte* to, size_t n);
};

extern const CpuKernels kKernelsScalar;
#ifdef SPLIT_X86_KERNELS
extern const CpuKernels kKernelsAvx2;
extern const CpuKernels kKernelsAvx512;
#endif
#ifdef SPLIT_NEON_KERNELS
extern const CpuKernels kKernelsNeon;
#endif

// The best set that this processor has and `limit` allows: "scalar", "avx2", "avx512", "neon", or
// "" for no limit. Throws Error(kInput) for another word.
const CpuKernels& choose_kernels(std::string_view limit);

}  // namespace split
