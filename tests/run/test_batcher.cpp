// Who is in which step: turns of owners, slices of prompts beside short jobs, who has gone, who is
// waited for. What the rows come to, whoever they share a step with, is test_shared_steps.cpp's.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "sequences.h"
#include "support/forwarding_device.h"
#include "tensor/topk.h"

namespace split {
namespace {

// The CPU, at whose gate each step waits while it is shut.
class GatedDevice : public test::ForwardingDevice {
 public:
  GatedDevice() : ForwardingDevice(make_cpu_device(1)) {}
  // A device like a GPU, whose steps are never run stage by stage to time these, and which gives
  // prompt rows of halves to matrix units.
  bool can_be_lost() const override { return true; }
  bool same_bits_in_both_phases(const Limits& limits, DType matrix) const override {
    return Device::same_bits_in_both_phases(limits, matrix);
  }

  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    {
      std::unique_lock lock(mutex_);
      steps_.emplace_back(batch.tokens.begin(), batch.tokens.end());
      changed_.notify_all();
      changed_.wait(lock, [&] { return open_; });
    }
    ForwardingDevice::run(workspace, programs, batch);
  }
  void shut() { set(false); }
  void open() { set(true); }
  void await_a_step() { await_steps(1); }
  void await_steps(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return steps_.size() >= count; });
  }
  // The tokens of each step.
  std::vector<std::vector<int32_t>> steps() {
    const std::lock_guard lock(mutex_);
    return steps_;
  }

 private:
  void set(bool open) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  std::vector<std::vector<int32_t>> steps_;
};

class BatcherSteps : public testing::Test {
 protected:
  static constexpr uint32_t kSlice = 16;
  static constexpr std::chrono::hours kLongStep{1};  // than which no machine's step is longer

  void make(Profile profile = Profile::kF32, uint32_t max_rows = 32,
            std::optional<Clock::duration> patience = std::chrono::seconds(0), Point to = 2,
            uint32_t long_rows = 0) {
    ShardOptions options = test::options_for(*golden_.model, {.to = to});
    options.profile = profile;
    options.max_rows = max_rows;
    options.long_rows = long_rows;
    shard_ = std::make_unique<Shard>(device_, *golden_.model, golden_.weights(), options);
    batcher_ = std::make_unique<Batcher>(*shard_, kSlice, patience, kLongStep);
    batcher_->on_step([&](const StepSeen& seen) {
      const std::lock_guard lock(mutex_);
      seen_.push_back(seen);
    });
  }
  ~BatcherSteps() override { join(); }

  // A job on a thread of its own whose tokens are all `token`, by which it is known.
  void start(int32_t token, uint32_t rows, Phase phase, std::string owner = {},
             std::function<bool()> gone = {}, Point to = 1) {
    const size_t waiting = batcher_->depth();
    threads_.emplace_back(
        [this, token, rows, phase, to, requester = Requester{std::move(owner), gone}] {
          const SequenceId sequence = shard_->pages().open();
          try {
            run(token, sequence, rows, phase, requester, to);
          } catch (const RequesterGone&) {
            const std::lock_guard lock(mutex_);
            gone_.insert(token);
          }
          shard_->pages().close(sequence);
        });
    // In the queue before the next one, so that the order is the test's.
    while (batcher_->depth() == waiting) std::this_thread::yield();
  }
  void run(int32_t token, SequenceId sequence, uint32_t rows, Phase phase, Requester requester = {},
           Point to = 1) {
    const std::vector<int32_t> tokens(rows, token);
    std::vector<float> out(shard_->width(to));
    Job job{sequence,
            {.range = {.to = to},
             .past = shard_->pages().length(sequence),
             .tokens = tokens,
             .phase = phase},
            out.data(),
            std::move(requester)};
    batcher_->run(job);
  }
  // Beside the others, rows of this token that the sequence has up to point 1 are filled up to 2.
  void start_fill(int32_t token, SequenceId sequence, uint32_t rows) {
    const size_t waiting = batcher_->depth();
    threads_.emplace_back([this, token, rows, sequence] {
      const std::vector<int32_t> tokens(rows, token);
      const SequenceRows all{.range = {.to = 2}, .tokens = tokens, .wanted = Wanted::kNone};
      Job job{sequence, all, nullptr, {}, true};
      batcher_->run(job);
    });
    while (batcher_->depth() == waiting) std::this_thread::yield();
  }
  // The steps from this one on.
  std::vector<StepSeen> seen_from(size_t step) {
    const std::lock_guard lock(mutex_);
    return {seen_.begin() + static_cast<ptrdiff_t>(step), seen_.end()};
  }
  // Rows of this token in a step.
  static int64_t rows_of(int32_t token, const std::vector<int32_t>& step) {
    return std::count(step.begin(), step.end(), token);
  }
  // The first step that has rows of this token.
  size_t first_step(int32_t token) {
    const auto steps = device_.steps();
    for (size_t i = 0; i < steps.size(); ++i) {
      if (rows_of(token, steps[i]) > 0) return i;
    }
    return SIZE_MAX;
  }
  void join() {
    device_.open();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  test::Golden golden_{"rand-a"};
  GatedDevice device_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<Batcher> batcher_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::vector<StepSeen> seen_;
  std::set<int32_t> gone_;
};

TEST_F(BatcherSteps, APromptGoesInSlicesWhileTokensWaitAndInOneRunWithThem) {
  make();
  device_.shut();
  start(1, 1, Phase::kGenerate);
  device_.await_a_step();
  start(2, 60, Phase::kPrompt);
  for (const int32_t token : {3, 4, 5}) start(token, 1, Phase::kGenerate);
  join();
  const auto steps = device_.steps();
  // The three tokens did not wait for the prompt, which had a slice of the same step.
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_EQ(steps[1].size(), kSlice + 3);
  for (const int32_t token : {3, 4, 5}) EXPECT_EQ(rows_of(token, steps[1]), 1);
  EXPECT_EQ(seen_[1].generated_rows, 3u);
  EXPECT_EQ(seen_[1].prompt_rows, kSlice);
  EXPECT_EQ(seen_[1].sequences, 4u);
  for (size_t i = 2; i < 4; ++i) EXPECT_EQ(rows_of(2, steps[i]), kSlice);
  EXPECT_EQ(rows_of(2, steps[4]), 60 - 3 * kSlice);
}

// They share a step with those of others, which is told as if they were not there.
TEST_F(BatcherSteps, NoStepTellsOfRowsThatTheProgramMeasures) {
  make();
  Requester self;
  self.self = true;
  const SequenceId measured = shard_->pages().open(false);
  run(4, measured, 2, Phase::kPrompt, self);
  EXPECT_TRUE(seen_.empty());
  EXPECT_EQ(batcher_->running(), 0u);
  device_.shut();
  start(1, 1, Phase::kGenerate);
  device_.await_a_step();
  start(2, 3, Phase::kPrompt);
  const size_t waiting = batcher_->depth();
  threads_.emplace_back([&] { run(4, measured, 2, Phase::kPrompt, self); });
  while (batcher_->depth() == waiting) std::this_thread::yield();
  EXPECT_EQ(batcher_->waiting(), 2u);
  join();
  ASSERT_EQ(device_.steps().size(), 3u);
  EXPECT_EQ(device_.steps()[2].size(), 5u);
  ASSERT_EQ(seen_.size(), 2u);
  EXPECT_EQ(seen_[1].sequences, 1u);
  EXPECT_EQ(seen_[1].prompt_rows, 3u);
  EXPECT_EQ(seen_[1].layer_rows, 3u);
  EXPECT_EQ(shard_->pages().in_use(), 0u);
  shard_->pages().close(measured);
  EXPECT_EQ(batcher_->waiting(), 0u);
}

// One step for those that want all logits and those that want the largest.
TEST_F(BatcherSteps, TheTopIsFoundAmongTheLogitsOfOthers) {
  const Model& model = *golden_.model;
  Shard shard(device_, model, golden_.weights(), test::options_for(model));
  Batcher batcher(shard, kSlice, std::chrono::seconds(0));
  const auto run = [&](int32_t token, Point to) {
    const SequenceId sequence = shard.pages().open();
    std::vector<float> out = test::append(
        batcher, sequence,
        {.range = {.to = to}, .tokens = std::span(&token, 1), .phase = Phase::kGenerate});
    shard.pages().close(sequence);
    return out;
  };
  std::vector<float> logits = run(1, Point::head());
  std::vector<float> want(shard.width(Point::top()));
  topk_row(logits, want);
  EXPECT_EQ(run(1, Point::top()), want);  // alone

  device_.shut();
  std::vector<float> top;
  const Point points[] = {Point::head(), Point::top(), Point::head()};
  for (int32_t i = 0; i < 3; ++i) {
    const size_t waiting = batcher.depth();
    threads_.emplace_back([&, i] {
      auto out = run(i, points[i]);
      if (i == 1) top = std::move(out);
    });
    while (batcher.depth() == waiting) std::this_thread::yield();
  }
  join();
  EXPECT_EQ(top, want);
  EXPECT_EQ(device_.steps().back(), (std::vector<int32_t>{1, 2}));  // the first one ran at once
}

// Where the phases are computed in different ways they take turns, a slice at a time.
TEST_F(BatcherSteps, PhasesOfHalvesTakeTurns) {
  make(Profile::kF16);
  device_.shut();
  start(1, 1, Phase::kGenerate);
  device_.await_a_step();
  start(2, 60, Phase::kPrompt);
  for (const int32_t token : {3, 4, 5}) start(token, 1, Phase::kGenerate);
  join();
  const auto steps = device_.steps();
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_EQ(steps[1], std::vector<int32_t>(kSlice, 2));
  EXPECT_EQ(steps[2], std::vector<int32_t>({3, 4, 5}));
  EXPECT_EQ(seen_[1].generated_rows, 0u);
}

TEST_F(BatcherSteps, PromptsAloneFillAStepInEqualParts) {
  make();
  device_.shut();
  start(1, 20, Phase::kPrompt);
  device_.await_a_step();
  start(2, 40, Phase::kPrompt);
  start(3, 40, Phase::kPrompt);
  join();
  const auto steps = device_.steps();
  EXPECT_EQ(steps[0].size(), 20u);
  EXPECT_EQ(rows_of(2, steps[1]), kSlice);
  EXPECT_EQ(rows_of(3, steps[1]), kSlice);
}

// A step that is known to be short may have more rows of a prompt that nobody waits beside.
TEST_F(BatcherSteps, APromptAloneHasLongSteps) {
  make(Profile::kF32, 32, std::chrono::seconds(0), 2, 64);
  const SequenceId sequence = shard_->pages().open();
  const auto prompt = [&] {
    const size_t before = device_.steps().size();
    shard_->pages().truncate(sequence, 0);
    run(1, sequence, 60, Phase::kPrompt);
    std::vector<size_t> sizes;
    for (const auto& step : device_.steps()) sizes.push_back(step.size());
    return std::vector(sizes.begin() + static_cast<ptrdiff_t>(before), sizes.end());
  };
  EXPECT_EQ(prompt(), (std::vector<size_t>{32, 28}));
  EXPECT_EQ(prompt(), std::vector<size_t>{60});
  shard_->pages().truncate(sequence, 0);
  run(1, sequence, 60, Phase::kGenerate);
  EXPECT_EQ(device_.steps().back().size(), 28u);

  device_.shut();
  const size_t before = device_.steps().size();
  start(2, 60, Phase::kPrompt);
  device_.await_steps(before + 1);
  start(3, 40, Phase::kPrompt);
  start(4, 40, Phase::kPrompt);
  join();
  EXPECT_EQ(device_.steps()[before].size(), 60u);
  EXPECT_EQ(rows_of(3, device_.steps()[before + 1]), kSlice);
  EXPECT_EQ(rows_of(4, device_.steps()[before + 1]), kSlice);
}

// One owner with many jobs and one with few: the few do not wait behind the many.
TEST_F(BatcherSteps, OwnersTakeTurns) {
  make(Profile::kF32, 16);  // one job a step
  device_.shut();
  start(1, 16, Phase::kPrompt, "many");
  device_.await_a_step();
  for (int32_t token = 10; token < 16; ++token) start(token, 16, Phase::kPrompt, "many");
  start(20, 16, Phase::kPrompt, "few");
  start(21, 16, Phase::kPrompt, "few");
  join();
  std::vector<int32_t> order;
  for (const auto& step : device_.steps()) order.push_back(step[0]);
  EXPECT_EQ(order, std::vector<int32_t>({1, 20, 10, 21, 11, 12, 13, 14, 15}));
}

// An owner whose rows run through fewer blocks has more of them in the same time.
TEST_F(BatcherSteps, TurnsAreCountedInLayers) {
  make(Profile::kF32, 16);
  device_.shut();
  start(1, 16, Phase::kPrompt, "first");
  device_.await_a_step();
  for (int32_t token = 10; token < 13; ++token) start(token, 16, Phase::kPrompt, "deep", {}, 2);
  for (int32_t token = 20; token < 24; ++token) start(token, 16, Phase::kPrompt, "shallow", {}, 1);
  join();
  std::vector<int32_t> order;
  for (const auto& step : device_.steps()) order.push_back(step[0]);
  EXPECT_EQ(order, std::vector<int32_t>({1, 10, 20, 21, 11, 22, 23, 12}));
}

TEST_F(BatcherSteps, JobsToDifferentPointsShareAStep) {
  make();
  device_.shut();
  start(1, 1, Phase::kGenerate);
  device_.await_a_step();
  for (const int point : {1, 0, 2, 1}) start(2 + point, 1, Phase::kGenerate, {}, {}, point);
  join();
  ASSERT_EQ(seen_.size(), 2u);
  EXPECT_EQ(seen_[1].sequences, 4u);
  EXPECT_EQ(seen_[1].generated_rows, 4u);
  EXPECT_EQ(seen_[1].depths, 3u);
  EXPECT_EQ(seen_[1].layer_rows, 1u + 0u + 2u + 1u);
  // The device ran the rows of each point without those that had left.
  const std::vector<std::vector<int32_t>> runs = {{1}, {4, 3, 3, 2}, {4, 3, 3}, {4}};
  EXPECT_EQ(device_.steps(), runs);
}

// A device with a queue takes a submission for each.
TEST_F(BatcherSteps, AStepHasFourDepthsAtMostOnAGpu) {
  make(Profile::kF32, 32, std::chrono::seconds(0), Point::head());
  device_.shut();
  start(1, 1, Phase::kGenerate);
  device_.await_a_step();
  const Point points[] = {0, 1, 2, Point::norm(), Point::head(), 1, Point::head()};
  for (const Point point : points) start(2, 1, Phase::kGenerate, {}, {}, point);
  join();
  ASSERT_EQ(seen_.size(), 3u);
  EXPECT_EQ(seen_[1].depths, 4u);
  EXPECT_EQ(seen_[1].sequences, 5u);
  EXPECT_EQ(seen_[2].depths, 1u);
  EXPECT_EQ(seen_[2].sequences, 2u);
}

TEST_F(BatcherSteps, FillsHaveWhatOthersLeave) {
  make();
  const test::Sequence sequence(*shard_);
  run(9, sequence.id, 40, Phase::kPrompt);
  const size_t before = device_.steps().size();
  device_.shut();
  start(1, 1, Phase::kGenerate);
  device_.await_steps(before + 1);
  start_fill(9, sequence.id, 40);
  start(2, 16, Phase::kPrompt);
  start(3, 1, Phase::kGenerate);
  join();
  const auto seen = seen_from(before);
  // The prompt had the slice of the first step, whoever came first.
  ASSERT_EQ(seen.size(), 5u);
  EXPECT_EQ(seen[1].generated_rows, 1u);
  EXPECT_EQ(seen[1].prompt_rows, 16u);
  EXPECT_EQ(seen[1].fill_rows, 0u);
  for (const size_t i : {2, 3}) EXPECT_EQ(seen[i].fill_rows, kSlice);
  EXPECT_EQ(seen[4].fill_rows, 40 - 2 * kSlice);
  EXPECT_EQ(shard_->pages().filled(sequence.id, 1), 40u);
}

TEST_F(BatcherSteps, FillsJoinTheStepOfTokens) {
  make();
  const test::Sequence sequence(*shard_);
  run(9, sequence.id, 40, Phase::kPrompt);
  const size_t before = device_.steps().size();
  device_.shut();
  start(1, 1, Phase::kGenerate);
  device_.await_steps(before + 1);
  start_fill(9, sequence.id, 40);
  start(2, 1, Phase::kGenerate);
  start(3, 1, Phase::kGenerate);
  join();
  const auto seen = seen_from(before);
  EXPECT_EQ(seen[1].generated_rows, 2u);
  EXPECT_EQ(seen[1].fill_rows, kSlice);
  EXPECT_EQ(seen[1].prompt_rows, 0u);
}

// A fill that no step of tokens could take along has one of its own, but not often.
TEST_F(BatcherSteps, FillsOfAnotherPhaseHaveEveryFifthStep) {
  make(Profile::kF16, 1);  // one row a step
  const test::Sequence sequence(*shard_);
  run(9, sequence.id, 3, Phase::kPrompt);
  const size_t before = device_.steps().size();
  device_.shut();
  start(1, 1, Phase::kGenerate);
  device_.await_steps(before + 1);
  start_fill(9, sequence.id, 3);
  for (int32_t token = 10; token < 18; ++token) start(token, 1, Phase::kGenerate);
  join();
  std::vector<int32_t> order;
  for (const auto& step : device_.steps()) order.push_back(step[0]);
  order.erase(order.begin(), order.begin() + static_cast<ptrdiff_t>(before));
  EXPECT_EQ(order, std::vector<int32_t>({1, 10, 11, 12, 13, 9, 14, 15, 16, 17, 9, 9}));
}

TEST_F(BatcherSteps, LeaveOutCallersThatHaveGone) {
  make(Profile::kF32, 16);
  std::atomic<bool> gone{false};
  const auto has_gone = [&] { return gone.load(); };
  device_.shut();
  start(1, 48, Phase::kPrompt, {}, has_gone);
  device_.await_a_step();
  start(2, 1, Phase::kGenerate, {}, has_gone);
  start(3, 1, Phase::kGenerate);
  gone = true;
  join();
  EXPECT_EQ(gone_, std::set<int32_t>({1, 2}));
  const auto steps = device_.steps();
  ASSERT_EQ(steps.size(), 2u);  // the first slice, and who stayed
  EXPECT_EQ(steps[1], std::vector<int32_t>({3}));
  EXPECT_EQ(shard_->pages().in_use(), 0u);
  EXPECT_EQ(batcher_->depth(), 0u);
}

// Two callers end up in one step, not in two that take turns.
TEST_F(BatcherSteps, WaitForACallerThatComesStraightBack) {
  make(Profile::kF32, 32, std::chrono::minutes(5));
  const SequenceId a = shard_->pages().open(), b = shard_->pages().open();
  run(1, a, 1, Phase::kGenerate);
  run(1, a, 1, Phase::kGenerate);  // straight back, and now away: who comes next waits for it
  device_.shut();
  threads_.emplace_back([&] { run(2, b, 1, Phase::kGenerate); });
  while (batcher_->depth() < 1) std::this_thread::yield();
  threads_.emplace_back([&] { run(1, a, 1, Phase::kGenerate); });
  while (batcher_->depth() < 2) std::this_thread::yield();
  join();
  const auto steps = device_.steps();
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[2].size(), 2u);
  for (const SequenceId id : {a, b}) shard_->pages().close(id);
}

}  // namespace
}  // namespace split
