#include "edge_client/server/service.h"

#include "base/log.h"
#include "edge_client/server/loader_output.h"
#include "edge_client/server/split_backend.h"
#include "edge_client/server/status.h"
#include "edge_client/weights/exactness.h"
#include "http/message.h"
#include "serve/models.h"
#include "wire/codes.h"
#include "wire/fields.h"

namespace split::edge {
namespace {

// Timeout of a look whether the server is there.
constexpr std::chrono::milliseconds kProbe{1000};
// Answers at once that a text here would have room for, without a budget.
constexpr uint32_t kSlotsOfTheCloud = 16;

// Returns the model that texts begin with, all of it on the cloud.
std::shared_ptr<PlacedModel> on_cloud(const PlacedModel& split) {
  auto whole = std::make_shared<PlacedModel>();
  whole->place.cut = Cut::cloud();
  whole->info = split.info;
  whole->query = split.query;
  whole->wire = split.wire;
  whole->head_blocks = split.head_blocks;
  return whole;
}

}  // namespace

Service::Service(const Options& options, PlacementRequest request, const Console& console,
                 const Flags::Environment& environment, Interrupt& interrupt, EdgeMetrics& metrics)
    : options_(options),
      request_(std::move(request)),
      console_(console),
      metrics_(metrics),
      log_{[](std::string_view) { return true; },
           [this](std::string_view text) {
             write_log(log_line("info", text.substr(0, text.find('\n'))));
           }},
      notice_(log_, ServerAddress(options_, environment).connect(kProbe)->origin(), options_.quiet),
      health_(ServerAddress(options_, environment).connect(kProbe)),
      engine_(options_, request_, environment, interrupt, *this) {}

void Service::waiting(const RemoteError& error) {
  if (error.status == 0 && error.code != kFirstAsk) health_.heard(false);
  notice_.lost(error);
}

void Service::found(bool again) {
  if (again) health_.heard(true);
  notice_.found(again);
}

void Service::noted(const std::string& line) {
  if (!options_.quiet) console_.err(line + "\n");
}

ProgressTo Service::progress() const { return progress_on(console_, options_.quiet); }

void Service::said(const std::string& line) { write_log(log_line("info", line)); }

void Service::grew(const GrowthNote& note) {
  const std::string line = cat("--cut auto: ", note.line());
  if (line != std::exchange(said_growth_, line)) said(line);
}

void Service::token(const SplitCounts& before, const SplitCounts& now, double seconds, bool first) {
  metrics_.token(before, now, seconds, first);
}

void Service::ended(const Receipt& receipt, std::optional<double> error) {
  metrics_.ended(receipt, error);
  const std::lock_guard lock(mutex_);
  last_receipt_ = cost_json(receipt);
}

std::vector<serve::Metrics::Labels> Service::placed() const {
  const std::shared_ptr<PlacedModel> split = engine_.present();
  if (!split) return {};
  return {{{"model", split->info.id},
           {"cut", split->place.cut.name()},
           {"head", split->place.head_on_cloud ? "cloud" : "edge"},
           {"device", split->computes() ? split->device() : "none"}}};
}

std::string Service::id() const {
  const std::shared_ptr<PlacedModel> split = engine_.present();
  return split ? split->info.id : "";
}

std::shared_ptr<Batcher> Service::batcher() const {
  const std::shared_ptr<PlacedModel> split = engine_.present();
  return std::shared_ptr<Batcher>(split, split ? split->batcher() : nullptr);
}

void Service::write_log(std::string_view line) const {
  if (options_.quiet || !log_has_room()) return;
  const uint64_t lost = take_dropped_lines();
  if (lost > 0) console_.err(log_line("info", cat(lost, " lines of log were dropped")));
  console_.err(line);
}

std::vector<serve::Metrics::Labels> Service::served() const {
  const std::shared_ptr<PlacedModel> split = engine_.present();
  if (!split) return {};
  return {{{"model", split->info.id}, {"profile", split->profile}}};
}

std::string Service::status(const std::vector<std::string>& devices) {
  ServiceState now;
  static_cast<EngineState&>(now) = engine_.state();
  now.devices = devices;
  now.stops_cloud = options_.stops_cloud > 0;
  if (now.split && !options_.tail.empty()) {
    now.personal = ids()[0];
    now.highest = engine_.bounds().highest.blocks(now.config->layers);
  }
  now.cloud = health_.look(now.split ? now.split->info.id : "");
  now.stopping = stopping_;
  {
    const std::lock_guard lock(mutex_);
    now.last_receipt = last_receipt_;
  }
  return status_json(now);
}

std::vector<std::string> Service::ids() const {
  const std::shared_ptr<PlacedModel> split = engine_.present();
  if (!split) serve::refuse_while_loading();
  const std::string& base = split->info.id;
  if (options_.tail.empty()) return {base};
  return {cat(base, ":personal"), base};
}

void Service::stand_in(const std::string& id, std::span<const std::string> ids) {
  constexpr size_t kMostSaid = 64;
  if (id.empty() || std::ranges::find(ids, id) != ids.end()) return;
  if (!options_.any_model) serve::refuse_model(ids);
  {
    const std::lock_guard lock(mutex_);
    if (stood_in_.size() == kMostSaid || !stood_in_.insert(shown(id)).second) return;
  }
  said(cat("no model ", shown(id), " is here: ", ids[0], " answers for it (--any-model)"));
}

std::shared_ptr<PlacedModel> Service::expect_model(const std::string& id) {
  stand_in(id, ids());
  return engine_.present();
}

serve::TextModel Service::find(const std::string& id, const std::string& owner) {
  const std::shared_ptr<PlacedModel> split = expect_model(id);
  const LoadedModel& loaded = *engine_.loaded();
  const std::shared_ptr<Engine> engine(shared_from_this(), &engine_);
  const bool base = !options_.tail.empty() && id == split->info.id;
  serve::TextModel model{base ? id : ids()[0], &loaded.model.config(),
                         loaded.tokenizer ? &*loaded.tokenizer : nullptr, [engine, owner, base] {
                           return std::make_unique<SplitBackend>(
                               engine, base ? on_cloud(*engine->present()) : nullptr, owner);
                         }};
  model.spare = &spare_;
  model.sentences = &loaded.sentences;
  model.chat = loaded.chat ? &*loaded.chat : nullptr;
  model.format = &loaded.format;
  model.special_in_content = options_.special_in_content;
  model.audits = &audits_;
  model.audited = [self = shared_from_this(), owner] { return self->audited(owner); };
  return model;
}

// Rows of two programs are one text's only where both compute the same bits.
serve::AuditedModel Service::audited(const std::string& owner) {
  const std::shared_ptr<PlacedModel> split = expect_model("");
  const ModelConfig& config = engine_.loaded()->model.config();
  if (config.encodes()) serve::refuse_without_head();
  const Placement& place = split->place;
  const auto refuse = [](const std::string& why) {
    wire::Fields::refuse("receipt", cat("this edge has none: ", why));
  };
  if (!options_.tail.empty()) refuse("its tail is not the model's");
  if (split->tells_other_bits()) refuse("the bits of its cloud's rows have changed");
  if (!place.alone() && split->wire != DType::kF32) {
    refuse(cat("its rows travel in ", format_name(split->wire), " (--wire)"));
  }
  std::string bits = split->info.bits;
  if (place.local()) {
    const Shard& shard = split->batcher()->shard();
    bits = own_bits(shard, split->info, shard.options().formats);
  }
  const std::optional<bool> exact = engine_.state().exact;
  const bool comes_here = !place.local() && engine_.follows();
  if (comes_here && !exact) {
    throw http::HttpError(503, wire::codes::kLoading,
                          "there are receipts once this machine's bits are known to be the cloud's",
                          "receipt", {{"Retry-After", "1"}});
  }
  const bool differs = bits != split->info.bits || exact == false;
  if (!place.alone() && (place.local() || comes_here) && differs) {
    refuse(cat("its texts have rows of two kinds: ",
               place.local() ? cat("of '", bits, "' here") : "of other bits here", ", of '",
               split->info.bits, "' on the cloud"));
  }
  if (!place.alone() && !split->info.phases_alike) {
    refuse("the cloud's prompts have other bits than its generated rows");
  }
  const std::shared_ptr<Engine> engine(shared_from_this(), &engine_);
  return {split->info.id, wire::manifest_hash(split->info), bits, &config,
          [backend = std::make_shared<SplitBackend>(engine, split, owner)](
              const SequenceRows& rows, uint32_t prompt) { return backend->rows(rows, prompt); }};
}

http::Response Service::audit(const http::Request& request, const std::string& owner) {
  return audits_.answer(request, [&](const std::string& id) {
    expect_model(id);
    return audited(owner);
  });
}

serve::TextModel Service::find_writer(const std::string& id, const std::string& owner, bool opens) {
  const std::string opened = opens && engine_.loaded() == nullptr ? engine_.opens() : "";
  if (!opened.empty()) {
    stand_in(id, {&opened, 1});
    const std::shared_ptr<Engine> engine(shared_from_this(), &engine_);
    serve::TextModel model{opened, nullptr, nullptr, [engine, owner] {
                             return std::make_unique<SplitBackend>(engine, nullptr, owner);
                           }};
    model.special_in_content = options_.special_in_content;
    model.own_template = !options_.chat_template.empty();
    return model;
  }
  serve::TextModel model = find(id, owner);
  if (model.config->encodes()) serve::refuse_without_head();
  return model;
}

void Service::place(std::optional<Cut> cut, bool running) {
  expect_model("");
  try {
    cut ? engine_.move_cut(*cut, running) : engine_.choose_cut();
  } catch (const Refused& refused) {
    throw http::HttpError(409, refused.code, refused.what());
  }
}

serve::Props Service::props() {
  const serve::TextModel model = find("");
  Batcher* const batcher = engine_.present()->batcher();
  return {model.id, model.config->context,
          batcher != nullptr ? serve::slots_of(*batcher) : kSlotsOfTheCloud,
          model.chat != nullptr ? model.chat->text() : ""};
}

std::vector<serve::OllamaModel> Service::ollama_models() {
  serve::OllamaModel model;
  const serve::TextModel text = find("");
  model.config = *text.config;
  if (text.chat != nullptr) model.chat_template = text.chat->text();
  for (const Blob& blob : engine_.loaded()->model.blobs()) {
    for (const WeightDecl& weight : blob.weights) {
      const bool own = weight.from.empty();  // a tied head has the embedding's blob
      if (own) model.parameters += static_cast<uint64_t>(element_count(weight.dims).value());
    }
  }
  const std::shared_ptr<PlacedModel> split = engine_.present();
  model.family = split->info.architecture;
  model.quantization = split->info.format;
  std::map<std::string, uint64_t> blobs;  // two stages may share one
  for (const wire::StageInfo& stage : split->info.stages) {
    for (const wire::BlobInfo& blob : stage.blobs) {
      if (blob.format == stage.format) blobs[blob.sha256] = blob.bytes;
    }
  }
  std::string hashes;
  for (const auto& [sha256, bytes] : blobs) {
    hashes += sha256;
    model.bytes += bytes;
  }
  model.digest = Sha256::hex_of(as_bytes_of(hashes));
  const FetchCounts fetched = split->counts();
  model.bytes_here = fetched.downloaded + fetched.from_cache;
  if (split->on_gpu()) model.bytes_on_gpu = model.bytes_here;
  std::vector<serve::OllamaModel> all;
  for (const std::string& id : ids()) {
    all.push_back(model);
    all.back().id = id;
    if (id == split->info.id) continue;
    all.back().digest = Sha256::hex_of(as_bytes_of(hashes + id));
    model.bytes_here = model.bytes_on_gpu = 0;  // the base runs on the cloud
  }
  return all;
}

serve::TextModel Service::unsplit(const std::string& id) {
  serve::TextModel model = find_writer(id);
  const std::shared_ptr<Engine> engine(shared_from_this(), &engine_);
  model.id = ids().back();
  model.audits = nullptr;
  model.begin = [engine] {
    return std::make_unique<SplitBackend>(engine, on_cloud(*engine->present()));
  };
  return model;
}

}  // namespace split::edge
