#include "edge_client/cli/doctor.h"

#include <unistd.h>

#include "base/figures.h"
#include "base/json.h"
#include "base/resources/clock.h"
#include "edge_client/cli/trainer_program.h"
#include "edge_client/drive/split_embed.h"
#include "edge_client/drive/split_text.h"
#include "edge_client/measure/calibrate.h"
#include "edge_client/measure/measure.h"
#include "edge_client/options/command_line.h"
#include "edge_client/place/plan_report.h"
#include "edge_client/server/cloud_notice.h"
#include "edge_client/server/loader_output.h"
#include "edge_client/weights/blobs/shard_cache.h"
#include "edge_client/weights/exactness.h"
#include "edge_client/weights/tail_builder.h"
#include "program/checklist.h"
#include "run/self_test.h"

namespace split::edge {
namespace {

std::string milliseconds_since(Clock::time_point start) {
  const double ms = ms_since(start);
  return cat(fixed(ms, ms < 10 ? 2 : 0), " ms");
}

// The checks in their order; later ones use the findings of earlier ones.
class Doctor {
 public:
  Doctor(const Options& options, const World& world, Interrupt& interrupt)
      : options_(options), world_(world), interrupt_(interrupt), list_(world.console, &interrupt) {}

  int examine();

 private:
  using Need = Checklist::Need;
  std::string server();
  std::string versions(bool heard);
  std::string model();
  std::string devices();
  std::string device();
  std::string kernels();
  std::string training();
  std::string cache();
  std::string weights();
  std::string one_token();
  std::string computed(const SplitContext& run, SplitCounts& counts);
  std::string link();
  std::string speed();
  std::string plan();
  std::string text();

  const Options& options_;
  const World& world_;
  Interrupt& interrupt_;
  Checklist list_;
  bool cache_known_ = false;
  std::vector<std::string> missing_;
  std::optional<ModelChoice> choice_;
  std::optional<TailBuilder> tails_;
  std::optional<CloudNotice> notice_;
  std::optional<Placement> place_;
  wire::ModelInfo info_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Forecasts> forecasts_;
  std::string bits_;  // this machine's
};

std::string Doctor::server() {
  choice_.emplace(options_, options_.placement, notes_on(world_.console, options_.quiet),
                  world_.environment, interrupt_);
  tails_.emplace(*choice_, progress_on(world_.console, options_.quiet));
  notice_.emplace(world_.console, choice_->remote().origin(), false);
  choice_->on_waiting([this](const RemoteError& error) { notice_->lost(error); },
                      [this](bool again) { notice_->found(again); });
  const auto start = Clock::now();
  choice_->select_id();
  const std::string first = milliseconds_since(start);
  const auto again = Clock::now();
  choice_->remote().models();
  return cat(choice_->remote().origin(), ": first answer after ", first, ", the next after ",
             milliseconds_since(again));
}

std::string Doctor::versions(bool heard) {
  std::string own = "edge_client " SPLIT_VERSION;
  if (!heard) return own;
  return cat(own, ", ", choice_->remote().version().value_or("a server that does not say which"));
}

std::string Doctor::model() {
  choice_->select_model();
  place_ = choice_->place(options_.placement);
  info_ = choice_->manifest(&*place_);
  const ModelConfig& config = choice_->config();
  return cat(info_.id, ": ", config.layers, " blocks of ", config.channels, ", vocabulary ",
             config.vocab, ", context ", config.context, ", in ", info_.format,
             ", the server computes in ", info_.profile);
}

std::string Doctor::devices() {
  std::string all;
  bool gpu = false, driver = false;
  for (const DeviceKind& kind : device_kinds()) {
    for (const ListedDevice& one : kind.list()) {
      all += cat(all.empty() ? "" : "; ", one.text);
      driver |= kind.gpus;
      gpu |= one.is_gpu;
    }
  }
  if (!driver) missing_.push_back("mesa-vulkan-drivers (Vulkan, also without a GPU)");
  if (!gpu) missing_.push_back("a GPU's own Vulkan driver, if there is a GPU");
  return all;
}

std::string Doctor::device() {
  device_ = make_device(options_.placement.device);
  return cat("--device ", options_.placement.device.device, " is ", device_->name());
}

std::string Doctor::kernels() {
  const auto start = Clock::now();
  self_test(*device_);
  return cat("each gives what the plain CPU's gives, after ", milliseconds_since(start));
}

std::string Doctor::training() {
  const auto start = Clock::now();
  const std::string arguments[] = {"check", options_.placement.device.device};
  const std::string said = ask_trainer(trainer_program(), arguments);
  return cat(said, ", after ", milliseconds_since(start));
}

std::string Doctor::cache() {
  const ShardCache cache(cache_root(options_.cache, world_.environment));
  cache_known_ = true;
  std::error_code error;
  std::filesystem::create_directories(cache.root(), error);
  if (!error && ::access(cache.root().c_str(), W_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (error) {
    throw disk_error(Error(ErrorKind::kIo,
                           cat("cannot write to ", cache.root().string(), ": ", error.message())));
  }
  uint64_t bytes = 0;
  const auto entries = cache.entries();
  for (const ShardCache::Entry& entry : entries) bytes += entry.bytes;
  const auto space = std::filesystem::space(cache.root(), error);
  return cat(cache.root().string(), ": ", human_bytes(bytes), " in ", entries.size(), " files, ",
             error ? "unknown" : human_bytes(space.available), " free");
}

std::string Doctor::weights() {
  if (!place_->local()) return "none are needed here";
  const ShardCache cache(cache_root(options_.cache, world_.environment));
  uint64_t bytes = 0, there = 0;
  for (const wire::BlobInfo& blob : tails_->weights().blobs(info_, place_->range)) {
    bytes += blob.bytes;
    if (std::filesystem::exists(cache.path_of(blob.sha256))) there += blob.bytes;
  }
  return cat(place_->on_edge(choice_->config()), ": ", human_bytes(bytes), ", of which ",
             human_bytes(there), " are here");
}

std::string Doctor::one_token() {
  const auto start = Clock::now();
  const std::unique_ptr<PlacedModel> split = tails_->load(*place_, info_);
  const std::string loaded = milliseconds_since(start);
  const auto tokenizer = choice_->tokenizer(info_);
  ModelLink link(choice_->remote(),
                 link_options(*split, choice_->config(), choice_->retry(), interrupt_));
  const SplitContext run{link,
                         split->place,
                         split->batcher(),
                         choice_->model(),
                         tokenizer ? &*tokenizer : nullptr,
                         choice_->retry(),
                         interrupt_};
  SplitCounts counts;
  const std::string token = computed(run, counts);  // first: it counts
  return cat(token, " with cut ", place_->cut.name(), ", loaded after ", loaded,
             ", computed after ", static_cast<int64_t>(counts.ms), " ms");
}

// Computes a token; with an encoder, an embedding or a score.
std::string Doctor::computed(const SplitContext& run, SplitCounts& counts) {
  std::vector<int32_t> prompt;
  if (choice_->config().encodes()) {
    prompt.push_back(0);
    const EmbeddedTexts made =
        embed_texts(run, std::span(&prompt, 1), choice_->sentences(info_), counts);
    if (choice_->config().ranks) return "a score";
    return cat("an embedding of ", made.values.size(), " numbers");
  }
  GenerateOptions options;
  options.max_tokens = 1;
  options.sampling.temperature = 0;
  options.ignore_end = true;
  check_prompt(choice_->config(), prompt);
  SplitText text(run, prompt, options, counts);
  while (text.next({})) continue;
  return cat("token ", text.take().tokens.at(0));
}

std::string Doctor::link() {
  forecasts_ = make_forecasts(*tails_, info_);
  Network network = measure_network(choice_->remote(), info_);
  const auto load = measure_steps(choice_->remote(), info_, choice_->config(), network);
  forecasts_->measured(network, {}, load);
  return cat(fixed(network.rtt_ms, 1), " ms there and back, ", fixed(network.down_mbit, 0),
             " Mbit/s from the server, ", fixed(network.step_ms, 1), " ms for a step beside that");
}

std::string Doctor::speed() {
  const Speed here =
      calibrate(*device_, choice_->model(), dtype_from_format(info_.format).value_or(DType::kF32),
                choice_->request().formats, choice_->request().profile, [&](const Shard& shard) {
                  bits_ = own_bits(shard, info_, tails_->weights().formats(info_));
                });
  forecasts_->measured({}, here, {});
  const auto words = [](const Speed& speed) {
    return cat("a block ", fixed(speed.block_ms, 2), " ms, the head ", fixed(speed.head_ms, 2),
               " ms, a prompt's row ", fixed(speed.prompt_row_ms * 1000, 0), " us a block");
  };
  const PlanFacts facts = forecasts_->facts();
  return cat("here ", words(here), "; the server ",
             facts.cloud ? words(*facts.cloud) : "has not measured itself yet");
}

std::string Doctor::plan() {
  const PlanReport report = forecasts_->plan(info_.id, {});
  const std::vector<Place> places = price_places(report.input);
  const Pick pick = pick_place(places, report.input, report.goal, report.pace);
  const Place& best = places[pick.place];
  return cat(plan_words(places, report.input), "; best for --goal ", goal_name(report.goal), ": ",
             best.cut.words(),
             best.cut > 0 && !best.cut.is_cloud() ? "" : cat(" (--cut ", best.cut.name(), ")"),
             "; ", pick_words(pick, places, report.pace));
}

// Says where the options put a text, and whether it is the cloud's own.
std::string Doctor::text() {
  const PlanReport report = forecasts_->plan(info_.id, {});
  const std::vector<Place> places = price_places(report.input);
  const Place& at =
      places.at(place_->cut.is_cloud() ? 0 : 1 + static_cast<size_t>(place_->cut.blocks()));
  std::string words = cat("at cut ", place_->cut.name(), ": ");
  words += at.token_ms && at.first_token_ms
               ? cat("the first word after ", fixed(*at.first_token_ms / 1000, 2), " s, then ",
                     fixed(*at.token_ms, 1), " ms a token")
               : "nobody knows how fast, for the server has not measured itself yet";
  if (const DType wire = tails_->wire_of(info_); wire != DType::kF32) {
    return cat(words, "; its rows travel as ", format_name(wire),
               ", so that it may differ from the cloud's at near-ties");
  }
  const std::optional<bool> exact = tails_->is_exact_here(info_, bits_);
  if (!exact) return words + "; its bits were not compared, for no block is here yet";
  if (*exact && !choice_->bounds().highest.is_cloud())
    return words + "; one text at every cut below the tail";
  if (*exact) return words + "; the cloud's own text, bit for bit";
  return cat(words, "; it may differ from the cloud's at near-ties: here '", bits_, "', there '",
             info_.bits, "'");
}

int Doctor::examine() {
  const auto check = [this](const char* name, std::initializer_list<Need> needs,
                            std::string (Doctor::*look)()) {
    return list_.check(name, needs, [this, look] { return (this->*look)(); });
  };
  const Need server{check("server", {}, &Doctor::server), "a server"};
  list_.check("versions", {}, [&] { return versions(server.there); });
  const Need model{check("model", {server}, &Doctor::model), "a model"};
  check("devices", {}, &Doctor::devices);
  const Need device{check("device", {}, &Doctor::device), "a device"};
  check("kernels", {device}, &Doctor::kernels);
  const Need trainer{!trainer_program().empty(), "edge_train (scripts/build.sh edge_train)"};
  check("training", {device, trainer}, &Doctor::training);
  const Need cache{check("cache", {}, &Doctor::cache), "a cache"};
  const bool local = model.there && place_->local(),
             encodes = model.there && choice_->config().encodes();
  // A read-only cache can still be looked at.
  const Need folder{cache_known_, "a cache"};
  const Need own_folder{folder.there || !local, "a cache"},
      own_cache{cache.there || !local, "a cache"};
  const Need own_device{device.there || !local, "a device"};
  const Need weights{check("weights", {server, model, own_folder}, &Doctor::weights), "weights"};
  const char* const result = !encodes                  ? "one token"
                             : choice_->config().ranks ? "score"
                                                       : "embedding";
  check(result, {server, model, own_cache, own_device, weights}, &Doctor::one_token);
  if (!encodes) {
    const Need link{check("link", {server, model, folder}, &Doctor::link), "a link"};
    const Need speed{check("speed", {server, model, folder, device, link}, &Doctor::speed),
                     "a speed"};
    const Need plan{check("plan", {server, model, folder, device, link, speed}, &Doctor::plan),
                    "a plan"};
    check("text", {server, model, folder, device, link, speed, plan}, &Doctor::text);
  }
  std::string missing;
  for (const std::string& one : missing_) missing += cat(missing.empty() ? "" : "; ", one);
  list_.advise(missing);
  return list_.finish();
}

}  // namespace

int doctor_command(std::span<const std::string> arguments, const World& world,
                   Interrupt& interrupt) {
  CommandLine line = read_command_line({arguments.begin(), arguments.end()}, world, false);
  if (line.asked != Flags::Asked::kNothing) {
    world.console.out(line.help);
    return 0;
  }
  line.options.quiet = true;
  return Doctor(line.options, world, interrupt).examine();
}

}  // namespace split::edge
