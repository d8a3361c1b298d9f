// run/: a row's bits depend on nothing but its sequence and the phase: not on its neighbours, the
// slices, the threads or what was cut back. Made to run under the thread sanitizer too.
#include <gtest/gtest.h>

#include <cstdlib>

#include "device/drawn.h"
#include "sequences.h"
#include "support/cpu_kernels.h"

namespace split::test {
namespace {

struct Case {
  const char* model;
  Profile profile;
  std::optional<DType> kv = {};
  Phase phase = Phase::kPrompt;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.model << " " << profile_name(c.profile) << (c.kv ? " kv" : "")
             << (c.phase == Phase::kGenerate ? " generated" : "");
}

class RowInvariance : public testing::TestWithParam<Case> {
 protected:
  RowInvariance() : golden_(GetParam().model) {}
  // Half of the tests for each case where time is short, and a quarter by another set of kernels.
  void SetUp() override {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    const bool other_set = std::getenv("SPLIT_CPU_ISA") != nullptr;
    if (!Drawn(other_set ? 4 : 2, std::hash<std::string>()(test.name()) % 1000 + 1).next()) {
      GTEST_SKIP() << "SPLIT_LONG=1 runs it";
    }
    const auto eval = golden_.values<int32_t>("eval.ids");
    // Past one split of keys, where the context is that long.
    const auto context = static_cast<size_t>(golden_.model->config().context);
    tokens_.assign(eval.begin(),
                   eval.begin() + static_cast<ptrdiff_t>(std::min<size_t>(context, 140)));
    others_.assign(eval.rbegin(), eval.rend());
    middle_ = golden_.model->config().layers / 2;
    static std::map<std::string, std::map<Point, Rows>> references;
    reference_ = references[testing::PrintToString(GetParam())];
    if (!reference_.empty()) return;
    for (const Point to : points()) {
      Loaded solo = load(1);
      Sequence sequence(*solo.shard);
      reference_[to] = sequence.run(to, tokens_, 1, phase_);
    }
    references[testing::PrintToString(GetParam())] = reference_;
  }

  struct Loaded {
    std::unique_ptr<Device> device;
    std::unique_ptr<Shard> shard;
  };
  Loaded load(unsigned threads, uint32_t max_rows = 512, uint32_t long_rows = 0) const {
    Loaded loaded;
    loaded.device = make_cpu_device(threads);
    ShardOptions options = options_for(*golden_.model);
    options.profile = GetParam().profile;
    options.formats = profile_formats(options.profile);
    options.kv = GetParam().kv;
    options.max_rows = max_rows;
    options.long_rows = long_rows;
    loaded.shard =
        std::make_unique<Shard>(*loaded.device, *golden_.model, golden_.weights(), options);
    return loaded;
  }
  // A middle point and the logits.
  std::vector<Point> points() const { return {middle_, Point::head()}; }
  std::span<const int32_t> tokens(size_t from, size_t count) const {
    return std::span(tokens_).subspan(from, count);
  }
  std::span<const std::vector<float>> expected(Point to, size_t from, size_t count) {
    return std::span(reference_[to]).subspan(from, count);
  }

  const Phase phase_ = GetParam().phase;
  Golden golden_;
  std::vector<int32_t> tokens_, others_;
  int middle_ = 0;
  std::map<Point, Rows> reference_;  // by point: one row a step, one thread, alone
};

TEST_P(RowInvariance, SlicesOfAnySize) {
  const Loaded loaded = load(2);
  for (const Point to : points()) {
    for (const size_t slice : {1, 2, 3, 4, 7, 8, 9, 16, 17, 33, 64, 140}) {
      Sequence sequence(*loaded.shard);
      expect_same(sequence.run(to, tokens_, slice, phase_), reference_[to],
                  cat("slices of ", slice));
    }
  }
}

TEST_P(RowInvariance, MoreRowsOfAPromptAlone) {
  const Loaded loaded = load(2, 16, 140);
  ASSERT_EQ(loaded.shard->long_rows(), 140u);
  for (const Point to : points()) {
    // Generated rows have the shorter steps.
    const size_t most = phase_ == Phase::kPrompt ? 140 : 16;
    for (const size_t slice : {size_t{7}, most * 3 / 4, most}) {
      Sequence sequence(*loaded.shard);
      expect_same(sequence.run(to, tokens_, slice, phase_), reference_[to],
                  cat("slices of ", slice));
    }
  }
}

TEST_P(RowInvariance, AnyNumberOfThreads) {
  for (const unsigned threads : {1, 2, 3}) {
    const Loaded loaded = load(threads);
    for (const Point to : points()) {
      for (const size_t slice : {2, 140}) {
        Sequence sequence(*loaded.shard);
        expect_same(sequence.run(to, tokens_, slice, phase_), reference_[to],
                    cat(threads, " threads"));
      }
    }
  }
}

// Only quantised weights tell prompt rows from generated ones, by the rounding of prompt's numbers.
TEST_P(RowInvariance, EitherPhase) {
  const Loaded loaded = load(2);
  Sequence sequence(*loaded.shard);
  const Point to = points().back();
  const Phase other = phase_ == Phase::kPrompt ? Phase::kGenerate : Phase::kPrompt;
  const Rows rows = sequence.run(to, tokens_, 1, other);
  const Profile profile = GetParam().profile;
  const bool alike = profile != Profile::kQ8_0 && profile != Profile::kQ4_0;
  EXPECT_EQ(loaded.shard->same_bits_in_both_phases(), alike);
  if (alike) return expect_same(rows, reference_[to], "the other phase");
  for (size_t row = 0; row < rows.size(); ++row) {
    // A row's logits differ by 0.017 at most for these models, whose numbers are rounded by 2^-9
    // each.
    EXPECT_GT(relative(rows[row], reference_[to][row]), 0) << row;
    EXPECT_LT(relative(rows[row], reference_[to][row]), 0.02) << row;
  }
}

TEST_P(RowInvariance, EveryInstructionSet) {
  // Products in bf16, attention's too, have an order of their own there.
  const auto pairs = [](const char* limit) { return by_pairs(choose_kernels(limit)); };
  const Profile profile = GetParam().profile;
  const bool in_bf16 =
      (profile != Profile::kF32 && profile != Profile::kF16) || GetParam().kv.has_value();
  Rows others;  // of the first set with the other order
  for (const char* isa : kInstructionSets) {
    ::setenv("SPLIT_CPU_ISA", isa, 1);
    const Loaded loaded = load(2);
    ::unsetenv("SPLIT_CPU_ISA");
    for (const size_t slice : {1, 2, 3, 9}) {
      Sequence sequence(*loaded.shard);
      const Point to = points().back();
      const size_t count = std::min<size_t>(tokens_.size(), 9);
      const Rows rows = sequence.run(to, tokens(0, count), slice, phase_);
      if (!in_bf16 || pairs(isa) == pairs("")) {
        expect_same(rows, expected(to, 0, count), isa);
        continue;
      }
      if (others.empty()) others = rows;
      expect_same(rows, others, isa);
      for (size_t row = 0; row < rows.size(); ++row) {
        // Sums in another order round the next product's rows elsewhere: 0.003 at most of these.
        EXPECT_LT(relative(rows[row], reference_[to][row]), 0.01) << isa << ", row " << row;
      }
    }
  }
}

// One row each of many sequences: the first is ours, at its own length.
TEST_P(RowInvariance, StepsOfManySequences) {
  const Loaded loaded = load(2);
  Shard& shard = *loaded.shard;
  for (const Point to : points()) {
    for (const size_t count : {1, 2, 4, 8, 9, 32, 33}) {
      if (count > shard.max_wanted(to)) continue;
      Sequence ours(shard);
      std::vector<std::unique_ptr<Sequence>> others;
      for (size_t i = 1; i < count; ++i) {
        others.push_back(std::make_unique<Sequence>(shard));
        run_step(shard, to, {{others.back()->id, std::span(others_).subspan(i, 1 + i % 3)}},
                 phase_);
      }
      const size_t steps = std::min<size_t>(12, tokens_.size());
      for (size_t t = 0; t < steps; ++t) {
        std::vector<Part> parts;
        for (size_t i = 1; i < count; ++i) {
          parts.push_back(
              {others[i - 1]->id, std::span(others_).subspan((7 * i + t) % others_.size(), 1)});
        }
        // Not always at the same place.
        const size_t place = t % count;
        parts.insert(parts.begin() + static_cast<ptrdiff_t>(place), {ours.id, tokens(t, 1)});
        expect_same(run_step(shard, to, parts, phase_)[place], expected(to, t, 1),
                    cat(count, " sequences, row ", t));
      }
    }
  }
}

TEST_P(RowInvariance, PromptsOfOthersInTheSameStep) {
  const Loaded loaded = load(2);
  Shard& shard = *loaded.shard;
  for (const Point to : points()) {
    Sequence ours(shard), second(shard), third(shard);
    run_step(shard, to, {{second.id, std::span(others_).first(3)}}, phase_);
    size_t at = 0;
    for (const size_t count : {5, 1, 9, 7}) {
      const auto result = run_step(shard, to,
                                   {{second.id, std::span(others_).subspan(40, 4)},
                                    {ours.id, tokens(at, count)},
                                    {third.id, std::span(others_).subspan(9, 1)}},
                                   phase_);
      expect_same(result[1], expected(to, at, count), cat("at ", at));
      at += count;
    }
  }
}

TEST_P(RowInvariance, CutBackAndGoOn) {
  const Loaded loaded = load(2);
  Shard& shard = *loaded.shard;
  for (const Point to : points()) {
    for (const uint32_t keep : {0, 1, 5, 15, 16, 17}) {
      Sequence ours(shard), other(shard);
      ours.run(to, tokens(0, keep), 3, phase_);
      ours.run(to, std::span(others_).subspan(11, 6), 4, phase_);  // a draft that was refused
      shard.pages().truncate(ours.id, keep);
      other.run(to, std::span(others_).first(5), 5, phase_);  // may take the pages
      const size_t count = std::min<size_t>(tokens_.size() - keep, 22);
      expect_same(ours.run(to, tokens(keep, count), 7, phase_), expected(to, keep, count),
                  cat("kept ", keep));
    }
  }
}

// From a hidden state at any point, as the edge runs it.
TEST_P(RowInvariance, InjectedHiddenStates) {
  const Loaded loaded = load(2);
  Shard& shard = *loaded.shard;
  const Point to = points().back();
  Sequence head(shard), tail(shard);
  const size_t count = std::min<size_t>(tokens_.size(), 20);
  const Rows hidden = head.run(middle_, tokens(0, count), 5, phase_);
  std::vector<float> flat;
  for (const auto& row : hidden) flat.insert(flat.end(), row.begin(), row.end());
  ASSERT_TRUE(shard.pages().reserve(tail.id, static_cast<uint32_t>(count)));
  const ShardRows part{tail.id,
                       {.range = {middle_, to},
                        .hidden = flat,
                        .width = static_cast<uint32_t>(shard.width(middle_)),
                        .phase = phase_,
                        .wanted = Wanted::kAll}};
  std::vector<float> out(count * shard.width(to));
  shard.forward(std::span(&part, 1), out.data());
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(first_difference(std::span(out).subspan(i * shard.width(to), shard.width(to)),
                               reference_[to][i]),
              -1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, RowInvariance,
    testing::Values(Case{"demo", Profile::kF32}, Case{"rand-b", Profile::kF32},
                    Case{"rand-c", Profile::kF32}, Case{"demo", Profile::kF16},
                    Case{"rand-b", Profile::kF16}, Case{"rand-c", Profile::kF16},
                    Case{"demo", Profile::kBF16}, Case{"rand-b", Profile::kBF16},
                    Case{"rand-c", Profile::kBF16},
                    // Widths that are no whole blocks: 100 and 48.
                    Case{"rand-b", Profile::kQ8_0}, Case{"demo", Profile::kQ4_0},
                    Case{"rand-c", Profile::kQ4_0}, Case{"demo", Profile::kQ8_0, DType::kQ8_0},
                    Case{"rand-b", Profile::kQ8_0, {}, Phase::kGenerate},
                    Case{"rand-c", Profile::kQ4_0, {}, Phase::kGenerate},
                    Case{"demo", Profile::kQ8_0, DType::kQ8_0, Phase::kGenerate},
                    Case{"rand-a", Profile::kF32, DType::kQ8_0}, Case{"demo", Profile::kInt8},
                    Case{"rand-b", Profile::kInt8}, Case{"rand-c", Profile::kInt8}),
    [](const auto& info) {
      std::string name =
          cat(info.param.model, "_", profile_name(info.param.profile), info.param.kv ? "_kv" : "",
              info.param.phase == Phase::kGenerate ? "_generated" : "");
      std::erase(name, '-');
      return name;
    });

}  // namespace
}  // namespace split::test
