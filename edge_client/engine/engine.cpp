#include "edge_client/engine/engine.h"

#include "edge_client/engine/large_stack.h"
#include "edge_client/measure/calibrate.h"
#include "edge_client/measure/measure.h"
#include "edge_client/weights/exactness.h"
#include "step/names.h"
#include "wire/codes.h"
#include "wire/fields.h"

namespace split::edge {
namespace {

void expect_running_can_move(const PlacedModel& now) {
  if (now.deepest) return;
  throw Refused(wire::codes::kNotSupported,
                "answers that run have one cut for good: of this cloud's sessions, or with --head "
                "cloud");
}

}  // namespace

Engine::Engine(const EngineOptions& options, const PlacementRequest& request,
               const http::Environment& environment, Interrupt& interrupt, EngineObserver& observer)
    : observer_(observer),
      choice_(
          options, request, [this](const std::string& line) { observer_.noted(line); }, environment,
          interrupt),
      tails_(choice_, observer.progress(), [this](Device& device) { return token_ms(device); }),
      pool_([this](auto timeout) { return choice_.server().connect(timeout); },
            choice_.remote().patience().timeout),
      session_cache_([this](const std::string& session) { pool_.dismiss(session); }),
      answers_(options.exact, tails_.other_bits()),
      failover_(tails_, options.exact) {
  choice_.on_retry([this](const RemoteError& error) { observer_.retried(error); });
  choice_.on_waiting([this](const RemoteError& error) { observer_.waiting(error); },
                     [this](bool again) { observer_.found(again); });
}

// Over weights in halves, as most are.
double Engine::token_ms(Device& device) const {
  const Speed speed = calibrate(device, choice_.model(), DType::kF16, choice_.request().formats,
                                choice_.request().profile, {}, Measured::kOneRow);
  return choice_.config().layers * speed.block_ms + speed.head_ms;
}

Engine::~Engine() {
  failover_.comes_by(nullptr);
  answers_.on_busy({});
}

void Engine::meet() {
  const std::lock_guard loading(loading_);
  if (!choice_.id().empty()) return;
  choice_.select_id();
  tails_.expect_flags();
  if (!begins_early(choice_.request().auto_cut, choice_.recalled())) return;
  const bool seen_alone = choice_.is_seen_alone();
  const std::lock_guard lock(mutex_);
  now_.seen_alone = seen_alone;
  now_.opens = choice_.id();
}

void Engine::open_beside() {
  const std::lock_guard loading(loading_);
  pool_.put(choice_.hand_over());
  const std::lock_guard lock(mutex_);
  now_.opened = true;
}

std::function<bool()> Engine::is_lost() const {
  const std::lock_guard lock(mutex_);
  if (!now_.seen_alone) return {};
  return [this] { return !choice_.server().responds(); };
}

void Engine::load() {
  try {
    meet();
    const std::lock_guard loading(loading_);
    load_first();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    now_.failed = std::current_exception();
    throw;
  }
}

// Call with loading_ held.
void Engine::load_first() {
  ModelChoice::Begin first;
  std::optional<LoadedModel> known;
  const auto ask = [&] {
    choice_.select_model();
    first = choice_.begin();
    known.emplace(LoadedModel{
        choice_.model(), choice_.tokenizer(first.info), choice_.sentences(first.info), {}, {}});
    if (!choice_.request().many_texts) return;
    known->chat = choice_.chat(first.info);
    known->format = AnswerFormat::of(known->chat ? &*known->chat : nullptr);
  };
  bool opened = false;
  {
    const std::lock_guard lock(mutex_);
    opened = now_.opened;
  }
  opened ? choice_.ask_begun(ask) : ask();
  // The cloud was lost since the text began.
  if (opened && choice_.recalled()) first.place = choice_.place(choice_.request());
  observer_.begins(first, *known);
  const std::shared_ptr<PlacedModel> split = load_split(first.place, std::move(first.info));
  choice_.remember(*split);
  // Forecasts are kept in the cache, which a text on the cloud does without.
  if (choice_.request().many_texts || split->place.local() || choice_.has_cache()) {
    forecasts_ = make_forecasts(tails_, split->info);
  }
  if (choice_.request().many_texts && !choice_.request().auto_cut)
    measure(split->info);  // otherwise WeightFetch
                           // measures
  {
    const std::lock_guard lock(mutex_);
    now_.split = split;
    if (split->place.cut.is_cloud()) now_.on_cloud = split;
  }
  pool_.put(choice_.hand_over());  // this connection knows the server's model
  observer_.begun(*split);
  {
    const std::lock_guard lock(mutex_);
    now_.loaded.emplace(std::move(*known));
  }
  choice_.request().auto_cut && split->place.cut.is_cloud() ? follow() : fetch_rest(*split);
}

bool Engine::settled() const {
  const std::lock_guard lock(mutex_);
  return now_.loaded || now_.failed;
}

const LoadedModel& Engine::await_loaded(Waiter& waiter) const {
  constexpr std::chrono::milliseconds kLook{20};
  while (!settled()) {
    if (!waiter.wait(kLook)) throw RemoteError("[edge] it is cancelled", 0, "");
  }
  const std::lock_guard lock(mutex_);
  if (now_.failed) std::rethrow_exception(now_.failed);
  return *now_.loaded;
}

const LoadedModel* Engine::loaded() const {
  const std::lock_guard lock(mutex_);
  return now_.loaded ? &*now_.loaded : nullptr;
}

std::string Engine::opens() const {
  const std::lock_guard lock(mutex_);
  return now_.opens;
}

std::shared_ptr<PlacedModel> Engine::opened_on() const {
  const std::lock_guard lock(mutex_);
  return now_.on_cloud;
}

bool Engine::follows() const {
  const std::lock_guard lock(mutex_);
  return now_.follows;
}

// Measures the line and the cloud as they are now. Never retries: a plan must not wait.
void Engine::measure(const wire::ModelInfo& info) {
  if (choice_.recalled()) return;
  try {
    measure_cloud(choice_.remote(), info, choice_.config(), *forecasts_);
  } catch (const RemoteError&) {
  }
}

void Engine::coming(const wire::ModelInfo& info, const std::vector<GrowthStep>& steps) {
  std::vector<std::string> order;
  for (const GrowthStep& step : steps) {
    order.insert(order.end(), step.stages.begin(), step.stages.end());
  }
  progress_.expect(stage_blobs(choice_.model(), info, order, tails_.weights().formats(info)));
  const std::lock_guard lock(mutex_);
  const bool head = order[1] == names::kHead;  // order[0] is the norm
  now_.coming.emplace().range = {steps.back().floor, head ? Point::head() : Point::norm()};
  now_.coming_info = info;
}

void Engine::grows(const std::shared_ptr<PlacedModel>& model) {
  answers_.grow_beside(model);
  count_growth();
}

void Engine::grew(const GrowthNote& note) {
  count_growth();
  observer_.grew(note);
  if (!note.done) return;
  const std::lock_guard lock(mutex_);
  now_.coming.reset();
}

void Engine::landed(const AvailableCut& place, bool goes_on) {
  if (goes_on) return go_on_at(place);
  watch_once(place);
  answers_.offer(place);
}

// Fetches the rest of the model for texts at a named cut, which may lose the cloud. Call with
// loading_ held.
void Engine::fetch_rest(PlacedModel& split) {
  if (fetch_ || reserve_ || !failover_.keeps_reserve(split)) return;
  reserve_.emplace(choice_, answers_, observer_);
}

// Begins to fetch the weights beside the answers. Call with loading_ held.
void Engine::follow() {
  reserve_.reset();
  wire::ModelInfo info;
  {
    const std::lock_guard lock(mutex_);
    now_.follows = true;
    if (now_.split->place.cut.is_cloud()) now_.on_cloud = now_.split;
    info = now_.split->info;
  }
  const auto say = [this](const std::string& line) { said(cat("--cut auto: ", line)); };
  if (forecasts_) answers_.choose_by(*forecasts_, say);
  if (fetch_) return;
  fetch_.emplace(tails_, std::move(info), forecasts_.get(), progress_.on_bytes(),
                 static_cast<EngineObserver&>(*this));
  failover_.comes_by(&*fetch_);
  answers_.on_busy([this](bool busy) { fetch_->text_runs(busy); });
}

void Engine::count_growth() {
  FetchCounts more;
  {
    const std::lock_guard lock(mutex_);
    const FetchCounts now = answers_.grown_bytes();
    more = {now.downloaded - now_.counted.downloaded, now.from_cache - now_.counted.from_cache};
    now_.counted = now;
  }
  observer_.loaded(more);
}

// Called on the fetch's thread.
void Engine::go_on_at(const AvailableCut& place) {
  watch_once(place);
  {
    const std::lock_guard lock(mutex_);
    now_.landed = place;
    if (!now_.follows) return answers_.offer(place);
  }
  answers_.go_on_at(place);  // first, because the next answer begins by it
  const std::lock_guard lock(mutex_);
  if (now_.follows) now_.split = place.at;
}

// Call before the first text runs on the weights that come.
void Engine::watch_once(const AvailableCut& place) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(now_.watched, true)) watch(*place.at->batcher());
}

void Engine::choose_cut() {
  if (const CutBounds allowed = bounds(); !allowed.highest.is_cloud()) {
    return move_cut(
        auto_cut(allowed, tails_.weights().whole_in_cache(present()->info).has_value()));
  }
  const std::lock_guard loading(loading_);
  expect_running_can_move(*present());
  follow();
  std::optional<AvailableCut> place;
  {
    const std::lock_guard lock(mutex_);
    place = now_.landed;
    if (!place && now_.on_cloud) now_.split = now_.on_cloud;
  }
  if (place) go_on_at(*place);
  session_cache_.stay_on(place ? place->at->batcher() : nullptr);
}

// Call with loading_ held.
std::shared_ptr<PlacedModel> Engine::load_split(const Placement& place, wire::ModelInfo info) {
  if (place.local()) {
    progress_.expect(
        stage_blobs(choice_.model(), info, place.range, tails_.weights().formats(info)));
  }
  const std::shared_ptr<void> leave(nullptr, [this](void*) {
    const std::lock_guard lock(mutex_);
    now_.coming.reset();
  });
  {
    const std::lock_guard lock(mutex_);
    now_.coming = place;
    now_.coming_info = info;
  }
  std::shared_ptr<PlacedModel> split = tails_.load(place, info, progress_.on_bytes());
  observer_.loaded(split->fetched);
  if (split->batcher() != nullptr) watch(*split->batcher());
  return split;
}

// Call before anything of an answer runs on it.
void Engine::watch(Batcher& batcher) {
  observer_.runs_on(batcher);
  batcher.on_pages_spent([this, &batcher] { return session_cache_.make_room(batcher); });
}

std::shared_ptr<PlacedModel> Engine::present() const {
  if (std::shared_ptr<PlacedModel> next = answers_.next()) return next;
  const std::lock_guard lock(mutex_);
  return now_.split;
}

EngineState Engine::state() const {
  EngineState state;
  state.device_asked = choice_.request().device.device;
  state.origin = pool_.origin();
  const std::shared_ptr<PlacedModel> split = present();
  const Forecasts* forecasts = nullptr;
  {
    const std::lock_guard lock(mutex_);
    state.split = split;
    state.coming = now_.coming;
    state.follows = now_.follows;
    if (split || now_.coming) {
      state.info = split ? split->info : now_.coming_info;
      state.config = &choice_.config();
      state.model = &choice_.model();
      state.formats = tails_.weights().formats(state.info);
    }
    if (now_.split) {
      state.fetched =
          now_.split->place.cut.is_cloud() ? answers_.grown_bytes() : now_.split->counts();
    }
    forecasts = split ? forecasts_.get() : nullptr;
  }
  state.begins = split ? !state.config->encodes() : !opens().empty();
  state.progress = progress_.counts(std::chrono::steady_clock::now());
  state.answers = answers_.places();
  state.grown = answers_.grown();
  state.goal = options().goal;
  state.exact = answers_.exact();
  if (!state.exact && split) state.exact = split->is_exact();
  if (split && split->rounds()) state.exact = false;
  if (forecasts != nullptr) {
    const std::optional<AvailableCut> landed = answers_.here();
    const Placement& here = landed ? landed->at->place : split->place;
    std::optional<int> lowest;
    if (!here.cut.is_cloud() && !here.head_on_cloud) lowest = here.cut.blocks();
    state.plan = forecasts->plan(split->info.id, state.exact, lowest);
  }
  return state;
}

std::string Engine::plan() const {
  Receipt receipt;
  describe(receipt, *present(), choice_.config(), pool_.origin());
  return receipt.plan();
}

void Engine::move_cut(Cut cut, bool running) {
  const std::lock_guard loading(loading_);
  const std::shared_ptr<PlacedModel> now = present();
  const int layers = choice_.config().layers;
  if (cut > layers && !cut.is_cloud()) {
    wire::Fields::refuse("cut", cat("expected 0..", layers, ", \"cloud\" or \"auto\""));
  }
  if (const CutBounds allowed = bounds(); cut > allowed.highest) {
    wire::Fields::refuse(
        "cut", cat("expected 0..", allowed.highest.name(), " or \"auto\", ", allowed.why));
  }
  if (running) expect_running_can_move(*now);
  {
    const std::lock_guard lock(mutex_);
    now_.follows = false;
  }
  answers_.go_on_at(std::nullopt);
  const bool same = cut == now->place.cut;
  const std::shared_ptr<PlacedModel> split = same ? now : placed_at(cut);
  if (running) move_running(cut, split);
  {
    const std::lock_guard lock(mutex_);
    now_.split = split;
  }
  session_cache_.stay_on(
      split->batcher());  // other turns would keep the weights of another model alive
  fetch_rest(*split);
}

// Returns the model for answers that begin at this cut. Call with loading_ held.
std::shared_ptr<PlacedModel> Engine::placed_at(Cut cut) {
  const std::shared_ptr<PlacedModel> now = present();
  if (!cut.is_cloud() && fetch_) {
    if (const auto placed = fetch_->wait_for(cut.blocks())) {
      return std::make_shared<PlacedModel>(placed->at(cut));
    }
  }
  reserve_.reset();
  const Placement wanted = choice_.place(choice_.request().at(cut));
  std::shared_ptr<PlacedModel> split;
  bool same = true;
  try {
    on_large_stack([&] { split = load_split(wanted, choice_.manifest(&wanted)); });
    same = same_model(split->info, now->info);
  } catch (const RemoteError& refused) {
    if (refused.code != wire::codes::kModelMismatch) throw;
    same = false;
  }
  if (!same) {
    throw Refused(wire::codes::kModelMismatch,
                  "the cloud has another model under this name now: start edge_client anew");
  }
  choice_.remember(*split);
  return split;
}

// Call with loading_ held.
void Engine::move_running(Cut cut, const std::shared_ptr<PlacedModel>& split) {
  Batcher* const tail = split->batcher() != nullptr ? split->batcher() : present()->batcher();
  const bool exact =
      !split->rounds() && !split->tells_other_bits() &&
      (tail == nullptr || is_exact(choice_.remote(), split->info, *tail, bounds().highest));
  if (tail != nullptr) answers_.set_exact(exact);
  if (!may_move(exact, options().exact, false)) {
    throw Refused("not_exact",
                  "a move could change a running answer: this machine's bits are not the cloud's "
                  "(--exact); with --profile int8 there they are the same");
  }
  answers_.move(cut, split);
}

}  // namespace split::edge
