#include "run/shard.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "io/quantize.h"

namespace split {
namespace {

constexpr uint32_t kMaxLogitRows = 32;  // of one step: 50,257 floats each
constexpr uint32_t kSmallRows = 8;      // of a step whose stages are timed
constexpr uint64_t kMeasureEvery = 32;
constexpr uint64_t kSteadySteps = 64;  // a device that fails again before has failed for good

DType kv_type(Profile profile, std::optional<DType> kv) {
  return kv.value_or(profile == Profile::kF32 ? DType::kF32 : DType::kF16);
}

uint64_t page_bytes(const ModelConfig& config, int layers, DType kv) {
  return 2 * static_cast<uint64_t>(layers) *
         tensor_bytes(kv, {kPageTokens, config.channels}).value();
}

// What is kept, once device and model take it. Where products round their rows to bf16, so does
// attention, on a device that can and with heads of whole steps.
DType kept(const Device& device, const ModelConfig& config, const ShardOptions& options) {
  expect_profile(device, options.profile);
  const int64_t head = config.channels / config.heads;
  const bool whole = head % static_cast<int64_t>(kBlock) == 0;
  const bool rounds = options.profile != Profile::kF32 && options.profile != Profile::kF16;
  if (!options.kv && rounds && whole && device.keeps(DType::kBF16)) return DType::kBF16;
  const DType kv = kv_type(options.profile, options.kv);
  if (!device.keeps(kv)) {
    throw Error(ErrorKind::kInput, cat("[shard] keys and values in ", format_name(kv), ": ",
                                       device.name(), " does not keep them so"));
  }
  if (is_quantised(kv) && !whole) {
    throw Error(ErrorKind::kInput,
                cat("[shard] keys and values in ", format_name(kv),
                    ": expected heads of a multiple of ", kBlock, ", got ", head));
  }
  return kv;
}

ShardOptions with_kept(const Device& device, const ModelConfig& config, ShardOptions options) {
  options.kv = kept(device, config, options);
  return options;
}

uint32_t pages_per_sequence(const ModelConfig& config) {
  return (static_cast<uint32_t>(config.context) + kPageTokens - 1) / kPageTokens;
}

// How many pages the budget holds.
uint32_t page_count(const ModelConfig& config, int layers, const ShardOptions& options) {
  const uint64_t one = kv_bytes_for(config, layers, options.profile, 1, options.kv);
  if (options.kv_bytes < one) {
    throw Error(ErrorKind::kInput,
                cat("[shard] KV budget: expected at least ", one, " bytes for one sequence of ",
                    config.context, " tokens, got ", options.kv_bytes));
  }
  // A shard without blocks (the final norm and the head alone) has pages that hold nothing.
  const uint64_t pages =
      layers == 0
          ? uint64_t{64} * pages_per_sequence(config)
          : options.kv_bytes / page_bytes(config, layers, kv_type(options.profile, options.kv));
  return static_cast<uint32_t>(std::min<uint64_t>(pages, 1u << 24));
}

int layers_of(const Model& model, const ShardOptions& options) {
  return std::max(0, std::min(options.last, model.config().layers) - options.first);
}

}  // namespace

namespace {
constexpr std::pair<Profile, std::string_view> kProfiles[] = {
    {Profile::kF32, "f32"},   {Profile::kF16, "f16"},   {Profile::kBF16, "bf16"},
    {Profile::kQ8_0, "q8_0"}, {Profile::kQ4_0, "q4_0"}, {Profile::kInt8, "int8"}};
}  // namespace

std::string_view profile_name(Profile profile) {
  return kProfiles[static_cast<size_t>(profile)].second;
}

std::optional<Profile> profile_from_name(std::string_view name) {
  for (const auto& [profile, known] : kProfiles) {
    if (known == name) return profile;
  }
  return std::nullopt;
}

StageFormats profile_formats(Profile profile) {
  const bool blocks = profile == Profile::kQ8_0 || profile == Profile::kQ4_0;
  if (profile == Profile::kInt8) return StageFormats::parse("q8_0");
  return blocks ? StageFormats::parse(profile_name(profile)) : StageFormats{};
}

void expect_profile(const Device& device, Profile profile) {
  if (profile != Profile::kInt8 || device.multiplies_int8()) return;
  throw Error(ErrorKind::kInput, cat("profile int8: ", device.name(),
                                     " has no such products, expected the CPU (--device cpu)"));
}

TensorView stored_weight(const Checkpoint& checkpoint, const WeightDecl& decl) {
  const TensorView* const own = checkpoint.find(decl.name);
  const bool copies = !decl.from.empty() && !(own != nullptr && is_quantised(own->dtype));
  return checkpoint.at(copies ? decl.from : decl.name);
}

WeightSource weights_of(const Checkpoint& checkpoint, const Model& model) {
  return [&](const std::string& name) { return stored_weight(checkpoint, model.weight(name)); };
}

uint64_t kv_bytes_for(const ModelConfig& config, int layers, Profile profile, uint64_t sequences,
                      std::optional<DType> kv) {
  return page_bytes(config, layers, kv_type(profile, kv)) * pages_per_sequence(config) * sequences;
}

struct Shard::Loaded {
  std::map<std::string, OwnedTensor> converted;  // gone after the buffers, which may read them
  std::map<std::string, std::unique_ptr<Buffer>> weights;
  std::vector<std::unique_ptr<Buffer>> caches;  // K and V of each layer
  std::unique_ptr<Buffer> hidden[2];            // point k is in hidden[k % 2]
  std::unique_ptr<Buffer> normed;
  std::unique_ptr<Buffer> logits, top;
  std::unique_ptr<Workspace> workspace;
  std::unique_ptr<Executable> embed, norm, head, topk;
  std::vector<std::unique_ptr<Executable>> blocks;  // of the layers from options.first on
  Limits limits;

  // Scratch of a step, sized once.
  std::vector<Executable*> programs;
  std::vector<int32_t> tokens, positions;
  std::vector<uint32_t> sequences, tables, out_rows;
  std::vector<float> in, out;
};

Shard::Shard(Device& device, const Model& model, const WeightSource& weights,
             const ShardOptions& options)
    : device_(&device),
      model_(model),
      weights_(weights),
      options_(with_kept(device, model.config(), options)),
      page_bytes_(split::page_bytes(model.config(), layers_of(model, options), *options_.kv)),
      pages_(page_count(model.config(), layers_of(model, options), options),
             pages_per_sequence(model.config())),
      steps_(kSteadySteps) {
  try {
    load();
  } catch (const Error& error) {
    if (!recover(error)) throw;
  }
}

bool Shard::recover(const Error& error) {
  if (error.kind() != ErrorKind::kDevice || !device().fallible()) return false;
  loaded_.reset();
  const auto load_again = [&](const std::string& what) {
    load();
    log_warning(cat(error.what(), "; ", what));
    pages_.forget();
  };
  if (std::exchange(steps_, 0) >= kSteadySteps) {
    try {
      device().restart();
      load_again(cat(device().name(), " was started again"));
      return true;
    } catch (const Error& again) {
      if (again.kind() != ErrorKind::kDevice) throw;
    }
  }
  cpu_ = make_cpu_device(options_.threads);
  device_ = cpu_.get();
  load_again("the CPU takes its place");
  return true;
}

void Shard::load() {
  auto made = std::make_unique<Loaded>();
  const Model& model = model_;
  const WeightSource& weights = weights_;
  const ShardOptions& options = options_;
  Device& device = this->device();
  const ModelConfig& config = model.config();
  const auto channels = static_cast<size_t>(config.channels);
  Loaded& loaded = *made;

  // What a stage's weights are in the programs.
  const auto stored_in = [&](std::optional<DType> format) -> Model::DTypeOf {
    return [&, format](const std::string& name) {
      const bool in_blocks = format && is_quantised(*format);
      if (in_blocks && model.weight(name).product != Product::kNone) return *format;
      const TensorView view = weights.declared(name);
      if (view.dims.size() != 2 || is_quantised(view.dtype)) return view.dtype;
      return options_.profile == Profile::kF16    ? DType::kF16
             : options_.profile == Profile::kBF16 ? DType::kBF16
                                                  : view.dtype;
    };
  };
  const Model::DTypeOf stored = stored_in({}), in_blocks = stored_in(options_.formats.block),
                       in_head = stored_in(options_.formats.head);
  const DType cache = *options_.kv;
  const FuseRules rules = device.fuse_rules();
  std::vector<Program> programs;
  const auto compiled = [&](std::string name, const std::vector<NamedOutput>& outputs) {
    programs.push_back(compile(std::move(name), outputs, rules));
    if (debug_level() >= 1) log_info(to_string(programs.back()));
  };
  if (options.embed) compiled("embed", model.trace_embed(stored));
  const int last_block = std::min(options.last, config.layers);
  for (int layer = options.first; layer < last_block; ++layer) {
    compiled(cat("block.", layer), model.trace_block(layer, in_blocks, cache));
  }
  if (options.last >= norm_point()) compiled("norm", model.trace_norm(stored));
  if (options.last >= head_point()) {
    compiled("head", model.trace_head(in_head));
    const Tensor logits = input("logits", DType::kF32, {kOutRows, config.vocab});
    compiled("topk", {{"top", topk(logits, static_cast<int64_t>(width(top_point()) / 2))}});
  }

  loaded.limits.rows = options.max_rows;
  loaded.limits.sequences = options.max_rows;
  loaded.limits.pages_per_sequence = pages_per_sequence(config);
  loaded.limits.pages = pages_.total();
  loaded.limits.matrix = options_.profile == Profile::kF16 || options_.profile == Profile::kBF16;
  loaded.limits.wide = options.wide;
  loaded.limits.int8 = options_.profile == Profile::kInt8;
  for (const Program& program : programs) {
    loaded.limits.arena_row_bytes =
        std::max(loaded.limits.arena_row_bytes, program.arena_row_bytes);
  }
  loaded.workspace = device.workspace(loaded.limits);
  // All caches before any weight: beside weights that go up, a device takes several times as long.
  for (int i = 0; i < 2 * (last_block - options.first); ++i) {
    loaded.caches.push_back(device.alloc_pages(loaded.limits, config.channels, cache));
  }
  for (auto& hidden : loaded.hidden)
    hidden = device.alloc(options.max_rows * channels * sizeof(float));
  if (options.last >= norm_point())
    loaded.normed = device.alloc(options.max_rows * channels * sizeof(float));
  if (options.last >= head_point()) {
    loaded.logits = device.alloc(size_t{max_wanted(head_point())} *
                                 static_cast<size_t>(config.vocab) * sizeof(float));
    loaded.top = device.alloc(size_t{max_wanted(top_point())} * width(top_point()) * sizeof(float));
  }

  std::optional<ThreadPool> threads;  // of this machine, once there is something to quantise
  std::vector<std::pair<const Buffer*, TensorView>> borrowed;
  const auto tell_taken = [&] {
    std::erase_if(borrowed, [&](const auto& item) {
      if (item.first->borrows()) return false;
      weights.taken(item.second);
      return true;
    });
  };
  // One buffer for each weight, whoever reads it.
  const auto bind = [&](const Program& program, std::vector<Binding> bindings) {
    for (const Slot& slot : program.slots) {
      if (slot.kind != SlotKind::kWeight) continue;
      std::unique_ptr<Buffer>& buffer = loaded.weights[slot.name];
      if (buffer == nullptr) {
        TensorView view = weights.view(slot.name);
        const TensorView source = view;
        const WeightDecl& decl = model.weight(slot.name);
        const Dims dims = stored_dims(decl, view.dtype);
        if (view.dims != dims) {
          throw Error(ErrorKind::kShape, cat("[shard] weight '", slot.name, "': expected ",
                                             to_string(dims), ", got ", to_string(view.dims)));
        }
        if (is_quantised(view.dtype) && !scales_are_finite(view)) {
          throw Error(ErrorKind::kInput,
                      cat("[shard] weight '", slot.name, "': a scale is not finite"));
        }
        if (view.dtype != slot.dtype) {
          if (is_quantised(view.dtype)) {
            throw Error(ErrorKind::kShape,
                        cat("[shard] weight '", slot.name, "': expected ", dtype_name(slot.dtype),
                            ", got ", dtype_name(view.dtype)));
          }
          if (is_quantised(slot.dtype) && !threads) threads.emplace(0u);
          OwnedTensor made = is_quantised(slot.dtype)
                                 ? quantised(view, slot.dtype, decl.product == Product::kInOut,
                                             slot.name, &*threads)
                                 : converted(view, slot.dtype);
          view = loaded.converted.emplace(slot.name, std::move(made)).first->second.view;
        }
        buffer = device.upload(slot, view);
        if (weights.taken) borrowed.emplace_back(buffer.get(), source);
      }
      bindings.push_back({slot.name, buffer.get()});
    }
    auto executable = device.load(program, *loaded.workspace, bindings);
    tell_taken();
    return executable;
  };
  size_t next = 0;
  if (options.embed) loaded.embed = bind(programs[next++], {{"hidden", loaded.hidden[0].get()}});
  for (int layer = options.first; layer < last_block; ++layer) {
    const size_t k_cache = 2 * loaded.blocks.size();
    loaded.blocks.push_back(
        bind(programs[next++], {{"hidden", loaded.hidden[layer % 2].get()},
                                {"hidden_out", loaded.hidden[(layer + 1) % 2].get()},
                                {"k_cache", loaded.caches[k_cache].get()},
                                {"v_cache", loaded.caches[k_cache + 1].get()}}));
  }
  Buffer* const final_hidden = loaded.hidden[config.layers % 2].get();
  if (options.last >= norm_point()) {
    loaded.norm =
        bind(programs[next++], {{"hidden", final_hidden}, {"normed", loaded.normed.get()}});
  }
  if (options.last >= head_point()) {
    loaded.head =
        bind(programs[next++], {{"hidden", final_hidden}, {"logits", loaded.logits.get()}});
    loaded.topk =
        bind(programs[next++], {{"logits", loaded.logits.get()}, {"top", loaded.top.get()}});
  }
  device.settle();
  tell_taken();
  std::erase_if(loaded.converted,
                [&](const auto& item) { return !loaded.weights.at(item.first)->borrows(); });
  loaded_ = std::move(made);
}

Shard::~Shard() = default;

size_t Shard::width(int point) const {
  const ModelConfig& config = model_.config();
  return static_cast<size_t>(point == top_point()    ? 2 * std::min(kTopLogits, config.vocab)
                             : point == head_point() ? config.vocab
                                                     : config.channels);
}

uint32_t Shard::max_wanted(int point) const {
  return point >= head_point() ? std::min(kMaxLogitRows, options_.max_rows) : options_.max_rows;
}

std::map<std::string, double> Shard::stage_times() const {
  const std::lock_guard lock(times_mutex_);
  return times_;
}

// One program after the other, timed. The final norm is in the head's program.
void Shard::run_apart(const std::vector<std::string>& stages, const RowBatch& batch) {
  Loaded& loaded = *loaded_;
  const std::span<Executable* const> programs = loaded.programs;
  std::vector<double> ms;
  for (size_t i = 0; i < programs.size(); ++i) {
    RowBatch part = batch;
    if (i > 0) part.in = nullptr;
    if (i + 1 < programs.size()) part.out = nullptr;
    const auto start = std::chrono::steady_clock::now();
    device().run(*loaded.workspace, programs.subspan(i, 1), part);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                     .count());
  }
  const std::lock_guard lock(times_mutex_);
  for (size_t i = 0; i < ms.size(); ++i) times_[stages[i]] = ms[i];
}

void Shard::forward(Phase phase, int from, int to, std::span<const ShardRows> parts, float* out) {
  if (loaded_ == nullptr) throw Error(ErrorKind::kDevice, "[shard] its device failed");
  Loaded& loaded = *loaded_;
  const ModelConfig& config = model_.config();
  const auto channels = static_cast<size_t>(config.channels);
  const bool from_tokens = parts[0].tokens != nullptr;
  CHECK(from >= options_.first && from <= config.layers && to >= from);
  CHECK(to <= options_.last || (to == top_point() && options_.last == head_point()));
  CHECK(!from_tokens || (from == 0 && options_.embed));

  loaded.tokens.clear();
  loaded.positions.clear();
  loaded.sequences.clear();
  loaded.tables.assign(parts.size() * loaded.limits.pages_per_sequence, loaded.limits.pages);
  loaded.out_rows.clear();
  loaded.in.clear();
  for (size_t p = 0; p < parts.size(); ++p) {
    const ShardRows& part = parts[p];
    CHECK((part.tokens != nullptr) == from_tokens);
    const uint32_t past = pages_.length(part.sequence);
    const auto row0 = static_cast<uint32_t>(loaded.positions.size());
    // Here, because a device's workers cannot throw.
    CHECK(uint64_t{past} + part.count <= static_cast<uint64_t>(config.context));
    for (uint32_t t = 0; t < part.count; ++t) {
      if (from_tokens) {
        CHECK(part.tokens[t] >= 0 && part.tokens[t] < config.vocab);
        loaded.tokens.push_back(part.tokens[t]);
      }
      loaded.positions.push_back(static_cast<int32_t>(past + t));
      loaded.sequences.push_back(static_cast<uint32_t>(p));
    }
    if (!from_tokens)
      loaded.in.insert(loaded.in.end(), part.hidden, part.hidden + part.count * channels);
    const size_t pages = pages_.copy_table(
        part.sequence, loaded.tables.data() + p * loaded.limits.pages_per_sequence);
    CHECK(pages * kPageTokens >= past + part.count);
    for (const uint32_t wanted : part.wanted) loaded.out_rows.push_back(row0 + wanted);
  }

  loaded.programs.clear();
  if (from_tokens) loaded.programs.push_back(loaded.embed.get());
  for (int layer = from; layer < std::min(to, config.layers); ++layer) {
    loaded.programs.push_back(loaded.blocks[static_cast<size_t>(layer - options_.first)].get());
  }
  const bool any = !loaded.out_rows.empty();
  if (any && to == norm_point()) loaded.programs.push_back(loaded.norm.get());
  if (any && to >= head_point()) loaded.programs.push_back(loaded.head.get());
  if (any && to == top_point()) loaded.programs.push_back(loaded.topk.get());

  RowBatch batch;
  batch.phase = phase;
  batch.rows = static_cast<uint32_t>(loaded.positions.size());
  CHECK(batch.rows <= options_.max_rows && loaded.out_rows.size() <= max_wanted(to));
  batch.tokens = loaded.tokens;
  batch.positions = loaded.positions;
  batch.sequences = loaded.sequences;
  batch.page_tables = loaded.tables;
  batch.out_rows = loaded.out_rows;
  if (!from_tokens) {
    batch.in = loaded.hidden[from % 2].get();
    batch.in_bytes = std::as_bytes(std::span(loaded.in));
  }
  const size_t row_floats = width(to);
  const auto rows_out = static_cast<ptrdiff_t>(loaded.out_rows.size());
  if (any && to <= config.layers) {
    // The smallest run of rows that holds the wanted ones.
    const size_t first = loaded.out_rows.front(), count = loaded.out_rows.back() - first + 1;
    loaded.out.resize(count * row_floats);
    batch.out = loaded.hidden[to % 2].get();
    batch.out_offset = first * row_floats * sizeof(float);
    batch.out_bytes = std::as_writable_bytes(std::span(loaded.out));
  } else if (any) {
    batch.out = (to == norm_point()   ? loaded.normed
                 : to == head_point() ? loaded.logits
                                      : loaded.top)
                    .get();
    batch.out_bytes = std::as_writable_bytes(std::span(out, loaded.out_rows.size() * row_floats));
  }
  const bool small = phase == Phase::kGenerate && batch.rows <= kSmallRows &&
                     !loaded.programs.empty();  // else rows only pass through
  // A GPU would take a submission and a wait for each stage.
  if (small && !device().fallible() && small_steps_++ % kMeasureEvery == 1) {
    std::vector<std::string> stages;
    if (from_tokens) stages.push_back("embed");
    for (int layer = from; layer < std::min(to, config.layers); ++layer) {
      stages.push_back(cat("block.", layer));
    }
    if (stages.size() < loaded.programs.size()) {
      stages.push_back(to == norm_point() ? "norm" : "head");
    }
    if (any && to == top_point()) stages.push_back("topk");
    run_apart(stages, batch);
  } else {
    device().run(*loaded.workspace, loaded.programs, batch);
  }
  ++steps_;
  if (any && to <= config.layers) {
    for (ptrdiff_t i = 0; i < rows_out; ++i) {
      const size_t row = loaded.out_rows[static_cast<size_t>(i)] - loaded.out_rows.front();
      std::copy_n(loaded.out.data() + row * row_floats, row_floats,
                  out + static_cast<size_t>(i) * row_floats);
    }
  }
  for (const ShardRows& part : parts) {
    pages_.advance(part.sequence, pages_.length(part.sequence) + part.count);
  }
}

}  // namespace split
