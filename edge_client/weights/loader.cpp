#include "edge_client/weights/loader.h"

#include <algorithm>
#include <utility>

#include "base/cache_dir.h"
#include "base/figures.h"
#include "base/json.h"
#include "edge_client/weights/calibrate.h"
#include "edge_client/weights/exactness.h"
#include "edge_client/weights/plan.h"
#include "edge_client/weights/shard_cache.h"
#include "run/room.h"
#include "run/self_test.h"

namespace split::edge {
namespace {

// The query for a manifest that names what is loaded here.
std::string query_of(const Placement& place, const StageFormats& formats) {
  const StageRange nothing{place.cut, place.cut};
  return wire::model_query(formats.text(), place.all_on_cloud ? nothing : place.range);
}

}  // namespace

MoveOptions move_options(const PlacedModel& split) {
  MoveOptions options{.deepest = split.deepest.value_or(split.place.cut),
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
  receipt.server = origin;
  receipt.profile = split.info.profile;
  receipt.cut = split.place.name();
  receipt.device = split.device();
  receipt.edge_profile = split.profile;
  receipt.cloud_stages = split.place.on_cloud(config);
  receipt.edge_stages = split.place.on_edge(config);
  receipt.fetched = split.counts();
}

PlacedModel PlacedModel::at(int cut) const {
  PlacedModel other = *this;
  other.place.all_on_cloud = cut == Move::kCloud;
  other.place.cut = std::max(cut, 0);
  other.place.range = StageRange::from_block(other.place.cut, Point::head());
  return other;
}

std::optional<Point> PlacedModel::floor() const {
  if (!tail || tail->floor() >= place.range.to) return std::nullopt;
  return tail->floor();
}

Loader::Loader(const Options& options, const Console& console,
               const Flags::Environment& environment, Interrupt& interrupt)
    : options_(options),
      console_(console),
      environment_(environment),
      interrupt_(interrupt),
      remote_(options.server, {std::chrono::seconds(options.timeout), options.min_rate},
              {options.api_key, options.ca_cert, environment}),
      hook_(interrupt, [this] { remote_.cancel(); }) {
  retry_.budget = std::chrono::seconds(options.retry_for);
}

std::unique_ptr<Remote> Loader::connect(std::chrono::milliseconds timeout) const {
  return std::make_unique<Remote>(options_.server, Patience(timeout, options_.min_rate),
                                  remote_.credentials());
}

SeenModels Loader::seen_models() const {
  return SeenModels(ShardCache(cache_root(options_.cache, environment_)));
}

// Whether the model is known without the server, which did not answer.
bool Loader::recall(const RemoteError& error) {
  std::optional<Placement> alone = place_alone(options_);
  if (options_.auto_cut) {
    Options local = options_;
    local.cut = 0;
    local.all_on_cloud = false;
    alone = place_alone(local);
  }
  if (!alone || options_.plan) return false;
  try {
    seen_ = seen_models().recall(
        {remote_.origin(), options_.model, query_of(*alone, options_.formats)});
  } catch (const Error& damage) {
    if (damage.kind() != ErrorKind::kIntegrity) throw;
    throw Error(ErrorKind::kRemote, cat(error.what(), "; ", damage.what()));
  }
  if (seen_ && !options_.quiet) {
    console_.err(cat(remote_.origin(), " does not answer: ", shown(seen_->info.id),
                     " is as last seen there, on ", utc_text(seen_->seconds), "\n"));
  }
  return seen_.has_value();
}

void Loader::remember(const PlacedModel& split) const {
  if (seen_ || !split.place.alone()) return;
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  const SeenModel model{split.info, files_, now};
  try {
    seen_models().remember({remote_.origin(), split.info.id, split.query}, model);
    if (options_.model.empty()) seen_models().remember({remote_.origin(), "", split.query}, model);
  } catch (const Error& error) {  // full, or only read
    if (error.kind() != ErrorKind::kIo) throw;
  }
}

std::string Loader::wanted_id() {
  // Nothing was ever heard of this server: one that was started just before takes a moment, else it
  // is most likely not there, so nobody is kept waiting, but for a program that serves.
  constexpr std::chrono::milliseconds kStarting{2000};
  const auto began = std::chrono::steady_clock::now();
  const auto patience = options_.serve ? retry_.budget : std::min(kStarting, retry_.budget);
  // The error says it all by then; a server that is there and busy is told as ever, and one that
  // takes what is asked and says nothing.
  if (retry_.on_lost) retry_.on_lost(RemoteError("", 0, kFirstAsk));
  const int errors = std::uncaught_exceptions();
  const std::shared_ptr<void> answered(nullptr, [&](void*) {
    if (retry_.on_found) retry_.on_found(std::uncaught_exceptions() == errors);
  });
  constexpr int kDamagedAlways = 3;  // requests
  int damaged = 0;
  RetryOptions start = retry_;
  bool told = false;
  start.on_lost = [&](const RemoteError& error) {
    told = (error.status != 0 || options_.serve) && retry_.on_lost;
    if (told) retry_.on_lost(error);
  };
  start.on_found = [&](bool again) {
    if (std::exchange(told, false)) retry_.on_found(again);
  };
  const std::vector<std::string> ids = retried(start, [&] {
    try {
      return asking_->models();
    } catch (const RemoteError& error) {
      // A proxy takes the path away, and whoever leaves it there is asked for something else.
      const bool below =
          remote_.origin().find('/', remote_.origin().find("//") + 2) != std::string::npos;
      if (error.code == "damaged" && below && ++damaged == kDamagedAlways) {
        throw Error(ErrorKind::kRemote, cat("[server] ", remote_.origin(),
                                            ": no server below this path; is the path right?"));
      }
      if (error.status == 404) {
        throw Error(ErrorKind::kRemote, cat(error.what(), "; is that a cloud_server?"));
      }
      if (error.status != 0 || interrupt_.signal() != 0) throw;
      // Somebody is there who has no good certificate, or no TLS: waiting makes neither.
      if (error.code == "tls") throw Error(ErrorKind::kRemote, error.what());
      if (recall(error)) return std::vector{seen_->info.id};
      if (error.transient() && std::chrono::steady_clock::now() - began < patience) throw;
      throw Error(ErrorKind::kRemote, cat(error.what(), "; is cloud_server running there?"));
    }
  });
  if (ids.empty()) throw Error(ErrorKind::kRemote, "[server] it has no model");
  if (options_.model.empty()) return ids[0];
  if (std::ranges::find(ids, options_.model) != ids.end()) return options_.model;
  std::string all;
  for (const std::string& id : ids) all += cat(all.empty() ? "" : ", ", shown(id));
  throw Error(ErrorKind::kRemote, cat("[server] ", remote_.origin(), " has no model ",
                                      shown(options_.model), ", it has ", all.substr(0, 400)));
}

void Loader::select_id() {
  if (id_.empty()) id_ = wanted_id();
}

Remote& Loader::lend() {
  beside_ = connect(remote_.patience().timeout);
  beside_hook_.emplace(interrupt_, [this] { beside_->cancel(); });
  asking_ = beside_.get();
  return remote_;
}

void Loader::select_model() {
  select_id();
  const std::string config_json =
      seen_ ? seen_->info.config_json : retried([&] { return asking_->file(id_, "config.json"); });
  try {
    model_ = make_model(config_json, options_.context);
  } catch (const Error& error) {
    throw Error(ErrorKind::kRemote, cat("[server] the model ", shown(id_), ": ", error.what()));
  }
}

// Serves no more positions than the server does.
void Loader::take_context(const wire::ModelInfo& info) const {
  const int most = info.context;
  if (most <= 0 || most >= config().context) return;
  if (options_.context) {
    throw Error(ErrorKind::kInput, cat("--context: the server has ", most,
                                       " positions of a text at most, got ", *options_.context));
  }
  model_->lower_context(most);
}

// A server that is still making what is asked for says how far it is, which is no silence.
wire::ModelInfo Loader::manifest(const Placement* place) {
  if (seen_ && place != nullptr && place->alone()) return seen_->info;
  asking_->set_manifest_query(place == nullptr ? "?ready=true"
                                               : query_of(*place, options_.formats));
  return manifest(*asking_, interrupt_, !options_.quiet);
}

wire::ModelInfo Loader::whole_manifest(Remote& remote, Waiter& waiter) const {
  Placement whole;
  whole.range = StageRange::from_block(0, Point::head());
  remote.set_manifest_query(query_of(whole, options_.formats));
  return manifest(remote, waiter, false);
}

wire::ModelInfo Loader::manifest(Remote& remote, Waiter& waiter, bool aloud) const {
  Retry retry(retry_, waiter);
  RetryOptions told = retry_;  // it says itself what is waited for
  told.on_lost = {};
  told.on_found = {};
  Retry preparing(told, waiter);
  std::string said;
  for (;;) {
    try {
      wire::ModelInfo info = remote.model(id_);
      info.id = id_;
      take_context(info);
      model_->add_stops(info.stops);
      return info;
    } catch (const RemoteError& error) {
      const bool prepares = error.retry_after && !error.said.empty();
      if (prepares && said != error.said) {
        said = error.said;
        preparing.succeeded();
        if (aloud) console_.err(cat(said, "\n"));
      }
      (prepares ? preparing : retry).failed(error);
    }
  }
}

Loader::Begin Loader::begin() {
  Begin begin;
  begin.place = place(options_, *model_);
  const bool alone = options_.auto_cut && seen_;
  if (alone) {
    begin.place.all_on_cloud = false;
    begin.place.cut = 0;
    begin.place.range = StageRange::from_block(0, Point::head());
  }
  begin.info = manifest(&begin.place);
  if (!options_.auto_cut || alone) return begin;
  const std::string why = why_texts_stay(begin.info, true);
  if (why.empty()) return begin;
  Options fixed = options_;
  fixed.all_on_cloud = fixed.auto_cut = false;
  begin.place = place(fixed, *model_);
  if (!options_.quiet) {
    console_.err(cat("--cut auto: ", why, ": texts stay at cut ", begin.place.name(), "\n"));
  }
  begin.info = manifest(&begin.place);
  return begin;
}

// Why a text on this server stays where it begins, or on the cloud; nothing where it need not.
std::string Loader::why_texts_stay(const wire::ModelInfo& info, bool on_cloud) const {
  const auto knows = [&](std::string_view feature) {
    return std::ranges::find(info.features, feature) != info.features.end();
  };
  if (!knows("to") || !knows("fill")) return "the server's sessions have one cut for good";
  if (on_cloud && !knows("completions")) return "the server keeps no text's rows";
  return "";
}

std::optional<Tokenizer> Loader::tokenizer(const wire::ModelInfo& info) {
  const auto read = [&](const char* name) { return file(info, name); };
  std::vector<std::string> names = info.files;
  // A record of an older edge has no tokenizer.json beside vocab.json and merges.txt.
  if (seen_) std::erase_if(names, [&](const auto& name) { return !seen_->files.contains(name); });
  try {
    return load_tokenizer(names, read, info.id);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    throw Error(ErrorKind::kRemote, cat("[server] ", error.what()));
  }
}

std::string Loader::file(const wire::ModelInfo& info, const std::string& name) {
  std::string& text = files_[name];
  text = seen_ ? seen_->files[name] : retried([&] { return asking_->file(info.id, name); });
  return text;
}

std::optional<ChatTemplate> Loader::chat(const wire::ModelInfo& info) {
  std::vector<std::string> names = info.files;
  // A record of an older edge has no such files.
  if (seen_) std::erase_if(names, [&](const auto& name) { return !seen_->files.contains(name); });
  try {
    return ChatTemplate::of_files(
        names, [&](const char* name) { return file(info, name); }, options_.chat_template);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    throw Error(ErrorKind::kRemote, cat("[server] ", error.what()));
  }
}

Sentences Loader::sentences(const wire::ModelInfo& info) {
  try {
    return Sentences::read(
        info.files, [&](const std::string& name) { return file(info, name); }, config());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    throw Error(ErrorKind::kRemote, cat("[server] ", error.what()));
  }
}

// Gives a server some contexts, but not all of a small machine's memory.
uint64_t Loader::kv_budget(const Placement& place) const {
  constexpr uint64_t kContexts = 16, kMost = 1ull << 30;
  // A text whose cut moves may hold a page beside its whole context (split/sides.h).
  if (options_.kv_budget == 0 && !options_.serve && (!place.moves.empty() || options_.auto_cut)) {
    return kv_bytes_for(*model_, place.range, options_.profile, 2);
  }
  if (options_.kv_budget > 0 || !options_.serve) return options_.kv_budget;
  return std::min(kMost, kv_bytes_for(*model_, place.range, options_.profile, kContexts));
}

LoadOptions Loader::load_options(const OnChunk& on_chunk) const {
  LoadOptions load;
  load.retry = retry_;
  load.cache_limit = options_.cache_limit;
  load.on_chunk = on_chunk;
  return load;
}

std::unique_ptr<BlobLoad> Loader::begin_load(const wire::ModelInfo& info,
                                             const std::vector<wire::BlobInfo>& blobs,
                                             const LoadOptions& options) {
  return std::make_unique<BlobLoad>(
      ShardCache(cache_root(options_.cache, environment_)),
      blob_origin(info, remote_.origin(), remote_.patience(), remote_.credentials()), blobs,
      options, interrupt_);
}

std::unique_ptr<PlacedModel> Loader::load(const Placement& place, const wire::ModelInfo& info,
                                          const OnChunk& on_chunk) {
  auto split = std::make_unique<PlacedModel>();
  split->place = place;
  split->info = info;
  split->query = query_of(place, options_.formats);
  if (!place.local()) {
    allow_moves(*split);
    return split;
  }
  const std::vector<wire::BlobInfo> blobs = blobs_of(*model_, info, place.range, options_.formats);
  // Before the download: a device that is not there should not cost one.
  std::unique_ptr<Device> device = make_tested_device(options_.device);
  expect_profile(*device, options_.profile);
  uint64_t weights = 0;
  for (const wire::BlobInfo& blob : blobs) weights += blob.bytes;
  expect_room(*device, info.id, weights, kv_bytes_for(*model_, place.range, options_.profile, 1));
  LoadOptions load = load_options(on_chunk);
  const bool without_server = seen_ && place.alone();
  if (without_server) load.retry.budget = {};
  if (!options_.quiet) load.progress = {console_.err, console_.err_is_terminal};
  try {
    split->tail = std::make_shared<LocalTail>(
        std::move(device), *model_, place.range, options_.formats, options_.profile, blobs,
        begin_load(info, blobs, load), kv_budget(place), options_.device.threads);
    split->fetched = split->tail->finish();
    seen_models().name_blobs(info, blobs);
  } catch (const RemoteError& error) {
    if (!without_server) throw;
    throw Error(ErrorKind::kRemote,
                cat(error.what(), "; not all of its weights are here, or some are damaged"));
  }
  split->profile = profile_name(options_.profile);
  if (!without_server) allow_moves(*split);
  return split;
}

std::unique_ptr<PlacedModel> Loader::grow(const wire::ModelInfo& info, const GrowOptions& grow) {
  constexpr std::chrono::hours kPatience{24};  // nobody waits for what comes beside a text
  std::vector<GrowthStep> steps = growth_steps(*model_, info, options_.formats);
  steps.resize(steps_within(steps, grow.max_weights));
  auto split = std::make_unique<PlacedModel>();
  split->info = info;
  split->place.all_on_cloud = steps.empty();
  if (!steps.empty()) {
    split->place.range = {steps.back().floor, Point::head()};
    split->place.cut = steps.back().floor.blocks_before(config().layers);
  }
  split->query = query_of(split->place, options_.formats);
  if (steps.empty()) return split;
  std::unique_ptr<Device> device = make_tested_device(options_.device);
  expect_profile(*device, options_.profile);
  if (grow.forecasts != nullptr && !grow.forecasts->facts().edge) {
    const DType stored = dtype_from_format(info.format).value_or(DType::kF32);
    grow.forecasts->measured(
        {}, calibrate(*device, *model_, stored, options_.formats, options_.profile), {});
  }
  std::vector<wire::BlobInfo> blobs;
  for (const GrowthStep& step : steps) {
    blobs.insert(blobs.end(), step.blobs.begin(), step.blobs.end());
  }
  seen_models().name_blobs(info, blobs);
  const auto source = std::make_shared<BlobStages>(steps);
  LoadOptions load = load_options(grow.on_chunk);
  load.retry.budget = kPatience;
  load.on_blob = [source](const std::string& sha256, const std::string* why) {
    source->blob(sha256, why);
  };
  split->tail = std::make_shared<LocalTail>(std::move(device), *model_, split->place.range,
                                            options_.formats, options_.profile, blobs,
                                            begin_load(info, blobs, load), kv_budget(split->place),
                                            options_.device.threads, LocalTail::Begins::kEmpty);
  split->deepest = config().layers;
  split->leaves_lost_cloud = true;
  if (options_.goal == Goal::kOffload) split->pace = options_.pace;
  split->profile = profile_name(options_.profile);
  split->growing = std::make_shared<GrowingTail>(*split->tail, std::move(steps), source,
                                                 config().layers, grow.told);
  return split;
}

bool Loader::has_cache() const { return !options_.cache.empty() || cache_dir(environment_); }

std::unique_ptr<Forecasts> Loader::forecasts(const wire::ModelInfo& info) const {
  const ShardCache cache(cache_root(options_.cache, environment_));
  const std::string here = cat(options_.device.device, " ", options_.device.threads, " ",
                               profile_name(options_.profile), " ", options_.formats.text());
  return std::make_unique<Forecasts>(
      PlanMemory(cache, {remote_.origin(), info.id, here}),
      plan_input_if_known(*model_, info, options_.formats, cache),
      Forecasts::Choice{options_.goal, options_.pace, options_.auto_cut});
}

std::optional<bool> Loader::is_exact_here(const wire::ModelInfo& info, const std::string& bits) {
  if (info.bits.empty() || bits != info.bits) return false;
  Placement last;
  last.cut = std::max(0, config().layers - 1);
  last.range = {last.cut, config().layers};
  last.head_on_cloud = true;
  const ShardCache cache(cache_root(options_.cache, environment_));
  for (const wire::BlobInfo& blob : blobs_of(*model_, info, last.range, options_.formats)) {
    if (!std::filesystem::exists(cache.path_of(blob.sha256))) return std::nullopt;
  }
  const std::unique_ptr<PlacedModel> block = load(last, info);
  return is_exact(*asking_, info, *block->batcher());
}

// Lets texts move that may: those of a server, which can be asked to, and those that have a
// schedule.
void Loader::allow_moves(PlacedModel& split) {
  const Placement& place = split.place;
  const bool scheduled = !place.moves.empty();
  const bool into_cloud =
      place.all_on_cloud ||
      std::ranges::find(place.moves, Move::kCloud, &ScheduledMove::cut) != place.moves.end();
  const auto stay = [&](std::string_view why) {
    if (scheduled && !options_.quiet) {
      console_.err(cat("--moves: texts stay at cut ", place.name(), ": ", why, "\n"));
    }
  };
  if (place.head_on_cloud || config().encodes()) return;
  if (!(scheduled || options_.serve || options_.auto_cut)) return;
  const std::string why = why_texts_stay(split.info, into_cloud);
  if (!why.empty()) return stay(why);
  if (scheduled) {
    split.exact = retried([&] { return is_exact(*asking_, split.info, *split.batcher()); });
    if (options_.exact && !*split.exact) {
      return stay("this machine's bits are not the server's (--exact)");
    }
  }
  int deepest = options_.serve || into_cloud ? model_->config().layers : place.cut;
  for (const ScheduledMove& move : place.moves) deepest = std::max(deepest, move.cut);
  split.deepest = deepest;
  split.leaves_lost_cloud = scheduled || options_.auto_cut;
  if (options_.auto_cut && options_.goal == Goal::kOffload) split.pace = options_.pace;
}

}  // namespace split::edge
