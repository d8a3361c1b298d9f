#include "edge_client/drive/split_forward.h"

namespace split::edge {
namespace {

using Clock = std::chrono::steady_clock;

// Adds the time that the job takes.
void compute(const Compute& asked) {
  const auto start = Clock::now();
  const std::shared_ptr<void> counted(nullptr, [&](void*) {
    *asked.ms += std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  });
  asked.tail->run(*asked.job);
}

}  // namespace

std::span<const float> SplitForward::run(const SequenceRows& rows) {
  drive(course_.run(rows));
  return course_.results();
}

std::vector<float> SplitForward::norms(std::span<const int32_t> tokens) {
  drive(course_.norms(tokens));
  return {course_.results().begin(), course_.results().end()};
}

void SplitForward::close() noexcept {
  if (const auto session = course_.leave()) cloud_.close(*session);
}

void SplitForward::drive(Flow& flow) {
  for (;;) {
    if (waiter_.interrupted()) course_.interrupt();
    const Action action = flow.next(Clock::now());
    if (std::holds_alternative<Done>(action)) return;
    try {
      if (const auto* wait = std::get_if<Wait>(&action)) {
        waiter_.wait(std::chrono::ceil<std::chrono::milliseconds>(wait->until - flow.now()));
      } else if (const auto* send = std::get_if<Send>(&action)) {
        flow.give(ask(*send));
      } else {
        compute(std::get<Compute>(action));
      }
    } catch (...) {
      flow.fail(std::current_exception());
    }
  }
}

std::vector<float> SplitForward::ask(const Send& send) {
  switch (send.call) {
    case Send::kOpen:
      cloud_.open(send.session, send.rows.range);
      return {};
    case Send::kStep:
      return cloud_.step(send.session, send.rows, *send.traffic);
    case Send::kForward:
      return cloud_.forward(send.rows, *send.traffic);
    case Send::kClose:
      cloud_.close(send.session);
      return {};
  }
  return {};
}

}  // namespace split::edge
