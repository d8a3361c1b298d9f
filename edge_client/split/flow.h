// A flow: work that runs until it needs something from outside (the cloud's answer, a kernel's
// result, another time), says what, and goes on once it has that. Written as a coroutine, so that
// it reads as what it does; a state machine to its driver: a thread that blocks (drive/) or a test
// with a clock of its own. Knows no thread, no socket and no clock.
#pragma once

#include <chrono>
#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
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
// Needs all stages here, for a text whose cloud is lost; *whole stays null if that is impossible.
struct Rescue {
  std::shared_ptr<TailSide>* whole;
};
// May wait for a prompt's rows that other texts are computing here.
struct TakeRows {
  std::function<void()> take;
};
// Needs a kernel's result: runs the job.
struct Compute {
  Batcher* tail;
  Job* job;
  double* ms;  // the job's time is added, also on failure
};
// Needs the next token of the open stream. Any other action but Done ends the stream.
struct NextToken {};
// A stream's token, or its end with the reason.
struct StreamEvent {
  std::optional<ScoredToken> token = {};
  FinishReason finish_reason = FinishReason::kNone;
};
// Waits until that time, or with kOnOthers until another flow of the same text has gone on; with
// `hears` for either.
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
  // Begins a task; the one before has ended or is dropped.
  void start(Task<void> task);
  // Runs until the flow needs something, at this time; returns Done once it has ended. Throws what
  // the task threw, once.
  Action next(Moment now);
  // Sets the cloud's answer before next(); fail() sets an error in its place.
  template <typename Answer>
  void give(Answer answer) {
    std::get<Answer>(answers_) = std::move(answer);
  }
  // Sets the load that came with the answer, if any.
  void hear(const std::optional<wire::LoadNote>& load) {
    if (load) load_ = load;
  }
  const std::optional<wire::LoadNote>& load() const { return load_; }
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
  std::tuple<std::vector<float>, StreamEvent> answers_;  // the last of each kind
  std::optional<wire::LoadNote> load_;
  std::exception_ptr error_;
  Moment now_{};
  std::coroutine_handle<> at_;        // resumed next
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

// A part of a flow, which begins when another awaits it. Its destructor ends what it waits in.
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
  // Starts at the flow's next turn; `caller` goes on after it.
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
