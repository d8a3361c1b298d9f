#include "edge_client/drive/split_forward.h"

#include "base/resources/clock.h"
#include "base/resources/threads.h"

namespace split::edge {
namespace {

// How often a text that waits for its mover looks whether it is cancelled.
constexpr std::chrono::milliseconds kLook{50};

}  // namespace

SplitForward::SplitForward(CloudLink& cloud, const Model& model, Cut cut, Batcher* tail,
                           const RetryOptions& retry, Waiter& waiter, SplitCounts& counts,
                           Requester requester, const Moving* moving)
    : waiter_(waiter),
      moving_(moving),
      first_(cloud),
      text_session_(model, cut, tail, retry, counts, std::move(requester),
                    moving == nullptr ? nullptr : &moving->options) {
  cold_ = true;  // a text that begins here alone has not used its connection when its cut moves
}

void SplitForward::meet(uint32_t past) {
  if (text_session_.mover() == nullptr) return;
  Flow* flow = nullptr;
  {
    const Lock lock(mutex_);
    start_mover();
    flow = &text_session_.meet(past);
  }
  drive(*flow);
}

std::span<const float> SplitForward::run(const SequenceRows& rows) {
  {
    const Lock lock(mutex_);
    start_mover();
  }
  drive(text_session_.run(rows));
  return text_session_.results();
}

uint32_t SplitForward::most_rows(uint32_t past) const {
  const Lock lock(mutex_);
  return text_session_.most_rows(past);
}

void SplitForward::stream(TextLoop& loop, size_t prompt, const GenerateOptions& options,
                          const OnText& on_text) {
  GenerateOptions rest = options;
  rest.max_tokens = static_cast<int>(loop.left());
  {
    const Lock lock(mutex_);
    start_mover();
  }
  drive(text_session_.stream(loop.ids(), prompt, rest), [&](const ScoredToken& token) {
    loop.token(token, on_text);
    return !loop.ended();
  });
  const FinishReason reason = text_session_.finish_reason();
  if (loop.ended() || reason == FinishReason::kNone) return;
  if (reason != FinishReason::kStop) throw RemoteError("[server] its text ended early", 200, "");
  loop.token({text_session_.end_of_text(), 0, {}}, on_text);
}

void SplitForward::close() noexcept {
  stop_mover();
  const Lock lock(mutex_);
  for (const std::string& session : text_session_.leave()) link().ask({Send::kClose, session});
}

void SplitForward::leave_rows() {
  stop_mover();
  const Lock lock(mutex_);
  text_session_.leave_rows();
}

CachedSession SplitForward::keep() {
  stop_mover();
  const Lock lock(mutex_);
  return text_session_.keep();
}

void SplitForward::stop_mover() noexcept {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    if (!thread_.joinable()) return;
    changed_.notify_all();
    if (asking_) beside_->cancel();
  }
  thread_.join();
}

// Starts the mover's thread once it has work; without a thread the text stays where it is. Call
// with the lock held.
void SplitForward::start_mover() {
  if (text_session_.mover() == nullptr || thread_.joinable() || stopping_ ||
      text_session_.mover()->idle())
    return;
  if (!beside_) beside_ = moving_->connect();
  try_start(thread_, [this] { run_mover(); });
}

SplitForward::Place SplitForward::place() const {
  const Lock lock(mutex_);
  return {text_session_.cut(), text_session_.tokens_out(),
          text_session_.mover() == nullptr ? "idle" : text_session_.mover()->state()};
}

// Wakes waiting flows if the session's version changed. Call with the lock held.
void SplitForward::tell() {
  if (std::exchange(told_, text_session_.version()) != text_session_.version())
    changed_.notify_all();
}

// Releases the lock meanwhile.
void SplitForward::perform(Flow& flow, CloudLink& cloud, const Action& action, Lock& lock) {
  std::vector<float> values;
  std::exception_ptr error;
  lock.unlock();
  try {
    if (const auto* send = std::get_if<Send>(&action)) {
      values = cloud.ask(*send);
    } else if (const auto* rescue = std::get_if<Rescue>(&action)) {
      if (moving_->rescue) *rescue->whole = moving_->rescue();
    } else if (const auto* rows = std::get_if<TakeRows>(&action)) {
      rows->take();
    } else {
      const Compute& job = std::get<Compute>(action);
      const Timed timed(*job.ms);
      job.tail->run(*job.job);
    }
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (!error && std::holds_alternative<Send>(action)) flow.hear(cloud.load());
  error ? flow.fail(error) : flow.give(std::move(values));
}

// Returns the text's own connection, or the mover's in place of a cold one, if the mover does not
// use it. Call with the lock held.
CloudLink& SplitForward::link() {
  if (cold_ && beside_ && !asking_) {
    own_ = std::move(beside_);
    warm_ = false;
  }
  cold_ = false;
  return own_ ? *own_ : first_;
}

// Returns the next action if that ended the stream; nullopt if the stream ended by itself or
// failed. Releases the lock while it streams.
std::optional<Action> SplitForward::perform_stream(Flow& flow, const Stream& stream,
                                                   const OnToken& on_token, Lock& lock) {
  CloudLink& cloud = link();
  std::optional<Action> wanted;
  std::exception_ptr ours, error;
  FinishReason reason = FinishReason::kNone;
  lock.unlock();
  const auto one = [&](const ScoredToken& token) {
    try {
      {
        const Lock locked(mutex_);
        flow.hear(cloud.load());
        flow.give(StreamEvent{token, {}});
        if (waiter_.interrupted()) text_session_.interrupt();
        wanted = flow.next(Clock::now());
        tell();
        start_mover();
      }
      if (!on_token(token)) wanted = Done{};
    } catch (...) {
      ours = std::current_exception();
    }
    return !ours && std::holds_alternative<NextToken>(*wanted);
  };
  try {
    reason = cloud.stream(stream, one);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (ours) std::rethrow_exception(ours);
  cold_ = wanted && !std::holds_alternative<NextToken>(*wanted);  // closed with its stream
  if (cold_) return wanted;
  error ? flow.fail(error) : flow.give(StreamEvent{{}, reason});
  return std::nullopt;
}

void SplitForward::drive(Flow& flow, const OnToken& on_token) {
  Lock lock(mutex_);
  for (std::optional<Action> wanted;;) {
    if (waiter_.interrupted()) text_session_.interrupt();
    const Action action = wanted ? *std::exchange(wanted, std::nullopt) : flow.next(Clock::now());
    tell();
    if (std::holds_alternative<Done>(action)) return;
    const auto* const wait = std::get_if<Wait>(&action);
    if (const auto* const begins = std::get_if<Stream>(&action)) {
      wanted = perform_stream(flow, *begins, on_token, lock);
    } else if (wait == nullptr) {
      const bool asks = std::holds_alternative<Send>(action);
      perform(flow, asks ? link() : first_, action, lock);
    } else if (wait->until == Wait::kOnOthers) {
      const bool driven =
          text_session_.mover() == nullptr || text_session_.mover()->idle() || thread_.joinable();
      if (!driven && !stopping_) no_more_threads();
      changed_.wait_for(lock, kLook, [&, seen = told_] { return told_ != seen; });
    } else {
      lock.unlock();
      waiter_.wait(std::chrono::ceil<std::chrono::milliseconds>(wait->until - flow.now()));
      lock.lock();
    }
  }
}

// Opens the mover's connection once there is a target: a stream's connection ends with it, and the
// step behind it takes the mover's. Returns true if that took time.
bool SplitForward::warm_line(Lock& lock) {
  if (warm_ || !text_session_.mover()->wants_line()) return false;
  if (!beside_) beside_ = moving_->connect();
  warm_ = asking_ = true;
  lock.unlock();
  beside_->ask({Send::kPing});
  lock.lock();
  asking_ = false;
  return true;
}

// Runs on the mover's thread until stop_mover().
void SplitForward::run_mover() {
  Flow& flow = text_session_.mover()->flow();
  Lock lock(mutex_);
  while (!stopping_) {
    if (waiter_.interrupted()) text_session_.interrupt();
    const Action action = flow.next(Clock::now());
    tell();
    const auto* const wait = std::get_if<Wait>(&action);
    if (wait == nullptr) {
      asking_ = std::holds_alternative<Send>(action);
      if (asking_ && !beside_) beside_ = moving_->connect();
      perform(flow, beside_ ? *beside_ : first_, action, lock);
      if (asking_) warm_ = true;
      asking_ = false;
      continue;
    }
    if (warm_line(lock)) continue;
    if (wait->until == Wait::kOnOthers) {
      changed_.wait(lock, [&, seen = told_] { return stopping_ || told_ != seen; });
    } else {
      changed_.wait_until(lock, wait->until, [&, seen = told_] {
        return stopping_ || (wait->hears && told_ != seen);
      });
    }
  }
}

}  // namespace split::edge
