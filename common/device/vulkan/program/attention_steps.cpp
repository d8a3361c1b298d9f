// The dispatches of attention: by splits of the keys, and of prompt rows by matrix units.
#include <algorithm>
#include <array>
#include <bit>

#include "device/vulkan/codegen/numbers.h"
#include "device/vulkan/program/dispatches.h"
#include "device/vulkan/tuning/layouts.h"
#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

using Attention = inputs::attention;

// Lanes of a workgroup of one row's split: many for a step with few heads, else few, so that
// several workgroups fit onto a core; and of one that takes all splits of a row. On an H200 a token
// of Llama-3.2-1B at 4,095 keys takes 0.85 of its time with many, one of GPT-2's 12 heads 1.02.
constexpr uint32_t kManyLanes = 1024, kSplitLanes = 256, kRowLanes = 128;
constexpr size_t kFewHeads = 16;  // heads of all rows

bool takes_pages(DType kv, size_t head_size) {
  if (kv == DType::kF32 || kv == DType::kF16) return true;
  return (kv == DType::kQ8_0 || kv == DType::kBF16) && head_size % kBlock == 0;
}

}  // namespace

bool VulkanExecutable::in_bf16(const Step& attention) const {
  return slot(attention.in(Attention::k_cache)).dtype == DType::kBF16;
}

const VulkanExecutable::AttentionPlan& VulkanExecutable::attention(const Step& step) {
  if (const auto at = attention_.find(&step); at != attention_.end()) return at->second;
  AttentionPlan plan;
  plan_lanes(step, plan);
  plan_caches(step, plan);
  plan_partial(step, plan);
  return attention_[&step] = std::move(plan);
}

// Elements of a row of a split's partial results.
size_t VulkanExecutable::split_stride(const Step& attention) {
  return shader::SPLIT_STRIDE(static_cast<uint32_t>(Heads(attention).dim));
}

// Takes as many lanes as there is shared memory for: exchanged values, the lanes' largest, the
// keys' weights, and the sums of each part of the lanes. Their number changes no bits.
void VulkanExecutable::plan_lanes(const Step& step, AttentionPlan& plan) {
  const Capabilities& device = core_->context.capabilities();
  const DType kv = slot(step.in(Attention::k_cache)).dtype;
  const size_t size = Heads(step).dim;
  if (slot(step.in(Attention::v_cache)).dtype != kv || !takes_pages(kv, size)) {
    throw Error(
        ErrorKind::kDevice,
        cat("[vulkan] caches of ", dtype_name(kv), " and ",
            dtype_name(slot(step.in(Attention::v_cache)).dtype), ", heads of ", size,
            ": expected both F32, both F16, or both BF16 or Q8_0 and heads of whole blocks"));
  }
  const size_t width = is_quantised(kv) ? 16 : 16 / dtype_size(kv);
  plan.key_lanes = static_cast<uint32_t>(std::bit_ceil((size + width - 1) / width));
  if (plan.key_lanes > kSplitKeys) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] attention: heads of ", size,
                                        " elements, expected at most ", kSplitKeys * width));
  }
  if (kv == DType::kBF16) {
    plan.many_lanes = plan.split_lanes = plan.row_lanes = kSplitKeys;
    return;
  }
  const uint32_t reach = std::max(device.subgroup, plan.key_lanes);
  const size_t stride = split_stride(step);
  const Parts parts = this->parts(step);
  const size_t kept = parts.count * stride, grouped = parts.splits > 1 ? parts.splits * stride : 0;
  const auto shared = [&](uint32_t lanes) {
    return ((reach > device.subgroup ? lanes : 1) + lanes / device.subgroup + kSplitKeys + grouped +
            lanes / reach * (plan.key_lanes * width + 1)) *
           sizeof(float);
  };
  const auto lanes = [&](uint32_t most) {
    uint32_t result =
        std::clamp(std::min(most, device.most_lanes), kSplitKeys, kSplitKeys * plan.key_lanes);
    while (result > kSplitKeys && shared(result) > kSharedBytes) result /= 2;
    return result;
  };
  plan.many_lanes = lanes(device.small_tiles ? 16 * plan.key_lanes : kManyLanes);
  plan.split_lanes = lanes(device.small_tiles ? 16 * plan.key_lanes : kSplitLanes);
  plan.row_lanes = lanes(device.small_tiles ? 16 * plan.key_lanes : kRowLanes);
  if (parts.splits > 1 && shared(plan.many_lanes) > device.shared_bytes()) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] attention: ", parts.splits, " splits of ", kSplitKeys,
                    " keys are joined in ", shared(plan.many_lanes),
                    " bytes of shared memory, this device has ", device.shared_bytes()));
  }
  plan.keeps_splits =
      parts.splits == 1 && shared(plan.row_lanes) + kept * sizeof(float) <= kSharedBytes;
}

// The pieces of the caches that a binding can have.
void VulkanExecutable::plan_caches(const Step& step, AttentionPlan& plan) {
  const size_t limit = core_->context.capabilities().max_range;
  const Slot& cache = slot(step.in(Attention::k_cache));
  const size_t page_bytes = tensor_bytes(cache.dtype, {kPageTokens, cache.dims.back()}).value();
  const Allocation &k = bound(step.in(Attention::k_cache)).plain(),
                   &v = bound(step.in(Attention::v_cache)).plain();
  if (k.size() != v.size()) {
    throw Error(ErrorKind::kDevice, "[vulkan] attention: caches of K and V of different sizes");
  }
  const size_t pages = k.size() / page_bytes;
  constexpr size_t kAlignedPages = 8;  // 32 bytes each at least: offsets are multiples of 256
  size_t piece_pages = limit / page_bytes;
  plan.pieces = piece_pages < pages ? kCachePieces : 1;
  if (plan.pieces > 1) piece_pages = piece_pages / kAlignedPages * kAlignedPages;
  if (pages == 0 || piece_pages * plan.pieces < pages) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] cache '", cache.name, "': ", k.size(), " bytes, ", kCachePieces,
                    " bindings of this device have at most ", limit, " bytes each"));
  }
  plan.piece_pages = static_cast<uint32_t>(std::min(piece_pages, pages));
  for (const Allocation* of : {&k, &v}) {
    for (size_t p = 0; p < plan.pieces; ++p) {
      const size_t base = p * plan.piece_pages < pages ? p * plan.piece_pages : 0;
      plan.caches.push_back(part(*of, base * page_bytes,
                                 std::min<size_t>(plan.piece_pages, pages - base) * page_bytes));
    }
  }
}

// The memory of partial results, of as many rows at a time as there is room for.
void VulkanExecutable::plan_partial(const Step& step, AttentionPlan& plan) {
  const size_t limit = core_->context.capabilities().max_range;
  const size_t heads = Heads(step).count;
  const size_t partial_row = heads * parts(step).count * split_stride(step) * sizeof(float);
  const auto count_bytes = [&](size_t rows) {
    constexpr size_t kAlign = 256;
    return (rows * heads * sizeof(uint32_t) + kAlign - 1) / kAlign * kAlign;
  };
  const size_t most = std::min(limit, kScratchBytes);
  const size_t budget = std::min((most - count_bytes(1)) / (partial_row + heads * sizeof(uint32_t)),
                                 kCountBytes / (heads * sizeof(uint32_t)));
  plan.rows =
      piece_rows({step.in(Attention::q), step.in(Attention::k), step.in(Attention::v), step.out()},
                 std::max<size_t>(budget, 1));
  const size_t counts = count_bytes(plan.rows), bytes = plan.rows * partial_row;
  if (plan.rows > std::max<size_t>(budget, kPieceAlign) || counts > kCountBytes ||
      counts + bytes > limit) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] attention: partial results of ", partial_row,
                    " bytes a row, a binding of this device has at most ", limit));
  }
  plan.count_words = static_cast<uint32_t>(counts / sizeof(uint32_t));
  scratch_.push_back(workspace_.scratch(bytes));
  plan.partial = part(*scratch_.back(), kCountBytes - counts, counts + bytes);
}

VulkanExecutable::Parts VulkanExecutable::parts(const Step& attention) const {
  if (in_bf16(attention)) return {workspace_.splits(), 1};  // joined one by one
  constexpr uint32_t kMost = 128;                           // 16,384 keys
  const uint32_t splits = ceil_div(workspace_.splits(), kMost);
  return {ceil_div(workspace_.splits(), splits), splits};
}

void VulkanExecutable::add_page_constants(const Step& step, size_t variant, PipelineKey& key,
                                          const std::optional<Made>& made) {
  constexpr uint32_t kNoColumn = 1u << 31;
  const auto first_column = [&](size_t input) {
    const auto first = static_cast<uint32_t>(step.inputs[input].access.first);
    if (!made) return first;
    const auto at = std::ranges::find(*made, step.in(input), &Made::value_type::first);
    return at == made->end() ? kNoColumn : at->second + first;
  };
  const auto stride = [&](size_t input) {
    return static_cast<uint32_t>(slot(step.in(input)).dims[1]);
  };
  add_constants(
      key,
      {{Constant::HEADS, static_cast<uint32_t>(Heads(step).count)},
       {Constant::D, static_cast<uint32_t>(Heads(step).dim)},
       {Constant::TABLE_PAGES, workspace_.limits().pages_per_sequence},
       {Constant::PIECE_PAGES, attention(step).piece_pages},
       {Constant::KV_TYPE, matrix_code(slot(step.in(Attention::k_cache)).dtype)},
       {Constant::COUNT_WORDS, attention(step).count_words},
       {Constant::SPLITS, parts(step).count},
       {Constant::GROUP_SPLITS, parts(step).splits},
       {Constant::SCALE,
        std::bit_cast<uint32_t>(step.attribute<float>(attributes::attention::scale))},
       {Constant::WINDOW, Heads(step).window},
       {Constant::BOTH_WAYS, Heads(step).both_ways ? 1u : 0u},
       {Constant::CAP, std::bit_cast<uint32_t>(step.attribute<float>(attributes::attention::cap))},
       {Constant::ROW_TABLES, variant >= kWide ? 0u : 1u},
       {Constant::KEY_LANES, attention(step).key_lanes},
       {Constant::KV_HEADS, static_cast<uint32_t>(Heads(step).kv)},
       {Constant::Q_FIRST, first_column(Attention::q)},
       {Constant::K_FIRST, first_column(Attention::k)},
       {Constant::V_FIRST, first_column(Attention::v)},
       {Constant::Q_STRIDE, stride(Attention::q)},
       {Constant::K_STRIDE, stride(Attention::k)},
       {Constant::V_STRIDE, stride(Attention::v)}});
}

const KeptKernel& VulkanExecutable::attention_kernel(Kernels::What what, const Step& step,
                                                     std::optional<bool> half) {
  const bool shuffle = core_->context.capabilities().subgroup > 1;
  const AttentionPlan& plan = attention(step);
  using What = Kernels::What;
  const bool biased = what != What::kStore && Heads(step).biased;
  const Kernels::Key key{.what = what, .pieces = plan.pieces, .half = half, .biased = biased};
  return core_->kernels.get(key, [&] {
    if (what == What::kBf16Attention) {
      return Kernel{bf16_attention_text(plan.pieces, shuffle, half.value(), biased), {}, {}};
    }
    const AttentionOf of = what == What::kRowAttention     ? AttentionOf::kRow
                           : what == What::kGroupAttention ? AttentionOf::kGroup
                                                           : AttentionOf::kSplit;
    return Kernel{what == What::kStore ? kv_store_text(plan.pieces, shuffle)
                                       : attention_text(plan.pieces, shuffle, of, half, biased),
                  {},
                  {}};
  });
}

// The bindings behind the symbols: inputs, what splits leave, the caches, and the result, which is
// before the caches where there are no splits.
struct VulkanExecutable::AttentionBindings {
  std::vector<size_t> inputs;
  bool partial = false, result = false;
  bool stores() const { return !partial && !result; }
};

VulkanExecutable::Dispatch VulkanExecutable::attention_piece(
    const char* what, const KeptKernel& kernel, const Step& step, size_t variant,
    uint32_t workgroup, uint32_t base, uint32_t rows, const AttentionBindings& bindings) {
  const AttentionPlan& plan = attention(step);
  Dispatch dispatch;
  dispatch.what = what;
  dispatch.key = key_of(kernel, step, workgroup);
  add_counted(variant, dispatch.key);
  add_page_constants(step, variant, dispatch.key);
  dispatch.ranges = {symbols()};
  for (const size_t input : bindings.inputs) {
    dispatch.ranges.push_back(rowwise(step.in(input), base, rows, {}));
  }
  std::vector<Range> result;
  if (bindings.result) result = {rowwise(step.out(), base, rows, halves(variant))};
  dispatch.scratch = bindings.partial;
  if (bindings.partial) dispatch.ranges.push_back(plan.partial);
  for (const auto& ranges :
       bindings.partial ? std::array{plan.caches, result} : std::array{result, plan.caches}) {
    dispatch.ranges.insert(dispatch.ranges.end(), ranges.begin(), ranges.end());
  }
  if (!bindings.stores() && Heads(step).biased)
    dispatch.ranges.push_back(whole(step.in(Attention::bias)));
  dispatch.push = {base, rows, 0, 0};
  return dispatch;
}

void VulkanExecutable::add_store(size_t i, size_t variant, std::vector<Dispatch>& out) {
  const Step& step = program_.steps[i];
  for (size_t before = 0; before < i; ++before) {
    // A step that makes keys and values stores them.
    if (program_.steps[before].attention == i && puts(before, variant)) return;
  }
  const KeptKernel& kernel = attention_kernel(Kernels::What::kStore, step);
  const uint32_t lanes = row_lanes(core_->context.capabilities());
  const uint32_t piece =
      piece_rows({step.in(Attention::k), step.in(Attention::v)}, workspace_.capacity());
  for (uint32_t base = 0; base < workspace_.capacity(); base += piece) {
    out.push_back(attention_piece("store", kernel, step, variant, lanes, base, piece,
                                  {.inputs = {Attention::k, Attention::v}}));
    out.back().waits = base == 0;
  }
}

// Many rows fill the device, each by one workgroup a head. The same bits as by splits, which a wide
// shard's few rows take: a workgroup of one row walks 4,096 keys for 72 us on an H200.
void VulkanExecutable::add_row_attention(const Step& step, size_t variant, bool half,
                                         std::vector<Dispatch>& out) {
  const AttentionPlan& plan = attention(step);
  const KeptKernel& kernel = attention_kernel(Kernels::What::kRowAttention, step, half);
  const uint32_t piece = piece_rows({step.in(Attention::q), step.out()}, workspace_.capacity());
  for (uint32_t base = 0; base < workspace_.capacity(); base += piece) {
    Dispatch rows = attention_piece("row-attention", kernel, step, variant, plan.row_lanes, base,
                                    piece, {.inputs = {Attention::q}, .result = true});
    rows.groups[0] = static_cast<uint32_t>(Heads(step).count);
    rows.row_axis = 2;
    rows.waits = base == 0;
    out.push_back(std::move(rows));
  }
}

void VulkanExecutable::add_attention(size_t i, size_t variant, std::vector<Dispatch>& out) {
  const Step& step = program_.steps[i];
  const Capabilities& device = core_->context.capabilities();
  const AttentionPlan& plan = attention(step);
  using What = Kernels::What;
  add_store(i, variant, out);
  if (add_tiled_attention(step, variant, out)) return;
  const bool half = variant > kWide && halves_[static_cast<size_t>(step.out())];
  const bool many = variant == kDecodeCoopMatrix || (variant == kWide && device.small_tiles);
  if (many && device.subgroup > 1 && plan.keeps_splits) {
    return add_row_attention(step, variant, half, out);
  }
  const Parts parts = this->parts(step);
  const bool few = variant < kWide && kNarrowRows[variant] * Heads(step).count <= kFewHeads;
  const bool small = variant == kLongRow || variant == kFewCoopMatrix;
  const uint32_t split_lanes = small ? plan.row_lanes : few ? plan.many_lanes : plan.split_lanes;
  const bool joins = !joins_matmul(i, variant);
  for (uint32_t base = 0; base < workspace_.capacity(); base += plan.rows) {
    const What what = in_bf16(step)      ? What::kBf16Attention
                      : parts.splits > 1 ? What::kGroupAttention
                                         : What::kSplitAttention;
    const KeptKernel& kernel =
        attention_kernel(what, step, joins ? std::optional(half) : std::nullopt);
    Dispatch split =
        attention_piece("attention", kernel, step, variant, split_lanes, base, plan.rows,
                        {.inputs = {Attention::q}, .partial = true, .result = joins});
    split.groups = {static_cast<uint32_t>(Heads(step).count), parts.count, 1};
    split.row_axis = 2;
    split.part_keys = kSplitKeys * parts.splits;
    out.push_back(std::move(split));
  }
}

bool VulkanExecutable::add_tiled_attention(const Step& step, size_t variant,
                                           std::vector<Dispatch>& out) {
  const Capabilities& device = core_->context.capabilities();
  const AttentionPlan& plan = attention(step);
  const auto size = static_cast<uint32_t>(Heads(step).dim);
  if (variant < kPromptCoopMatrix || variant >= kDecodeCoopMatrix ||
      !halves_[static_cast<size_t>(step.out())] || plan.pieces > 1 ||
      slot(step.in(Attention::k_cache)).dtype == DType::kF32 || in_bf16(step) ||
      size % kUnitTile != 0 || (size > 96 && size != 128) || device.subgroup < kUnitTile ||
      (step.inputs[Attention::q].access.first | slot(step.in(Attention::q)).dims[1]) % 2 != 0) {
    return false;
  }
  // Memory as the shader lays it out: a tile of keys and of values; and of each subgroup's rows the
  // floats, the words of halves and a scale, and three words for all of them.
  const uint32_t keys = shader::TILE_KEYS(size);
  const uint32_t widest = std::max(shader::TILE_PART(size), keys);
  const size_t tiles = size_t{2} * keys * shader::TILE_CHUNKS(size) * 16;
  const size_t each =
      (kUnitTile * (shader::TILE_FLOATS(widest) + shader::TILE_HALVES(widest) + 1) + 3) *
      sizeof(uint32_t);
  uint32_t parts = 4;
  while (parts > 0 && tiles + parts * each > device.shared_bytes()) parts /= 2;
  if (parts == 0) return false;
  const uint32_t piece = piece_rows({step.in(Attention::q), step.out()}, workspace_.capacity());
  for (uint32_t base = 0; base < workspace_.capacity(); base += piece) {
    Dispatch dispatch;
    dispatch.what = "tiled-attention";
    const bool biased = Heads(step).biased;
    const KeptKernel& kernel =
        core_->kernels.get({.what = Kernels::What::kTiledAttention, .biased = biased}, [&] {
          return Kernel{tiled_attention_text(biased), {}, {}};
        });
    dispatch.key = key_of(kernel, step, parts * device.subgroup);
    add_unit_sizes(dispatch.key);
    add_page_constants(step, variant, dispatch.key);
    dispatch.ranges = {symbols(), rowwise(step.in(Attention::q), base, piece, {}),
                       rowwise(step.out(), base, piece, halves(variant)), plan.caches[0],
                       plan.caches[1]};
    if (biased) dispatch.ranges.push_back(whole(step.in(Attention::bias)));
    dispatch.push = {base, piece, 0, 0};
    dispatch.groups[0] = static_cast<uint32_t>(Heads(step).count);
    dispatch.row_axis = 1;
    dispatch.rows_per_group = parts * kUnitTile;
    dispatch.waits = base == 0;
    out.push_back(std::move(dispatch));
  }
  return true;
}

}  // namespace split::vulkan
