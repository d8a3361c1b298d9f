#include "edge_client/weights/tail_builder.h"

#include <algorithm>
#include <utility>

#include "base/figures.h"
#include "base/resources/granted.h"
#include "base/system/pages.h"
#include "edge_client/place/decision.h"
#include "edge_client/weights/exactness.h"
#include "run/room.h"
#include "run/self_test.h"

namespace split::edge {

std::vector<wire::BlobInfo> Growth::blobs() const {
  std::vector<wire::BlobInfo> all;
  for (const GrowthStep& step : steps) {
    all.insert(all.end(), step.blobs.begin(), step.blobs.end());
  }
  return all;
}

// Gives a server several contexts, but not all of a small machine's memory.
uint64_t TailBuilder::kv_budget(const Placement& place) const {
  constexpr uint64_t kContexts = kLazyPages ? 16 : 2, kMost = 1ull << 30;
  // A text whose cut moves may hold a page beside its whole context (split/sides.h).
  if (options_.kv_budget == 0 && !request_.many_texts &&
      (!place.moves.empty() || request_.auto_cut)) {
    return kv_bytes_for(choice_.model(), place.range, profile(), 2);
  }
  if (options_.kv_budget > 0 || !request_.many_texts) return options_.kv_budget;
  return std::min(kMost, kv_bytes_for(choice_.model(), place.range, profile(), kContexts));
}

Device& TailBuilder::device() {
  if (!device_) device_ = new_device();
  return *device_;
}

// A server's profile that was not asked for here is left where the device lacks it.
Profile TailBuilder::profile() const { return joins_ ? request_.profile : Profile::kF32; }

std::unique_ptr<Device> TailBuilder::new_device() const {
  std::unique_ptr<Device> device = make_tested_device(request_.device);
  if (request_.names_arithmetic) expect_profile(*device, request_.profile);
  joins_ = request_.names_arithmetic || device->multiplies_int8(Int8Rows::kAll);
  const bool named = request_.device.device != DeviceOptions().device;
  if (named || !device->waits_long() || !token_time_) return device;
  if (!choice_.knows_model() || choice_.config().encodes()) return device;
  if (faster_ == Faster::kUnknown) {
    const auto cpu = make_cpu_device(request_.device.threads);
    const double ms = token_time_(*device), cpu_ms = token_time_(*cpu);
    faster_ = cpu_ms < ms ? Faster::kCpu : Faster::kGpu;
    choice_.note(cat("a token takes ", fixed(ms, 1), " ms on ", device->name(), " and ",
                     fixed(cpu_ms, 1), " ms on the CPU: the faster one computes"));
  }
  if (faster_ == Faster::kGpu) return device;
  joins_ = true;
  return make_cpu_device(request_.device.threads);
}

void TailBuilder::expect_flags() {
  if (!request_.auto_cut || choice_.recalled() || std::exchange(expected_flags_, true)) return;
  const bool named = request_.device.device != DeviceOptions().device;
  if (named || request_.profile != Profile::kF32) device();
  if (device_ && device_->waits_long()) device_.reset();  // its model is to be known first
  if (!options_.cache.empty()) ShardCache(options_.cache).expect_usable();
  if (request_.formats == StageFormats()) return;
  try {  // formats that the server is still making are fine
    weights_.blobs(choice_.whole_manifest_now(), StageRange());
  } catch (const RemoteError& error) {
    if (!error.transient()) throw;
  }
}

DType TailBuilder::wire_of(const wire::ModelInfo& info) {
  if (options_.wire == DType::kF32 || info.knows(wire::kWireFeature)) return options_.wire;
  if (!std::exchange(told_wire_, true)) {
    choice_.note(cat("--wire ", format_name(options_.wire),
                     ": the server knows no other format than f32: rows travel as f32"));
  }
  return DType::kF32;
}

// Returns a model without a place.
std::unique_ptr<PlacedModel> TailBuilder::placed(const wire::ModelInfo& info) {
  auto split = std::make_unique<PlacedModel>();
  split->info = info;
  split->other_bits = other_bits_;
  split->wire = wire_of(info);
  split->head_blocks = head_in_blocks(choice_.model());
  return split;
}

std::unique_ptr<PlacedModel> TailBuilder::load(const Placement& place, const wire::ModelInfo& info,
                                               const OnBytes& on_bytes) {
  std::unique_ptr<PlacedModel> split = placed(info);
  split->place = place;
  split->query = manifest_query(place, request_.formats);
  if (!place.local()) {
    allow_moves(*split);
    return split;
  }
  const uint64_t weights = bytes_of(weights_.blobs(info, place.range));
  const std::string over = weights_.over_cache_limit(weights);
  if (!over.empty()) choice_.note(over);
  LoadOptions load;
  load.retry = choice_.retry();
  load.on_bytes = on_bytes;
  const bool without_server = choice_.recalled() && place.alone();
  if (without_server) load.retry.budget = {};
  load.progress = progress_;
  try {
    // Before the download, which an unusable device should not cost.
    device();
    load_tail(*split, std::move(device_), load, kv_budget(place));
  } catch (const RemoteError& error) {
    if (!without_server) throw;
    throw Error(ErrorKind::kRemote,
                cat(error.what(), "; not all of its weights are here, or some are damaged"));
  }
  if (!without_server) allow_moves(*split);
  return split;
}

void TailBuilder::load_tail(PlacedModel& split, std::unique_ptr<Device> device,
                            const LoadOptions& load, uint64_t kv) const {
  const StageRange& range = split.place.range;
  const std::vector<wire::BlobInfo> blobs = weights_.blobs(split.info, range);
  uint64_t bytes = 0;
  for (const wire::BlobInfo& blob : blobs) {
    if (!choice_.model().stays_on_disk(blob.name)) {
      bytes += blob.bytes;
    } else if (MappedFile::is_memory()) {
      throw Error(ErrorKind::kInput,
                  cat("--cut: expected 1 or more for ", shown(split.info.id),
                      ": at cut 0 a tab holds ", blob.name, " too, ", human_bytes(blob.bytes)));
    }
  }
  expect_room(*device, split.info.id, bytes, kv_bytes_for(choice_.model(), range, profile(), 1));
  begin_tail(split, std::move(device), blobs, load, kv, LocalTail::Begins::kWhole);
  split.fetched = split.tail->finish();
}

// Refuses a tail that was trained over other weights.
void TailBuilder::expect_base(const wire::ModelInfo& info) const {
  const std::shared_ptr<const TailWeights>& tail = choice_.tail();
  if (!tail || tail->base().empty()) return;
  const std::string base = cat(" ", tail->base(), " ");
  bool alike = false;
  for (const wire::StageInfo& stage : info.stages) {
    for (const wire::BlobInfo& blob : stage.blobs) {
      if (blob.format != info.format) continue;
      const std::string name = cat(" ", blob.name, ":");
      if (base.find(name) == base.npos) continue;
      alike = base.find(cat(name, blob.sha256, " ")) != base.npos;
      if (!alike) {
        throw Error(ErrorKind::kInput,
                    cat("--tail: it was trained over ", shown(tail->model()),
                        ", whose weights are not those of the server's ", shown(info.id)));
      }
    }
  }
  if (alike) return;
  throw Error(ErrorKind::kInput, cat("--tail: it was trained over ", shown(tail->model()),
                                     ", of which the server's ", shown(info.id), " has nothing"));
}

void TailBuilder::begin_tail(PlacedModel& split, std::unique_ptr<Device> device,
                             const std::vector<wire::BlobInfo>& blobs, LoadOptions load,
                             uint64_t kv, LocalTail::Begins begins) const {
  expect_base(split.info);
  split.tail = std::make_shared<LocalTail>(std::move(device), choice_.model(), split.place.range,
                                           weights_.formats(split.info), profile(), blobs,
                                           weights_.begin_load(split.info, blobs, std::move(load)),
                                           kv, request_.device.threads, begins, choice_.tail());
  split.profile = profile_name(profile());
  split.personal = choice_.tail() != nullptr;
  choice_.seen_models().name_blobs(split.info, blobs);
}

std::shared_ptr<PlacedModel> TailBuilder::load_from_cache(const PlacedModel& split) const {
  const std::optional<wire::ModelInfo> info = weights_.whole_in_cache(split.info);
  if (!info) return nullptr;
  auto whole = std::make_shared<PlacedModel>(split.at(0));
  whole->place.head_on_cloud = false;
  whole->info = *info;
  whole->growing = false;
  LoadOptions load;
  load.retry = {.budget = {}};
  // As for any text that moves.
  const uint64_t kv = kv_bytes_for(choice_.model(), whole->place.range, profile(), 2);
  load_tail(*whole, new_device(), load, std::max(kv_budget(whole->place), kv));
  return whole;
}

Growth TailBuilder::coming(const wire::ModelInfo& info, uint64_t max_weights) {
  const StageFormats formats = weights_.formats(info);
  std::vector<GrowthStep> steps = growth_steps(choice_.model(), info, formats),
                          headless = growth_steps(choice_.model(), info, formats, false);
  const auto sizes = [](const std::vector<GrowthStep>& all) {
    std::vector<uint64_t> bytes;
    for (const GrowthStep& step : all) bytes.push_back(step.bytes());
    return bytes;
  };
  const FetchPlan chosen = fetch_plan({.steps = sizes(steps),
                                       .headless = sizes(headless),
                                       .head_blocks = head_in_blocks(choice_.model()),
                                       .max_weights = max_weights,
                                       .granted = max_weights > 0 ? granted_to_weights() : 0});
  if (!chosen.head) steps = std::move(headless);
  steps.resize(chosen.steps);
  return {chosen, std::move(steps)};
}

std::unique_ptr<PlacedModel> TailBuilder::begin_growth(const wire::ModelInfo& info,
                                                       const Growth& growth,
                                                       const OnBytes& on_bytes) {
  constexpr std::chrono::hours kPatience{24};  // nobody waits for what comes beside a text
  std::unique_ptr<PlacedModel> split = placed(info);
  split->growing = true;
  split->place.head_on_cloud = !growth.chosen.head;
  const Point floor = growth.steps.back().floor;
  split->place.range = {floor, growth.chosen.head ? Point::head() : Point::norm()};
  split->place.cut = floor.blocks_before(choice_.config().layers);
  split->query = choice_.whole_query();  // the query for any part of it
  LoadOptions load;
  load.retry = choice_.retry();
  load.retry.budget = kPatience;
  load.on_bytes = on_bytes;
  load.beside_texts = true;
  device();  // the self-test comes before the download
  begin_tail(*split, std::move(device_), growth.blobs(), load, kv_budget(split->place),
             LocalTail::Begins::kEmpty);
  split->deepest = choice_.config().layers;
  split->leaves_lost_cloud = true;
  if (options_.goal == Goal::kOffload) split->pace = options_.pace;
  return split;
}

// Bytes of memory for weights that come beside texts; on a GPU all of it, which its driver counts.
uint64_t TailBuilder::granted_to_weights() {
  if (device().is_gpu()) return UINT64_MAX;
  const uint64_t granted = granted_memory();
  return granted - std::min(granted, kv_bytes_for(choice_.model(), StageRange(), profile(), 2));
}

std::optional<bool> TailBuilder::is_exact_here(const wire::ModelInfo& info,
                                               const std::string& bits) {
  if (info.bits.empty() || bits != info.bits || wire_of(info) != DType::kF32) return false;
  Placement last;
  const int blocks =
      choice_.bounds().highest.blocks(choice_.config().layers);  // blocks that may change sides
  if (blocks == 0) return true;
  last.cut = blocks - 1;
  last.range = {blocks - 1, blocks};
  last.head_on_cloud = true;
  if (weights_.missing_bytes(weights_.blobs(info, last.range)) > 0) return std::nullopt;
  const std::unique_ptr<PlacedModel> block = load(last, info);
  return is_exact(choice_.remote(), info, *block->batcher(), blocks);
}

// Lets texts move if they may: a server's, which can be asked to, and texts with a schedule.
void TailBuilder::allow_moves(PlacedModel& split) {
  const Placement& place = split.place;
  const bool scheduled = !place.moves.empty();
  Cut deepest = place.cut;
  for (const ScheduledMove& move : place.moves) deepest = std::max(deepest, move.cut);
  split.leaves_lost_cloud = leaves_lost_cloud(request_.auto_cut, options_.stay);
  if (place.head_on_cloud || choice_.config().encodes()) return;
  const bool streams = place.cut.is_cloud() && split.leaves_lost_cloud;
  if (!has_moves(scheduled, request_.many_texts, request_.auto_cut, streams)) return;
  const auto stay = [&](std::string_view why) {
    if (!scheduled) return;
    split.leaves_lost_cloud = false;
    choice_.note(cat("--moves: texts stay at cut ", place.cut.name(), ": ", why));
  };
  const Constraint bound = bound_of(sessions_of(split.info), deepest.is_cloud());
  if (bound != Constraint::kNone) return stay(words_of(bound));
  if (scheduled) {
    split.exact =
        split.wire == DType::kF32 && retried(choice_.retry(), choice_.interrupt(), [&] {
          return is_exact(choice_.remote(), split.info, *split.batcher(), choice_.bounds().highest);
        });
    if (!may_move(split.exact, options_.exact, false)) {
      return stay(
          "this machine's bits are not the server's (--exact); with --profile int8 there they "
          "are the same");
    }
  }
  split.deepest =
      deepest_cut(deepest, request_.many_texts, choice_.bounds()).blocks(choice_.config().layers);
  if (request_.auto_cut && options_.goal == Goal::kOffload) split.pace = options_.pace;
}

}  // namespace split::edge
