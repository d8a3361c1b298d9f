// What a Shard is made of, and how it is loaded.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "io/quantize.h"
#include "run/shard_loaded.h"

namespace split {
namespace {

constexpr uint32_t kMaxLogitRows = 32;  // of one step: 50,257 floats each
constexpr uint64_t kSteadySteps = 64;   // a device that fails again before has failed for good

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
  loaded.limits.matrix = options_.profile != Profile::kF32 && options_.profile != Profile::kInt8;
  loaded.limits.wide = options.wide;
  loaded.limits.int8 = options_.profile == Profile::kInt8;
  for (const Program& program : programs) {
    loaded.limits.arena_row_bytes =
        std::max(loaded.limits.arena_row_bytes, program.arena_row_bytes);
  }
  phases_alike_ = std::ranges::all_of(programs, [&](const Program& program) {
    return std::ranges::all_of(program.slots, [&](const Slot& slot) {
      const bool matrix = slot.kind == SlotKind::kWeight && slot.dims.size() == 2;
      return !matrix || device.phases_alike(loaded.limits, slot.dtype);
    });
  });
  loaded.workspace = device.workspace(loaded.limits);
  device.prepare(programs, *loaded.workspace);
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
  // The weights of each program, as far as they are there: those of the next are asked for while
  // one's are taken.
  std::vector<std::vector<Bytes>> ahead;
  for (const Program& program : programs) {
    ahead.emplace_back();
    for (const Slot& slot : program.slots) {
      if (slot.kind != SlotKind::kWeight) continue;
      ahead.back().push_back(weights.declared(slot.name).bytes);
    }
  }
  size_t next = 0;
  // One buffer for each weight, whoever reads it.
  const auto bind = [&](const Program& program, std::vector<Binding> bindings) {
    if (next < ahead.size()) std::ranges::for_each(ahead[next], MappedFile::will_need);
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

}  // namespace split
