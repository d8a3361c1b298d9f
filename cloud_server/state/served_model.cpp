#include "cloud_server/state/served_model.h"

#include <algorithm>

#include "base/figures.h"
#include "base/json.h"
#include "base/log.h"
#include "run/bits.h"
#include "run/forward.h"
#include "run/room.h"
#include "run/self_test.h"
#include "run/text/stops.h"
#include "run/text/texts.h"
#include "step/names.h"
#include "tensor/blocks.h"

namespace split::cloud {
namespace {

// Chooses the formats that the profile computes with. Blocks are used as they are or not at all;
// the int8 profiles take all of a file's blocks, perhaps of several types.
StageFormats formats_of(const Checkpoint& checkpoint, const Model& model, Profile profile) {
  StageFormats wanted = profile_formats(profile);
  for (const Stage& stage : model.stages()) {
    const DType own = own_format(checkpoint, model, stage);
    if (!rounds_to_int8(profile) || !is_quantised(own)) continue;
    (stage.name == names::kHead ? wanted.head : wanted.block).reset();
  }
  for (const Stage& stage : model.stages()) {
    const DType own = own_format(checkpoint, model, stage);
    const DType format = wanted.of(stage.name).value_or(own);
    if (is_quantised(own) && is_quantised(format) && own != format) {
      throw Error(ErrorKind::kInput,
                  cat("[model] ", checkpoint.path().string(), ": profile ", profile_name(profile),
                      ": ", stage.name, ": expected floats or ", format_name(format), ", got ",
                      format_name(own)));
    }
  }
  return wanted;
}

std::vector<ServedModel::File> files_of(const Checkpoint& checkpoint) {
  std::vector<ServedModel::File> files;
  for (const std::string& name : checkpoint.files()) {
    const auto text = std::make_shared<const std::string>(checkpoint.file(name));
    files.push_back({{name, text->size(), Sha256::hex_of(as_bytes_of(*text))}, text});
  }
  return files;
}

}  // namespace

ServedModel::ServedModel(const ModelOptions& options, std::unique_ptr<Device> device)
    : options_(options),
      checkpoint_(options.path),
      files_(files_of(checkpoint_)),
      model_(model_of(checkpoint_, options.context)),
      sentences_(Sentences::read(
          checkpoint_.files(), [this](const std::string& name) { return checkpoint_.file(name); },
          model_->config())),
      tokenizer_(load_tokenizer(
          checkpoint_.files(), [this](const char* name) { return checkpoint_.file(name); },
          options.path.string())),
      chat_(ChatTemplate::of_files(
          checkpoint_.files(), [this](const char* name) { return checkpoint_.file(name); },
          options.chat_template)),
      answer_format_(AnswerFormat::of(chat())),
      device_(device ? std::move(device) : make_tested_device({options.device, options.threads})) {
  if (!config().encodes()) {
    model_->add_stops(stops_of_files(
        checkpoint_.files(), [this](const char* name) { return checkpoint_.file(name); },
        tokenizer()));
  }
  const StageFormats formats = formats_of(checkpoint_, *model_, options.profile);
  if (tokenizer_ && tokenizer_->size() > config().vocab) {
    throw Error(ErrorKind::kInput, cat("[model] ", options.path.string(), ": the tokenizer has ",
                                       tokenizer_->size(), " tokens, the model ", config().vocab));
  }
  uint64_t weights = 0;
  for (const std::string& name : checkpoint_.names()) weights += checkpoint_.at(name).bytes.size();
  TextRoom room{options.kv_budget, weights, device_->is_gpu()};
  if (room.budget == 0) {
    room.budget = default_kv_budget(*model_, options.profile, options.kv, room);
    options_.kv_budget = room.budget;
  }
  if (!options.context) context_bound_ = fit_context(*model_, options.profile, options.kv, room);
  expect_room(*device_, options.path.string(), weights,
              kv_bytes_for(*model_, {}, options.profile, 1, options.kv));
  ShardOptions shard;
  shard.profile = options.profile;
  shard.formats = formats;
  shard.threads = options.threads;
  shard.wide = options.wide;
  shard.kv = options.kv;
  shard.kv_bytes = room.budget;
  if (device_->is_gpu() && !config().encodes()) shard.long_rows = kLongRows;
  shard.range.to = last_point();
  shard_ = std::make_unique<Shard>(*device_, *model_, weights_of(checkpoint_, *model_), shard);
  if (const uint32_t states = shard_->pages().states(); states > 0) {
    log_info(cat("[model] ", options.id, ": ", states, " states of ",
                 human_bytes(shard_->state_bytes()),
                 ", one for each text, one for each that moves and one for two snapshots, and "
                 "pages for ",
                 uint64_t{shard_->pages().total()} * kPageTokens, " tokens share ",
                 human_bytes(room.budget), " (--kv-budget)"));
  }
  batcher_ = std::make_unique<Batcher>(*shard_);
  if (options.prompt_cache && !config().encodes()) batcher_->keep_prefixes();
  batcher_->on_step([this](const StepSeen& seen) {
    const std::optional<StepCosts> known = costs();
    const uint32_t most = shard_->max_wanted(seen.to);
    load_.add(seen.ms, known ? work_of(seen, *known, config().layers, most) : seen.ms, clock_());
  });
  weights_ = std::make_unique<WeightStore>(checkpoint_, *model_, options.formats,
                                           options.blob_cache, options.weights_patience);
}

std::string ServedModel::bits() const {
  const ShardOptions& options = shard_->options();
  return bits_of(*shard_, [&](const Stage& stage) {
    return options.formats.of(stage.name).value_or(own_format(checkpoint_, *model_, stage));
  });
}

const std::string& ServedModel::damaged_weight() {
  std::call_once(looked_, [this] {
    for (const std::string& name : checkpoint_.names()) {
      if (values_are_finite(checkpoint_.at(name))) continue;
      log_error(cat("[model] ", options_.path.string(), ": weight ", shown(name),
                    " holds a value that is not finite: the file is damaged"));
      damaged_weight_ = name;
      return;
    }
  });
  return damaged_weight_;
}

void ServedModel::begin_wishes(double slo_ms, std::function<CutRequests::Time()> clock) {
  clock_ = clock;
  const auto measure = [this]() -> Shedding::Measured {
    return pressure_of(load_, waits_, kv_usage(), clock_());
  };
  cut_requests_.emplace(config().layers, slo_ms, measure, std::move(clock));
}

void ServedModel::measure() {
  std::optional<StepCosts> costs;
  try {
    costs = measure_steps(*batcher_);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBusy) throw;  // no free page: none is freed for this
  }
  const std::lock_guard lock(costs_mutex_);
  costs_ = costs;
}

double ServedModel::kv_usage() const {
  const KvPages& pages = batcher_->pages();
  return std::max(static_cast<double>(pages.in_use()) / std::max(1u, pages.total()),
                  static_cast<double>(pages.states_in_use()) / std::max(1u, pages.states()));
}

std::optional<StepCosts> ServedModel::costs() const {
  const std::lock_guard lock(costs_mutex_);
  return costs_;
}

void ServedModel::warm_up() {
  Requester self;
  self.self = true;
  if (config().encodes()) {
    const std::vector<int32_t> tokens(2, 0);
    const uint32_t length = 2;
    Forward::Spent spent;
    run_texts(*batcher_,
              {.range = {.to = last_point()}, .lengths = std::span(&length, 1), .tokens = tokens},
              self, spent);
    return;
  }
  LocalForward forward(*batcher_, self);
  const std::vector<int32_t> tokens(static_cast<size_t>(std::min(config().context - 1, 9)), 0);
  if (tokens.empty()) return;
  forward.run({.tokens = tokens});
  forward.run({.past = static_cast<uint32_t>(tokens.size()),
               .tokens = std::span(tokens).first(1),
               .phase = Phase::kGenerate});
}

}  // namespace split::cloud
