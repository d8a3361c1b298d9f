#include "edge_client/weights/growing_tail.h"

#include <algorithm>
#include <new>
#include <utility>
#include "base/plain_words.h"
#include "base/resources/threads.h"

namespace split::edge {

BlobStages::BlobStages(const std::vector<GrowthStep>& steps) : broken_(steps.size()) {
  for (size_t i = 0; i < steps.size(); ++i) {
    left_.push_back(steps[i].blobs.size());
    for (const wire::BlobInfo& blob : steps[i].blobs) steps_[blob.sha256].push_back(i);
    if (left_[i] == 0) add({StageEvent::Kind::kLanded, i});
  }
  if (steps_.empty()) add({StageEvent::Kind::kOver});
}

void BlobStages::add(StageEvent event) {
  events_.push_back(std::move(event));
  more_.notify_all();
}

void BlobStages::blob(const std::string& sha256, const std::string* why) {
  const std::lock_guard lock(mutex_);
  const auto of = steps_.extract(sha256);
  if (of.empty()) return;
  for (const size_t step : of.mapped()) {
    if (why != nullptr && !broken_[step]) {
      broken_[step] = true;
      add({StageEvent::Kind::kBroken, step, *why});
    }
    if (--left_[step] == 0 && !broken_[step]) add({StageEvent::Kind::kLanded, step});
  }
  if (steps_.empty()) add({StageEvent::Kind::kOver});
}

void BlobStages::over() {
  const std::lock_guard lock(mutex_);
  add({StageEvent::Kind::kOver});
}

std::optional<StageEvent> BlobStages::take() {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) return std::nullopt;
  StageEvent event = events_.front();
  if (event.kind != StageEvent::Kind::kOver) events_.pop_front();
  return event;
}

StageEvent BlobStages::wait() {
  {
    std::unique_lock lock(mutex_);
    more_.wait(lock, [&] { return !events_.empty(); });
  }
  return *take();
}

std::string GrowthNote::line() const {
  return cat(layers_here, "/", layers, " layers here", why.empty() ? "" : "; ", plain_words(why));
}

GrowingTail::GrowingTail(LocalTail& tail, std::vector<GrowthStep> steps,
                         std::shared_ptr<BlobStages> source, int layers, OnGrowth told)
    : tail_(tail),
      steps_(std::move(steps)),
      source_(std::move(source)),
      layers_(layers),
      told_(std::move(told)) {
  note_.floor = tail_.floor();
  note_.layers = layers_;
  thread_ = started([this] { run(); });
}

GrowingTail::~GrowingTail() { stop(); }

void GrowingTail::stop() {
  if (!thread_.joinable()) return;
  ends_ = true;
  tail_.load().cancel();
  source_->over();
  thread_.join();
  tail_.load().end();  // the model may stay, its weights may come by another load
}

GrowthNote GrowingTail::note() const {
  const std::lock_guard lock(mutex_);
  return note_;
}

void GrowingTail::run() {
  Landing landing(steps_.size());
  for (Landing::Todo todo; (todo = landing.next()) != Landing::Todo::kDone && !ends_;) {
    if (todo == Landing::Todo::kTake) {
      take(landing);
    } else {
      landing.happened(source_->wait());
    }
    tell(landing);
  }
  tell(landing);
}

void GrowingTail::take(Landing& landing) {
  try {
    tail_.grow(steps_[landing.step()].floor);
    landing.taken();
  } catch (const Error& error) {
    landing.refused(error.what(), error.kind() != ErrorKind::kDevice);
  } catch (const std::bad_alloc&) {
    landing.refused("[weights] this machine has no memory for it", false);
  }
}

void GrowingTail::tell(const Landing& landing) {
  GrowthNote note;
  note.floor = tail_.floor();
  note.layers = layers_;
  note.layers_here = layers_ - std::min(note.floor, Point(layers_)).blocks_before(layers_);
  note.done = landing.next() == Landing::Todo::kDone;
  note.why = landing.why();
  {
    const std::lock_guard lock(mutex_);
    if (note == std::exchange(note_, note)) return;
  }
  if (told_) told_(note);
}

void GrowingTail::texts(int more) {
  const std::lock_guard lock(mutex_);
  texts_ += more;
  tail_.load().text_runs(texts_ > 0);
}

}  // namespace split::edge
