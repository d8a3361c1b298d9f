// States of sequences in blocks that keep them in place of keys and values: a row's bits depend on
// its text alone, whatever it was cut into, cut back from, filled beside or computed again after.
#include <gtest/gtest.h>

#include <random>

#include "device/drawn.h"
#include "run/forward.h"
#include "support/forwarding_device.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

class States : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  States()
      : golden(cat("models/", std::get<0>(GetParam()))), layers(golden.model->config().layers) {
    int prompt = 0;
    while (golden.ids(prompt).size() != 300) ++prompt;
    ids = golden.ids(prompt);
    other.assign(ids.rbegin(), ids.rend());
  }
  void SetUp() override {
    try {
      device = make(2);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kDevice) throw;
      GTEST_SKIP() << error.what();
    }
  }
  std::unique_ptr<Device> make(unsigned threads) const {
    return make_device({std::get<1>(GetParam()), threads});
  }
  // Whether threads are its own, and all of it is quick.
  bool on_cpu() const { return !device->can_be_lost(); }
  Shard shard(Device& on) const { return {on, *golden.model, golden.weights(), options()}; }
  ShardOptions options() const { return options_for(*golden.model); }
  size_t width() const { return static_cast<size_t>(golden.model->config().channels); }
  SequenceRows rows(std::span<const int32_t> text, uint32_t past, uint32_t count, Point to) const {
    return {.range = {.to = to},
            .past = past,
            .tokens = text.subspan(past, count),
            .wanted = Wanted::kAll};
  }
  // All rows of a text at a point, in one step of a sequence of its own.
  std::vector<float> alone(std::span<const int32_t> text, Point to) const {
    const auto one = on_cpu() ? make_cpu_device(1) : nullptr;
    Shard whole = shard(one ? *one : *device);
    Line line(whole);
    return line.run(rows(text, 0, static_cast<uint32_t>(text.size()), to));
  }
  std::vector<float> run(Batcher& batcher, SequenceId id, const SequenceRows& asked,
                         bool fill = false) const {
    std::vector<float> out(asked.wanted_count() * width());
    Job job{id, asked, out.data()};
    job.fill = fill;
    batcher.run(job);
    return out;
  }
  // Whether these are the rows from `past` on.
  bool are_rows(std::span<const float> got, uint32_t past, std::span<const float> all) const {
    return std::ranges::equal(got, all.subspan(past * width(), got.size()));
  }

  const Golden golden;
  const int layers;
  std::vector<int32_t> ids, other;  // two texts of 300 rows
  std::unique_ptr<Device> device;
};

TEST_P(States, AnyPiecesBatchAndThreadsGiveEqualRows) {
  const std::vector<int32_t> texts[] = {ids, other, {ids.begin() + 100, ids.end()}};
  std::vector<std::vector<float>> want;
  for (const auto& text : texts) want.push_back(alone(text, layers));
  for (const unsigned threads : {1, 2, 5, 16}) {
    if (threads > 1 && !on_cpu()) break;
    const auto on = make(threads);
    Shard whole = shard(*on);
    Batcher batcher(whole);
    std::mt19937 random(threads);
    for (const uint32_t most : {1, 3, 18, 200}) {
      if (!runs_all() && most == 1 && threads != 2 && on_cpu()) continue;
      std::vector<SequenceId> sequences;
      for (size_t i = 0; i < std::size(texts); ++i) sequences.push_back(whole.pages().open());
      for (bool more = true; more;) {
        more = false;
        std::vector<Job> jobs;
        std::vector<std::vector<float>> out(std::size(texts));
        for (size_t i = 0; i < std::size(texts); ++i) {
          const uint32_t past = whole.pages().length(sequences[i]),
                         left = static_cast<uint32_t>(texts[i].size()) - past,
                         count = std::min<uint32_t>(left, random() % (most + 1));
          more = more || count < left;
          if (count == 0) continue;
          out[i].resize(count * width());
          jobs.push_back({sequences[i], rows(texts[i], past, count, layers), out[i].data()});
        }
        batcher.run(jobs);
        size_t job = 0;
        for (size_t i = 0; i < std::size(texts); ++i) {
          if (out[i].empty()) continue;
          ASSERT_TRUE(are_rows(out[i], jobs[job++].rows.past, want[i])) << threads << " " << most;
        }
      }
      for (const SequenceId id : sequences) whole.pages().close(id);
      EXPECT_EQ(whole.pages().states_in_use(), 0u);
    }
  }
}

// Wrong rows behind each position of two pages, once or twice with 0 or 1 right row between; and
// right rows that are cut back as far as can be.
TEST_P(States, WrongRowsLeaveNothingBehind) {
  const auto want = alone(std::span(ids).first(64), layers);
  Shard whole = shard(*device);
  Batcher batcher(whole);
  Drawn drawn(on_cpu() ? 10 : 100);
  for (uint32_t at = 16; at < 48; ++at) {
    for (uint32_t wrong = 1; wrong <= 16; ++wrong) {
      for (const uint32_t between : {0, 1, 16}) {
        if (!drawn.next()) continue;
        SCOPED_TRACE(cat(wrong, " at ", at, ", ", between));
        const OneSequence one(whole.pages());
        std::vector<int32_t> text(ids.begin(), ids.begin() + 64);
        run(batcher, one.id, rows(text, 0, at, layers));
        uint32_t length = at;
        const auto guess = [&](uint32_t count) {
          run(batcher, one.id, rows(other, length, count, layers));
        };
        guess(wrong);
        if (between == 16) {
          length -= 16 - wrong;
        } else if (between + wrong <= 16) {
          if (between > 0) run(batcher, one.id, rows(text, length++, 1, layers));
          guess(16 - between);
        }
        const auto got = run(batcher, one.id, rows(text, length, 64 - length, layers));
        ASSERT_TRUE(are_rows(got, length, want));
      }
    }
  }
}

// The bound counts from the furthest row that a step began to write, not from the length.
TEST_P(States, GoBackSixteenRowsOrToTheFirst) {
  Shard whole = shard(*device);
  Batcher batcher(whole);
  KvPages& pages = whole.pages();
  const OneSequence one(pages);
  run(batcher, one.id, rows(ids, 0, 40, layers));
  run(batcher, one.id, rows(other, 40, 16, layers));
  run(batcher, one.id, rows(ids, 40, 1, layers));
  pages.truncate(one.id, 40);
  EXPECT_EQ(pages.length(one.id), 40u);
  EXPECT_THROW(run(batcher, one.id, rows(ids, 39, 1, layers)), SequenceLost);
  EXPECT_EQ(pages.length(one.id), 0u);
  EXPECT_EQ(pages.in_use(), 0u);
  EXPECT_EQ(pages.states_in_use(), 0u);
}

TEST_P(States, RowsFurtherBackAreComputedAgain) {
  Shard whole = shard(*device);
  Batcher batcher(whole);
  const std::span<const int32_t> text = std::span(ids).first(100);
  LocalForward plain(batcher);
  const auto all = plain.run({.tokens = text, .wanted = Wanted::kAll});
  const std::vector<float> want(all.begin(), all.end());
  const size_t vocab = want.size() / text.size();
  for (uint32_t back = 17; back <= 100; back += runs_all() ? 1 : 9) {
    LocalForward forward(batcher);
    forward.run({.tokens = text});
    const uint32_t past = 100 - back;
    const auto got =
        forward.run({.past = past, .tokens = text.subspan(past), .wanted = Wanted::kAll});
    ASSERT_TRUE(std::ranges::equal(got, std::span(want).subspan(past * vocab))) << back;
  }
}

// A device that computes a step and then says that it failed; it is not one that can be lost.
struct Failing : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    ForwardingDevice::run(workspace, programs, batch);
    if (std::exchange(fails, false)) throw Error(ErrorKind::kDevice, "[test] failed");
  }
  bool fails = false;
};

TEST_P(States, AStepThatFailsLeavesNothingBehind) {
  const auto want = alone(std::span(ids).first(64), layers);
  Failing failing(make(1));
  Shard whole = shard(failing);
  Batcher batcher(whole);
  for (uint32_t at = 14; at < 34; ++at) {
    for (const uint32_t count : {1, 8, 30}) {
      const OneSequence one(whole.pages());
      run(batcher, one.id, rows(ids, 0, at, layers));
      failing.fails = true;
      EXPECT_THROW(run(batcher, one.id, rows(other, at, count, layers)), Error);
      // Few rows are still there; of many, none.
      const uint32_t past = whole.pages().length(one.id);
      EXPECT_EQ(past, count <= 16 ? at : 0);
      ASSERT_TRUE(are_rows(run(batcher, one.id, rows(ids, past, 64 - past, layers)), past, want));
    }
  }
}

// A text runs through the first blocks, with guesses that are wrong; fills bring its rows to more
// blocks, in slices of any size, from any row, and again.
TEST_P(States, FillsRunApartFromTheText) {
  const auto want = alone(ids, layers);
  for (int cut = 1; cut < layers; ++cut) {
    const auto at_cut = alone(ids, cut);
    Shard whole = shard(*device);
    Batcher batcher(whole);
    KvPages& pages = whole.pages();
    const OneSequence one(pages);
    std::mt19937 random(static_cast<unsigned>(cut));
    const auto below = [&](uint32_t count) {
      const uint32_t past = pages.length(one.id);
      ASSERT_TRUE(are_rows(run(batcher, one.id, rows(ids, past, count, cut)), past, at_cut));
    };
    const auto guess = [&] {
      const uint32_t past = pages.length(one.id), count = 1 + random() % 8;
      run(batcher, one.id, rows(other, past, count, cut));
      pages.truncate(one.id, past);
      ASSERT_EQ(pages.length(one.id), past);
    };
    below(100);
    const StageRange range{.to = layers};
    for (uint32_t row = 0; row < pages.length(one.id);) {
      const KvPages::Again again = pages.again(one.id, range, row);
      const uint32_t from = again.from,
                     most = from < row ? row : std::min(again.end, pages.length(one.id)),
                     count = std::min<uint32_t>(most - from, 1 + random() % 30);
      const auto got = run(batcher, one.id, rows(ids, from, count, again.to), true);
      if (from == row) {
        ASSERT_TRUE(are_rows(got, row, want)) << "cut " << cut << " row " << row;
        row += count;
      }
      if (random() % 3 == 0 && pages.length(one.id) < 200) below(1);
      if (random() % 3 == 0) guess();
      if (random() % 8 == 0) row -= std::min<uint32_t>(row, random() % 40);  // asked for once more
      ASSERT_FALSE(HasFailure()) << "cut " << cut;
    }
    const uint32_t past = pages.length(one.id);
    ASSERT_EQ(pages.filled(one.id, range), past);
    ASSERT_TRUE(are_rows(run(batcher, one.id, rows(ids, past, 30, layers)), past, want)) << cut;
    // The text has moved.
    EXPECT_EQ(pages.states_in_use(), 1u);
  }
}

TEST_P(States, SpentOnesRefuseNewTextsAndFills) {
  ShardOptions two = options();
  two.kv_bytes = kv_bytes_for(*golden.model, {}, Profile::kF32, 1);
  Shard whole(*device, *golden.model, golden.weights(), two);
  ASSERT_EQ(whole.pages().states(), 2u);
  Batcher batcher(whole);
  const auto want = alone(ids, layers);
  const auto refusal = [&](SequenceId id, const SequenceRows& asked, bool fill) -> std::string {
    try {
      run(batcher, id, asked, fill);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBusy);
      return error.what();
    }
    return "none";
  };
  const char* const spent = "the KV budget is spent, try again later";
  OneSequence one(whole.pages());
  run(batcher, one.id, rows(ids, 0, 40, layers));
  {
    OneSequence second(whole.pages()), third(whole.pages());
    run(batcher, second.id, rows(other, 0, 20, layers));
    EXPECT_EQ(refusal(third.id, rows(ids, 0, 20, layers), false), spent);
    EXPECT_EQ(refusal(one.id, rows(ids, 0, 20, layers), true), spent);
    // The text goes on where it is.
    EXPECT_TRUE(are_rows(run(batcher, one.id, rows(ids, 40, 20, layers)), 40, want));
  }
  EXPECT_EQ(refusal(one.id, rows(ids, 0, 20, layers), true), "none");
  EXPECT_TRUE(are_rows(run(batcher, one.id, rows(ids, 60, 20, layers)), 60, want));
}

TEST_P(States, ABudgetBelowTwoOfThemIsRefused) {
  ShardOptions less = options();
  const uint64_t states = state_bytes_for(*golden.model, {});
  less.kv_bytes = kv_bytes_for(*golden.model, {}, Profile::kF32, 1) - 1;
  try {
    Shard(*device, *golden.model, golden.weights(), less);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(),
              cat("[shard] KV budget: expected at least ", less.kv_bytes + 1, " bytes, ", states,
                  " of them for two states of one, for one "
                  "sequence of ",
                  golden.model->config().context, " tokens, got ", less.kv_bytes));
  }
}

TEST_P(States, DecaysThatAreNotFiniteAreRefused) {
  for (const char* const what : {"A_log", "dt_bias"}) {
    const std::string name = cat("layers.0.linear_attn.", what);
    std::vector<float> values(static_cast<size_t>(golden.model->weight(name).dims[0]), 1);
    values.back() = NAN;
    const WeightSource weights = golden.weights();
    const WeightSource spoilt([&](const std::string& asked) {
      TensorView view = weights.view(asked);
      if (asked == name) view = {DType::kF32, view.dims, std::as_bytes(std::span(values))};
      return view;
    });
    try {
      Shard(*device, *golden.model, spoilt, options());
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_EQ(error.what(), cat("[shard] weight '", name, "': a value is not finite"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, States,
                         testing::Combine(testing::Values("qwen35", "qwen35-text"),
                                          testing::Values("cpu", "vulkan")));

}  // namespace
}  // namespace split::test
