// How a Shard is loaded: its stages are traced, room is made for caches and results, weights go up
// in the order of the stages.
#include <algorithm>

#include "base/log.h"
#include "base/sort.h"
#include "io/quantize.h"
#include "run/self_test.h"
#include "run/shard/shard_loaded.h"
#include "tensor/blocks.h"

namespace split {

TensorView ShardWeights::checked(const std::string& name) const {
  if (const Constant* constant = model_.constant(name)) return constant->view();
  TensorView view = source_.view(name);
  const Dims dims = stored_dims(model_.weight(name), view.dtype);
  if (view.dims != dims) {
    throw Error(ErrorKind::kShape, cat("[shard] weight '", name, "': expected ", to_string(dims),
                                       ", got ", to_string(view.dims)));
  }
  // Not all of a table, which stays on the disk.
  const bool all = !model_.weight(name).looked_up;
  if (is_quantised(view.dtype) && all && !scales_are_finite(view)) {
    throw Error(ErrorKind::kInput, cat("[shard] weight '", name, "': a scale is not finite"));
  }
  if (model_.weight(name).finite && !values_are_finite(view)) {
    throw Error(ErrorKind::kInput, cat("[shard] weight '", name, "': a value is not finite"));
  }
  if (!model_.weight(name).first_row) return view;
  const size_t row = view.bytes.size() / static_cast<size_t>(dims[0]);
  return {view.dtype, {dims[1]}, view.bytes.first(row)};
}

TensorView ShardWeights::converted_to(DType dtype, const TensorView& view, const WeightDecl& decl) {
  if (is_quantised(view.dtype) && (device_.multiplies(view.dtype) || is_quantised(dtype))) {
    throw Error(ErrorKind::kShape, cat("[shard] weight '", decl.name, "': expected ",
                                       dtype_name(dtype), ", got ", dtype_name(view.dtype)));
  }
  if (const auto made = converted_.find(decl.name); made != converted_.end()) {
    return made->second.view;
  }
  if (is_quantised(view.dtype)) {
    OwnedTensor made = converted(dequantised(view).view, dtype);
    if (decl.product == Product::kInOut) {
      throw Error(ErrorKind::kShape, cat("[shard] weight '", decl.name, "': expected floats on ",
                                         device_.name(), ", got ", dtype_name(view.dtype)));
    }
    if (!told_) {
      log_info(cat("[shard] ", device_.name(), ": weights in ", dtype_name(view.dtype),
                   " and the like become f16 there, 3.6 times their bytes or less"));
    }
    told_ = true;
    return converted_.emplace(decl.name, std::move(made)).first->second.view;
  }
  if (is_quantised(dtype) && !threads_) threads_.emplace(0u);
  OwnedTensor made = is_quantised(dtype) ? quantised(view, dtype, decl.product == Product::kInOut,
                                                     decl.name, &*threads_)
                                         : converted(view, dtype);
  return converted_.emplace(decl.name, std::move(made)).first->second.view;
}

void ShardWeights::fetch(const Slot& slot) {
  if (buffers_.contains(slot.name) || fetched_.contains(slot.name)) return;
  const TensorView view = checked(slot.name);
  if (view.dtype != slot.dtype) converted_to(slot.dtype, view, model_.weight(slot.name));
  fetched_.emplace(slot.name, view);
}

Buffer* ShardWeights::get(const Slot& slot) {
  if (const auto known = buffers_.find(slot.name); known != buffers_.end()) {
    return known->second.get();
  }
  fetch(slot);
  const TensorView view = fetched_.extract(slot.name).mapped();
  const bool ready = view.dtype == slot.dtype;
  const TensorView own = ready ? view : converted_to(slot.dtype, view, model_.weight(slot.name));
  auto buffer = device_.upload(slot, spread(slot, own));
  const bool given = model_.constant(slot.name) == nullptr;
  if (given && source_.taken) borrowed_.emplace_back(buffer.get(), view);
  return buffers_.emplace(slot.name, std::move(buffer)).first->second.get();
}

// Repeats a single number as often as the slot has columns.
TensorView ShardWeights::spread(const Slot& slot, const TensorView& view) {
  if (model_.constant(slot.name) != nullptr || model_.weight(slot.name).spread == 0) return view;
  std::vector<std::byte>& all = spread_[slot.name];
  for (int64_t i = 0; i < slot.dims[0]; ++i) {
    all.insert(all.end(), view.bytes.begin(), view.bytes.end());
  }
  return {view.dtype, slot.dims, all};
}

void ShardWeights::forget(std::span<const std::string> names) {
  for (const std::string& name : names) {
    fetched_.erase(name);
    if (const auto at = buffers_.find(name); at != buffers_.end()) {
      std::erase_if(borrowed_, [&](const auto& item) { return item.first == at->second.get(); });
      buffers_.erase(at);
    }
    converted_.erase(name);
    spread_.erase(name);
  }
}

void ShardWeights::tell_taken() {
  std::erase_if(borrowed_, [&](const auto& item) {
    if (item.first->borrows()) return false;
    source_.taken(item.second);
    return true;
  });
}

void ShardWeights::settle() {
  tell_taken();
  threads_.reset();
  std::erase_if(converted_, [&](const auto& item) { return !buffers_.at(item.first)->borrows(); });
}

void Shard::load() {
  auto loaded = std::make_shared<Loaded>(device(), model_, weights_);
  const std::vector<Program> programs = trace();
  for (const Program& program : programs) check_supported(device(), program);
  loaded->limits = limits_of(programs);
  long_rows_ = loaded->limits.most_rows();
  same_bits_in_both_phases_ = std::ranges::all_of(programs, [&](const Program& program) {
    return has_same_bits_in_both_phases(program, loaded->limits);
  });
  if (loaded->limits.int8 == Int8Rows::kAll) differs_from_exact_ = exact_difference(device());
  loaded->workspace = device().workspace(loaded->limits);
  device().prepare(std::span(programs).subspan(first_part()), *loaded->workspace);
  allocate(*loaded);
  bind(*loaded, programs);
  device().settle();
  loaded->weights.settle();
  loaded_ = std::move(loaded);
}

bool Shard::has_same_bits_in_both_phases(const Program& program, const Limits& limits) const {
  return std::ranges::all_of(program.slots, [&](const Slot& slot) {
    const bool matrix = slot.kind == SlotKind::kWeight && slot.dims.size() == 2;
    return !matrix || device().same_bits_in_both_phases(limits, slot.dtype);
  });
}

size_t Shard::parts() const {
  return stages_.size() + (!stages_.empty() && stages_.back().logits ? 1 : 0);
}

size_t Shard::first_part() const {
  const int layers = model_.config().layers;
  const size_t stage = StageRange{floor(), floor()}.begin(layers) - options_.range.begin(layers);
  return stage < stages_.size() ? stage : parts();
}

// Traces a program of each stage, and the top k if there are logits.
std::vector<Program> Shard::trace() const {
  std::vector<Program> programs;
  for (size_t i = 0; i < parts(); ++i) programs.push_back(trace(i, i >= first_part()));
  return programs;
}

// Traces stage `i`. Before it is there, unnamed formats are taken to be floats: the rows between
// its steps are equal.
Program Shard::trace(size_t i, bool there) const {
  const auto compiled = [&](const std::string& name, const std::vector<NamedOutput>& outputs) {
    Program program = compile(name, outputs, device().fuse_rules());
    if (there && debug_level() >= 1) log_info(to_string(program));
    return program;
  };
  if (i == stages_.size()) {
    const Tensor logits = input("logits", DType::kF32, {kOutRows, stages_.back().width});
    return compiled("topk", {{"top", topk(logits, static_cast<int64_t>(width(Point::top()) / 2))}});
  }
  const Stage& stage = stages_[i];
  const std::optional<DType> format = options_.formats.of(stage.name);
  const bool in_blocks = format && is_quantised(*format);
  const auto stored = [&](const std::string& name) {
    const WeightDecl& decl = model_.weight(name);
    if (in_blocks && decl.product != Product::kNone) return *format;
    const TensorView view =
        there ? weights_.declared(name) : TensorView{DType::kF32, decl.dims, {}};
    if (view.dims.size() == 2 && !device().multiplies(view.dtype)) return DType::kF16;
    if (view.dims.size() != 2 || is_quantised(view.dtype)) return view.dtype;
    return options_.profile == Profile::kF16    ? DType::kF16
           : options_.profile == Profile::kBF16 ? DType::kBF16
                                                : view.dtype;
  };
  std::vector<NamedOutput> outputs = {stage.trace({stored, *options_.kv})};
  const std::vector<NamedOutput> beside = std::move(outputs[0].beside);
  outputs.insert(outputs.end(), beside.begin(), beside.end());
  if (int8_rows(options_.profile) == Int8Rows::kAll) {
    for (NamedOutput& output : outputs) output.tensor = clean(output.tensor);
  }
  return compiled(stage.name, outputs);
}

Limits Shard::limits_of(std::span<const Program> programs) const {
  Limits limits;
  limits.rows = options_.max_rows;
  limits.sequences =
      model_.config().encodes() ? std::min(options_.max_rows, kMostTexts) : options_.max_rows;
  limits.pages_per_sequence = pages_.per_sequence();
  limits.pages = pages_.total();
  limits.states = pages_.states();
  limits.matrix = options_.profile != Profile::kF32 && options_.profile != Profile::kInt8;
  limits.wide = options_.wide;
  limits.int8 = int8_rows(options_.profile);
  for (const Program& program : programs) {
    limits.arena_row_bytes = std::max(limits.arena_row_bytes, program.arena_row_bytes);
  }
  limits.long_rows = options_.long_rows;
  if (!device().takes_long_rows(limits)) limits.long_rows = 0;
  return limits;
}

// Makes room for caches and results. All caches come before any weight: while weights go up, a
// device takes several times as long.
void Shard::allocate(Loaded& loaded) const {
  if (pages_.states() > 0) {
    loaded.rows.states.resize(static_cast<size_t>(model_.config().layers));
  }
  for (const Stage& stage : stages_) loaded.parts.emplace_back().name = stage.name;
  if (loaded.parts.size() < parts()) loaded.parts.emplace_back().name = "topk";
  for (auto& hidden : loaded.hidden) {
    hidden = device().alloc(loaded.limits.most_rows() *
                            static_cast<size_t>(model_.config().channels) * sizeof(float));
  }
  for (const RowPart& part : model_.config().row_parts) {
    loaded.beside[part.name] = device().alloc(loaded.limits.most_rows() *
                                              static_cast<size_t>(part.columns) * sizeof(float));
  }
  for (size_t i = first_part(); i < parts(); ++i) allocate_part(loaded, i);
}

void Shard::allocate_part(Loaded& loaded, size_t i) const {
  Loaded::Part& part = loaded.parts[i];
  const auto rows = [&](size_t count, size_t width) {
    return device().alloc(count * width * sizeof(float));
  };
  if (i == stages_.size()) {
    part.rows = rows(max_wanted(Point::top()), width(Point::top()));
    return;
  }
  const Stage& stage = stages_[i];
  if (stage.kv.heads > 0) {
    const auto pages = [&] {
      return std::shared_ptr<Buffer>(
          device().alloc_pages(loaded.limits, stage.kv.width(), *options_.kv));
    };
    size_t other = 0;
    while (other < stages_.size() &&
           (loaded.parts[other].k_cache == nullptr || !shares_pages(stages_[other], stage))) {
      ++other;
    }
    const bool share = other < stages_.size();
    part.k_cache = share ? loaded.parts[other].k_cache : pages();
    part.v_cache = share ? loaded.parts[other].v_cache : pages();
  }
  for (const std::string& name : stage.tables) {
    loaded.tables[name].rows =
        rows(loaded.limits.most_rows(), static_cast<size_t>(model_.weight(name).dims[1]));
  }
  if (stage.kv.state.keeps()) part.states = device().alloc_states(loaded.limits, stage.kv.state);
  if (stage.takes == Takes::kOutRows) {
    part.rows = rows(max_wanted_of(stage.logits), static_cast<size_t>(stage.width));
  }
}

// The source and the target of part i's rows, and its weights and caches.
std::vector<Binding> Shard::bindings_of(Loaded& loaded, size_t i, const Program& program) const {
  Loaded::Part& part = loaded.parts[i];
  const bool top = i == stages_.size(), joins = !top && stages_[i].joins_last;
  const size_t point = i + options_.range.begin(model_.config().layers);
  Buffer* const from =
      top ? loaded.parts[i - 1].rows.get() : loaded.hidden[(point - (joins ? 2 : 1)) % 2].get();
  Buffer* const to = part.rows ? part.rows.get() : loaded.hidden[point % 2].get();
  std::vector<Binding> bindings;
  for (const Slot& slot : program.slots) {
    if (slot.kind == SlotKind::kTemp || slot.dtype == DType::kI32) continue;
    const auto beside = loaded.beside.find(slot.name);
    const auto table = loaded.tables.find(slot.name);
    if (table != loaded.tables.end()) table->second.view = loaded.weights.table(slot.name);
    Buffer* const buffer = slot.kind == SlotKind::kWeight   ? loaded.weights.get(slot)
                           : beside != loaded.beside.end()  ? beside->second.get()
                           : table != loaded.tables.end()   ? table->second.rows.get()
                           : slot.kind == SlotKind::kOutput ? to
                           : slot.name == "k_cache"         ? part.k_cache.get()
                           : slot.name == "v_cache"         ? part.v_cache.get()
                           : slot.name == "state"           ? part.states.get()
                                                            : from;
    bindings.push_back({slot.name, buffer});
  }
  return bindings;
}

void Shard::bind(Loaded& loaded, std::span<const Program> programs) const {
  struct Part {
    size_t i;
    std::vector<Bytes> weights;  // as far as they are there
    size_t bytes;
  };
  std::vector<Part> order;
  for (size_t i = first_part(); i < programs.size(); ++i) {
    Part& part = order.emplace_back(Part{i, {}, 0});
    for (const Slot& slot : programs[i].slots) {
      if (slot.kind == SlotKind::kWeight && model_.constant(slot.name) == nullptr) {
        part.bytes += part.weights.emplace_back(weights_.declared(slot.name).bytes).size();
      }
    }
  }
  if (weights_.largest_first) sort_stably(order, std::greater(), &Part::bytes);
  for (size_t at = 0; at < order.size(); ++at) {
    const size_t i = order[at].i;
    // Asks for the next stage's bytes while this one's are taken.
    if (at + 1 < order.size()) {
      std::ranges::for_each(order[at + 1].weights, MappedFile::will_need);
    }
    loaded.parts[i].executable =
        device().load(programs[i], *loaded.workspace, bindings_of(loaded, i, programs[i]));
    loaded.weights.tell_taken();
  }
}

}  // namespace split
