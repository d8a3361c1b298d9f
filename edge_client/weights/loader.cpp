#include "edge_client/weights/loader.h"

#include <algorithm>
#include <utility>

#include "base/cache_dir.h"
#include "base/figures.h"
#include "base/json.h"
#include "base/system/pages.h"
#include "edge_client/weights/blobs/shard_cache.h"
#include "edge_client/weights/exactness.h"
#include "edge_client/weights/manifest_query.h"
#include "edge_client/weights/plan/calibrate.h"
#include "edge_client/weights/plan/plan.h"
#include "run/room.h"
#include "run/self_test.h"

namespace split::edge {

LinkOptions link_options(const PlacedModel& split, const ModelConfig& config,
                         const RetryOptions& retry, Waiter& waiter) {
  return {.info = split.info,
          .config = config,
          .retry = retry,
          .waiter = waiter,
          .wire = split.wire,
          .moves = split.deepest.has_value()};
}

std::shared_ptr<Remote> ended_by(Interrupt& interrupt, std::shared_ptr<Remote> remote) {
  struct Hooked {
    std::shared_ptr<Remote> remote;
    Interrupt::Hook hook;
  };
  Remote* const raw = remote.get();
  auto held =
      std::shared_ptr<Hooked>(new Hooked{std::move(remote), {interrupt, [raw] { raw->cancel(); }}});
  return {std::move(held), raw};
}

MoveOptions move_options(const PlacedModel& split) {
  MoveOptions options{.deepest = split.deepest ? Cut(*split.deepest) : split.place.cut,
                      .targets = {},
                      .leaves_lost_cloud = split.leaves_lost_cloud,
                      .pace = split.pace};
  for (const ScheduledMove& move : split.place.moves) {
    options.targets.push_back({.cut = move.cut, .at = move.at});
  }
  return options;
}

void describe(Receipt& receipt, const PlacedModel& split, const ModelConfig& config,
              const std::string& origin) {
  receipt.model = split.info.id;
  receipt.layers = config.layers;
  receipt.head_blocks = split.head_blocks;
  receipt.personal = split.personal;
  receipt.server = origin;
  receipt.profile = split.info.profile;
  receipt.cut = split.place.cut;
  receipt.device = split.device();
  receipt.edge_profile = split.profile;
  receipt.cloud_stages = split.place.on_cloud(config);
  receipt.edge_stages = split.place.on_edge(config);
  receipt.fetched = split.counts();
}

PlacedModel PlacedModel::at(Cut cut) const {
  PlacedModel other = *this;
  other.place.cut = cut;
  const Point to = growing ? place.range.to : Point::head();
  other.place.range = StageRange::from_block(cut.is_cloud() ? 0 : cut.blocks(), to);
  return other;
}

std::optional<Point> PlacedModel::floor() const {
  if (!tail || tail->floor() >= place.range.to) return std::nullopt;
  return tail->floor();
}

Loader::Loader(const EngineOptions& options, LoaderOutput output,
               const Flags::Environment& environment, Interrupt& interrupt)
    : options_(options),
      output_(std::move(output)),
      environment_(environment),
      interrupt_(interrupt),
      remote_(connect(std::chrono::seconds(options.timeout))) {
  hook_.emplace(interrupt, [this] { remote_->cancel(); });
  retry_.budget = std::chrono::seconds(options.retry_for);
}

std::unique_ptr<Remote> connect(const EngineOptions& options, const Flags::Environment& environment,
                                std::chrono::milliseconds timeout) {
  return std::make_unique<Remote>(
      options.server, Patience(timeout, options.min_rate),
      Credentials{options.api_key, options.ca_cert, environment, options.connector});
}

std::unique_ptr<Remote> Loader::connect(std::chrono::milliseconds timeout) const {
  return edge::connect(options_, environment_, timeout);
}

bool Loader::cloud_lives() const {
  constexpr std::chrono::milliseconds kPatience{1600}, kLivesFor{500}, kLostFor{3000};
  const std::lock_guard lock(looking_);
  if (looked_ && std::chrono::steady_clock::now() < *looked_ + (lives_ ? kLivesFor : kLostFor)) {
    return lives_;
  }
  try {
    connect(kPatience)->ping();
    lives_ = true;
  } catch (const RemoteError& error) {
    lives_ = error.status != 0;
  }
  looked_ = std::chrono::steady_clock::now();
  return lives_;
}

// Gives a server several contexts, but not all of a small machine's memory.
uint64_t Loader::kv_budget(const Placement& place) const {
  constexpr uint64_t kContexts = kLazyPages ? 16 : 2, kMost = 1ull << 30;
  // A text whose cut moves may hold a page beside its whole context (split/sides.h).
  if (options_.kv_budget == 0 && !options_.many_texts &&
      (!place.moves.empty() || options_.auto_cut)) {
    return kv_bytes_for(*model_, place.range, options_.profile, 2);
  }
  if (options_.kv_budget > 0 || !options_.many_texts) return options_.kv_budget;
  return std::min(kMost, kv_bytes_for(*model_, place.range, options_.profile, kContexts));
}

// Returns the device, tested and fit for the profile.
std::unique_ptr<Device> Loader::device() {
  return device_ != nullptr ? std::move(device_) : new_device();
}

std::unique_ptr<Device> Loader::new_device() const {
  std::unique_ptr<Device> device = make_tested_device(options_.device);
  expect_profile(*device, options_.profile);
  return device;
}

void Loader::expect_flags() {
  if (!options_.auto_cut || seen_ || std::exchange(expected_flags_, true)) return;
  const bool named = options_.device.device != DeviceOptions().device;
  if (named || options_.profile != Profile::kF32) device_ = device();
  if (!options_.cache.empty()) ShardCache(options_.cache).expect_usable();
  if (options_.formats != StageFormats()) expect_formats();
}

std::unique_ptr<PlacedModel> Loader::load(const Placement& place, const wire::ModelInfo& info,
                                          const OnBytes& on_bytes) {
  auto split = std::make_unique<PlacedModel>();
  split->place = place;
  split->info = info;
  split->query = manifest_query(place, options_.formats);
  split->wire = wire_of(info);
  split->head_blocks = head_in_blocks(*model_);
  if (!place.local()) {
    allow_moves(*split);
    return split;
  }
  const uint64_t weights = bytes_of(blobs_of(*model_, info, place.range, formats(info)));
  const std::string over = over_cache_limit(weights);
  if (!over.empty()) output_.note(over);
  LoadOptions load;
  load.retry = retry_;
  load.on_bytes = on_bytes;
  const bool without_server = seen_ && place.alone();
  if (without_server) load.retry.budget = {};
  load.progress = output_.progress;
  try {
    // Before the download, which an unusable device should not cost.
    load_tail(*split, device(), load, kv_budget(place));
  } catch (const RemoteError& error) {
    if (!without_server) throw;
    throw Error(ErrorKind::kRemote,
                cat(error.what(), "; not all of its weights are here, or some are damaged"));
  }
  if (!without_server) allow_moves(*split);
  return split;
}

void Loader::load_tail(PlacedModel& split, std::unique_ptr<Device> device, const LoadOptions& load,
                       uint64_t kv) const {
  const StageRange& range = split.place.range;
  const std::vector<wire::BlobInfo> blobs =
      blobs_of(*model_, split.info, range, formats(split.info));
  expect_room(*device, split.info.id, bytes_of(blobs),
              kv_bytes_for(*model_, range, options_.profile, 1));
  begin_tail(split, std::move(device), blobs, load, kv, LocalTail::Begins::kWhole);
  split.fetched = split.tail->finish();
}

std::unique_ptr<BlobLoad> Loader::begin_load(const wire::ModelInfo& info,
                                             const std::vector<wire::BlobInfo>& blobs,
                                             LoadOptions load) const {
  load.cache_limit = options_.cache_limit;
  return std::make_unique<BlobLoad>(
      cache(), blob_origin(info, remote_->origin(), remote_->patience(), remote_->credentials()),
      blobs, load, interrupt_);
}

std::string base_of(const wire::ModelInfo& info) {
  std::string base;
  for (const wire::StageInfo& stage : info.stages) {
    for (const wire::BlobInfo& blob : stage.blobs) {
      const std::string one = cat(blob.name, ":", blob.sha256);  // a tied head has the embedding's
                                                                 // blob
      if (blob.format != info.format || base.find(one) != base.npos) continue;
      base += cat(base.empty() ? "" : " ", one);
    }
  }
  return base;
}

// Refuses a tail that was trained over other weights.
void Loader::expect_base(const wire::ModelInfo& info) const {
  if (!tail_ || tail_->base().empty()) return;
  const std::string base = cat(" ", tail_->base(), " ");
  bool alike = false;
  for (const wire::StageInfo& stage : info.stages) {
    for (const wire::BlobInfo& blob : stage.blobs) {
      if (blob.format != info.format) continue;
      const std::string name = cat(" ", blob.name, ":");
      if (base.find(name) == base.npos) continue;
      alike = base.find(cat(name, blob.sha256, " ")) != base.npos;
      if (!alike) {
        throw Error(ErrorKind::kInput,
                    cat("--tail: it was trained over ", shown(tail_->model()),
                        ", whose weights are not those of the server's ", shown(info.id)));
      }
    }
  }
  if (alike) return;
  throw Error(ErrorKind::kInput, cat("--tail: it was trained over ", shown(tail_->model()),
                                     ", of which the server's ", shown(info.id), " has nothing"));
}

void Loader::begin_tail(PlacedModel& split, std::unique_ptr<Device> device,
                        const std::vector<wire::BlobInfo>& blobs, LoadOptions load, uint64_t kv,
                        LocalTail::Begins begins) const {
  expect_base(split.info);
  split.tail = std::make_shared<LocalTail>(
      std::move(device), *model_, split.place.range, formats(split.info), options_.profile, blobs,
      begin_load(split.info, blobs, std::move(load)), kv, options_.device.threads, begins, tail_);
  split.profile = profile_name(options_.profile);
  split.personal = tail_ != nullptr;
  seen_models().name_blobs(split.info, blobs);
}

std::optional<wire::ModelInfo> Loader::whole_in_cache(const wire::ModelInfo& info) const {
  const auto has_all = [&](const ShardCache& cache, const wire::ModelInfo& known) {
    const auto blobs = blobs_of(*model_, known, StageRange(), formats(known));
    return std::ranges::all_of(blobs, [&](const wire::BlobInfo& blob) {
      const auto file = file_status(cache.path_of(blob.sha256));
      return file && file->regular && file->bytes == blob.bytes;
    });
  };
  try {
    if (has_all(cache(), info)) return info;
  } catch (const Error&) {  // the manifest has only the requested stages
  }
  try {
    const SeenModels models = seen_models();
    const auto seen = models.recall({remote_->origin(), info.id, whole_query()});
    if (seen && same_model(seen->info, info) && has_all(models.cache(), seen->info)) {
      return seen->info;
    }
  } catch (const Error&) {  // no usable record
  }
  return std::nullopt;
}

std::shared_ptr<PlacedModel> Loader::load_from_cache(const PlacedModel& split) const {
  const std::optional<wire::ModelInfo> info = whole_in_cache(split.info);
  if (!info) return nullptr;
  auto whole = std::make_shared<PlacedModel>(split.at(0));
  whole->place.head_on_cloud = false;
  whole->info = *info;
  whole->growing = false;
  LoadOptions load;
  load.retry = {.budget = {}};
  // As for any text that moves.
  const uint64_t kv = kv_bytes_for(*model_, whole->place.range, options_.profile, 2);
  load_tail(*whole, new_device(), load, std::max(kv_budget(whole->place), kv));
  return whole;
}

Growth Loader::coming(const wire::ModelInfo& info, uint64_t max_weights) {
  const StageFormats formats = this->formats(info);
  std::vector<GrowthStep> steps = growth_steps(*model_, info, formats),
                          headless = growth_steps(*model_, info, formats, false);
  const auto sizes = [](const std::vector<GrowthStep>& all) {
    std::vector<uint64_t> bytes;
    for (const GrowthStep& step : all) bytes.push_back(step.bytes());
    return bytes;
  };
  const FetchPlan chosen = fetch_plan({.steps = sizes(steps),
                                       .headless = sizes(headless),
                                       .head_blocks = head_in_blocks(*model_),
                                       .max_weights = max_weights,
                                       .granted = max_weights > 0 ? granted_to_weights() : 0});
  if (!chosen.head) steps = std::move(headless);
  steps.resize(chosen.steps);
  return {chosen, std::move(steps)};
}

std::unique_ptr<PlacedModel> Loader::begin_growth(const wire::ModelInfo& info, const Growth& growth,
                                                  const OnBytes& on_bytes, Forecasts* forecasts) {
  constexpr std::chrono::hours kPatience{24};  // nobody waits for what comes beside a text
  auto split = std::make_unique<PlacedModel>();
  split->info = info;
  split->growing = true;
  split->place.head_on_cloud = !growth.chosen.head;
  const Point floor = growth.steps.back().floor;
  split->place.range = {floor, growth.chosen.head ? Point::head() : Point::norm()};
  split->place.cut = floor.blocks_before(config().layers);
  split->query = whole_query();  // the query for any part of it
  split->wire = wire_of(info);
  split->head_blocks = head_in_blocks(*model_);
  std::unique_ptr<Device> device = this->device();
  if (forecasts != nullptr && !forecasts->facts().edge) {
    const DType stored = dtype_from_format(info.format).value_or(DType::kF32);
    forecasts->measured({}, calibrate(*device, *model_, stored, options_.formats, options_.profile),
                        {});
  }
  std::vector<wire::BlobInfo> blobs;
  for (const GrowthStep& step : growth.steps) {
    blobs.insert(blobs.end(), step.blobs.begin(), step.blobs.end());
  }
  LoadOptions load;
  load.retry = retry_;
  load.retry.budget = kPatience;
  load.on_bytes = on_bytes;
  load.beside_texts = true;
  begin_tail(*split, std::move(device), blobs, load, kv_budget(split->place),
             LocalTail::Begins::kEmpty);
  split->deepest = config().layers;
  split->leaves_lost_cloud = true;
  if (options_.goal == Goal::kOffload) split->pace = options_.pace;
  return split;
}

// Bytes of memory for weights that come beside texts; on a GPU all of it, which its driver counts.
uint64_t Loader::granted_to_weights() {
  if (!device_) device_ = device();
  if (device_->is_gpu()) return UINT64_MAX;
  const uint64_t granted = granted_memory();
  return granted - std::min(granted, kv_bytes_for(*model_, StageRange(), options_.profile, 2));
}

bool Loader::has_cache() const { return !options_.cache.empty() || cache_dir(environment_); }

std::string Loader::over_cache_limit(uint64_t bytes) const {
  if (!options_.cache_limit || bytes <= *options_.cache_limit) return {};
  return cat("--cache-limit: expected room for the weights in use, ", human_bytes(bytes), ", got ",
             human_bytes(*options_.cache_limit), ": they are kept all the same");
}

uint64_t Loader::missing_bytes(std::span<const GrowthStep> steps) const {
  CutBlobs all(1);
  for (const GrowthStep& step : steps) {
    all[0].insert(all[0].end(), step.blobs.begin(), step.blobs.end());
  }
  return missing_of(all, cache())[0];
}

std::unique_ptr<Forecasts> Loader::forecasts(const wire::ModelInfo& info) {
  const ShardCache cache = this->cache();
  const std::string here = cat(options_.device.device, " ", options_.device.threads, " ",
                               profile_name(options_.profile), " ", options_.formats.text());
  PlanInput shape = plan_shape(*model_);
  Forecasts::Missing missing;
  try {
    shape = plan_input(*model_, info, formats(info), cache);
    missing = [blobs = blobs_by_cut(*model_, info, formats(info)), cache] {
      return missing_of(blobs, cache);
    };
  } catch (const Error&) {
    // The server has not made that format yet: its size is unknown.
  }
  shape.logits_bytes = sizeof(float) * static_cast<uint64_t>(config().vocab);
  shape.wire = wire_of(info);
  shape.highest = bounds().highest;
  return std::make_unique<Forecasts>(
      PlanMemory(cache, {remote_->origin(), info.id, here}), std::move(shape),
      Forecasts::Choice{options_.goal, options_.pace, options_.auto_cut}, std::move(missing));
}

std::optional<bool> Loader::is_exact_here(const wire::ModelInfo& info, const std::string& bits) {
  if (info.bits.empty() || bits != info.bits || wire_of(info) != DType::kF32) return false;
  Placement last;
  const int blocks = bounds().highest.blocks(config().layers);  // blocks that may change sides
  if (blocks == 0) return true;
  last.cut = blocks - 1;
  last.range = {blocks - 1, blocks};
  last.head_on_cloud = true;
  const CutBlobs blobs{blobs_of(*model_, info, last.range, formats(info))};
  if (missing_of(blobs, cache())[0] > 0) return std::nullopt;
  const std::unique_ptr<PlacedModel> block = load(last, info);
  return is_exact(*remote_, info, *block->batcher(), blocks);
}

// Lets texts move if they may: a server's, which can be asked to, and texts with a schedule.
void Loader::allow_moves(PlacedModel& split) {
  const Placement& place = split.place;
  const bool scheduled = !place.moves.empty();
  Cut deepest = place.cut;
  for (const ScheduledMove& move : place.moves) deepest = std::max(deepest, move.cut);
  const bool into_cloud = deepest.is_cloud();
  const auto stay = [&](std::string_view why) {
    if (!scheduled) return;
    split.leaves_lost_cloud = false;
    output_.note(cat("--moves: texts stay at cut ", place.cut.name(), ": ", why));
  };
  split.leaves_lost_cloud = options_.auto_cut || !options_.stay;
  const bool streams =
      place.cut.is_cloud() && split.leaves_lost_cloud;  // so that the text can leave
  if (place.head_on_cloud || config().encodes()) return;
  if (!(scheduled || options_.many_texts || options_.auto_cut || streams)) return;
  const Constraint bound = bound_of(sessions_of(split.info), into_cloud);
  if (bound != Constraint::kNone) return stay(words_of(bound));
  if (scheduled) {
    split.exact = split.wire == DType::kF32 && retried([&] {
                    return is_exact(*remote_, split.info, *split.batcher(), bounds().highest);
                  });
    if (options_.exact && !*split.exact) {
      return stay("this machine's bits are not the server's (--exact)");
    }
  }
  if (options_.many_texts) deepest = Cut::cloud();
  split.deepest = std::min(deepest, bounds().highest).blocks(config().layers);
  if (options_.auto_cut && options_.goal == Goal::kOffload) split.pace = options_.pace;
}

}  // namespace split::edge
