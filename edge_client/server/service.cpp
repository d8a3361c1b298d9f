#include "edge_client/server/service.h"

#include <thread>

#include "base/log.h"
#include "base/log_room.h"
#include "base/resources/threads.h"
#include "edge_client/place/plan_report.h"
#include "edge_client/server/status.h"
#include "edge_client/weights/exactness.h"
#include "edge_client/weights/plan/measure.h"
#include "http/message.h"
#include "serve/models.h"
#include "step/names.h"
#include "wire/codes.h"
#include "wire/fields.h"

namespace split::edge {
namespace {

// How long a look whether the server is there may take.
constexpr std::chrono::milliseconds kProbe{1000};

void expect_running_can_move(const PlacedModel& now) {
  if (!now.deepest) {
    throw http::HttpError(409, wire::codes::kNotSupported,
                          "answers that run have one cut for good: of this cloud's sessions, or "
                          "with --head cloud");
  }
}

}  // namespace

Service::Service(const Options& options, const Console& console,
                 const Flags::Environment& environment, Interrupt& interrupt, EdgeMetrics& metrics)
    : options_(options),
      console_(console),
      metrics_(metrics),
      loader_(options, console, environment, interrupt),
      log_{[](std::string_view) { return true; },
           [this](std::string_view text) {
             write_log(log_line("info", text.substr(0, text.find('\n'))));
           }},
      notice_(log_, loader_.remote().origin(), options.quiet),
      pool_([this](auto timeout) { return loader_.connect(timeout); },
            loader_.remote().patience().timeout),
      turns_([this](const std::string& session) { pool_.dismiss(session); }),
      probe_(loader_.connect(kProbe)),
      answers_(options.exact),
      rescuer_(loader_, options.exact) {
  loader_.on_retry([this](const RemoteError& error) { metrics_.retried(error); });
  loader_.on_waiting(
      [this](const RemoteError& error) {
        if (error.status == 0 && error.code != kFirstAsk) probe_.heard(false);
        notice_.lost(error);
      },
      [this](bool again) {
        if (again) probe_.heard(true);
        notice_.found(again);
      });
}

std::vector<serve::Metrics::Labels> Service::placed() const {
  const std::shared_ptr<PlacedModel> split = present();
  if (!split) return {};
  return {{{"model", split->info.id},
           {"cut", split->place.name()},
           {"head", split->place.head_on_cloud ? "cloud" : "edge"},
           {"device", split->device()}}};
}

std::optional<Placement> Service::place() const {
  const std::shared_ptr<PlacedModel> split = present();
  return split ? std::optional(split->place) : std::nullopt;
}

bool Service::follows() const {
  const std::lock_guard lock(mutex_);
  return follows_;
}

std::string Service::id() const {
  const std::shared_ptr<PlacedModel> split = present();
  return split ? split->info.id : "";
}

std::shared_ptr<Batcher> Service::batcher() const {
  const std::shared_ptr<PlacedModel> split = present();
  return std::shared_ptr<Batcher>(split, split ? split->batcher() : nullptr);
}

void Service::write_log(std::string_view line) const {
  if (options_.quiet || !log_has_room()) return;
  const uint64_t lost = take_dropped_lines();
  if (lost > 0) console_.err(log_line("info", cat(lost, " lines of log were dropped")));
  console_.err(line);
}

std::vector<serve::Metrics::Labels> Service::served() const {
  const std::shared_ptr<PlacedModel> split = present();
  if (!split) return {};
  return {{{"model", split->info.id}, {"profile", split->profile}}};
}

void Service::load() {
  const std::lock_guard loading(loading_);
  loader_.select_model();
  loader_.expect_flags();
  Loader::Begin first = loader_.begin();
  std::shared_ptr<PlacedModel> split = load_split(first.place, std::move(first.info));
  std::optional<Tokenizer> tokenizer = loader_.tokenizer(split->info);
  Sentences sentences = loader_.sentences(split->info);
  std::optional<ChatTemplate> chat = loader_.chat(split->info);
  loader_.remember(*split);
  forecasts_ = loader_.forecasts(split->info);
  if (!options_.auto_cut) measure(split->info);  // else the arrival does
  {
    const std::lock_guard lock(mutex_);
    tokenizer_ = std::move(tokenizer);
    sentences_ = std::move(sentences);
    chat_ = std::move(chat);
    shared_.emplace(
        SplitWork::Shared{loader_.model(),
                          tokenizer_ ? &*tokenizer_ : nullptr,
                          loader_.retry(),
                          pool_,
                          [this](const Receipt& receipt) {
                            metrics_.ended(receipt);
                            count_growth();
                            const std::lock_guard receipts(mutex_);
                            last_receipt_ = cost_json(receipt);
                          },
                          &metrics_,
                          &answers_,
                          forecasts_.get(),
                          {options_.drafts.most, options_.drafts.always, &draft_memory_},
                          &turns_,
                          &rescuer_,
                          [this](const std::string& line) { log_.err(cat(line, "\n")); }});
    split_ = split;
  }
  if (options_.auto_cut && split->place.all_on_cloud) follow();
}

// Looks at the line and the cloud as they are now. A plan waits for nobody.
void Service::measure(const wire::ModelInfo& info) {
  if (loader_.recalled()) return;
  try {
    measure_cloud(loader_.remote(), info, static_cast<uint32_t>(loader_.config().channels),
                  *forecasts_);
  } catch (const RemoteError&) {
  }
}

void Service::say(const std::string& line) {
  write_log(log_line("info", cat("--cut auto: ", line)));
}

// The weights come beside the answers. With the loader held.
void Service::follow() {
  {
    const std::lock_guard lock(mutex_);
    follows_ = true;
    if (split_->place.all_on_cloud) on_cloud_ = split_;
  }
  answers_.choose_by(*forecasts_, [this](const std::string& line) { say(line); });
  if (arrival_) return;
  ArrivalOptions arrival;
  arrival.goal = options_.goal;
  arrival.info = split_->info;
  arrival.forecasts = forecasts_.get();
  arrival.grow.max_weights = options_.max_weights.value_or(kMaxWeights);
  arrival.grow.on_bytes = progress_.on_bytes();
  arrival.grow.told = [this](const GrowthNote& note) {
    count_growth();
    if (note.line() != std::exchange(said_growth_, note.line())) say(note.line());
    if (!note.done) return;
    const std::lock_guard lock(mutex_);
    coming_.reset();
  };
  arrival.begins = [this](const wire::ModelInfo& info, const std::vector<GrowthStep>& steps) {
    std::vector<std::string> order;
    for (const GrowthStep& step : steps) {
      order.insert(order.end(), step.stages.begin(), step.stages.end());
    }
    progress_.expect(stage_blobs(loader_.model(), info, order, loader_.formats(info)));
    const std::lock_guard lock(mutex_);
    const bool head = order[1] == names::kHead;  // behind the norm
    coming_.emplace().range = {steps.back().floor, head ? Point::head() : Point::norm()};
    coming_info_ = info;
  };
  arrival.grows = [this](const std::shared_ptr<PlacedModel>& model) {
    answers_.grow_beside(model);
    count_growth();
  };
  arrival.landed = [this](const Landed& place) { landed(place); };
  arrival.offered = [this](const Landed& place) {
    watch_once(place);
    answers_.offer(place);
  };
  arrival.tell = [this](const std::string& line) { say(line); };
  arrival_.emplace(loader_, std::move(arrival));
  rescuer_.comes_by(&*arrival_);
  arrival_->text_runs(!answers_.list().empty());
  answers_.on_busy([this](bool busy) { arrival_->text_runs(busy); });
}

// The bytes that came beside answers since the last time.
void Service::count_growth() {
  const std::lock_guard lock(mutex_);
  const FetchCounts now = answers_.grown_bytes();
  metrics_.loaded({now.downloaded - counted_.downloaded, now.from_cache - counted_.from_cache});
  counted_ = now;
}

// On the thread of the arrival.
void Service::landed(const Landed& place) {
  watch_once(place);
  {
    const std::lock_guard lock(mutex_);
    landed_ = place;
    if (!follows_) return answers_.offer(place);
  }
  answers_.go_on_at(place);  // first: by what that knows the next answer begins
  const std::lock_guard lock(mutex_);
  if (follows_) split_ = place.at;
}

// Before the first text runs on the weights that come.
void Service::watch_once(const Landed& place) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(watched_, true)) watch(*place.at->batcher());
}

void Service::choose_cut() {
  const std::lock_guard loading(loading_);
  if (!present()) find("");  // throws
  expect_running_can_move(*present());
  follow();
  std::optional<Landed> place;
  {
    const std::lock_guard lock(mutex_);
    place = landed_;
    if (!place && on_cloud_) split_ = on_cloud_;
  }
  if (place) landed(*place);
  turns_.stay_on(place ? place->at->batcher() : nullptr);
}

// With the loader held.
std::shared_ptr<PlacedModel> Service::load_split(const Placement& place, wire::ModelInfo info) {
  if (place.local()) {
    progress_.expect(stage_blobs(loader_.model(), info, place.range, loader_.formats(info)));
  }
  const std::shared_ptr<void> leave(nullptr, [this](void*) {
    const std::lock_guard lock(mutex_);
    coming_.reset();
  });
  {
    const std::lock_guard lock(mutex_);
    coming_ = place;
    coming_info_ = info;
  }
  std::shared_ptr<PlacedModel> split = loader_.load(place, info, progress_.on_bytes());
  metrics_.loaded(split->fetched);
  if (split->batcher() != nullptr) watch(*split->batcher());
  return split;
}

// Before anything of an answer runs on it.
void Service::watch(Batcher& batcher) {
  metrics_.steps.watch(batcher);
  batcher.on_pages_spent([this, &batcher] { return turns_.make_room(batcher); });
}

std::shared_ptr<PlacedModel> Service::present() const {
  if (std::shared_ptr<PlacedModel> next = answers_.next()) return next;
  const std::lock_guard lock(mutex_);
  return split_;
}

bool Service::ready() const { return !stopping_ && present() != nullptr; }

std::string Service::status(const std::vector<std::string>& devices) {
  ServiceState now;
  now.device_asked = options_.device.device;
  now.devices = devices;
  now.origin = pool_.origin();
  const std::shared_ptr<PlacedModel> split = present();
  const Forecasts* forecasts = nullptr;
  now.cloud = probe_.look(split ? split->info.id : "");
  {
    const std::lock_guard lock(mutex_);
    now.stopping = stopping_;
    now.split = split;
    now.coming = coming_;
    now.follows = follows_;
    if (split || coming_) {
      now.info = split ? split->info : coming_info_;
      now.config = &loader_.config();
      now.formats = loader_.formats(now.info);
    }
    if (split_)
      now.fetched = split_->place.all_on_cloud ? answers_.grown_bytes() : split_->counts();
    now.last_receipt = last_receipt_;
    forecasts = split ? forecasts_.get() : nullptr;
  }
  now.progress = progress_.counts(std::chrono::steady_clock::now());
  now.answers = answers_.list();
  now.grown = answers_.grown();
  now.goal = options_.goal;
  now.exact = answers_.exact();
  if (!now.exact && split) now.exact = split->exact;
  if (split && split->rounds()) now.exact = false;
  if (forecasts != nullptr) now.plan = to_json(forecasts->plan(split->info.id, now.exact));
  return status_json(now);
}

std::string Service::plan() const {
  Receipt receipt;
  describe(receipt, *present(), loader_.config(), pool_.origin());
  return receipt.plan();
}

serve::TextModel Service::find(const std::string& id, const std::string& owner) {
  std::shared_ptr<PlacedModel> split = present();
  if (!split) {
    throw http::HttpError(503, wire::codes::kLoading, "the model is still being loaded", {},
                          {{"Retry-After", "1"}});
  }
  if (!id.empty() && id != split->info.id) {
    serve::refuse_model({&split->info.id, 1});
  }
  const SplitWork::Shared& shared = *shared_;  // not changed any more
  serve::TextModel model{
      split->info.id, &shared.model.config(), shared.tokenizer,
      [this, &shared, owner] { return std::make_unique<SplitWork>(shared, present(), owner); }};
  model.spare = &spare_;
  model.sentences = &*sentences_;
  model.chat = chat_ ? &*chat_ : nullptr;
  model.special_in_content = options_.special_in_content;
  return model;
}

serve::TextModel Service::find_writer(const std::string& id, const std::string& owner) {
  serve::TextModel model = find(id, owner);
  if (model.config->encodes()) serve::refuse_without_head();
  return model;
}

// As many answers at once as a text here would have room for, unless a budget says otherwise.
constexpr uint32_t kSlotsOfTheCloud = 16;

serve::Props Service::props() {
  const serve::TextModel model = find("");
  Batcher* const batcher = present()->batcher();
  return {model.id, model.config->context,
          batcher != nullptr ? serve::slots_of(*batcher) : kSlotsOfTheCloud,
          model.chat != nullptr ? model.chat->text() : ""};
}

serve::OllamaModel Service::ollama_model() {
  serve::OllamaModel model;
  const serve::TextModel text = find("");
  model.config = *text.config;
  if (text.chat != nullptr) model.chat_template = text.chat->text();
  for (const Blob& blob : shared_->model.blobs()) {
    for (const WeightDecl& weight : blob.weights) {
      const bool own = weight.from.empty();  // a tied head is the embedding's
      if (own) model.parameters += static_cast<uint64_t>(element_count(weight.dims).value());
    }
  }
  const std::shared_ptr<PlacedModel> split = present();
  model.id = split->info.id;
  model.family = split->info.architecture;
  model.quantization = split->info.format;
  std::map<std::string, uint64_t> blobs;  // one may be of two stages
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
  return model;
}

serve::TextModel Service::unsplit(const std::string& id) {
  serve::TextModel model = find_writer(id);
  model.begin = [this] {
    const std::shared_ptr<PlacedModel> split = present();
    const auto whole = std::make_shared<PlacedModel>();
    whole->place.all_on_cloud = true;
    whole->info = split->info;
    whole->query = split->query;
    whole->wire = split->wire;
    whole->head_blocks = split->head_blocks;
    return std::make_unique<SplitWork>(*shared_, whole);
  };
  return model;
}

void Service::move_cut(int cut, bool running) {
  const std::lock_guard loading(loading_);
  const std::shared_ptr<PlacedModel> now = present();
  if (!now) find("");  // throws
  const int layers = loader_.config().layers;
  if (cut > layers) {
    wire::Fields::refuse("cut", cat("expected 0..", layers, ", \"cloud\" or \"auto\""));
  }
  if (running) expect_running_can_move(*now);
  {
    const std::lock_guard lock(mutex_);
    follows_ = false;
  }
  answers_.go_on_at(std::nullopt);
  const bool same = cut == (now->place.all_on_cloud ? Move::kCloud : now->place.cut);
  const std::shared_ptr<PlacedModel> split = same ? now : placed_at(cut);
  if (running) move_running(cut, split);
  {
    const std::lock_guard lock(mutex_);
    split_ = split;
  }
  turns_.stay_on(split->batcher());  // what was kept elsewhere has that model's weights too
}

// The model for answers that begin there. With the loader held.
std::shared_ptr<PlacedModel> Service::placed_at(int cut) {
  const std::shared_ptr<PlacedModel> now = present();
  if (cut != Move::kCloud && arrival_) {
    if (const auto placed = arrival_->wait_for(cut)) {
      return std::make_shared<PlacedModel>(placed->at(cut));
    }
  }
  Options options = options_;
  options.all_on_cloud = cut == Move::kCloud;
  options.cut.reset();
  if (!options.all_on_cloud) options.cut = cut;
  const Placement wanted = edge::place(options, loader_.model());
  // A driver's compilers want more stack than a request's thread has.
  std::shared_ptr<PlacedModel> split;
  std::exception_ptr error;
  std::thread loads = started([&] {
    try {
      split = load_split(wanted, loader_.manifest(&wanted));
    } catch (...) {
      error = std::current_exception();
    }
  });
  loads.join();
  bool same = true;
  try {
    if (error) std::rethrow_exception(error);
    same = same_model(split->info, now->info);
  } catch (const RemoteError& refused) {
    if (refused.code != wire::codes::kModelMismatch) throw;
    same = false;
  }
  if (!same) {
    throw http::HttpError(
        409, wire::codes::kModelMismatch,
        "the cloud has another model under this name now: start edge_client anew");
  }
  loader_.remember(*split);
  return split;
}

// With the loader held.
void Service::move_running(int cut, const std::shared_ptr<PlacedModel>& split) {
  Batcher* const tail = split->batcher() != nullptr ? split->batcher() : present()->batcher();
  const bool exact =
      !split->rounds() && (tail == nullptr || is_exact(loader_.remote(), split->info, *tail));
  if (tail != nullptr) answers_.set_exact(exact);
  if (options_.exact && !exact) {
    throw http::HttpError(409, "not_exact",
                          "a move could change a running answer: this machine's bits are not the "
                          "cloud's (--exact)");
  }
  answers_.move(cut, split);
}

}  // namespace split::edge
