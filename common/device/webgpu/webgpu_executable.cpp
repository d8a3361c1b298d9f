#include "device/webgpu/webgpu_executable.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "compile/arena.h"
#include "device/webgpu/product_wgsl.h"
#include "device/webgpu/row_attention.h"

namespace split::webgpu {
namespace {

using Json = nlohmann::json;

// Sizes of the symbols (symbols.wgsl).
constexpr uint32_t kHead = 2, kArrays = 7;
// Buffers of a kernel that every adapter has.
constexpr size_t kMostBuffers = 8;
constexpr size_t kMostHeadDim = 256;  // in attention.wgsl
constexpr int64_t kSorted = 1024;     // numbers at once, in best.wgsl
constexpr uint32_t kAnyRows = 0x7fffffff;

// The kernels of a product, by the rows that a workgroup takes, and the rows of a step that each is
// for.
struct Block {
  uint32_t rows, from, to;
};
constexpr Block kBlocks[] = {{1, 1, 1}, {8, 2, kAnyRows}};

}  // namespace

WebGpuWorkspace::WebGpuWorkspace(const Limits& limits)
    : limits_(limits),
      symbols_(sizeof(uint32_t) *
               (kHead + size_t{kArrays} * limits.most_rows() +
                std::max<size_t>(1, size_t{limits.sequences} * limits.pages_per_sequence))) {}

std::shared_ptr<gpu::Buffer> WebGpuWorkspace::temporary(size_t i, size_t bytes) {
  if (temporaries_.size() <= i) temporaries_.resize(i + 1);
  if (!temporaries_[i] || temporaries_[i]->size() < bytes) {
    temporaries_[i] = std::make_shared<gpu::Buffer>(bytes);
  }
  return temporaries_[i];
}

void WebGpuWorkspace::write(const RowBatch& batch) {
  const size_t capacity = limits_.most_rows();
  words_.assign(kHead + kArrays * capacity, 0);
  words_[0] = batch.rows;
  words_[1] = static_cast<uint32_t>(batch.out_rows.size());
  const auto put = [&](size_t which, const auto& numbers) {
    std::ranges::transform(numbers,
                           words_.begin() + static_cast<ptrdiff_t>(kHead + which * capacity),
                           [](auto number) { return static_cast<uint32_t>(number); });
  };
  put(0, batch.tokens);
  put(1, batch.positions);
  put(2, batch.marks);
  put(3, batch.out_rows);
  put(4, batch.sequences);
  for (size_t row = 0; row < batch.seen.size(); ++row) {
    words_[kHead + 5 * capacity + row] = batch.seen[row].first;
    words_[kHead + 6 * capacity + row] = batch.seen[row].end;
  }
  words_.insert(words_.end(), batch.page_tables.begin(), batch.page_tables.end());
  symbols_.write(0, std::as_bytes(std::span(words_)));
}

// Writes the list.
struct WebGpuExecutable::Builder {
  const MergedProgram& merged;
  const Program& program;
  WebGpuWorkspace& workspace;
  std::span<const Binding> bindings;
  WebGpuExecutable& made;
  std::vector<RowAttention> by_rows;           // attentions that do more in a step of one row
  std::vector<gpu::Buffer*> temporaries = {};  // by slot
  Json list = Json::array();

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::kDevice, cat("[webgpu] program '", program.name, "': ", what));
  }
  const Slot& slot(int index) const { return program.slots[static_cast<size_t>(index)]; }
  WebGpuBuffer& bound(int index) const {
    if (const auto all = merged.weights.find(index); all != merged.weights.end()) {
      std::vector<const WebGpuBuffer*> others;
      for (const int other : std::span(all->second.slots).subspan(1)) {
        others.push_back(&bound(other));
      }
      WebGpuBuffer& first = bound(all->second.slots[0]);
      first.lay_together(others, all->second.by_turns);
      return first;
    }
    for (const Binding& binding : bindings) {
      if (binding.name == slot(index).name) return static_cast<WebGpuBuffer&>(*binding.buffer);
    }
    refuse(cat("slot '", slot(index).name, "' is bound to nothing"));
  }
  Json binding(const gpu::Buffer& buffer, bool written = false) const {
    if (buffer.size() > kMostBinding) {
      refuse(cat("a binding of ", buffer.size(), " bytes, expected at most ", kMostBinding));
    }
    return {{"id", buffer.id()}, {"size", buffer.size()}, {"written", written}};
  }
  // A slot but a matrix.
  Json rows(int index, bool written = false) const {
    const Slot& its = slot(index);
    if (its.kind == SlotKind::kTemp) {
      return binding(*temporaries[static_cast<size_t>(index)], written);
    }
    if (its.kind == SlotKind::kWeight) return binding(bound(index).vector());
    return binding(bound(index).plain(), written);
  }
  Json symbols() const { return binding(workspace.symbols()); }

  void place_temporaries();
  void add(const Step& step, Json kernel, Json numbers, Json buffers, uint32_t per, int64_t x,
           int64_t y, uint32_t from = 1, uint32_t to = kAnyRows) {
    if (buffers.size() > kMostBuffers) {
      refuse(cat("a kernel of ", op_info(step.op).name, " with ", buffers.size(),
                 " buffers, expected at most ", kMostBuffers));
    }
    numbers["CAPACITY"] = workspace.limits().most_rows();
    numbers["PAGES"] = workspace.limits().pages_per_sequence;
    if (!numbers.contains("COLUMNS")) numbers["COLUMNS"] = step.columns;
    list.push_back({{"kernel", std::move(kernel)},
                    {"numbers", std::move(numbers)},
                    {"buffers", std::move(buffers)},
                    {"by", step.rows == kOutRows ? "out" : "rows"},
                    {"per", per},
                    {"x", x},
                    {"y", y},
                    {"from", from},
                    {"to", to}});
  }
  void add_tape(const Step& step, const TapeKernel& kernel, Json text, Json buffers, uint32_t per,
                int64_t y, Json numbers = Json::object(), uint32_t from = 1,
                uint32_t to = kAnyRows);
  void add_group(const Step& step);
  void add_matmul(const Step& step);
  void add_attention(const Step& step);
  void add_row_attention(const RowAttention& of, const Json& numbers);
  void add_rotate(const Step& step);
  void add_topk(const Step& step);
  using Add = void (Builder::*)(const Step&);
  static const ByOp<Add> kAdd;
};

const ByOp<WebGpuExecutable::Builder::Add> WebGpuExecutable::Builder::kAdd = [] {
  ByOp<Add> all;
  all[Op::k_group] = &Builder::add_group;
  all[Op::k_matmul] = &Builder::add_matmul;
  all[Op::k_attention] = &Builder::add_attention;
  all[Op::k_rotate] = all[Op::k_norm_rotate] = &Builder::add_rotate;
  all[Op::k_topk] = &Builder::add_topk;
  return all;
}();

// One buffer each, which those of other lives share: a kernel may not read and write one buffer.
void WebGpuExecutable::Builder::place_temporaries() {
  temporaries.resize(program.slots.size());
  std::vector<Life> lives(program.slots.size(), Life{SIZE_MAX, 0, 1, 0});
  for (size_t i = 0; i < program.steps.size(); ++i) {
    for (const auto& slots : {slots_read(program.steps[i]), results(program.steps[i])}) {
      for (const int index : slots) {
        Life& life = lives[static_cast<size_t>(index)];
        life.first = std::min(life.first, i);
        life.last = std::max(life.last, i);
      }
    }
  }
  for (const RowAttention& one : by_rows) {
    for (const Operand* const operand : {one.q, one.k, one.v}) {
      size_t& last = lives[static_cast<size_t>(operand->slot)].last;
      last = std::max(last, static_cast<size_t>(one.attention - program.steps.data()));
    }
  }
  std::vector<Life> used;
  std::vector<size_t> which;
  for (size_t i = 0; i < lives.size(); ++i) {
    if (program.slots[i].kind != SlotKind::kTemp || lives[i].first == SIZE_MAX) continue;
    used.push_back(lives[i]);
    which.push_back(i);
  }
  place(used);
  for (size_t i = 0; i < used.size(); ++i) {
    const auto width = static_cast<size_t>(program.slots[which[i]].dims.back());
    const auto buffer =
        workspace.temporary(used[i].at, width * workspace.limits().most_rows() * sizeof(float));
    made.temporaries_.push_back(buffer);
    temporaries[which[i]] = buffer.get();
  }
}

void WebGpuExecutable::Builder::add_tape(const Step& step, const TapeKernel& kernel, Json text,
                                         Json buffers, uint32_t per, int64_t y, Json numbers,
                                         uint32_t from, uint32_t to) {
  for (const auto& [name, value] : kernel.overrides) numbers[name] = value;
  // A list for each piece of the one table that has several.
  const TapeKernel::Table* cut = nullptr;
  for (const TapeKernel::Table& table : kernel.tables) {
    const size_t pieces = bound(table.slot).matrix(true).size();
    if (pieces > 1 && cut != nullptr) refuse("two tables above the largest binding");
    if (pieces > 1) cut = &table;
  }
  const size_t pieces = cut == nullptr ? 1 : bound(cut->slot).matrix(true).size();
  for (size_t piece = 0; piece < pieces; ++piece) {
    Json own = buffers, own_numbers = numbers;
    for (const TapeKernel::Bind& bind : kernel.binds) {
      const bool table = std::ranges::any_of(
          kernel.tables, [&](const auto& one) { return one.slot == bind.slot; });
      if (!table) {
        own.push_back(rows(bind.slot, bind.written));
        continue;
      }
      const size_t which = cut != nullptr && cut->slot == bind.slot ? piece : 0;
      own.push_back(binding(*bound(bind.slot).matrix(true)[which].numbers));
    }
    if (cut != nullptr) {
      const auto& its = bound(cut->slot).matrix(true)[piece];
      own_numbers[cat("FIRST", cut->value)] = its.first;
      own_numbers[cat("END", cut->value)] = its.first + its.rows;
    }
    add(step, text, std::move(own_numbers), std::move(own), per, 0, y, from, to);
  }
}

void WebGpuExecutable::Builder::add_group(const Step& step) {
  const TapeKernel kernel = group_kernel(program, step);
  for (const TapeKernel::Table& table : kernel.tables) {
    int64_t& most = made.most_[static_cast<size_t>(table.index)];
    const int64_t size = slot(table.slot).dims[0];
    most = most < 0 ? size : std::min(most, size);
  }
  add_tape(step, kernel, {{"text", kernel.text}}, Json::array({symbols()}), 1, 1);
}

void WebGpuExecutable::Builder::add_matmul(const Step& step) {
  const int x = step.in(inputs::matmul::x), w = step.in(inputs::matmul::w);
  for (const WebGpuBuffer::Piece& piece : bound(w).matrix(slot(w).transposed)) {
    for (const Block& block : kBlocks) {
      const TapeKernel kernel = product_kernel(program, step, block.rows);
      const auto columns = static_cast<int64_t>(product_columns(step, block.rows));
      Json buffers = {symbols(), rows(x), binding(*piece.numbers),
                      piece.scales ? binding(*piece.scales) : symbols()};
      add_tape(step, kernel, {{"text", kernel.text}, {"bases", product_bases(program, step)}},
               std::move(buffers), block.rows, (piece.rows + columns - 1) / columns,
               {{"COLUMN0", piece.first}, {"PIECE", piece.rows}}, block.from, block.to);
    }
  }
}

void WebGpuExecutable::Builder::add_attention(const Step& step) {
  const Heads heads(step);
  const auto first = [&](size_t input) { return step.inputs[input].access.first; };
  const auto stride = [&](size_t input) { return slot(step.in(input)).dims[1]; };
  const int k = step.in(inputs::attention::k), v = step.in(inputs::attention::v);
  const int k_cache = step.in(inputs::attention::k_cache);
  const int v_cache = step.in(inputs::attention::v_cache), bias = step.in(inputs::attention::bias);
  const bool halves = slot(k_cache).dtype == DType::kF16;
  const auto words = static_cast<int64_t>(halves ? heads.kv_width() / 2 : heads.kv_width());
  const auto row = std::ranges::find(by_rows, &step, &RowAttention::attention);
  const uint32_t from = row != by_rows.end() ? 2 : 1;
  add(step, {{"bases", {"kv_store"}}},
      {{"KV_WIDTH", heads.kv_width()},
       {"K_STRIDE", stride(inputs::attention::k)},
       {"K_FIRST", first(inputs::attention::k)},
       {"V_STRIDE", stride(inputs::attention::v)},
       {"V_FIRST", first(inputs::attention::v)},
       {"KV_TYPE", halves ? 1 : 0}},
      {symbols(), rows(k), rows(v), rows(k_cache, true), rows(v_cache, true)}, 1, (words + 63) / 64,
      0, from);
  const Json numbers = {{"HEADS", heads.count},
                        {"KV_HEADS", heads.kv},
                        {"D", heads.dim},
                        {"WIDE", std::bit_ceil((heads.dim + 3) / 4)},
                        {"Q_STRIDE", stride(inputs::attention::q)},
                        {"Q_FIRST", first(inputs::attention::q)},
                        {"WINDOW", heads.window},
                        {"BOTH_WAYS", heads.both_ways ? 1 : 0},
                        {"BIASED", heads.biased ? 1 : 0},
                        {"KV_TYPE", halves ? 1 : 0},
                        {"SCALE", step.attribute<float>(attributes::attention::scale)},
                        {"CAP", step.attribute<float>(attributes::attention::cap)}};
  add(step, {{"bases", {"attention_rows", "attention"}}}, numbers,
      {symbols(), rows(step.out(), true), rows(step.in(inputs::attention::q)), rows(k_cache),
       rows(v_cache), heads.biased ? binding(*bound(bias).matrix(true)[0].numbers) : symbols()},
      1, 0, static_cast<int64_t>(heads.count), from);
  if (row != by_rows.end()) add_row_attention(*row, numbers);
}

void WebGpuExecutable::Builder::add_row_attention(const RowAttention& of, const Json& numbers) {
  const Step& step = *of.attention;
  Json own = numbers;
  Json buffers = {symbols(), rows(step.out(), true),
                  rows(step.in(inputs::attention::k_cache), true),
                  rows(step.in(inputs::attention::v_cache), true)};
  const RowKernel kernel = row_attention_kernel(program, of);
  for (const int slot : kernel.read) buffers.push_back(rows(slot));
  for (const auto& [name, value] : kernel.overrides) own[name] = value;
  Json bases = Json::array({"attention_row", "attention"});
  if (of.norm >= 0) bases.push_back("norm_weight");
  add(step, {{"text", kernel.text}, {"bases", std::move(bases)}}, std::move(own),
      std::move(buffers), 1, 0, static_cast<int64_t>(Heads(step).count), 1, 1);
}

void WebGpuExecutable::Builder::add_rotate(const Step& step) {
  const Turn turn(step);
  const bool weighted = turn.normed;
  const bool in_attention = std::ranges::any_of(by_rows, [&](const RowAttention& one) {
    return &step == one.q_rotation || &step == one.k_rotation;
  });
  add(step, {{"bases", {"norm_weight", "rotate"}}},
      {{"HEADS", turn.heads},
       {"D", turn.head_dim},
       {"X_STRIDE", slot(turn.x.slot).dims[1]},
       {"X_FIRST", turn.x.access.first},
       {"NORMED", weighted ? 1 : 0},
       {"W_TYPE", weighted ? type_code(program, slot(turn.weight), false) : 0},
       {"EPS", turn.eps},
       {"PLUS", turn.plus}},
      {symbols(), rows(turn.x.slot), rows(step.out(), true), rows(turn.cos), rows(turn.sin),
       weighted ? rows(turn.weight) : symbols()},
      1, 0, static_cast<int64_t>(turn.heads), in_attention ? 2 : 1);
}

void WebGpuExecutable::Builder::add_topk(const Step& step) {
  const int64_t taken = step.columns / 2, joins = kSorted / std::max<int64_t>(taken, 1);
  if (joins < 2) refuse(cat("the ", taken, " largest, expected at most ", kSorted / 2));
  int64_t lists = (step.inner + kSorted - 1) / kSorted;
  // No temporaries of the program have these places.
  const int64_t joined = (lists + joins - 1) / joins;
  for (size_t place = program.slots.size(); const int64_t count : {lists, joined}) {
    made.temporaries_.push_back(workspace.temporary(
        place++,
        static_cast<size_t>(count * taken) * workspace.limits().most_rows() * sizeof(uint32_t)));
  }
  const std::span both(made.temporaries_.end() - 2, 2);
  Json numbers = {{"TAKEN", taken}, {"COLUMNS", step.inner}, {"BLOCKS", lists}};
  const Json x = rows(step.in(inputs::topk::x));
  add(step, {{"bases", {"best", "topk_blocks"}}}, numbers, {symbols(), x, binding(*both[0], true)},
      1, 0, lists);
  for (size_t from = 0;; from = 1 - from) {
    const int64_t left = (lists + joins - 1) / joins;
    numbers["LISTS"] = lists;
    add(step, {{"bases", {"best", "topk"}}}, numbers,
        {symbols(), x, left == 1 ? rows(step.out(), true) : binding(*both[1 - from], true),
         binding(*both[from])},
        1, 0, left);
    if (left == 1) break;
    lists = left;
  }
}

bool WebGpuExecutable::supports(const Program& program, const Step& step) {
  if (Builder::kAdd[step.op] == nullptr) return false;
  if (step.op == Op::k_rotate || step.op == Op::k_norm_rotate) {
    return turns_whole_heads(program, step);
  }
  const auto float_rows = [&](int index) {
    return index < 0 || program.slots[static_cast<size_t>(index)].dtype == DType::kF32;
  };
  if (step.op == Op::k_attention) {
    const Heads heads(step);
    return heads.dim <= kMostHeadDim && heads.kv_width() % 2 == 0 &&
           float_rows(step.in(inputs::attention::bias));
  }
  return true;
}

WebGpuExecutable::WebGpuExecutable(const Program& program, WebGpuWorkspace& workspace,
                                   std::span<const Binding> bindings) {
  most_.fill(-1);
  MergedProgram merged = merge_products(program);
  const std::vector<RowAttention> by_rows = row_attentions(merged);
  Builder builder{merged, merged.program, workspace, bindings, *this, by_rows};
  // Before the query's weights are bound alone.
  for (const RowAttention& one : by_rows) {
    if (one.norm >= 0) builder.bound(one.norm);
  }
  builder.place_temporaries();
  for (const Step& step : merged.program.steps) (builder.*Builder::kAdd[step.op])(step);
  id_ = gpu::make_program(builder.list.dump());
}

void WebGpuExecutable::expect_within(const RowBatch& batch) const {
  const std::span<const int32_t> of[] = {batch.tokens, batch.positions, batch.marks};
  for (size_t i = 0; i < std::size(of); ++i) {
    for (const int32_t number : of[i]) {
      if (most_[i] < 0 || (number >= 0 && number < most_[i])) continue;
      throw Error(ErrorKind::kDevice,
                  cat("[webgpu] row ", number, " of a table, expected at most ", most_[i] - 1));
    }
  }
}

}  // namespace split::webgpu
