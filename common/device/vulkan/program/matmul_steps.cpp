// The dispatches of a matrix product: what it does for its neighbours, by lanes or by matrix units,
// in pieces that a binding can have.
#include <algorithm>
#include <array>
#include <utility>

#include "device/vulkan/program/dispatches.h"
#include "device/vulkan/tuning/lane_order.h"
#include "device/vulkan/tuning/layouts.h"
#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

using Matmul = inputs::matmul;

// Rows of a workgroup of a matmul. Of four and eight rows it has some: the weights, which
// workgroups side by side share, come from memory once, and more lanes wait for them at a time. On
// an H200 an XL step of 8 rows takes 0.78 of what it took with all of them in one workgroup.
uint32_t block_rows(size_t variant) {
  constexpr std::array<uint32_t, kNarrowRows.size()> kNarrow = {1, 1, 2, 2, 4};
  return variant < kWide ? kNarrow[variant] : 8;
}

// Bytes of a row of a product's matrix in device memory.
size_t matrix_row_bytes(const Step& matmul, DType dtype, bool in_int8) {
  const auto chunks = static_cast<size_t>((matmul.inner + 7) / 8);
  if (!is_quantised(dtype)) return chunks * 8 * dtype_size(dtype);
  constexpr uint32_t kAnyLanes = 8;
  return LaneOrder(dtype, matmul.inner, in_int8 ? kBySegments : kAnyLanes).number_bytes();
}

// A product's kernel as MatmulQuestion has it.
uint32_t question_of(const FusedNeighbours& joined) {
  return static_cast<uint32_t>(joined.input) | (joined.twin != nullptr ? 4u : 0u) |
         (joined.rotation != nullptr ? 8u : 0u) | (joined.siblings.empty() ? 0u : 16u);
}

}  // namespace

bool VulkanExecutable::in_int8(const Step& matmul) const {
  return workspace_.limits().int8 == Int8Rows::kAll && matmul.op == Op::k_matmul &&
         is_quantised(slot(matmul.in(Matmul::w)).dtype);
}

// Whether a product of so many columns by matrices like this one is in one binding and one piece.
bool VulkanExecutable::in_one_piece(const Step& matmul, int64_t columns) const {
  const Capabilities& device = core_->context.capabilities();
  const size_t row = matrix_row_bytes(matmul, slot(matmul.in(Matmul::w)).dtype, in_int8(matmul));
  const uint32_t most_groups = device.properties.limits.maxComputeWorkGroupCount[1];
  return static_cast<size_t>(columns) <= std::min<size_t>(device.max_range / row, most_groups);
}

// No piece ends between two columns of a pair.
bool VulkanExecutable::takes_pairs(const Step& matmul, size_t variant) const {
  // Many rows are rotated faster by a step of its own.
  return core_->context.capabilities().neighbours &&
         !(variant == kPromptCoopMatrix && matmul.rotation) &&
         (!matmul.rotation || turns_whole_heads(program_, program_.steps[*matmul.rotation])) &&
         in_one_piece(matmul, product_columns(matmul));
}

// A tile of matrix units has columns of one of them.
bool VulkanExecutable::takes_siblings(const Step& matmul) const {
  if (!core_->context.capabilities().neighbours || matmul.siblings.empty()) return false;
  bool whole = matmul.columns % kUnitTile == 0;
  for (const size_t sibling : matmul.siblings) {
    whole = whole && program_.steps[sibling].columns % kUnitTile == 0;
  }
  return whole && in_one_piece(matmul, columns_of_siblings(matmul));
}

void VulkanExecutable::lay_weights() {
  for (const Step& step : program_.steps) {
    if (in_int8(step)) bound_weight(step.in(Matmul::w)).lay_by_segments();
    if (!takes_siblings(step)) continue;
    const auto lay = [&](const auto& weight_of) {
      std::vector<VulkanBuffer*> behind;
      for (const size_t sibling : step.siblings) {
        behind.push_back(&bound_weight(weight_of(program_.steps[sibling])));
      }
      bound_weight(weight_of(step)).lay_before(std::move(behind));
    };
    lay([](const Step& of) { return of.in(Matmul::w); });
    for (size_t i = 0; i < step.tape.values.size(); ++i) {
      if (step.tape.values[i].load.access.kind != Access::kVector) continue;
      lay([i](const Step& of) { return of.tape.values[i].load.slot; });
    }
  }
}

int64_t VulkanExecutable::columns_of_siblings(const Step& matmul) const {
  int64_t columns = matmul.columns;
  for (const size_t sibling : matmul.siblings) columns += program_.steps[sibling].columns;
  return columns;
}

int64_t VulkanExecutable::product_columns(const Step& matmul) const {
  return takes_siblings(matmul) ? columns_of_siblings(matmul) : matmul.columns;
}

UnitProduct VulkanExecutable::unit_product(const Step& matmul) const {
  return {matmul.inner, product_columns(matmul), matmul.twin ? 2u : 1u, takes_siblings(matmul)};
}

// How a variant lays a product on matrix units.
MatrixShape VulkanExecutable::tile_of(const Step& step, size_t variant) const {
  const Capabilities& device = core_->context.capabilities();
  const UnitProduct product = unit_product(step);
  if (variant >= kDecodeCoopMatrix) {
    const uint32_t rows = variant == kFewCoopMatrix ? kFewRows : 2 * kUnitTile;
    return thin_shape(device, step.inner, product.columns, rows);
  }
  if (variant == kPromptCoopMatrix) return matrix_shape(device, product, most_rows(variant));
  return short_shape(device, product, most_rows(variant));
}

// Whether matrix units can compute it from x as halves.
bool VulkanExecutable::units_take(const Step& step) const {
  if (step.op != Op::k_matmul) return false;
  const DType dtype = slot(step.in(Matmul::w)).dtype;
  return (dtype == DType::kF16 || is_quantised(dtype)) && step.inner % kUnitTile == 0 &&
         step.columns >= kUnitTile;
}

// The values that all dispatches of a product have in common.
struct VulkanExecutable::MatmulPlan {
  MatmulPlan(const Step& of, size_t which, FusedNeighbours neighbours, bool by_units)
      : step(of), variant(which), joined(neighbours), units(by_units) {}

  const Step& step;
  size_t variant;
  FusedNeighbours joined;
  bool units;          // by matrix units
  bool int8 = false;   // its rows are rounded to int8,
  bool many = false;   // by a dispatch of their own
  Range rounded;       // where these are then
  Int8Tile int8_tile;  // and what a workgroup has of the result
  const KeptKernel* kernel = nullptr;
  std::vector<int> matrices;  // slots: its own, and its twin's
  int64_t all_columns = 0;    // with those of its siblings
  DType dtype{};              // the matrices' type
  size_t row_bytes = 0;       // bytes of a matrix's row,
  size_t scale_bytes = 0;     // bytes of its blocks' scales; 0: no scales
  size_t pairs = 0;           // columns of both matrices that are made as one
  MatmulShape shape;          // shape for lanes,
  MatrixShape tile;           // or of matrix units
  uint32_t block = 1;         // rows of a workgroup of lanes
  uint32_t piece = 0;         // rows of a dispatch,
  size_t columns = 0;         // columns of a dispatch
  PipelineKey key;
  Range sums;                              // sums of parts of K
  std::optional<MatmulQuestion> question;  // an open question, and its number of layouts
  size_t layouts = 0;

  uint32_t group_columns() const {
    if (units) return tile.columns();
    return int8 ? shape.columns_per_lane : shape.columns();  // of the row's kernel or the tile's
  }
};

// The kernel of a product, with what it takes over from its neighbours.
VulkanExecutable::MatmulPlan VulkanExecutable::matmul_kernel_of(size_t i, size_t variant) {
  const Step& step = program_.steps[i];
  const Slot& w = slot(step.in(Matmul::w));
  if (w.kind != SlotKind::kWeight) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] program '", program_.name, "': matmul by '",
                                        w.name, "': expected a weight"));
  }
  const std::optional<size_t> before = joined_before(program_, i);
  const bool siblings = takes_siblings(step);
  const auto puts_one = [&](size_t sibling) { return puts(sibling, variant); };
  const Takes takes{
      .input = before && joins_matmul(*before, variant),
      .twin = step.twin && takes_pairs(step, variant),
      .siblings = siblings,
      .rotation = step.rotation && takes_pairs(step, variant),
      .attention = siblings ? std::ranges::any_of(step.siblings, puts_one) : puts(i, variant)};
  MatmulPlan plan(step, variant, joined_to(program_, i, takes), by_units(step, variant));
  const Capabilities& device = core_->context.capabilities();
  plan.int8 = in_int8(step);
  const bool few = plan.units && tile_of(step, variant).few;
  using What = Kernels::What;
  plan.many = plan.int8 && variant >= kWide;
  plan.int8_tile = int8_tile(device, w.dtype);
  const bool int8_units = plan.many && plan.int8_tile.by_units;
  const BlockProduct by = int8_units      ? BlockProduct::kInt8Units
                          : plan.many     ? BlockProduct::kInt8Rows
                          : plan.int8     ? BlockProduct::kInt8
                          : device.halves ? BlockProduct::kHalves
                                          : BlockProduct::kFloats;
  plan.kernel = &core_->kernels.get(
      {.what = int8_units    ? What::kInt8Units
               : plan.many   ? What::kInt8Rows
               : plan.int8   ? What::kInt8Matmul
               : !plan.units ? What::kMatmul
               : few         ? What::kThinMatrix
                             : What::kMatrix,
       .like = like_,
       .step = i,
       .takes = takes,
       .halves = halves(variant)},
      [&] {
        const Halves& half = halves(variant);
        return plan.units ? matrix_kernel(program_, step, plan.joined, few, device.max_range, half)
                          : matmul_kernel(program_, step, plan.joined, device.subgroup > 1, by,
                                          device.max_range, half, device.dots);
      });
  plan.dtype = w.dtype;
  plan.row_bytes = matrix_row_bytes(step, w.dtype, plan.int8);
  plan.matrices = {step.in(Matmul::w)};
  if (plan.joined.twin != nullptr) plan.matrices.push_back(plan.joined.twin->in(Matmul::w));
  plan.all_columns = product_columns(step);
  const auto columns = static_cast<size_t>(plan.all_columns);
  plan.pairs = plan.joined.twin != nullptr       ? columns
               : plan.joined.rotation != nullptr ? columns / 2
                                                 : 0;
  return plan;
}

// A layout of lanes, which may be an open question.
void VulkanExecutable::lay_on_lanes(MatmulPlan& plan) {
  const Step& step = plan.step;
  const Capabilities& device = core_->context.capabilities();
  const FusedNeighbours& joined = plan.joined;
  plan.block = block_rows(plan.variant);
  const MatmulUse use{plan.block,
                      plan.variant >= kWide,
                      joined.input == FusedNeighbours::Input::kGroup,
                      joined.input == FusedNeighbours::Input::kSplits,
                      plan.pairs,
                      plan.dtype,
                      !joined.siblings.empty()};
  const std::vector<MatmulShape> layouts =
      matmul_layouts(device, step.inner, plan.all_columns, use);
  const MatmulQuestion question{static_cast<uint32_t>(step.inner),
                                static_cast<uint32_t>(plan.all_columns), matrix_code(plan.dtype),
                                question_of(joined)};
  // Measures one row, which is most of what an edge does, and for which the time of a kernel alone
  // is that in a step: of more rows it misled on an H200.
  const bool asks = plan.variant <= kLongRow && layouts.size() > 1;
  plan.shape = asks ? core_->tuner.choose(question, layouts) : layouts[0];
  if (asks && core_->tuner.is_open(question)) {
    plan.question = question;
    plan.layouts = layouts.size();
  }
}

// The sizes of a product's workgroups and pieces.
void VulkanExecutable::size_matmul(MatmulPlan& plan) {
  const Step& step = plan.step;
  const Capabilities& device = core_->context.capabilities();
  const FusedNeighbours& joined = plan.joined;
  if (plan.many) {
    plan.shape = {plan.int8_tile.lanes, 1, plan.int8_tile.columns, 1};
    plan.block = plan.int8_tile.rows;
  } else if (plan.int8) {
    plan.shape = int8_layout(device, step.inner, joined.in_pairs());
  } else {
    lay_on_lanes(plan);
  }
  if (const size_t bytes = plan.int8 ? int8_row_bytes(step.inner) : 0;
      bytes > device.shared_bytes()) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] matrix '", slot(step.in(Matmul::w)).name, "': a row of ", step.inner,
                    " numbers in int8 takes ", bytes, " bytes of shared memory, this device has ",
                    device.shared_bytes()));
  }
  if (plan.units) plan.tile = tile_of(step, plan.variant);
  plan.sums = symbols();  // nobody uses them
  if (plan.tile.split_k > 1) {
    const size_t bytes = split_bytes(plan.tile, unit_product(step), most_rows(plan.variant));
    scratch_.push_back(workspace_.scratch(bytes));
    plan.sums = part(*scratch_.back(), 0, kCountBytes + bytes);
  }
  if (is_quantised(plan.dtype)) {
    const uint32_t lanes = plan.int8 ? kBySegments : plan.shape.lanes;
    plan.scale_bytes = LaneOrder(plan.dtype, step.inner, lanes).scale_bytes();
  }

  std::vector<int> rows_of = rowwise_slots(*plan.kernel);
  if (joined.input == FusedNeighbours::Input::kSlot) rows_of.push_back(step.in(Matmul::x));
  plan.piece = piece_rows(rows_of, workspace_.capacity());
  if (plan.many) {
    const size_t row = int8_rounded_bytes(step.inner);
    const size_t fit = std::max<size_t>(device.max_range / row / kPieceAlign, 1) * kPieceAlign;
    plan.piece = static_cast<uint32_t>(std::min<size_t>(plan.piece, fit));
    scratch_.push_back(workspace_.scratch(plan.piece * row));
    plan.rounded = part(*scratch_.back(), kCountBytes, plan.piece * row);
  }
  const uint32_t most_groups =
      device.properties.limits.maxComputeWorkGroupCount[plan.units ? 0 : 1];
  plan.columns =
      std::min(device.max_range / plan.row_bytes, size_t{plan.group_columns()} * most_groups);
  // The scales of so many columns are a multiple of 256 bytes.
  constexpr size_t kScalesAlign = 128;
  const size_t align = plan.scale_bytes > 0 ? kScalesAlign : kPieceAlign;
  if (plan.columns < static_cast<size_t>(plan.all_columns)) {
    plan.columns = plan.columns / align * align;
  }
  if (plan.columns == 0) {
    throw Error(
        ErrorKind::kDevice,
        cat("[vulkan] matrix '", slot(step.in(Matmul::w)).name, "': rows of ", plan.row_bytes,
            " bytes, a binding of this device has at most ", device.max_range));
  }
}

PipelineKey VulkanExecutable::matmul_key(const MatmulPlan& plan) {
  const Step& step = plan.step;
  const uint32_t unit_lanes = core_->context.capabilities().subgroup * plan.tile.subgroups();
  PipelineKey key = key_of(*plan.kernel, step, plan.units ? unit_lanes : plan.shape.workgroup);
  add_constants(key, {{Constant::COLUMNS, static_cast<uint32_t>(plan.all_columns)},
                      {Constant::K, static_cast<uint32_t>(step.inner)},
                      {Constant::LANES, plan.shape.lanes},
                      {Constant::W_TYPE, matrix_code(plan.dtype)}});
  if (plan.units) {
    add_unit_sizes(key);
    add_constants(key, {{Constant::TILES_M, plan.tile.tiles_m},
                        {Constant::TILES_N, plan.tile.tiles_n},
                        {Constant::PARTS_M, plan.tile.parts_m},
                        {Constant::PARTS_N, plan.tile.parts_n},
                        {Constant::PARTS_K, plan.tile.parts_k},
                        {Constant::SPLIT_K, plan.tile.split_k},
                        {Constant::FIRST_SUM, static_cast<uint32_t>(kCountBytes / sizeof(float))},
                        {Constant::STEP, plan.tile.step},
                        {Constant::DEPTH, plan.tile.depth},
                        {Constant::RUN, plan.tile.run}});
  } else if (plan.int8) {
    const MatrixShape& tiles = plan.int8_tile.units;
    add_constants(key, {{Constant::COLUMNS_PER_GROUP, plan.shape.columns_per_lane},
                        {Constant::LM, kUnitTile},
                        {Constant::LN, kUnitTile},
                        {Constant::LK, static_cast<uint32_t>(kBlock)},
                        {Constant::TILES_M, tiles.tiles_m},
                        {Constant::TILES_N, tiles.tiles_n},
                        {Constant::PARTS_M, tiles.parts_m},
                        {Constant::PARTS_N, tiles.parts_n}});
    add_counted(plan.variant, key);
  } else {
    add_constants(
        key,
        {{Constant::BLOCK, plan.block},
         {Constant::COLUMNS_PER_LANE, plan.shape.columns_per_lane},
         {Constant::UNROLL, plan.shape.unroll},
         {Constant::EXACT_ROWS,
          plan.variant < kWide && kNarrowRows[plan.variant] <= 2 ? kNarrowRows[plan.variant] : 0}});
    add_counted(plan.variant, key);
  }
  const FusedNeighbours& joined = plan.joined;
  const auto made_by = [](const Step& product, const Step* rotation) {
    return results(rotation != nullptr ? *rotation : product)[0];
  };
  Made made = {{made_by(step, joined.rotation), 0}};
  const auto second = static_cast<uint32_t>(step.columns);
  uint32_t third = second, next = second;
  for (const auto& [sibling, rotation, puts] : joined.siblings) {
    if (puts) made.emplace_back(made_by(*sibling, rotation), next);
    next += static_cast<uint32_t>(sibling->columns);
    if (third == second) third = next;
  }
  add_constants(key, {{Constant::SECOND, second}, {Constant::THIRD, third}});
  const Step* const paged = joined.splits != nullptr ? joined.splits : joined.attention;
  if (paged != nullptr) add_page_constants(*paged, plan.variant, key, made);
  if (joined.rotation != nullptr) {
    const Turn turn(*joined.rotation);
    add_constants(key, {{Constant::TABLE_STRIDE, row_stride(slot(turn.cos))}});
    if (paged == nullptr) {
      add_constants(key, {{Constant::D, static_cast<uint32_t>(turn.head_dim)}});
    }
  }
  add_tape_constants(*plan.kernel, key);
  return key;
}

// The dispatch of a product's rows from `base` on and columns from `column` on.
VulkanExecutable::Dispatch VulkanExecutable::matmul_piece(const MatmulPlan& plan, uint32_t base,
                                                          size_t column) {
  const Step& step = plan.step;
  const FusedNeighbours& joined = plan.joined;
  const bool units = plan.units, from_slot = joined.input == FusedNeighbours::Input::kSlot;
  const size_t count = std::min(plan.columns, static_cast<size_t>(plan.all_columns) - column);
  const WeightLayout lies =
      slot(step.in(Matmul::w)).transposed ? WeightLayout::kRows : WeightLayout::kColumns;
  const Halves& half = halves(plan.variant);
  Dispatch dispatch;
  dispatch.key = plan.key;
  dispatch.ranges = {symbols()};
  if (plan.many) {
    dispatch.ranges.push_back(plan.rounded);
  } else if (from_slot) {
    dispatch.ranges.push_back(rowwise(step.in(Matmul::x), base, plan.piece, half));
  }
  for (const int of : plan.matrices) {
    dispatch.ranges.push_back(
        part(*place(of, lies).allocation, column * plan.row_bytes, count * plan.row_bytes));
    if (plan.scale_bytes == 0) continue;
    dispatch.ranges.push_back(
        part(bound(of).scales(), column * plan.scale_bytes, count * plan.scale_bytes));
  }
  for (const Bind& bind : plan.kernel->binds) {
    dispatch.ranges.push_back(bind.kind == Bind::Kind::kPartial
                                  ? joined.splits != nullptr ? attention(*joined.splits).partial
                                                             : plan.sums
                                  : ranges_of(bind, base, plan.piece, half));
  }
  dispatch.push = {base, plan.piece, static_cast<uint32_t>(column), static_cast<uint32_t>(count)};
  dispatch.row_axis = units ? 1 : 0;
  dispatch.groups[1 - dispatch.row_axis] =
      ceil_div(plan.pairs > 0 ? 2 * plan.pairs : count, plan.group_columns());
  dispatch.rows_per_group = units ? plan.tile.rows() : plan.block;
  dispatch.groups[2] = plan.tile.split_k;
  dispatch.out_rows = step.rows == kOutRows;
  dispatch.scratch = plan.many || (units && plan.tile.split_k > 1);
  dispatch.waits = (base == 0 && column == 0) || dispatch.scratch;
  dispatch.weights = static_cast<uint64_t>(step.inner) * count * plan.matrices.size();
  dispatch.units = units;
  if (plan.question) dispatch.question = {*plan.question, plan.shape};
  dispatch.what = cat(units                                  ? "units-"
                      : plan.many && plan.int8_tile.by_units ? "int8-units-"
                      : plan.int8                            ? "int8-"
                                                             : "",
                      from_slot ? "" : "joined-", joined.twin != nullptr ? "twin-" : "",
                      joined.rotation != nullptr ? "rotated-" : "", "matmul-",
                      dtype_name(plan.dtype), "-", step.inner, "x", count);
  return dispatch;
}

void VulkanExecutable::add_matmul(size_t i, size_t variant, std::vector<Dispatch>& out) {
  MatmulPlan plan = matmul_kernel_of(i, variant);
  size_matmul(plan);
  plan.key = matmul_key(plan);
  layouts_ = std::max(layouts_, plan.layouts);
  const uint32_t rows = variant >= kWide ? workspace_.capacity() : 1;
  for (uint32_t base = 0; base < rows; base += plan.piece) {
    if (plan.many)
      out.push_back(rounding_piece(plan.step, variant, base, plan.piece, plan.rounded));
    for (size_t column = 0; column < static_cast<size_t>(plan.all_columns);
         column += plan.columns) {
      out.push_back(matmul_piece(plan, base, column));
    }
  }
}

}  // namespace split::vulkan
