// Texts of edge_client/split over a cloud that is an object of the test: driven as the program
// does, and by hand, on one thread with a clock of the test.
#pragma once

#include <functional>
#include <random>

#include "edge_client/drive/split_text.h"
#include "support/fake_cloud.h"

namespace split::test {

// Waits no time.
struct NoTime : Waiter {
  bool interrupted() const override { return ended; }
  bool wait(std::chrono::milliseconds) override {
    ++waits;
    return !ended;
  }
  bool ended = false;
  int waits = 0;
};

// Drives the flows of a text on this thread, with a clock that only waiting moves: what they ask
// for takes its time, and is done at the end of it.
class ByHand {
 public:
  explicit ByHand(FakeCloud& cloud, unsigned seed = 0) : cloud_(cloud), random_(seed) {}

  // Drives the flow to its end, and the mover beside it; or until nobody wants more of its tokens.
  void drive(edge::TextSession& text_session, edge::Flow& flow,
             const edge::CloudLink::OnToken& on_token = {}) {
    Doing text{&flow};
    for (;;) {
      go_on(text_session, text);
      if (std::holds_alternative<edge::Done>(text.action)) return;
      if (text_session.mover() != nullptr) {
        mover_.flow = &text_session.mover()->flow();
        go_on(text_session, mover_);
        go_on(text_session, text);  // the text may have waited for it
        if (std::holds_alternative<edge::Done>(text.action)) return;
      }
      Doing& next = mover_.flow != nullptr && mover_.until < text.until ? mover_ : text;
      CHECK(next.until < edge::Wait::kOnOthers);  // else both wait for ever
      now = std::max(now, next.until);
      if (!finish(next, on_token)) return;
    }
  }
  double ms() const {
    return std::chrono::duration<double, std::milli>(now - edge::Moment()).count();
  }

  std::chrono::microseconds round_trip{50000}, kernel{1000}, token{4000};
  edge::Moment now = {};
  std::vector<edge::Send::Call> sent = {};
  std::function<std::shared_ptr<edge::TailSide>()> rescue = {};  // none: it cannot be
  std::function<void()> before_forward = {};                     // may throw

 private:
  struct Doing {
    edge::Flow* flow = nullptr;
    edge::Action action = edge::Wait{};
    edge::Moment until = {};
    uint64_t seen = 0;  // version
    bool begun = false;
  };
  // Some time around `about`.
  std::chrono::microseconds some(std::chrono::microseconds about) {
    return about / 2 +
           std::chrono::microseconds(random_() % static_cast<uint64_t>(about.count() + 1));
  }
  // Unless it waits, or what it asked for is not done.
  void go_on(edge::TextSession& text_session, Doing& one) {
    while (!one.begun || due(text_session, one)) {
      one.action = one.flow->next(now);
      one.seen = text_session.version();
      one.begun = true;
      const auto* const wait = std::get_if<edge::Wait>(&one.action);
      one.until = wait != nullptr ? wait->until : now + some(time_of(one.action));
    }
  }
  bool due(edge::TextSession& text_session, const Doing& one) const {
    if (!std::holds_alternative<edge::Wait>(one.action)) return false;
    const auto& wait = std::get<edge::Wait>(one.action);
    const bool hears = wait.hears || wait.until == edge::Wait::kOnOthers;
    return (hears && one.seen != text_session.version()) || one.until <= now;
  }
  std::chrono::microseconds time_of(const edge::Action& action) const {
    if (std::holds_alternative<edge::NextToken>(action)) return token;
    return std::holds_alternative<edge::Compute>(action) ? kernel : round_trip;
  }
  // False where nobody wants more tokens.
  bool finish(Doing& one, const edge::CloudLink::OnToken& on_token) {
    if (std::holds_alternative<edge::Wait>(one.action)) return true;
    bool more = true;
    try {
      if (const auto* send = std::get_if<edge::Send>(&one.action)) {
        one.flow->give(ask(*send));
        one.flow->hear(cloud_.load());
      } else if (const auto* rescues = std::get_if<edge::Rescue>(&one.action)) {
        if (rescue) *rescues->whole = rescue();
      } else if (const auto* rows = std::get_if<edge::TakeRows>(&one.action)) {
        rows->take();
      } else if (!std::holds_alternative<edge::Compute>(one.action)) {
        if (const auto* begun = std::get_if<edge::Stream>(&one.action)) {
          stream_.emplace(cloud_, *begun);
        }
        const edge::StreamEvent event = stream_->next();
        if (event.token) more = on_token(*event.token);
        one.flow->hear(cloud_.load());
        one.flow->give(event);
      } else {
        const auto& compute = std::get<edge::Compute>(one.action);
        compute.tail->run(*compute.job);
      }
    } catch (...) {
      one.flow->fail(std::current_exception());
    }
    one.begun = false;
    return more;
  }
  std::vector<float> ask(const edge::Send& send) {
    sent.push_back(send.call);
    if (send.call == edge::Send::kForward && before_forward) before_forward();
    return cloud_.ask(send);
  }

  FakeCloud& cloud_;
  std::minstd_rand random_;
  std::optional<FakeCloud::Streaming> stream_;
  Doing mover_;
};

class SplitAlone : public testing::Test {
 protected:
  using MakeDevice = std::function<std::unique_ptr<Device>()>;
  explicit SplitAlone(
      const std::string& name = "rand-a",
      const MakeDevice& make = [] { return make_cpu_device(1); }, Profile profile = Profile::kF32)
      : golden(name),
        profile(profile),
        device(make()),
        cloud(golden, make(), shard_options(StageRange())) {}
  ShardOptions shard_options(const StageRange& range) const {
    ShardOptions options = options_for(*golden.model, range);
    options.profile = profile;
    if (profile == Profile::kInt8) options.formats = StageFormats::parse("q8_0");
    return options;
  }
  static GenerateOptions wanted() {
    GenerateOptions options;
    options.max_tokens = 12;
    options.sampling.seed = 3;
    options.ignore_end = true;
    return options;
  }
  int layers() const { return golden.model->config().layers; }
  template <typename Call>
  auto with(const edge::Placement& place, const Call& call) {
    const Model& model = *golden.model;
    std::optional<Shard> shard;
    std::optional<Batcher> tail;
    if (place.local()) {
      shard.emplace(*device, model, golden.weights(), shard_options(place.range));
      tail.emplace(*shard);
    }
    const edge::RetryOptions retry;
    return call(
        edge::SplitContext{cloud, place, tail ? &*tail : nullptr, model, nullptr, retry, waiter});
  }
  // A text cut there; its head here or on the cloud.
  std::vector<int32_t> text(int cut, bool head_on_cloud = false) {
    edge::PlacementRequest request;
    request.cut = cut;
    request.head = head_on_cloud ? edge::Head::kCloud : edge::Head::kEdge;
    return text(edge::place(request, golden.model->config()));
  }
  std::vector<int32_t> text(const edge::Placement& place) {
    return with(place, [&](const edge::SplitContext& run) {
      edge::SplitText text(run, prompt, wanted(), counts);
      while (text.next({})) continue;
      return text.take().tokens;
    });
  }
  std::vector<int32_t> whole() {
    LocalForward forward(cloud.batcher());
    return generate(forward, golden.model->config(), nullptr, prompt, wanted(), {}).tokens;
  }

  const Golden golden;
  const Profile profile;
  std::vector<int32_t> prompt{5, 11, 2, 40, 33, 17};
  const std::unique_ptr<Device> device;
  FakeCloud cloud;
  NoTime waiter;
  edge::SplitCounts counts;
};

}  // namespace split::test
