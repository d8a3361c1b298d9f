// A Shard's parts, and its device.
#include <algorithm>
#include <set>
#include <utility>

#include "base/log.h"
#include "run/shard/shard_loaded.h"

namespace split {
namespace {

constexpr uint32_t kMaxLogitRows = 32;  // in one step: 50,257 floats each
constexpr uint64_t kSteadySteps = 64;   // a device that fails again sooner has failed for good

DType kv_type(Profile profile, std::optional<DType> kv) {
  return kv.value_or(profile == Profile::kF32 ? DType::kF32 : DType::kF16);
}

std::span<const Stage> stages_of(const Model& model, const StageRange& range) {
  const int layers = model.config().layers;
  const size_t begin = range.begin(layers);
  return std::span(model.stages()).subspan(begin, range.end(layers) - begin);
}

uint64_t page_bytes(std::span<const Stage> stages, DType kv, bool encodes) {
  uint64_t bytes = 0;
  std::set<int> sources;
  for (const Stage& stage : stages) {
    if (stage.kv.heads == 0) continue;
    if (stage.kv.source >= 0 && !sources.insert(stage.kv.source).second) continue;
    if (encodes) bytes = 0;  // all blocks share one block's pages
    bytes += 2 * tensor_bytes(kv, {kPageTokens, stage.kv.width()}).value();
  }
  return bytes;
}

uint64_t state_bytes(std::span<const Stage> stages) {
  uint64_t bytes = 0;
  for (const Stage& stage : stages) {
    if (stage.kv.state.keeps()) bytes += stage.kv.state.floats() * sizeof(float);
  }
  return bytes;
}

// Chooses the type of keys and values that device and model take. If products round their rows, so
// does attention, on a device that then keeps them in BF16 and with heads of whole steps.
DType kept(const Device& device, const Model& model, const ShardOptions& options) {
  expect_profile(device, options.profile);
  const auto ragged = std::ranges::find_if(model.stages(), [](const Stage& stage) {
    return stage.kv.head_dim % static_cast<int64_t>(kBlock) != 0;
  });
  const bool whole = ragged == model.stages().end();
  const bool rounds = options.profile != Profile::kF32 && options.profile != Profile::kF16;
  if (!options.kv && rounds && whole && device.keeps_bf16(int8_rows(options.profile))) {
    return DType::kBF16;
  }
  const DType kv = kv_type(options.profile, options.kv);
  if (!device.supports_kv(kv)) {
    throw Error(ErrorKind::kInput, cat("[shard] keys and values in ", format_name(kv), ": ",
                                       device.name(), " does not keep them so"));
  }
  if (is_quantised(kv) && !whole) {
    throw Error(ErrorKind::kInput,
                cat("[shard] keys and values in ", format_name(kv),
                    ": expected heads of a multiple of ", kBlock, ", got ", ragged->kv.head_dim));
  }
  return kv;
}

ShardOptions with_kept(const Device& device, const Model& model, ShardOptions options) {
  const ModelConfig& config = model.config();
  options.kv = kept(device, model, options);
  options.range.to =
      std::min(options.range.to, Point::last(config.layers, config.has_norm(), !config.encodes()));
  if (config.encodes()) {  // a text is never cut
    options.max_rows = std::max(options.max_rows, static_cast<uint32_t>(config.context));
  }
  return options;
}

uint32_t pages_per_sequence(const ModelConfig& config) {
  return (static_cast<uint32_t>(config.context) + kPageTokens - 1) / kPageTokens;
}

// The head's parameters in blocks, to the nearest.
uint64_t head_blocks(const Model& model) {
  if (model.config().encodes()) return 0;
  const uint64_t head = model.parameters(model.stage(names::kHead));
  if (model.config().layers == 0) return 1;
  const uint64_t block = model.parameters(model.stage(cat(names::kBlock, 0)));
  return std::max<uint64_t>(1, (head + block / 2) / block);
}

// The pages and states within the budget: half of it is for states, but for two at least, and the
// pages of one sequence beside them. For an encoder, as many pages as the texts of a step may need.
KvPages pages_of(const Model& model, uint64_t page_bytes, uint64_t state_bytes,
                 const ShardOptions& options) {
  const ModelConfig& config = model.config();
  const uint32_t each = pages_per_sequence(config);
  if (config.encodes()) {
    return {std::min(options.max_rows, options.max_rows / kPageTokens + kMostTexts), each,
            config.layers};
  }
  constexpr uint64_t kLeastStates = 2, kMostStates = 1 << 16;
  const uint64_t one = page_bytes * each, least = kLeastStates * state_bytes;
  uint64_t budget = options.kv_bytes;
  if (budget < one + least) {
    const std::string with =
        least > 0 ? cat(", ", least, " of them for two states of one,") : std::string();
    throw Error(ErrorKind::kInput,
                cat("[shard] KV budget: expected at least ", one + least, " bytes", with,
                    " for one sequence of ", config.context, " tokens, got ", budget));
  }
  KvPages::States states;
  if (state_bytes > 0) {
    for (int layer = 0; layer < config.layers; ++layer) {
      states.blocks.push_back(model.state(layer).keeps());
    }
    const uint64_t most = std::min((budget - one) / state_bytes, kMostStates);
    states.total = static_cast<uint32_t>(std::clamp(budget / 2 / state_bytes, kLeastStates, most));
    budget -= states.total * state_bytes;
  }
  // A shard that keeps nothing (the final norm and the head alone) has pages all the same.
  const uint64_t pages = page_bytes == 0 ? uint64_t{64} * each : budget / page_bytes;
  return {static_cast<uint32_t>(std::min<uint64_t>(pages, 1u << 24)), each, config.layers,
          std::move(states)};
}

}  // namespace

namespace {
constexpr std::pair<Profile, std::string_view> kProfiles[] = {
    {Profile::kF32, "f32"},
    {Profile::kF16, "f16"},
    {Profile::kBF16, "bf16"},
    {Profile::kQ8_0, "q8_0"},
    {Profile::kQ4_0, "q4_0"},
    {Profile::kInt8, "int8"},
    {Profile::kInt8Decode, "int8_decode"}};
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
  if (rounds_to_int8(profile)) return StageFormats::parse("q8_0");
  return blocks ? StageFormats::parse(profile_name(profile)) : StageFormats{};
}

void expect_profile(const Device& device, Profile profile) {
  if (device.multiplies_int8(int8_rows(profile))) return;
  throw Error(ErrorKind::kInput, cat("profile ", profile_name(profile), ": ", device.name(),
                                     " has no such products, expected the CPU (--device cpu)"));
}

TensorView stored_weight(const Checkpoint& checkpoint, const WeightDecl& decl) {
  const TensorView* const own = checkpoint.find(decl.name);
  const bool rows = decl.from_row >= 0;
  const bool copies = !decl.from.empty() && !(own != nullptr && (rows || is_quantised(own->dtype)));
  const TensorView& view = checkpoint.at(copies ? decl.from : decl.name);
  if (!copies || !rows) return view;
  const int64_t end = decl.from_row + decl.dims[0];
  if (view.dims.size() != 2 || view.dims[0] < end) {
    throw Error(ErrorKind::kShape, cat("[model] weight '", decl.from, "': expected at least ", end,
                                       " rows, got ", to_string(view.dims)));
  }
  const size_t row = view.bytes.size() / static_cast<size_t>(view.dims[0]);
  return {view.dtype,
          {decl.dims[0], view.dims[1]},
          view.bytes.subspan(static_cast<size_t>(decl.from_row) * row,
                             static_cast<size_t>(decl.dims[0]) * row)};
}

WeightSource weights_of(const Checkpoint& checkpoint, const Model& model) {
  return [&](const std::string& name) { return stored_weight(checkpoint, model.weight(name)); };
}

uint64_t kv_bytes_for(const Model& model, const StageRange& range, Profile profile,
                      uint64_t sequences, std::optional<DType> kv) {
  if (model.config().encodes()) return 0;
  return (page_bytes(stages_of(model, range), kv_type(profile, kv), false) *
              pages_per_sequence(model.config()) +
          state_bytes_for(model, range)) *
         sequences;
}

uint64_t state_bytes_for(const Model& model, const StageRange& range) {
  return model.config().encodes() ? 0 : 2 * state_bytes(stages_of(model, range));
}

Shard::Shard(Device& device, const Model& model, const WeightSource& weights,
             const ShardOptions& options)
    : device_(&device),
      model_(model),
      weights_(weights),
      options_(with_kept(device, model, options)),
      stages_(stages_of(model, options_.range)),
      head_blocks_(head_blocks(model)),
      page_bytes_(split::page_bytes(stages_, *options_.kv, model.config().encodes())),
      state_bytes_(split::state_bytes(stages_)),
      pages_(pages_of(model, page_bytes_, state_bytes_, options_)),
      floor_(options.floor.value_or(options.range.from)),
      steps_(kSteadySteps) {
  CHECK(floor() >= options.range.from && floor() <= options.range.to);
  CHECK(floor() <= Point(model.config().layers) || floor() == options.range.to);
  try {
    load();
  } catch (const Error& error) {
    if (!recover(error)) throw;
  }
}

bool Shard::recover(const Error& error) {
  if (error.kind() != ErrorKind::kDevice || !device().can_be_lost()) return false;
  const std::lock_guard turn(turns_);
  loaded_.reset();
  const bool exact = differs_from_exact_ == nullptr;
  const auto load_again = [&](const std::string& what) {
    load();
    const char* const step = differs_from_exact_;
    log_warning(cat(error.what(), "; ", what,
                    exact && step != nullptr
                        ? cat("; exact1 failed at ", step, ": its bits are its own from now on")
                        : ""));
    pages_.forget();
    was_lost_ = true;
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

Shard::~Shard() = default;

size_t Shard::stage_index(Point point) const {
  return static_cast<size_t>(point.stage(model_.config().layers));
}

size_t Shard::index_to(Point point) const {
  return stage_index(point) - options_.range.begin(model_.config().layers);
}

size_t Shard::width(Point point) const {
  if (point == Point::top()) return 2 * std::min<size_t>(kTopLogits, width(Point::head()));
  const ModelConfig& config = model_.config();
  const bool cut = point <= Point(config.layers);
  return static_cast<size_t>(cut ? config.row_width(point.block()) : stage_to(point).width);
}

uint64_t Shard::layer_rows(const StageRange& range, uint64_t rows, uint64_t wanted) const {
  const auto blocks = static_cast<uint64_t>(range.blocks(model_.config().layers));
  return rows * blocks + (range.to >= Point::head() ? wanted * head_blocks_ : 0);
}

double Shard::whole_rows(const SequenceRows& rows) const {
  const uint64_t own = layer_rows(rows.range, rows.count(), rows.wanted_count());
  // Counts rows that pass no block too.
  return static_cast<double>(std::max<uint64_t>(own, rows.count())) /
         static_cast<double>(layer_rows({}, 1, 1));
}

uint32_t Shard::max_wanted_of(bool logits) const {
  return logits ? std::min(kMaxLogitRows, options_.max_rows) : long_rows();
}

uint32_t Shard::max_wanted(Point point) const {
  if (model_.config().encodes()) return max_wanted_of(false);
  return max_wanted_of(point == Point::top() || stage_to(point).logits);
}

}  // namespace split
