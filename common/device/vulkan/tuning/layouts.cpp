#include "device/vulkan/tuning/layouts.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "device/vulkan/codegen/numbers.h"
#include "device/vulkan/program/dispatches.h"
#include "device/vulkan/runtime/buffers.h"
#include "device/vulkan/tuning/lane_order.h"

namespace split::vulkan {
namespace {

// Lanes times columns of each, of a layout that makes a row first.
constexpr uint32_t kMostSums = 1024;

constexpr int64_t kDeep = 8192;  // K of a narrow matrix that is cut into four parts
// Columns beyond which 512 rows have more tiles than a large GPU has cores.
constexpr int64_t kManyTiles = 5120;

// On an H200 the fastest of 2 to 5 for each matrix of GPT-2 small and XL at 1 row; at 2, 4 and 8
// the fastest of 24 or within 6 % of it.
MatmulShape gpu_shape(const Capabilities& device, int64_t inner, int64_t columns,
                      const MatmulUse& use) {
  const uint32_t lanes = matmul_lanes(device, inner, columns, use.siblings);
  if (use.block > 1 && !use.wide) return {std::max(64u, lanes), lanes, 4, 2};
  MatmulShape shape{use.sums ? row_lanes(device) : 128, lanes, 1, 0};
  if (use.wide) {
    shape.columns_per_lane = 4;
    shape.unroll = 1;
    return shape;
  }
  // A vocabulary has more columns than a GPU has lanes: fewer workgroups, so that what each does
  // before its columns is done less often.
  constexpr int64_t kManyColumns = 16384;
  if (columns > kManyColumns) shape.columns_per_lane = 4;
  // Splits of attention are merged in each workgroup: fewer and larger ones, with four elements for
  // a lane, do it less often.
  const auto fours = std::bit_ceil(static_cast<uint32_t>(inner + 3) / 4);
  if (use.merges) shape.workgroup = std::clamp(fours, shape.workgroup, most_lanes(device));
  return shape;
}

// Whether lanes that shuffles do not reach can exchange their sums through shared memory, beside a
// row if it is made there.
bool has_room(const MatmulShape& shape, const Capabilities& device, const MatmulUse& use) {
  const size_t room = use.sums || use.merges ? kMostSums * sizeof(float) : kSharedBytes;
  return shape.lanes <= device.subgroup ||
         size_t{use.block} * shape.columns_per_lane * shape.workgroup * sizeof(float) <= room;
}

// Derives what follows from the rest: chunks on their way, where there is no number, and as many
// columns as there is room for.
MatmulShape finished(MatmulShape shape, const Capabilities& device, int64_t inner,
                     const MatmulUse& use) {
  // As many of a lane's chunks on their way at once as registers hold, in equal parts: of blocks
  // all that a lane has of 1,600.
  const uint32_t least = use.pairs > 0 ? 2 : 1;
  shape.columns_per_lane = std::max(shape.columns_per_lane, least);
  const auto chunks = static_cast<uint32_t>((inner + 7) / 8);
  const uint32_t side = chunks_side_by_side(use.dtype);
  const uint32_t own = std::max(chunks / shape.lanes / side, 1u);
  const uint32_t most = is_quantised(use.dtype) ? 12 : 8;
  if (shape.unroll == 0) shape.unroll = most / std::min(shape.columns_per_lane, most);
  shape.unroll = std::max(shape.unroll / side, 1u);
  while (own % shape.unroll != 0) --shape.unroll;
  while (shape.columns_per_lane > least && !has_room(shape, device, use)) {
    shape.columns_per_lane /= 2;
  }
  return shape;
}

// Bytes of shared memory: tiles of halves with 16 bytes of padding a row, then sums in their place.
size_t shared_bytes(const MatrixShape& shape) {
  const size_t row = shape.step * 2 + 16, rows = shape.rows(), columns = shape.columns();
  const size_t tile = 2 * kUnitTile * kUnitTile * sizeof(float);  // a pair of columns
  return shape.few
             ? shape.parts_k * std::max((rows + columns) * row, rows * columns * sizeof(float))
             : std::max((rows + columns) * row, shape.parts_m * shape.parts_n * tile);
}

bool fits(const Capabilities& device, const MatrixShape& shape) {
  const VkPhysicalDeviceLimits& limits = device.properties.limits;
  const uint32_t lanes = device.subgroup * shape.subgroups();
  return shared_bytes(shape) <= device.shared_bytes() &&
         lanes <=
             std::min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0]);
}

}  // namespace

std::vector<MatmulShape> matmul_layouts(const Capabilities& device, int64_t inner, int64_t columns,
                                        const MatmulUse& use) {
  // Larger tiles run 1.4 times faster on a software device and take twice as long to compile.
  const MatmulShape rule =
      device.small_tiles
          ? MatmulShape{row_lanes(device), matmul_lanes(device, inner, columns, use.siblings),
                        use.block >= 4 ? 1u : 2u, 1}
          : gpu_shape(device, inner, columns, use);
  std::vector<MatmulShape> all{finished(rule, device, inner, use)};
  const uint32_t least = use.sums ? row_lanes(device) : rule.lanes;
  const uint32_t most = use.sums ? device.most_lanes : most_lanes(device);
  const auto add = [&](uint32_t workgroup, uint32_t columns_per_lane, uint32_t unroll = 0) {
    const auto other =
        finished({workgroup, rule.lanes, columns_per_lane, unroll}, device, inner, use);
    const bool fits = workgroup >= least && workgroup <= most && has_room(other, device, use);
    if (fits && std::find(all.begin(), all.end(), other) == all.end()) all.push_back(other);
  };
  if (use.sums) {
    for (const uint32_t each : {1u, 2u}) add(rule.workgroup, each);
    if (device.cores == 0) add(2 * rule.workgroup, 1);
    // Each workgroup makes the row anew: as few as there are cores, or twice as many.
    constexpr uint32_t kFewRegisters = 4;
    const uint64_t results = use.pairs > 0 ? use.pairs : static_cast<uint64_t>(columns);
    const uint32_t align = std::max(device.subgroup, rule.lanes);
    for (const uint32_t each : {1u, 2u}) {
      if (device.cores == 0) continue;
      const uint32_t own = ceil_div(results, device.cores * each);
      add(ceil_div(own * rule.lanes, align) * align, 1, each == 1 ? kFewRegisters : 0);
    }
  } else {
    for (const uint32_t each : {1u, 2u, 4u}) add(rule.workgroup, each);
    for (const uint32_t workgroup : {64u, 128u, 256u}) add(workgroup, rule.columns_per_lane);
  }
  return all;
}

MatmulShape int8_layout(const Capabilities& device, int64_t inner, bool pairs) {
  const LaneOrder order(DType::kQ8_0, inner, kBySegments);
  const auto segments = static_cast<uint32_t>(order.segments());
  // Each workgroup makes and rounds the row: on an H200 128 lanes take 1.06 of the time of 256.
  const uint32_t lanes = row_lanes(device), each = pairs ? 2 : 1;
  return {lanes, segments, std::max(lanes / segments / each, 1u) * each, 1};
}

// As int8_product.comp lays it out: of a block its numbers, scale, largest number and sum.
size_t int8_row_bytes(int64_t inner) {
  const size_t blocks = LaneOrder(DType::kQ8_0, inner, kBySegments).segments() * kSegmentBlocks;
  return blocks * (kBlock + 3 * sizeof(float)) + 2 * kRowChains * sizeof(float);
}

size_t int8_rounded_bytes(int64_t inner) {
  return LaneOrder(DType::kQ8_0, inner, kBySegments).segments() * shader::SEGMENT_VECTORS * 16;
}

// As int8_rows.comp and int8_units.comp have it. K-quants have two terms or two scales a block,
// which lanes compute.
Int8Tile int8_tile(const Capabilities& device, DType dtype) {
  if (device.int8_matrix && !is_k_quant(dtype)) {
    const MatrixShape units{2, 2, 2, 2};
    return {device.subgroup * units.subgroups(), units.rows(), units.columns(), units, true};
  }
  constexpr uint32_t kOwn = 4, kColumnLanes = 8;
  const uint32_t lanes = std::min(row_lanes(device), 128u);
  return {lanes, kOwn * lanes / kColumnLanes, kOwn * kColumnLanes};
}

size_t exchange_bytes() { return (kRowChains + kMostSums) * sizeof(float); }

namespace {

// Smaller tiles for narrow matrices, so that a few hundred rows fill a large GPU. On an H200 the
// fastest of five to ten for each matrix of GPT-2 small and XL at 512 rows, and of seventy for
// Llama-3.2-1B's: of 8192 x 2048 in four parts of K a prompt of 256 takes 0.88 of what it takes in
// two, and one of 512 as long, where a subgroup has all of a tile. Where there are many columns,
// subgroups of 64 x 64 take 0.95 of the time of a prompt of 512 to 2,048. Queries, keys and values
// together have their parts as the queries alone would.
MatrixShape whole_shape(const Capabilities& device, const UnitProduct& product) {
  const auto [inner, columns, matrices, siblings] = product;
  MatrixShape shape{2, 4, 4, 2, 1, 64};
  if (columns > 4096) shape = {3, 4, 4, 2, 1, 64};
  if (columns > kManyTiles) shape = {4, 4, 2, 2, 1, 64};
  if (columns <= 2048) shape = {2, 2, 2, 2, 2, 64};
  if (columns <= 2048 && inner >= kDeep) shape = {4, 4, 1, 1, 4, 128};
  if (columns <= 1024) shape = {2, 2, 2, 2, 2, 128};
  if (siblings && columns <= 4096) shape = {2, 2, 2, 2, 2, 64};
  while (!fits(device, shape)) {
    if (shape.step > 2 * kUnitTile) {
      shape.step /= 2;
    } else {
      (shape.parts_k > 1 ? shape.parts_k : shape.parts_m > 1 ? shape.parts_m : shape.tiles_m) /= 2;
    }
  }
  return shape;
}

uint64_t tiles_of(const MatrixShape& shape, const UnitProduct& product, uint32_t rows) {
  return uint64_t{ceil_div(product.columns * product.matrices, shape.columns())} *
         ceil_div(rows, shape.rows());
}

constexpr uint32_t kWorkgroups = 192;                         // enough to keep a large GPU busy
constexpr uint32_t kMedium = 64, kSmall = 128, kLarge = 256;  // rows

// The parts of K of a narrow matrix are given to workgroups of their own, so that larger tiles read
// rows and weights less often. On an H200 a prompt of Llama-3.2-1B takes 0.95 of the time by it
// where the matrix is deep. Elsewhere it pays for 128 rows alone, and there where blocks are
// unpacked: 0.92.
std::optional<MatrixShape> split_shape(const Capabilities& device, const MatrixShape& whole,
                                       const UnitProduct& product, uint32_t rows) {
  constexpr uint64_t kFewest =
      128;  // workgroups, of which GPT-2 XL has 100 and takes 1.1 of the time
  const bool deep = whole.parts_k > 2, narrow = whole.parts_k > 1 && product.columns > 1024;
  if (deep ? rows < kMedium : !narrow || rows != kSmall) return {};
  MatrixShape shape{4, 4, 2, 2, 1, 64};
  if (rows <= kLarge) shape = {2, 4, 4, 2, 1, 64};
  if (rows <= kSmall) shape = {2, 2, 2, 2, 1, 64};
  if (rows <= kMedium) shape = {1, 2, 2, 1, 1, 64};
  if (!deep) shape = {1, 2, 4, 2, 1, 64};
  shape.split_k = whole.parts_k;
  shape.run = whole.step / whole.parts_k / 8;
  if (!deep && tiles_of(shape, product, rows) * shape.split_k < kFewest) return {};
  if (!fits(device, shape) || split_bytes(shape, product, rows) > kScratchBytes) return {};
  return shape;
}

// For up to 256 rows of a product with many columns: the largest of some tiles of which there are
// enough, so that the weights come from the cache less often. On an H200 128 tokens of Llama-3.2-1B
// take 0.87 of the time that they take by small tiles, of Qwen2.5-0.5B 0.89, of GPT-2 XL 0.92, and
// 64 of the first 0.92.
std::optional<MatrixShape> wide_shape(const Capabilities& device, const MatrixShape& whole,
                                      const UnitProduct& product, uint32_t rows) {
  if (whole.parts_k > 1 || rows < kMedium) return {};
  for (const MatrixShape& shape :
       {whole, MatrixShape{4, 2, 2, 2, 1, 64}, MatrixShape{2, 2, 2, 2, 1, 64}}) {
    if (shape.rows() > rows || !fits(device, shape)) continue;
    if (tiles_of(shape, product, rows) >= kWorkgroups) return shape;
  }
  return {};
}

}  // namespace

size_t split_bytes(const MatrixShape& shape, const UnitProduct& product, uint32_t rows) {
  return tiles_of(shape, product, rows) * shape.split_k * shape.rows() * shape.columns() *
         sizeof(float);
}

MatrixShape matrix_shape(const Capabilities& device, const UnitProduct& product, uint32_t rows) {
  const MatrixShape whole = whole_shape(device, product);
  return split_shape(device, whole, product, rows).value_or(whole);
}

// Few rows wait for weights: small tiles, so that every core has some, and long steps. On an H200
// the fastest of twenty for Llama-3.2-1B's matrices; of few columns, tiles of 16 x 16 take 0.81 of
// the time of 128 tokens of Qwen2.5-0.5B, 0.90 of GPT-2 and 0.96 of Llama-3.2-1B. Of its many
// columns tiles of 32 rows take 0.84 of the time of 32 tokens.
MatrixShape short_shape(const Capabilities& device, const UnitProduct& product, uint32_t rows) {
  constexpr uint32_t kMostParts = 4;
  const int64_t columns = product.columns;
  const MatrixShape many = whole_shape(device, product);
  if (const auto split = split_shape(device, many, product, rows)) return *split;
  if (const auto wide = wide_shape(device, many, product, rows)) return *wide;
  if (rows > kSmall) return many;
  const uint32_t widest = columns <= 1024 ? 1 : 2;
  const bool taller = rows > 32 || columns > kManyTiles;
  MatrixShape shape{taller ? widest : 1u, rows <= 64 ? 1u : widest, 1, 1, many.parts_k, 128, true};
  shape.run = many.step / many.parts_k / 8;
  const bool deep = many.parts_k > 2;
  shape.depth = rows <= 32 ? 2 : 1;
  const uint32_t groups =
      static_cast<uint32_t>(columns) / shape.columns() * ceil_div(rows, shape.rows());
  shape.parts_n = deep ? 1 : std::clamp(std::bit_floor(groups / kWorkgroups), 1u, kMostParts);
  while (!fits(device, shape) && shape.parts_n > 1) shape.parts_n /= 2;
  while (!fits(device, shape) && shape.step > 8 * shape.run) shape.step /= 2;
  return shape;
}

// The shape for few rows, where the parts along K take its steps in turn: enough subgroups for a
// narrow matrix, and less to read of the rows for a wide one. On an H200 the fastest of a hundred,
// and 8 sequences of Llama-3.2-1B take 0.9 of the time by tiles of 16 rows, with the same sums.
MatrixShape thin_shape(const Capabilities& device, int64_t inner, int64_t columns, uint32_t rows) {
  MatrixShape shape{2, 1, 1, 1, 7, 64, true, inner > 2048 ? 3u : 1u};
  if (columns > 2048) shape = {2, 2, 1, 1, 4, 64, true, 1};
  if (columns > 4096) shape = {2, 2, 1, 1, 5, 64, true, 1};
  if (columns > 16384) shape = {2, 2, 1, 2, 2, 64, true, 1};
  while (!fits(device, shape)) {
    if (shape.parts_k > 1) {
      --shape.parts_k;
    } else {
      shape.parts_n /= 2;
    }
  }
  if (rows <= kUnitTile) shape.tiles_m = 1;
  return shape;
}

}  // namespace split::vulkan
