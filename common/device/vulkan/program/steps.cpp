// The first half of loading an Executable: which dispatches each step of its Program becomes.
#include <algorithm>
#include <bit>
#include <utility>

#include "device/vulkan/program/dispatches.h"
#include "device/vulkan/tuning/lane_order.h"
#include "device/vulkan/tuning/layouts.h"
#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

using Matmul = inputs::matmul;

constexpr size_t kOneRow = 0;  // the narrow variant

// Rows of a workgroup of a matmul. Of four and eight rows it has some: the weights, which
// workgroups side by side share, come from memory once, and more lanes wait for them at a time. On
// an H200 an XL step of 8 rows takes 0.78 of what it took with all of them in one workgroup.
uint32_t block_rows(size_t variant) {
  constexpr std::array<uint32_t, kNarrowRows.size()> kNarrow = {1, 2, 2, 4};
  return variant < kWide ? kNarrow[variant] : 8;
}

std::vector<int> rowwise_slots(const KeptKernel& kernel) {
  std::vector<int> result;
  for (const Bind& bind : kernel.binds) {
    if (bind.kind == Bind::Kind::kRowwise) result.push_back(bind.slot);
  }
  return result;
}

void add_tape_constants(const KeptKernel& kernel, PipelineKey& key) {
  for (size_t i = 0; i < kernel.constants.size(); ++i) {
    key.constants.emplace_back(kTapeConstants + static_cast<uint32_t>(i), kernel.constants[i]);
  }
}

// Whether the row that a matmul stages fits beside what else its kernel shares.
bool stages(const Capabilities& device, int64_t inner) {
  return static_cast<size_t>(inner + 8) * sizeof(float) + exchange_bytes(device) <= kSharedBytes;
}

// Bytes of a row of a product's matrix in device memory.
size_t matrix_row_bytes(const Capabilities& device, const Step& matmul, DType dtype) {
  const auto chunks = static_cast<size_t>((matmul.inner + 7) / 8);
  if (!is_quantised(dtype)) return chunks * 8 * dtype_size(dtype);
  const uint32_t lanes = matmul_lanes(device, matmul.inner, matmul.columns);
  return LaneOrder(dtype, matmul.inner, lanes).number_bytes();
}

// A product's kernel as MatmulQuestion has it.
uint32_t question_of(const FusedNeighbours& joined) {
  return static_cast<uint32_t>(joined.input) | (joined.twin != nullptr ? 4u : 0u) |
         (joined.rotation != nullptr ? 8u : 0u);
}

// Steps that leave partial results in memory which the workspace lends to all of them.
bool uses_scratch(const Step& step) { return step.op == Op::k_attention || step.op == Op::k_topk; }

}  // namespace

bool VulkanExecutable::joins_matmul(size_t i, size_t variant) const {
  const Step& step = program_.steps[i];
  const Capabilities& device = core_->context.capabilities();
  return device.neighbours && variant == kOneRow && step.joins > 0 &&
         stages(device, program_.steps[i + 1].inner);
}

// Two columns of a pair are in one binding, and no piece ends between them.
bool VulkanExecutable::takes_pairs(const Step& matmul, size_t variant) const {
  const Capabilities& device = core_->context.capabilities();
  const size_t row = matrix_row_bytes(device, matmul, slot(matmul.in(Matmul::w)).dtype);
  const uint32_t most_groups = device.properties.limits.maxComputeWorkGroupCount[1];
  const auto columns = static_cast<size_t>(matmul.columns);
  return device.neighbours && !by_units(matmul, variant) &&
         columns <= std::min<size_t>(device.max_range / row, most_groups);
}

bool VulkanExecutable::puts(size_t i, size_t variant) {
  const Step& step = program_.steps[i];
  if (!step.attention || !core_->context.capabilities().neighbours) return false;
  const bool rotates_elsewhere = step.rotation && !takes_pairs(step, variant);
  return !rotates_elsewhere && attention(program_.steps[*step.attention]).pieces == 1;
}

bool VulkanExecutable::is_taken(size_t i, size_t variant) const {
  return std::ranges::any_of(program_.steps, [&](const Step& step) {
    return (step.twin == i || step.rotation == i) && takes_pairs(step, variant);
  });
}

// Whether matrix units can compute it from x as halves.
bool VulkanExecutable::units_take(const Step& step) const {
  if (step.op != Op::k_matmul) return false;
  const DType dtype = slot(step.in(Matmul::w)).dtype;
  return (dtype == DType::kF16 || is_quantised(dtype)) && step.inner % kUnitTile == 0 &&
         step.columns >= 2 * kUnitTile;
}

void VulkanExecutable::add_group(size_t i, size_t variant, std::vector<Dispatch>& out) {
  if (joins_matmul(i, variant)) return;
  const Step& step = program_.steps[i];
  const Capabilities& device = core_->context.capabilities();
  const KeptKernel& kernel = core_->kernels.get(
      {.what = Kernels::What::kGroup, .like = like_, .step = i, .halves = halves(variant)}, [&] {
        return group_kernel(program_, step, device.subgroup > 1, device.max_range, halves(variant));
      });
  const uint32_t piece = piece_rows(rowwise_slots(kernel), workspace_.capacity());
  for (uint32_t base = 0; base < workspace_.capacity(); base += piece) {
    Dispatch dispatch;
    dispatch.key = key_of(kernel, step, row_lanes(device));
    add_counted(variant, dispatch.key);
    add_constants(dispatch.key, {{Constant::COLUMNS, static_cast<uint32_t>(step.columns)}});
    add_tape_constants(kernel, dispatch.key);
    dispatch.ranges.push_back(symbols());
    for (const Bind& bind : kernel.binds) {
      dispatch.ranges.push_back(ranges_of(bind, base, piece, halves(variant)));
    }
    dispatch.push = {base, piece, 0, 0};
    dispatch.out_rows = step.rows == kOutRows;
    dispatch.waits = base == 0;
    dispatch.what = "group";
    out.push_back(std::move(dispatch));
  }
}

void VulkanExecutable::add_matmul(size_t i, size_t variant, std::vector<Dispatch>& out) {
  const Step& step = program_.steps[i];
  const Capabilities& device = core_->context.capabilities();
  const Slot& w = slot(step.in(Matmul::w));
  if (w.kind != SlotKind::kWeight) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] program '", program_.name, "': matmul by '",
                                        w.name, "': expected a weight"));
  }
  const std::optional<size_t> before = joined_before(program_, i);
  const Takes takes{.input = before && joins_matmul(*before, variant),
                    .twin = step.twin && takes_pairs(step, variant),
                    .rotation = step.rotation && takes_pairs(step, variant),
                    .attention = puts(i, variant)};
  const FusedNeighbours joined = joined_to(program_, i, takes);
  const bool units = by_units(step, variant), few = variant == kDecodeCoopMatrix;
  using What = Kernels::What;
  const KeptKernel& kernel = core_->kernels.get(
      {.what = !units ? What::kMatmul
               : few  ? What::kThinMatrix
                      : What::kMatrix,
       .like = like_,
       .step = i,
       .takes = takes,
       .halves = halves(variant)},
      [&] {
        return units ? matrix_kernel(program_, step, joined, few, device.max_range, halves(variant))
                     : matmul_kernel(program_, step, joined, device.subgroup > 1, device.max_range,
                                     halves(variant));
      });
  std::vector<int> rows_of = rowwise_slots(kernel);
  if (joined.input == FusedNeighbours::Input::kSlot) rows_of.push_back(step.in(Matmul::x));
  const uint32_t piece = piece_rows(rows_of, workspace_.capacity());

  const uint32_t block = block_rows(variant);
  // Columns that lanes have, of both matrices; a pair is taken as one.
  const auto all_columns = static_cast<size_t>(step.columns);
  const size_t pairs = joined.twin != nullptr       ? all_columns
                       : joined.rotation != nullptr ? all_columns / 2
                                                    : 0;
  const MatmulUse use{block,
                      variant >= kWide,
                      joined.input == FusedNeighbours::Input::kGroup,
                      joined.input == FusedNeighbours::Input::kSplits,
                      pairs,
                      w.dtype};
  const std::vector<MatmulShape> layouts = matmul_layouts(device, step.inner, step.columns, use);
  const MatmulQuestion question{static_cast<uint32_t>(step.inner),
                                static_cast<uint32_t>(step.columns), matrix_code(w.dtype),
                                question_of(joined)};
  // Measures one row, which is most of what an edge does, and for which the time of a kernel alone
  // is that in a step: of more rows it misled on an H200.
  const bool asks = variant == kOneRow && layouts.size() > 1;
  const MatmulShape shape = asks ? core_->tuner.choose(question, layouts) : layouts[0];
  const MatrixShape tile =
      few ? thin_shape(device, step.inner, step.columns) : matrix_shape(device, step.columns);
  const uint32_t unit_lanes = device.subgroup * tile.subgroups();
  const uint32_t group_columns = units ? tile.columns() : shape.columns();
  const bool blocks = is_quantised(w.dtype);
  std::optional<LaneOrder> order;
  if (blocks) order.emplace(w.dtype, step.inner, shape.lanes);
  const size_t w_row = matrix_row_bytes(device, step, w.dtype);
  const size_t row_axis = units ? 1 : 0;
  const uint32_t most_groups = device.properties.limits.maxComputeWorkGroupCount[1 - row_axis];
  size_t columns = std::min(device.max_range / w_row, size_t{group_columns} * most_groups);
  // The scales of so many columns are a multiple of 256 bytes.
  constexpr size_t kScalesAlign = 128;
  const size_t align = blocks ? kScalesAlign : kPieceAlign;
  if (columns < all_columns) columns = columns / align * align;
  if (columns == 0) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] matrix '", w.name, "': rows of ", w_row,
                    " bytes, a binding of this device has at most ", device.max_range));
  }
  std::vector<int> matrices = {step.in(Matmul::w)};
  if (joined.twin != nullptr) matrices.push_back(joined.twin->in(Matmul::w));
  const WeightLayout lies = w.transposed ? WeightLayout::kRows : WeightLayout::kColumns;
  bool first = true;
  for (uint32_t base = 0; base < (variant >= kWide ? workspace_.capacity() : 1u); base += piece) {
    for (size_t column = 0; column < all_columns; column += columns) {
      const size_t count = std::min(columns, all_columns - column);
      Dispatch dispatch;
      dispatch.key = key_of(kernel, step, units ? unit_lanes : shape.workgroup);
      add_constants(dispatch.key, {{Constant::COLUMNS, static_cast<uint32_t>(step.columns)},
                                   {Constant::K, static_cast<uint32_t>(step.inner)},
                                   {Constant::LANES, shape.lanes},
                                   {Constant::W_TYPE, matrix_code(w.dtype)}});
      if (units) {
        add_unit_sizes(dispatch.key);
        add_constants(dispatch.key, {{Constant::TILES_M, tile.tiles_m},
                                     {Constant::TILES_N, tile.tiles_n},
                                     {Constant::PARTS_M, tile.parts_m},
                                     {Constant::PARTS_N, tile.parts_n},
                                     {Constant::PARTS_K, tile.parts_k},
                                     {Constant::STEP, tile.step},
                                     {Constant::DEPTH, tile.depth}});
      } else {
        add_constants(dispatch.key,
                      {{Constant::BLOCK, block},
                       {Constant::COLUMNS_PER_LANE, shape.columns_per_lane},
                       {Constant::UNROLL, shape.unroll},
                       {Constant::EXACT_ROWS, variant < 2 ? kNarrowRows[variant] : 0}});
        add_counted(variant, dispatch.key);
      }
      const int made = joined.rotation != nullptr ? joined.rotation->out() : results(step)[0];
      const Step* const paged = joined.splits != nullptr ? joined.splits : joined.attention;
      if (paged != nullptr) add_page_constants(*paged, variant, dispatch.key, made);
      if (joined.rotation != nullptr) {
        const Turn turn(*joined.rotation);
        add_constants(dispatch.key, {{Constant::TABLE_STRIDE, row_stride(slot(turn.cos))}});
        if (paged == nullptr) {
          add_constants(dispatch.key, {{Constant::D, static_cast<uint32_t>(turn.head_dim)}});
        }
      }
      add_tape_constants(kernel, dispatch.key);
      dispatch.ranges = {symbols()};
      if (joined.input == FusedNeighbours::Input::kSlot) {
        dispatch.ranges.push_back(rowwise(step.in(Matmul::x), base, piece, halves(variant)));
      }
      for (const int of : matrices) {
        dispatch.ranges.push_back(part(*place(of, lies).allocation, column * w_row, count * w_row));
        if (!blocks) continue;
        dispatch.ranges.push_back(
            part(bound(of).scales(), column * order->scale_bytes(), count * order->scale_bytes()));
      }
      for (const Bind& bind : kernel.binds) {
        dispatch.ranges.push_back(bind.kind == Bind::Kind::kPartial
                                      ? attention(*joined.splits).partial
                                      : ranges_of(bind, base, piece, halves(variant)));
      }
      dispatch.push = {base, piece, static_cast<uint32_t>(column), static_cast<uint32_t>(count)};
      dispatch.row_axis = row_axis;
      dispatch.groups[1 - row_axis] = ceil_div(pairs > 0 ? 2 * pairs : count, group_columns);
      dispatch.rows_per_group = units ? tile.rows() : block;
      dispatch.out_rows = step.rows == kOutRows;
      dispatch.waits = first;
      dispatch.weights = static_cast<uint64_t>(step.inner) * count * matrices.size();
      dispatch.units = units;
      if (asks && core_->tuner.is_open(question)) {
        dispatch.question = {question, shape};
        layouts_ = std::max(layouts_, layouts.size());
      }
      dispatch.what =
          cat(units ? "units-" : "", joined.input == FusedNeighbours::Input::kSlot ? "" : "joined-",
              joined.twin != nullptr ? "twin-" : "", joined.rotation != nullptr ? "rotated-" : "",
              "matmul-", dtype_name(w.dtype), "-", step.inner, "x", count);
      first = false;
      out.push_back(std::move(dispatch));
    }
  }
}

const ByOp<VulkanExecutable::Add> VulkanExecutable::kAdd = [] {
  ByOp<Add> all;
  all[Op::k_group] = &VulkanExecutable::add_group;
  all[Op::k_matmul] = &VulkanExecutable::add_matmul;
  all[Op::k_attention] = &VulkanExecutable::add_attention;
  all[Op::k_rotate] = all[Op::k_norm_rotate] = &VulkanExecutable::add_rotate;
  all[Op::k_topk] = &VulkanExecutable::add_topk;
  return all;
}();

std::vector<VulkanExecutable::Dispatch> VulkanExecutable::dispatches(size_t variant) {
  std::vector<Dispatch> all;
  bool timed = false;  // a product that is measured runs alone
  bool waits = false;  // for a step that others do
  for (size_t i = 0; i < program_.steps.size(); ++i) {
    waits = waits || program_.steps[i].waits;
    if (is_taken(i, variant)) continue;
    const size_t first = all.size();
    const Add add = kAdd[program_.steps[i].op];
    if (add == nullptr) {
      throw Error(ErrorKind::kDevice, cat("[vulkan] program '", program_.name, "': no kernel for ",
                                          op_info(program_.steps[i].op).name));
    }
    (this->*add)(i, variant, all);
    if (all.size() > first) {
      const bool was_timed = std::exchange(timed, all[first].question.has_value());
      all[first].waits =
          std::exchange(waits, false) || uses_scratch(program_.steps[i]) || timed || was_timed;
    }
    // A narrow variant's rows are all in the first piece.
    if (variant < kWide) {
      all.erase(std::remove_if(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(),
                               [](const Dispatch& d) { return d.push.row_base > 0; }),
                all.end());
    }
  }
  const auto limit =
      core_->context.capabilities().properties.limits.maxPerStageDescriptorStorageBuffers;
  for (Dispatch& dispatch : all) {
    dispatch.key.bindings = static_cast<uint32_t>(dispatch.ranges.size());
    if (dispatch.key.bindings > limit) {
      throw Error(ErrorKind::kDevice,
                  cat("[vulkan] program '", program_.name, "': a step binds ",
                      dispatch.key.bindings, " buffers, this device has ", limit));
    }
    if (variant < kWide) {
      dispatch.groups[dispatch.row_axis] = ceil_div(kNarrowRows[variant], dispatch.rows_per_group);
    }
  }
  return all;
}

}  // namespace split::vulkan
