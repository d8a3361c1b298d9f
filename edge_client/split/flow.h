// A flow: work that goes on until it needs something from outside, says what, and goes on when it
// has that: the cloud's answer, a kernel's result, another time. It is written as a coroutine, so
// that it reads as what it does, and is a state machine to whoever drives it: a thread that blocks
// (drive/), the event loop of a browser, a test with a clock of its own. Knows no thread, no socket
// and no clock.
#pragma once

#include <chrono>
#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "edge_client/place/decision.h"
#include "edge_client/split/cloud_link.h"
#include "run/batcher.h"
#include "run/text/text_loop.h"

namespace split::edge {

class TailSide;
// All stages are needed here, for a text whose cloud is lost; they stay null where that cannot be.
struct Rescue {
  std::shared_ptr<TailSide>* whole;
};
// The rows of a prompt that other texts leave here: it may wait for these.
struct TakeRows {
  std::function<void()> take;
};
// A kernel's result is needed: the job is run.
struct Compute {
  Batcher* tail;
  Job* job;
  double* ms;  // its time is added, also where it fails
};
// The next token is needed of the stream that was asked for; whatever follows but this and Done
// ends it.
struct NextToken {};
// A stream's token; or its end, and why.
struct StreamEvent {
  std::optional<ScoredToken> token = {};
  std::string finish_reason = {};
};
// Nothing is to be done before that time; or before another flow of the same text went on, or for
// one that hears of it, either.
struct Wait {
  static constexpr Moment kOnOthers = Moment::max();
  Moment until = kOnOthers;
  bool hears = false;
};
struct Done {};
using Action = std::variant<Done, Send, Compute, TakeRows, Rescue, Wait, Stream, NextToken>;

template <typename T>
class Task;

// One thread at a time.
class Flow {
 public:
  // Begins with a task; the one before has ended or is given up.
  void start(Task<void> task);
  // Goes on, at this time, to the next thing that it needs; Done once it has ended, and Done again.
  // Throws what the task threw, once.
  Action next(Moment now);
  // Brings what the cloud answered, or why what was asked for failed, before next().
  template <typename Answer>
  void give(Answer answer) {
    std::get<Answer>(answers_) = std::move(answer);
  }
  // And what it said of its load meanwhile, if it did.
  void hear(const std::optional<CloudHints>& load) {
    if (load) load_ = load;
  }
  const std::optional<CloudHints>& load() const { return load_; }
  void fail(std::exception_ptr error) { error_ = std::move(error); }

  Moment now() const { return now_; }
  bool done() const { return !at_; }

 private:
  template <typename T>
  friend class Task;
  template <typename Answer>
  friend struct Asking;
  friend struct TaskPromiseBase;

  std::optional<Action> asked_;
  std::tuple<std::vector<float>, StreamEvent> answers_;  // of each kind, the last
  std::optional<CloudHints> load_;
  std::exception_ptr error_;
  Moment now_{};
  std::coroutine_handle<> at_;        // what goes on next
  std::unique_ptr<Task<void>> task_;  // the outermost
};

// `co_await Send{...}` and the like: returns what the cloud answered, or throws what failed.
template <typename Answer>
struct Asking {
  Action action;
  Flow* flow = nullptr;

  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> at) {
    flow = at.promise().flow;
    flow->at_ = at;
    flow->asked_ = std::move(action);
  }
  Answer await_resume() {
    if (flow->error_) std::rethrow_exception(std::exchange(flow->error_, nullptr));
    return std::exchange(std::get<Answer>(flow->answers_), {});
  }
};
using AskingToken = Asking<StreamEvent>;
using AskingRows = Asking<std::vector<float>>;
inline AskingToken operator co_await(Stream action) { return {std::move(action)}; }
inline AskingToken operator co_await(NextToken action) { return {action}; }
inline AskingRows operator co_await(Send action) { return {std::move(action)}; }
inline AskingRows operator co_await(Compute action) { return {action}; }
inline AskingRows operator co_await(TakeRows action) { return {std::move(action)}; }
inline AskingRows operator co_await(Rescue action) { return {action}; }
inline AskingRows operator co_await(Wait action) { return {action}; }

struct TaskPromiseBase {
  Flow* flow = nullptr;
  std::coroutine_handle<> caller;
  std::exception_ptr error;

  struct Return {
    bool await_ready() const noexcept { return false; }
    template <typename Promise>
    void await_suspend(std::coroutine_handle<Promise> at) noexcept {
      at.promise().flow->at_ = at.promise().caller;
    }
    void await_resume() const noexcept {}
  };
  std::suspend_always initial_suspend() const noexcept { return {}; }
  Return final_suspend() const noexcept { return {}; }
  void unhandled_exception() { error = std::current_exception(); }
};

// A part of a flow, which another awaits: it begins then. Ends what it waits in when it goes.
template <typename T>
class [[nodiscard]] Task {
 public:
  struct promise_type : TaskPromiseBase {  // NOLINT(readability-identifier-naming): the language's
    std::optional<T> value;
    Task get_return_object() { return Task(Handle::from_promise(*this)); }
    void return_value(T result) { value = std::move(result); }
  };
  using Handle = std::coroutine_handle<promise_type>;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> caller) {
    begin(caller.promise().flow, caller);
  }
  T await_resume() {
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
    if constexpr (!std::is_void_v<T>) return std::move(*handle_.promise().value);
  }
  // Goes on from here at the flow's next turn.
  void begin(Flow* flow, std::coroutine_handle<> caller) {
    handle_.promise().flow = flow;
    handle_.promise().caller = caller;
    flow->at_ = handle_;
  }

 private:
  Handle handle_;
};

template <>
struct Task<void>::promise_type : TaskPromiseBase {  // NOLINT(readability-identifier-naming)
  Task get_return_object() { return Task(Handle::from_promise(*this)); }
  void return_void() const noexcept {}
};

inline void Flow::start(Task<void> task) {
  asked_.reset();
  error_ = nullptr;
  task_ = std::make_unique<Task<void>>(std::move(task));
  task_->begin(this, nullptr);
}

inline Action Flow::next(Moment now) {
  now_ = now;
  asked_.reset();
  while (at_ && !asked_) std::exchange(at_, nullptr).resume();
  if (asked_) return *std::exchange(asked_, std::nullopt);
  if (!task_) return Done{};
  const std::unique_ptr<Task<void>> ended = std::move(task_);
  ended->await_resume();
  return Done{};
}

}  // namespace split::edge
