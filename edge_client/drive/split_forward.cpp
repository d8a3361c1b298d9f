#include "edge_client/drive/split_forward.h"

namespace split::edge {
namespace {

using Clock = std::chrono::steady_clock;

// How often a text that waits for its lane looks whether it is to end.
constexpr std::chrono::milliseconds kLook{50};

std::vector<float> ask(CloudLink& cloud, const Send& send) {
  switch (send.call) {
    case Send::kOpen:
      cloud.open(send.session, send.rows.range);
      break;
    case Send::kStep:
      return cloud.step(send.session, send.rows, *send.traffic);
    case Send::kFill:
      return cloud.fill(send.session, send.rows, *send.traffic);
    case Send::kForward:
      return cloud.forward(send.rows, *send.traffic);
    case Send::kClose:
      cloud.close(send.session);
      break;
  }
  return {};
}

// Adds the time that the job takes.
void compute(const Compute& asked) {
  const auto start = Clock::now();
  const std::shared_ptr<void> counted(nullptr, [&](void*) {
    *asked.ms += std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  });
  asked.tail->run(*asked.job);
}

}  // namespace

SplitForward::SplitForward(CloudLink& cloud, const Model& model, int cut, Batcher* tail,
                           const RetryOptions& retry, Waiter& waiter, SplitCounts& counts,
                           Requester requester, const Moving* moving)
    : cloud_(cloud),
      waiter_(waiter),
      moving_(moving),
      course_(model, cut, tail, retry, counts, std::move(requester),
              moving == nullptr ? nullptr : &moving->options) {}

std::span<const float> SplitForward::run(const SequenceRows& rows) {
  if (course_.lane() != nullptr && !thread_.joinable()) {
    const Lock lock(mutex_);
    if (!course_.lane()->idle()) {
      beside_ = moving_->connect();
      thread_ = std::thread([this] { drive_lane(); });
    }
  }
  drive(course_.run(rows));
  return course_.results();
}

std::vector<float> SplitForward::norms(std::span<const int32_t> tokens) {
  drive(course_.norms(tokens));
  return {course_.results().begin(), course_.results().end()};
}

void SplitForward::close() noexcept {
  stop_lane();
  for (const std::string& session : course_.leave()) cloud_.close(session);
}

void SplitForward::stop_lane() noexcept {
  if (!thread_.joinable()) return;
  {
    const Lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    if (asking_) beside_->cancel();
  }
  thread_.join();
}

void SplitForward::aim(int cut, std::string why, Batcher& tail, std::shared_ptr<void> keeps) {
  if (course_.lane() == nullptr) return;
  const Lock lock(mutex_);
  Target target{.cut = cut, .why = std::move(why)};
  if (!course_.has(cut)) target.tail = std::make_shared<TailSide>(tail, std::move(keeps));
  course_.lane()->aim(std::move(target));
  tell();
}

void SplitForward::landed() {
  if (course_.lane() == nullptr) return;
  const Lock lock(mutex_);
  course_.lane()->landed();
  tell();
}

SplitForward::Place SplitForward::place() const {
  const Lock lock(mutex_);
  return {course_.cut(), course_.tokens_out(),
          course_.lane() == nullptr ? "idle" : course_.lane()->state()};
}

// Wakes who waits for others, if there is news. With the lock held.
void SplitForward::tell() {
  if (std::exchange(told_, course_.version()) != course_.version()) changed_.notify_all();
}

Action SplitForward::next(Flow& flow) {
  const std::shared_ptr<void> told(nullptr, [this](void*) { tell(); });
  if (waiter_.interrupted()) course_.interrupt();
  return flow.next(Clock::now());
}

// Without the lock.
void SplitForward::perform(Flow& flow, CloudLink& cloud, const Action& action, Lock& lock) {
  std::vector<float> values;
  std::exception_ptr error;
  lock.unlock();
  try {
    if (const auto* send = std::get_if<Send>(&action)) {
      values = ask(cloud, *send);
    } else {
      compute(std::get<Compute>(action));
    }
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  error ? flow.fail(error) : flow.give(std::move(values));
}

void SplitForward::drive(Flow& flow) {
  Lock lock(mutex_);
  for (;;) {
    const Action action = next(flow);
    if (std::holds_alternative<Done>(action)) return;
    const auto* const wait = std::get_if<Wait>(&action);
    if (wait == nullptr) {
      perform(flow, cloud_, action, lock);
    } else if (wait->until == Wait::kOnOthers) {
      changed_.wait_for(lock, kLook, [&, seen = told_] { return told_ != seen; });
    } else {
      lock.unlock();
      waiter_.wait(std::chrono::ceil<std::chrono::milliseconds>(wait->until - flow.now()));
      lock.lock();
    }
  }
}

// The thread of the lane, which has no end of its own.
void SplitForward::drive_lane() {
  Flow& flow = course_.lane()->flow();
  Lock lock(mutex_);
  while (!stopping_) {
    const Action action = next(flow);
    const auto* const wait = std::get_if<Wait>(&action);
    if (wait == nullptr) {
      asking_ = std::holds_alternative<Send>(action);
      perform(flow, *beside_, action, lock);
      asking_ = false;
      continue;
    }
    if (wait->until == Wait::kOnOthers) {
      changed_.wait(lock, [&, seen = told_] { return stopping_ || told_ != seen; });
    } else {
      changed_.wait_until(lock, wait->until, [this] { return stopping_; });
    }
  }
}

}  // namespace split::edge
