#include "edge_client/engine/weight_fetch.h"

#include <csignal>

#include "base/figures.h"
#include "base/plain_words.h"
#include "base/resources/threads.h"
#include "edge_client/measure/calibrate.h"
#include "edge_client/measure/measure.h"
#include "edge_client/weights/exactness.h"

namespace split::edge {
namespace {

// The lowest cut at which texts could go on now; nullopt: nowhere.
std::optional<int> cut_of(const PlacedModel& placed, int layers) {
  const std::optional<Point> floor = placed.floor();
  if (!floor) return std::nullopt;
  if (floor->is_tokens()) return 0;
  const bool some = *floor > Point(0) && (*floor < Point(layers) || !placed.place.head_on_cloud);
  return some ? std::optional(floor->block()) : std::nullopt;
}

// Delay before bits are compared again with a cloud that did not answer.
constexpr std::chrono::seconds kLookAgain{1};

}  // namespace

WeightFetch::WeightFetch(TailBuilder& tails, wire::ModelInfo info, Forecasts* forecasts,
                         OnBytes on_bytes, EngineObserver& observer)
    : tails_(tails),
      info_(std::move(info)),
      forecasts_(forecasts),
      on_bytes_(std::move(on_bytes)),
      observer_(observer) {
  if (try_start(thread_, [this] { run(); })) return;
  say("no thread is left for the weights; texts stay on the cloud");
  over_ = true;
}

WeightFetch::~WeightFetch() {
  ends_.raise(SIGTERM);
  {
    const Lock lock(mutex_);
    ending_ = true;
    if (placed_) placed_->tail->load().cancel();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  if (placed_) placed_->tail->load().end();  // others may use the model still
}

std::shared_ptr<PlacedModel> WeightFetch::placed() const {
  const Lock lock(mutex_);
  return placed_;
}

std::shared_ptr<PlacedModel> WeightFetch::wait_for(int cut) {
  const Point from = StageRange::from_block(cut, Point::head()).from;
  Lock lock(mutex_);
  for (;;) {
    if (placed_ && placed_->tail->floor() <= from) return placed_;
    if (ending_ || over_) return nullptr;
    changed_.wait(lock);
  }
}

void WeightFetch::say(const std::string& line) { observer_.said(cat("--cut auto: ", line)); }

void WeightFetch::text_runs(bool runs) {
  const Lock lock(mutex_);
  text_runs_ = runs;
  share_line();
}

// Call with the lock held.
void WeightFetch::share_line() {
  if (placed_) placed_->tail->load().text_runs(text_runs_);
}

// Returns the whole manifest: the last one seen, if the cloud is lost and the cache has all
// weights.
wire::ModelInfo WeightFetch::ask() {
  const std::optional<wire::ModelInfo> kept = tails_.weights().whole_in_cache(info_);
  const std::shared_ptr<Remote> remote = ended_by(ends_, choice().connect());
  if (kept) remote->on_silence([this] { return !choice().server().responds(); });
  const auto asked = [&](bool patient) {
    wire::ModelInfo info = choice().whole_manifest(*remote, ends_, patient);
    if (forecasts_ != nullptr) {
      measure_cloud(*remote, info, choice().config(), *forecasts_);
    }
    return info;
  };
  if (!kept) return asked(true);
  try {
    return asked(false);
  } catch (const RemoteError& error) {
    if (ends_.interrupted()) throw;
    if (error.status == 0) return *kept;
  }
  return asked(true);
}

// Announces the weights and begins to fetch them, if that is possible; null if not.
std::shared_ptr<PlacedModel> WeightFetch::begin(Growth& growth) {
  const wire::ModelInfo info = ask();
  const uint64_t most = choice().options().max_weights.value_or(kMaxWeights);
  growth = tails_.coming(info, most);
  const FetchPlan& chosen = growth.chosen;
  fetch_.coming = chosen.whole ? chosen.all : 0;
  if (chosen.steps == 0) {
    if (most > 0) {
      say(cat("the weights are ", human_bytes(chosen.all), ", more than ",
              chosen.by_memory ? "the memory that is free, " : "--max-weights ",
              human_bytes(chosen.most), ": texts stay on the cloud"));
    }
    return nullptr;
  }
  const std::string over = tails_.weights().over_cache_limit(chosen.bytes);
  if (!over.empty()) say(over);
  const uint64_t missing = tails_.weights().missing_bytes(growth.blobs());
  if (missing > 0) {
    say(cat(human_bytes(missing), " of weights come beside the text (--max-weights 0: none)"));
  }
  observer_.coming(info, growth.steps);
  fetch_.began = std::chrono::steady_clock::now();
  if (forecasts_ != nullptr && !forecasts_->facts().edge) {
    const DType stored = dtype_from_format(info.format).value_or(DType::kF32);
    forecasts_->measured({},
                         calibrate(tails_.device(), choice().model(), stored,
                                   choice().request().formats, choice().request().profile),
                         {});
  }
  return tails_.begin_growth(info, growth, on_bytes_);
}

void WeightFetch::run() {
  std::shared_ptr<PlacedModel> placed;
  Growth growth;
  try {
    placed = begin(growth);
  } catch (const Error& error) {
    if (!ends_.interrupted()) say(cat(plain_words(error.what()), "; texts stay on the cloud"));
  }
  if (placed) observer_.grows(placed);
  {
    const Lock lock(mutex_);
    placed_ = placed;
    over_ = !placed;
    changed_.notify_all();
    if (!placed || ending_) return;
    share_line();
  }
  grow(*placed->tail, growth.steps, choice().config().layers, ends_,
       [&](const GrowthNote& note) { grew(*placed, note); });
  Lock lock(mutex_);
  while (fetch_.last && !exact_ &&
         !changed_.wait_for(lock, kLookAgain, [this] { return ending_; })) {
    lock.unlock();
    look(*placed, *fetch_.last);
    lock.lock();
  }
}

// Looks at a new cut, and again at the last one if no cloud answered then.
void WeightFetch::grew(const PlacedModel& placed, const GrowthNote& note) {
  observer_.grew(note);
  bool compared = false;
  {
    const Lock lock(mutex_);
    over_ = note.done;
    changed_.notify_all();
    compared = exact_.has_value();
  }
  const std::optional<int> cut = cut_of(placed, note.layers);
  if (cut && (cut != fetch_.last || !compared)) look(placed, *cut);
}

// Whether the two sides compute the same bits; nullopt if one of them is lost.
std::optional<bool> WeightFetch::compare(const PlacedModel& placed) {
  try {
    const std::shared_ptr<Remote> remote = ended_by(ends_, choice().connect());
    remote->on_silence([this] { return !choice().server().responds(); });
    return is_exact(*remote, placed.info, placed.tail->batcher());
  } catch (const Error&) {  // tried again later
    return std::nullopt;
  }
}

// Waits a little for the speed of a cloud that has only just begun.
void WeightFetch::measure_late(const wire::ModelInfo& info) {
  if (forecasts_ == nullptr || forecasts_->facts().cloud) return;
  try {
    const std::shared_ptr<Remote> remote = ended_by(ends_, choice().connect());
    measure_cloud(*remote, info, choice().config(), *forecasts_);
  } catch (const Error&) {  // leaves it unknown
  }
}

// Extrapolates the rate so far.
std::optional<std::chrono::steady_clock::time_point> WeightFetch::whole_at(
    const PlacedModel& placed) const {
  const FetchCounts counts = placed.counts();
  const uint64_t here = counts.downloaded + counts.from_cache;
  if (fetch_.coming == 0 || here == 0) return std::nullopt;
  const auto now = std::chrono::steady_clock::now();
  const double left = static_cast<double>(fetch_.coming - std::min(fetch_.coming, here));
  return now + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                   (now - fetch_.began) * (left / static_cast<double>(here)));
}

// Compares bits before the first cut, reports this one, and keeps the model for starts without a
// server.
void WeightFetch::look(const PlacedModel& placed, int cut) {
  fetch_.last = cut;
  std::optional<bool> exact;
  const bool begins = begins_there(choice().options().goal, cut);
  if (!begins) {
    const Lock lock(mutex_);
    exact = exact_;
  }
  if (!exact && std::chrono::steady_clock::now() >= fetch_.again) {
    exact = compare(placed);
    if (!exact) fetch_.again = std::chrono::steady_clock::now() + kLookAgain;
  }
  {
    const Lock lock(mutex_);
    exact_ = exact;
    if (ending_) return;
  }
  if (cut == 0) measure_late(placed.info);
  const auto at = std::make_shared<PlacedModel>(placed.at(cut));
  at->exact = at->rounds() ? false : exact;
  observer_.landed({at, whole_at(placed)}, begins);
  if (cut == 0) choice().remember(*at);
}

}  // namespace split::edge
