// How a Shard is loaded: its stages are traced, room is made for what they keep and leave, weights
// go up in the order of the stages.
#include <algorithm>

#include "base/log.h"
#include "io/quantize.h"
#include "run/shard_loaded.h"

namespace split {

TensorView ShardWeights::checked(const std::string& name) const {
  TensorView view = source_.view(name);
  const Dims dims = stored_dims(model_.weight(name), view.dtype);
  if (view.dims != dims) {
    throw Error(ErrorKind::kShape, cat("[shard] weight '", name, "': expected ", to_string(dims),
                                       ", got ", to_string(view.dims)));
  }
  if (is_quantised(view.dtype) && !scales_are_finite(view)) {
    throw Error(ErrorKind::kInput, cat("[shard] weight '", name, "': a scale is not finite"));
  }
  return view;
}

TensorView ShardWeights::converted_to(DType dtype, const TensorView& view, const WeightDecl& decl) {
  if (view.dtype == dtype) return view;
  if (is_quantised(view.dtype)) {
    throw Error(ErrorKind::kShape, cat("[shard] weight '", decl.name, "': expected ",
                                       dtype_name(dtype), ", got ", dtype_name(view.dtype)));
  }
  if (is_quantised(dtype) && !threads_) threads_.emplace(0u);
  OwnedTensor made = is_quantised(dtype) ? quantised(view, dtype, decl.product == Product::kInOut,
                                                     decl.name, &*threads_)
                                         : converted(view, dtype);
  return converted_.emplace(decl.name, std::move(made)).first->second.view;
}

Buffer* ShardWeights::get(const Slot& slot) {
  std::unique_ptr<Buffer>& buffer = buffers_[slot.name];
  if (buffer == nullptr) {
    const TensorView view = checked(slot.name);
    buffer = device_.upload(slot, converted_to(slot.dtype, view, model_.weight(slot.name)));
    if (source_.taken) borrowed_.emplace_back(buffer.get(), view);
  }
  return buffer.get();
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
  auto loaded = std::make_unique<Loaded>(device(), model_, weights_);
  const std::vector<Program> programs = trace();
  loaded->limits = limits_of(programs);
  same_bits_in_both_phases_ = std::ranges::all_of(programs, [&](const Program& program) {
    return std::ranges::all_of(program.slots, [&](const Slot& slot) {
      const bool matrix = slot.kind == SlotKind::kWeight && slot.dims.size() == 2;
      return !matrix || device().same_bits_in_both_phases(loaded->limits, slot.dtype);
    });
  });
  loaded->workspace = device().workspace(loaded->limits);
  device().prepare(programs, *loaded->workspace);
  allocate(*loaded);
  bind(*loaded, programs);
  device().settle();
  loaded->weights.settle();
  loaded_ = std::move(loaded);
}

// A program of each stage, then the top k where there are logits.
std::vector<Program> Shard::trace() const {
  // The type of a weight in the program of a stage in `format`.
  const auto stored = [&](const std::string& name, std::optional<DType> format) {
    const bool in_blocks = format && is_quantised(*format);
    if (in_blocks && model_.weight(name).product != Product::kNone) return *format;
    const TensorView view = weights_.declared(name);
    if (view.dims.size() != 2 || is_quantised(view.dtype)) return view.dtype;
    return options_.profile == Profile::kF16    ? DType::kF16
           : options_.profile == Profile::kBF16 ? DType::kBF16
                                                : view.dtype;
  };
  std::vector<Program> programs;
  const auto compiled = [&](const std::string& name, const NamedOutput& output) {
    programs.push_back(compile(name, {output}, device().fuse_rules()));
    if (debug_level() >= 1) log_info(to_string(programs.back()));
  };
  for (const Stage& stage : stages_) {
    const std::optional<DType> format = options_.formats.of(stage.name);
    compiled(stage.name, stage.trace({[&](const std::string& name) { return stored(name, format); },
                                      *options_.kv}));
    if (!stage.logits) continue;
    const Tensor logits = input("logits", DType::kF32, {kOutRows, stage.width});
    compiled("topk", {"top", topk(logits, static_cast<int64_t>(width(Point::top()) / 2))});
  }
  return programs;
}

Limits Shard::limits_of(std::span<const Program> programs) const {
  Limits limits;
  limits.rows = options_.max_rows;
  limits.sequences = options_.max_rows;
  limits.pages_per_sequence = pages_.per_sequence();
  limits.pages = pages_.total();
  limits.matrix = options_.profile != Profile::kF32 && options_.profile != Profile::kInt8;
  limits.wide = options_.wide;
  limits.int8 = options_.profile == Profile::kInt8;
  for (const Program& program : programs) {
    limits.arena_row_bytes = std::max(limits.arena_row_bytes, program.arena_row_bytes);
  }
  return limits;
}

// Makes room for what stages keep and leave. All caches before any weight: beside weights that go
// up, a device takes several times as long.
void Shard::allocate(Loaded& loaded) const {
  const auto rows = [&](size_t count, size_t width) {
    return device().alloc(count * width * sizeof(float));
  };
  for (const Stage& stage : stages_) {
    Loaded::Part& part = loaded.parts.emplace_back();
    part.name = stage.name;
    if (stage.kv.heads == 0) continue;
    part.k_cache = device().alloc_pages(loaded.limits, stage.kv.width(), *options_.kv);
    part.v_cache = device().alloc_pages(loaded.limits, stage.kv.width(), *options_.kv);
  }
  for (auto& hidden : loaded.hidden) {
    hidden = rows(options_.max_rows, static_cast<size_t>(model_.config().channels));
  }
  for (size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    if (stage.takes != Takes::kOutRows) continue;
    loaded.parts[i].rows = rows(max_wanted_of(stage.logits), static_cast<size_t>(stage.width));
  }
  if (stages_.empty() || !stages_.back().logits) return;
  Loaded::Part& top = loaded.parts.emplace_back();
  top.name = "topk";
  top.rows = rows(max_wanted(Point::top()), width(Point::top()));
}

void Shard::bind(Loaded& loaded, std::span<const Program> programs) const {
  // The weights of each program, as far as they are there: those of the next are asked for while
  // one's are taken.
  std::vector<std::vector<Bytes>> ahead(programs.size() + 1);
  for (size_t i = 0; i < programs.size(); ++i) {
    for (const Slot& slot : programs[i].slots) {
      if (slot.kind == SlotKind::kWeight) {
        ahead[i].push_back(weights_.declared(slot.name).bytes);
      }
    }
  }
  for (size_t i = 0; i < programs.size(); ++i) {
    std::ranges::for_each(ahead[i + 1], MappedFile::will_need);
    Loaded::Part& part = loaded.parts[i];
    // Where its rows come from, and where they go.
    const bool top = i == stages_.size(), joins = !top && stages_[i].joins_last;
    const size_t point = i + options_.range.begin(model_.config().layers);
    Buffer* const from =
        top ? loaded.parts[i - 1].rows.get() : loaded.hidden[(point - (joins ? 2 : 1)) % 2].get();
    Buffer* const to = part.rows ? part.rows.get() : loaded.hidden[point % 2].get();
    std::vector<Binding> bindings;
    for (const Slot& slot : programs[i].slots) {
      if (slot.kind == SlotKind::kTemp || slot.dtype == DType::kI32) continue;
      Buffer* const buffer = slot.kind == SlotKind::kWeight   ? loaded.weights.get(slot)
                             : slot.kind == SlotKind::kOutput ? to
                             : slot.name == "k_cache"         ? part.k_cache.get()
                             : slot.name == "v_cache"         ? part.v_cache.get()
                                                              : from;
      bindings.push_back({slot.name, buffer});
    }
    part.executable = device().load(programs[i], *loaded.workspace, bindings);
    loaded.weights.tell_taken();
  }
}

}  // namespace split
