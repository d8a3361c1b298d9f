#include "device/vulkan/codegen/glsl.h"

#include <algorithm>
#include <cctype>
#include <unordered_set>

#include "base/error.h"
#include "compile/tape_text.h"
#include "device/vulkan/codegen/numbers.h"
#include "device/vulkan/codegen/shader_texts.h"
#include "device/vulkan/codegen/tape_glsl.h"
#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

using Matmul = inputs::matmul;
using Attention = inputs::attention;

// Declares the names of the two tables (shaders/numbers.def, constants.def) in the text.
std::string declarations(std::string_view text) {
  std::unordered_set<std::string_view> words;
  const auto in_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t first = at;
    while (at < text.size() && in_word(text[at])) ++at;
    if (at > first) words.insert(text.substr(first, at - first));
  }
  const auto names = [&](std::string_view name) { return words.count(name) != 0; };
  std::string all;
  const auto number = [&](std::string_view name, uint32_t value) {
    if (names(name)) all += cat("const uint ", name, " = ", value, ";\n");
  };
#define SYMBOL(name, input) number(#name, static_cast<uint32_t>(StepArray::name));
#define NUMBER(name, value) number(#name, value);
#define FORMULA(name, x, ...) \
  if (names(#name)) all += "#define " #name "(" #x ") (" #__VA_ARGS__ ")\n";
#include "device/vulkan/shaders/numbers.def"
  for (uint32_t id = 0; id < kTapeConstants; ++id) {
    const ConstantRow& row = kConstantRows[id];
    if (!names(row.name)) continue;
    all += cat("layout(constant_id = ", id, ") const ", row.type, " ", row.name, " = ", row.value,
               ";\n");
  }
  return all;
}

// A whole kernel: `body` behind the common beginning of kernels.
std::string kernel_text(bool shuffle, const std::string& body, std::string_view extensions = "") {
  const std::string text = cat(kCommon, body);
  return cat(
      "#version 460\n"
      "#extension GL_EXT_control_flow_attributes : require\n"
      "#extension GL_EXT_shader_16bit_storage : require\n",
      shuffle ? "#extension GL_KHR_shader_subgroup_basic : require\n"
                "#extension GL_KHR_shader_subgroup_shuffle : require\n"
                "#define SHUFFLE\n"
              : "",
      extensions, "layout(local_size_x_id = ", id_of(Constant::WORKGROUP), ") in;\n",
      declarations(text), text);
}

constexpr std::string_view kUnitsExtensions =
    "#pragma use_vulkan_memory_model\n"
    "#extension GL_KHR_memory_scope_semantics : require\n"
    "#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require\n"
    "#extension GL_NV_cooperative_matrix : require\n";

// The text of a kernel that uses matrix units for halves.
std::string units_text(std::string_view defines, const std::string& body) {
  return kernel_text(true, body, cat(kUnitsExtensions, "#define UNITS\n", defines));
}

}  // namespace

uint32_t row_stride(const Slot& slot) {
  const bool weight = slot.kind == SlotKind::kWeight;
  const auto columns = static_cast<uint32_t>(slot.dims.size() < 2 ? slot.dims[0] : slot.dims[1]);
  return weight && slot.dims.size() == 2 ? (columns + 7) / 8 * 8 : columns;
}

uint32_t type_code(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 2;
    default:
      throw Error(ErrorKind::kDevice,
                  cat("[vulkan] expected F32, F16 or BF16 elements, got ", dtype_name(dtype)));
  }
}

uint32_t matrix_code(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return 3;
    case DType::kQ4_0:
      return 4;
    case DType::kQ6_K:
      return 5;
    case DType::kQ4_K:
      return 6;
    default:
      return type_code(dtype);
  }
}

uint32_t table_piece_rows(const Slot& slot, size_t max_range) {
  const size_t row = row_stride(slot) * dtype_size(slot.dtype);
  return static_cast<uint32_t>(
      std::min<size_t>(max_range / row / kPieceAlign * kPieceAlign, 0x7fffffff));
}

Halves half_slots(const Program& program, const std::function<bool(const Step&)>& by_units) {
  Halves halves(program.slots.size());
  for (size_t i = 0; i < halves.size(); ++i) {
    const Slot& slot = program.slots[i];
    const std::vector<Reader> reading = readers(program, static_cast<int>(i));
    halves[i] = slot.kind == SlotKind::kTemp && slot.dtype == DType::kF32 && !reading.empty() &&
                std::all_of(reading.begin(), reading.end(), [&](const Reader& reader) {
                  return reader.input == Matmul::x && by_units(program.steps[reader.step]);
                });
  }
  for (const Step& step : program.steps) {
    const bool writes =
        step.op == Op::k_group || step.op == Op::k_matmul || step.op == Op::k_attention;
    for (const int slot : results(step)) {
      if (!writes) halves[static_cast<size_t>(slot)] = false;
    }
  }
  return halves;
}

FusedNeighbours joined_to(const Program& program, size_t i, const Takes& takes) {
  FusedNeighbours joined;
  const std::optional<size_t> at = joined_before(program, i);
  if (takes.input && at) {
    const Step& before = program.steps[*at];
    const bool group = before.op == Op::k_group;
    joined.input = group ? FusedNeighbours::Input::kGroup : FusedNeighbours::Input::kSplits;
    (group ? joined.group : joined.splits) = &before;
  }
  const auto neighbour = [&](bool taken, const std::optional<size_t>& named) {
    return taken && named ? &program.steps[*named] : nullptr;
  };
  joined.twin = neighbour(takes.twin, program.steps[i].twin);
  joined.rotation = neighbour(takes.rotation, program.steps[i].rotation);
  joined.attention = neighbour(takes.attention, program.steps[i].attention);
  if (!takes.siblings) return joined;
  for (const size_t at : program.steps[i].siblings) {
    const Step& sibling = program.steps[at];
    const bool puts = sibling.attention && (takes.rotation || !sibling.rotation);
    if (const Step* attention = neighbour(takes.attention && puts, sibling.attention)) {
      joined.attention = attention;
    }
    joined.siblings.push_back(
        {&sibling, neighbour(takes.rotation, sibling.rotation), takes.attention && puts});
  }
  return joined;
}

Kernel group_kernel(const Program& program, const Step& step, bool shuffle, size_t max_range,
                    const Halves& halves) {
  KernelParts parts(1);
  const TapeWriter tape(program, step.tape, parts, 0, true, max_range, halves);
  return std::move(parts).kernel(kernel_text(
      shuffle, cat("shared float exchange[ROW_CHAINS];\n", op_functions_glsl(),
                   op_functions({&step.tape}), tape.declarations(), tape.group(step.columns))));
}

namespace {

// put_kv(), for caches of one piece.
std::string put_text(const Step& attention, KernelParts& parts) {
  const uint32_t k = parts.bind({Bind::Kind::kCache, attention.in(Attention::k_cache), 0});
  const uint32_t v = parts.bind({Bind::Kind::kCache, attention.in(Attention::v_cache), 0});
  return cat("#define CACHE_PIECES 1\n#define K_BINDING ", k, "\n#define V_BINDING ", v, "\n",
             kPut);
}

// The bindings of a matrix; one in blocks has its scales bound behind it.
std::string weight_bindings(uint32_t w, bool blocks) {
  return cat("#define W_BINDING ", w, "\n",
             blocks ? cat("#define IN_BLOCKS\n#define SCALES_BINDING ", w + 1, "\n") : "");
}

bool is_in_blocks(const Program& program, const Step& step) {
  return is_quantised(program.slots[static_cast<size_t>(step.in(Matmul::w))].dtype);
}

// void keep(r, c, value): stores into the rows of the step with that column, or of its rotation;
// and with `tiles` keep_tile(r, c, values). Keys and values that go to pages are not kept.
std::string keep_text(const Step& step, const FusedNeighbours& joined, bool tiles,
                      KernelParts& parts) {
  std::string buffers, one, tile;
  const auto add = [&](const Step& of, std::string_view first, std::string_view end) {
    const std::string name = cat("kept_from_", first), stride = cat("(", end, " - ", first, ")");
    buffers += kGlsl.buffer(parts.bind({Bind::Kind::kRowwise, results(of)[0], 0}), "writeonly ",
                            name, "float");
    const std::string own = cat("  if (c >= ", first, " && c < ", end, ") "),
                      at = cat("r * ", stride, " + c - ", first);
    one += cat(own, name, "[", at, "] = value;\n");
    tile += cat(own, "coopMatStoreNV(value, ", name, ", ", at, ", ", stride, ", false);\n");
  };
  add(joined.rotation != nullptr ? *joined.rotation : step, "0", "SECOND");
  for (size_t i = 0; i < joined.siblings.size(); ++i) {
    const auto& [sibling, rotation, puts] = joined.siblings[i];
    if (puts) continue;
    add(rotation != nullptr ? *rotation : *sibling, i == 0 ? "SECOND" : "THIRD",
        i == 0 ? "THIRD" : "COLUMNS");
  }
  return cat(buffers, "void keep(uint r, uint c, float value) {\n", one, "}\n",
             tiles ? cat("void keep_tile(uint r, uint c, SUM value) {\n", tile, "}\n") : "");
}

// Returns the functions that pair.glsl calls beside the tape of the step: the twin's, or the tables
// of a rotation.
std::string pair_text(const FusedNeighbours& joined, const TapeWriter* twin, KernelParts& parts) {
  if (joined.twin != nullptr) {
    return cat(twin->declarations(), "float twin;\n", twin->value("twin"));
  }
  const Turn turn(*joined.rotation);
  std::string text = "#undef FETCHES\n#define FETCHES (2 * FINISHES)\n";
  for (const auto& [name, slot] : {std::pair{"cosines", turn.cos}, {"sines", turn.sin}}) {
    text += kGlsl.buffer(parts.bind({Bind::Kind::kWhole, slot, 0}), "readonly ", name, "float");
  }
  return text;
}

// The text that kernels of lanes and of matrix units share: their matrices, from binding w on, and
// the use of a sum. `tiles`: of a whole tile of sums, too.
struct ProductText {
  std::string matrices, ending;
};
ProductText product_text(const Program& program, const Step& step, const FusedNeighbours& joined,
                         uint32_t w, bool tiles, size_t max_range, const Halves& halves,
                         KernelParts& parts) {
  constexpr size_t kTwinBase = 200;  // past any epilogue's names
  const bool blocks = is_in_blocks(program, step);
  const bool turns = joined.rotation != nullptr, puts = joined.attention != nullptr;
  const bool keeps = turns || !joined.siblings.empty();
  const int made = joined.twin != nullptr ? results(*joined.twin)[0] : -1;
  const TapeWriter tape(program, step.tape, parts, 0, !keeps, max_range, halves, made);
  ProductText text{weight_bindings(w, blocks), ""};
  std::vector<const Tape*> tapes = {&step.tape};
  std::optional<TapeWriter> twin;
  if (joined.twin != nullptr) {
    const uint32_t its = w + (blocks ? 2 : 1);
    tapes.push_back(&joined.twin->tape);
    twin.emplace(program, joined.twin->tape, parts, kTwinBase, false, max_range, halves);
    text.matrices += cat("#define TWIN\n#define TWIN_BINDING ", its,
                         "\n#define TWIN_SCALES_BINDING ", its + 1, "\n");
  }
  if (keeps) text.matrices += puts ? "#define KEEPS\n#define PUTS\n" : "#define KEEPS\n";
  if (turns) text.matrices += "#define ROTATED\n";
  if (joined.group != nullptr) tapes.push_back(&joined.group->tape);
  text.ending = op_functions(tapes);
  if (joined.in_pairs()) text.ending += pair_text(joined, twin ? &*twin : nullptr, parts);
  if (puts) {
    text.ending += cat(joined.splits != nullptr ? "" : kPages, put_text(*joined.attention, parts));
  }
  if (keeps) text.ending += keep_text(step, joined, tiles && !turns, parts);
  text.ending += cat(tape.declarations(), keeps ? tape.value("own") : tape.epilogue(puts));
  if (tiles && !turns) text.ending += tape.tile_epilogue(puts, joined.twin);
  return text;
}

// Bindings up to the last matrix of a product whose first is w.
uint32_t bindings_of(uint32_t w, const FusedNeighbours& joined, bool blocks) {
  return w + (joined.twin != nullptr ? 2 : 1) * (blocks ? 2 : 1);
}

}  // namespace

Kernel matmul_kernel(const Program& program, const Step& step, const FusedNeighbours& joined,
                     bool shuffle, BlockProduct by, size_t max_range, const Halves& halves,
                     bool dots) {
  constexpr std::string_view kByHalves =
      "#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require\n#define HALVES\n";
  constexpr std::string_view kByDots =
      "#extension GL_EXT_spirv_intrinsics : require\n#define DOT\n";
  constexpr size_t kPrologueBase = 100;  // past any epilogue's names
  const uint32_t w = joined.input == FusedNeighbours::Input::kSlot ? 2 : 1;
  const bool blocks = is_in_blocks(program, step), int8 = blocks && by >= BlockProduct::kInt8;
  KernelParts parts(bindings_of(w, joined, blocks));
  const ProductText product =
      product_text(program, step, joined, w, false, max_range, halves, parts);
  std::string text = product.matrices, stage;
  if (joined.input == FusedNeighbours::Input::kGroup) {
    const TapeWriter prologue(program, joined.group->tape, parts, kPrologueBase, false, max_range,
                              halves);
    text += "#define STAGED K\nshared float exchange[ROW_CHAINS];\n";
    stage = cat(prologue.declarations(), prologue.prologue());
  } else if (joined.input == FusedNeighbours::Input::kSplits) {
    text += cat("#define STAGED ((K + 3) / 4 * 4)\n#define PARTIAL_BINDING ",
                parts.bind({Bind::Kind::kPartial, -1, 0}), "\n");
    stage = cat(kPages, kMerged,
                "#define TAKE(four, y) put_four(four, y);\n"
                "uvec2 staged_splits;\n"
                "void fetch_stage(uint r, uint lane) {\n"
                "  staged_splits = seen_splits(piece.row_base + r);\n}\n"
                "void stage(uint r, uint lane) {\n  MERGE_ROW(r, lane, staged_splits, TAKE)\n}\n");
  }
  const std::string body =
      !int8 ? cat(kMatmulShape, kStaged, kPair, stage, kMatmul)
      : by == BlockProduct::kInt8
          ? cat("#define ROUNDS\n", kStaged, kPair, stage, kInt8Row, kInt8Weights, kInt8Product)
          : cat(kPair, kInt8Row, kInt8Weights,
                by == BlockProduct::kInt8Units ? kInt8Units : kInt8Rows);
  const std::string extensions =
      by == BlockProduct::kInt8Units
          ? cat(kUnitsExtensions,
                "#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require\n"
                "#extension GL_NV_integer_cooperative_matrix : require\n")
      : int8 && dots                ? std::string(kByDots)
      : by == BlockProduct::kHalves ? std::string(kByHalves)
                                    : "";
  return std::move(parts).kernel(
      kernel_text(shuffle, cat(text, op_functions_glsl(), product.ending, kWeights, body),
                  blocks ? extensions : ""));
}

std::string int8_round_text() {
  return kernel_text(false, cat("#define ROUNDS\n#define IN_BYTES (W_TYPE == 3 || W_TYPE == 5)\n",
                                op_functions_glsl(), kWeights, kStaged, kInt8Row, kInt8Round));
}

Kernel matrix_kernel(const Program& program, const Step& step, const FusedNeighbours& joined,
                     bool few, size_t max_range, const Halves& halves) {
  constexpr uint32_t kMatrixBinding = 2;
  KernelParts parts(bindings_of(kMatrixBinding, joined, is_in_blocks(program, step)));
  const ProductText product =
      product_text(program, step, joined, kMatrixBinding, !few, max_range, halves, parts);
  const std::string sums =
      few ? "" : cat("#define SUMS_BINDING ", parts.bind({Bind::Kind::kPartial, -1, 0}), "\n");
  // Values that pass through halves have no use for the last bits of an exponential.
  const std::string text = cat(
      product.matrices, sums, kWeights, kUnits, op_functions_glsl(),
      "#define exp_f exp\n#define sigmoid_f(x) (1.0 / (1.0 + exp(-(x))))\n", product.ending, kPair);
  return std::move(parts).kernel(
      units_text(few ? "#define FEW\n" : "", cat(text, few ? kThinMatrix : kMatrix)));
}

namespace {

// The caches start at binding 3, K's pieces first.
std::string caches(uint32_t pieces) {
  return cat("#define CACHE_PIECES ", pieces, "\n#define K_BINDING 3\n#define V_BINDING ",
             3 + pieces, "\n");
}

std::string bias_text(bool biased, uint32_t binding) {
  return biased ? cat("#define BIASED\n#define BIAS_BINDING ", binding, "\n") : "";
}

}  // namespace

std::string kv_store_text(uint32_t pieces, bool shuffle) {
  return kernel_text(shuffle, cat(caches(pieces), op_functions_glsl(), kPages, kPut, kKvStore));
}
std::string attention_text(uint32_t pieces, bool shuffle, AttentionOf of,
                           std::optional<bool> halves, bool biased) {
  std::string result = of == AttentionOf::kGroup ? "#define GROUPED\n" : "";
  const bool joined = halves && of != AttentionOf::kRow;
  result += bias_text(biased, 3 + 2 * pieces + (joined ? 1 : 0));
  if (halves) {
    result +=
        cat(of == AttentionOf::kRow ? "#define RESULT " : "#define JOINED ",
            *halves ? "float16_t" : "float", "\n#define RESULT_BINDING ", 3 + 2 * pieces, "\n");
  }
  return kernel_text(shuffle,
                     cat(result, caches(pieces), op_functions_glsl(), kPages, kCaches, kAttention));
}
std::string bf16_attention_text(uint32_t pieces, bool shuffle, bool halves, bool biased) {
  const std::string result = cat("#define JOINED ", halves ? "float16_t" : "float",
                                 "\n#define RESULT_BINDING ", 3 + 2 * pieces, "\n");
  return kernel_text(shuffle, cat(bias_text(biased, 4 + 2 * pieces), result, caches(pieces),
                                  op_functions_glsl(), kPages, kCaches, kBf16Attention));
}
std::string tiled_attention_text(bool biased) {
  const std::string bias = biased ? bias_text(true, 5) + std::string(op_functions_glsl()) : "";
  return units_text("", cat(bias, kPages, kTiledAttention));
}
std::string rotate_text(bool normed, bool puts) {
  const std::string put =
      puts ? cat("#define PUTS\n#define CACHE_PIECES 1\n#define K_BINDING 2\n#define V_BINDING ",
                 normed ? 6 : 5, "\n", kPages, kPut)
           : "";
  return kernel_text(false, cat(normed ? "#define NORMED\n" : "",
                                normed || puts ? op_functions_glsl() : "", put, kRotate));
}
std::string block_max_text() { return kernel_text(false, cat(kTopK, kBlockMax)); }
std::string topk_text() { return kernel_text(false, cat(kTopK, kRowTopK)); }
std::string conv_rows_text() { return kernel_text(false, cat(kExactFunctions, kState, kConvRows)); }
std::string delta_text() { return kernel_text(false, cat(kExactFunctions, kState, kDelta)); }
std::string head_part_text() { return kernel_text(false, std::string(kHeadPart)); }

}  // namespace split::vulkan
