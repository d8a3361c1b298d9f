// run/: a row's bits depend on nothing but its sequence: not on its neighbours, the slices, the
// threads or what was cut back. And the parts that this rests on: pages, the batcher. Made to run
// under the thread sanitizer too.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>
#include <thread>

#include "golden_model.h"
#include "run_program.h"

namespace split {
namespace {

using test::first_difference;
using test::Golden;
using test::options_for;
using test::relative;

// Results by row; empty where a row was not asked for.
using Rows = std::vector<std::vector<float>>;

// `count` tokens of a sequence, in one step of many.
struct Part {
  SequenceId sequence = 0;
  std::span<const int32_t> tokens;
};

// One step. Logits only of the last rows of each part, as many as a step may have.
std::vector<Rows> run_step(Shard& shard, int to, const std::vector<Part>& parts,
                           Phase phase = Phase::kPrompt) {
  std::vector<ShardRows> rows;
  const size_t each = shard.max_wanted(to) / parts.size();
  size_t wanted = 0;
  for (const Part& part : parts) {
    ShardRows& r = rows.emplace_back();
    r.sequence = part.sequence;
    r.count = static_cast<uint32_t>(part.tokens.size());
    r.tokens = part.tokens.data();
    for (uint32_t i = r.count > each ? static_cast<uint32_t>(r.count - each) : 0; i < r.count;
         ++i) {
      r.wanted.push_back(i);
    }
    wanted += r.wanted.size();
    CHECK(shard.pages().reserve(part.sequence, shard.pages().length(part.sequence) + r.count));
  }
  const size_t width = shard.width(to);
  std::vector<float> out(wanted * width);
  shard.forward(phase, 0, to, rows, out.data());
  std::vector<Rows> results;
  const float* next = out.data();
  for (const ShardRows& r : rows) {
    Rows& result = results.emplace_back(r.count);
    for (const uint32_t i : r.wanted) {
      result[i].assign(next, next + width);
      next += width;
    }
  }
  return results;
}

// A sequence that is closed at the end.
struct Sequence {
  explicit Sequence(Shard& shard) : shard(shard), id(shard.pages().open()) {}
  ~Sequence() { shard.pages().close(id); }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // Appends the tokens in steps of `slice` rows.
  Rows run(int to, std::span<const int32_t> tokens, size_t slice, Phase phase = Phase::kPrompt) {
    Rows rows;
    for (size_t at = 0; at < tokens.size(); at += slice) {
      const auto part = tokens.subspan(at, std::min(slice, tokens.size() - at));
      auto results = run_step(shard, to, {{id, part}}, phase);
      std::move(results[0].begin(), results[0].end(), std::back_inserter(rows));
    }
    return rows;
  }
  Shard& shard;
  SequenceId id;
};

void expect_same(std::span<const std::vector<float>> got,
                 std::span<const std::vector<float>> expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  size_t compared = 0;
  for (size_t row = 0; row < got.size(); ++row) {
    if (got[row].empty() || expected[row].empty()) continue;
    ASSERT_EQ(first_difference(got[row], expected[row]), -1) << what << ", row " << row;
    ++compared;
  }
  ASSERT_GT(compared, 0u) << what;
}

struct Case {
  const char* model;
  Profile profile;
  std::optional<DType> kv = {};
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.model << " " << profile_name(c.profile) << (c.kv ? " kv" : "");
}

class RowInvariance : public testing::TestWithParam<Case> {
 protected:
  RowInvariance() : golden_(GetParam().model) {
    const auto eval = golden_.values<int32_t>("eval.ids");
    // Past one split of keys, where the context is that long.
    const auto context = static_cast<size_t>(golden_.model->config().context);
    tokens_.assign(eval.begin(),
                   eval.begin() + static_cast<ptrdiff_t>(std::min<size_t>(context, 140)));
    others_.assign(eval.rbegin(), eval.rend());
    middle_ = golden_.model->config().layers / 2;
    static std::map<std::string, std::map<int, Rows>> references;
    reference_ = references[cat(GetParam())];
    if (!reference_.empty()) return;
    for (const int to : points()) {
      Loaded solo = load(1);
      Sequence sequence(*solo.shard);
      reference_[to] = sequence.run(to, tokens_, 1);
    }
    references[cat(GetParam())] = reference_;
  }

  struct Loaded {
    std::unique_ptr<Device> device;
    std::unique_ptr<Shard> shard;
  };
  Loaded load(unsigned threads) const {
    Loaded loaded;
    loaded.device = make_cpu_device(threads);
    ShardOptions options = options_for(*golden_.model, 0, golden_.model->config().layers + 2);
    options.profile = GetParam().profile;
    options.formats = profile_formats(options.profile);
    options.kv = GetParam().kv;
    loaded.shard =
        std::make_unique<Shard>(*loaded.device, *golden_.model, golden_.weights(), options);
    return loaded;
  }
  // A middle point and the logits.
  std::vector<int> points() const { return {middle_, golden_.model->config().layers + 2}; }
  std::span<const int32_t> tokens(size_t from, size_t count) const {
    return std::span(tokens_).subspan(from, count);
  }
  std::span<const std::vector<float>> expected(int to, size_t from, size_t count) {
    return std::span(reference_[to]).subspan(from, count);
  }

  Golden golden_;
  std::vector<int32_t> tokens_, others_;
  int middle_ = 0;
  std::map<int, Rows> reference_;  // by point: one row a step, one thread, alone
};

TEST_P(RowInvariance, SlicesOfAnySize) {
  const Loaded loaded = load(2);
  for (const int to : points()) {
    for (const size_t slice : {1, 2, 3, 4, 7, 8, 9, 16, 17, 33, 64, 140}) {
      Sequence sequence(*loaded.shard);
      expect_same(sequence.run(to, tokens_, slice), reference_[to], cat("slices of ", slice));
    }
  }
}

TEST_P(RowInvariance, AnyNumberOfThreads) {
  for (const unsigned threads : {1, 2, 3}) {
    const Loaded loaded = load(threads);
    for (const int to : points()) {
      for (const size_t slice : {2, 140}) {
        Sequence sequence(*loaded.shard);
        expect_same(sequence.run(to, tokens_, slice), reference_[to], cat(threads, " threads"));
      }
    }
  }
}

TEST_P(RowInvariance, EitherPhase) {
  const Loaded loaded = load(2);
  Sequence sequence(*loaded.shard);
  const int to = points().back();
  expect_same(sequence.run(to, tokens_, 1, Phase::kGenerate), reference_[to], "generate");
}

TEST_P(RowInvariance, EveryInstructionSet) {
  for (const char* isa : {"scalar", "avx2", "avx512", "amx", "neon"}) {
    ::setenv("SPLIT_CPU_ISA", isa, 1);
    const Loaded loaded = load(2);
    ::unsetenv("SPLIT_CPU_ISA");
    for (const size_t slice : {1, 2, 3, 9}) {
      Sequence sequence(*loaded.shard);
      const int to = points().back();
      const size_t count = std::min<size_t>(tokens_.size(), 9);
      expect_same(sequence.run(to, tokens(0, count), slice), expected(to, 0, count), isa);
    }
  }
}

// One row each of many sequences: the first is ours, at its own length.
TEST_P(RowInvariance, StepsOfManySequences) {
  const Loaded loaded = load(2);
  Shard& shard = *loaded.shard;
  for (const int to : points()) {
    for (const size_t count : {1, 2, 4, 8, 9, 32, 33}) {
      if (count > shard.max_wanted(to)) continue;
      Sequence ours(shard);
      std::vector<std::unique_ptr<Sequence>> others;
      for (size_t i = 1; i < count; ++i) {
        others.push_back(std::make_unique<Sequence>(shard));
        run_step(shard, to, {{others.back()->id, std::span(others_).subspan(i, 1 + i % 3)}});
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
        expect_same(run_step(shard, to, parts)[place], expected(to, t, 1),
                    cat(count, " sequences, row ", t));
      }
    }
  }
}

TEST_P(RowInvariance, PromptsOfOthersInTheSameStep) {
  const Loaded loaded = load(2);
  Shard& shard = *loaded.shard;
  for (const int to : points()) {
    Sequence ours(shard), second(shard), third(shard);
    run_step(shard, to, {{second.id, std::span(others_).first(3)}});
    size_t at = 0;
    for (const size_t count : {5, 1, 9, 7}) {
      const auto result = run_step(shard, to,
                                   {{second.id, std::span(others_).subspan(40, 4)},
                                    {ours.id, tokens(at, count)},
                                    {third.id, std::span(others_).subspan(9, 1)}});
      expect_same(result[1], expected(to, at, count), cat("at ", at));
      at += count;
    }
  }
}

TEST_P(RowInvariance, CutBackAndGoOn) {
  const Loaded loaded = load(2);
  Shard& shard = *loaded.shard;
  for (const int to : points()) {
    for (const uint32_t keep : {0, 1, 5, 15, 16, 17}) {
      Sequence ours(shard), other(shard);
      ours.run(to, tokens(0, keep), 3);
      ours.run(to, std::span(others_).subspan(11, 6), 4);  // a draft that was refused
      shard.pages().truncate(ours.id, keep);
      other.run(to, std::span(others_).first(5), 5);  // may take the pages
      const size_t count = std::min<size_t>(tokens_.size() - keep, 22);
      expect_same(ours.run(to, tokens(keep, count), 7), expected(to, keep, count),
                  cat("kept ", keep));
    }
  }
}

// From a hidden state at any point, as the edge runs it.
TEST_P(RowInvariance, InjectedHiddenStates) {
  const Loaded loaded = load(2);
  Shard& shard = *loaded.shard;
  const int to = points().back();
  Sequence head(shard), tail(shard);
  const size_t count = std::min<size_t>(tokens_.size(), 20);
  const Rows hidden = head.run(middle_, tokens(0, count), 5);
  std::vector<float> flat;
  for (const auto& row : hidden) flat.insert(flat.end(), row.begin(), row.end());
  ASSERT_TRUE(shard.pages().reserve(tail.id, static_cast<uint32_t>(count)));
  ShardRows part;
  part.sequence = tail.id;
  part.count = static_cast<uint32_t>(count);
  part.hidden = flat.data();
  for (uint32_t i = 0; i < count; ++i) part.wanted.push_back(i);
  std::vector<float> out(count * shard.width(to));
  shard.forward(Phase::kPrompt, middle_, to, std::span(&part, 1), out.data());
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
                    Case{"rand-a", Profile::kF32, DType::kQ8_0}),
    [](const auto& info) {
      std::string name =
          cat(info.param.model, "_", profile_name(info.param.profile), info.param.kv ? "_kv" : "");
      std::erase(name, '-');
      return name;
    });

// --- The f16 profile
// ---------------------------------------------------------------------------------

// Halves round each weight, key and value to 2^-11 = 4.9e-4 relative, independently, so a state is
// off by about that. Sharp attention multiplies a key's rounding by the size of the score, about 10
// in the demo model and in rand-c: two or three times as much. The bounds are twice the largest row
// measured.
TEST(F16Profile, HiddenStatesAreAsCloseToF32AsStated) {
  struct Bound {
    const char* model;
    double measured, bound;
  };
  constexpr Bound kBounds[] = {{"demo", 1.23e-3, 2.5e-3},
                               {"rand-a", 4.6e-4, 1e-3},
                               {"rand-b", 3.7e-4, 1e-3},
                               {"rand-c", 1.33e-3, 2.7e-3}};

  for (const Bound& bound : kBounds) {
    const Golden golden(bound.model);
    const auto device = make_cpu_device(2);
    const int last = golden.model->config().layers + 1;
    const auto eval = golden.values<int32_t>("eval.ids");
    const auto count = std::min<size_t>(golden.model->config().context, 200);
    std::vector<Rows> results;
    for (const Profile profile : {Profile::kF32, Profile::kF16}) {
      ShardOptions options = options_for(*golden.model, 0, last);
      options.profile = profile;
      Shard shard(*device, *golden.model, golden.weights(), options);
      Sequence sequence(shard);
      results.push_back(sequence.run(last, std::span(eval).first(count), count));
    }
    double worst = 0;
    for (size_t row = 0; row < count; ++row) {
      worst = std::max(worst, relative(results[1][row], results[0][row]));
    }
    EXPECT_LT(worst, bound.bound) << bound.model;
    EXPECT_GT(worst, bound.measured / 4) << bound.model << ": the profiles are one";
  }
}

// --- Evaluation
// ----------------------------------------------------------------------------------------

class Evaluation : public testing::TestWithParam<const char*> {};

// -log p of each next token over the golden windows, all rows' logits, many windows at once.
TEST_P(Evaluation, MeanLossAgreesWithPyTorch) {
  const Golden golden(GetParam());
  const auto device = make_cpu_device(2);
  const ModelConfig& config = golden.model->config();
  const int to = config.layers + 2;
  Shard shard(*device, *golden.model, golden.weights(), options_for(*golden.model, 0, to));
  Batcher batcher(shard);
  const auto ids = golden.values<int32_t>("eval.ids");
  const auto expected = golden.values<float>("eval.nll");
  const auto window = static_cast<size_t>(config.context);
  const auto vocab = static_cast<size_t>(config.vocab);
  double sum = 0, expected_sum = 0, worst = 0;
  size_t count = 0;
  for (size_t w = 0; w < ids.size() / window; ++w) {
    Sequence sequence(shard);
    std::vector<float> logits(window * vocab);
    Job job;
    job.sequence = sequence.id;
    job.to = to;
    job.rows = static_cast<uint32_t>(window);
    job.tokens = ids.data() + w * window;
    job.wanted = Wanted::kAll;
    job.out = logits.data();
    batcher.run(job);
    for (size_t t = 0; t + 1 < window; ++t) {
      const auto row = std::span(logits).subspan(t * vocab, vocab);
      const double largest = *std::max_element(row.begin(), row.end());
      double total = 0;
      for (const float x : row) total += std::exp(x - largest);
      const double nll = largest + std::log(total) - row[ids[w * window + t + 1]];
      const double golden_nll = expected[w * (window - 1) + t];
      worst = std::max(worst, std::abs(nll - golden_nll));
      sum += nll;
      expected_sum += golden_nll;
      ++count;
    }
  }
  ASSERT_EQ(count, expected.size());
  EXPECT_NEAR(sum / expected_sum, 1.0, 1e-4);
  EXPECT_LT(worst, 2e-3);
}

INSTANTIATE_TEST_SUITE_P(Models, Evaluation, testing::Values("demo", "rand-a", "rand-b", "rand-c"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

// --- Pages
// ---------------------------------------------------------------------------------------------

std::vector<uint32_t> table_of(const KvPages& pages, SequenceId id) {
  std::vector<uint32_t> table(1000);
  table.resize(pages.copy_table(id, table.data()));
  return table;
}

TEST(KvPages, CountsWholePages) {
  KvPages pages(10, 5);
  const SequenceId id = pages.open();
  EXPECT_EQ(pages.in_use(), 0u);
  EXPECT_TRUE(pages.reserve(id, 0));
  EXPECT_EQ(pages.in_use(), 0u);
  EXPECT_TRUE(pages.reserve(id, 1));
  EXPECT_EQ(pages.in_use(), 1u);
  EXPECT_TRUE(pages.reserve(id, kPageTokens));
  EXPECT_EQ(pages.in_use(), 1u);
  EXPECT_TRUE(pages.reserve(id, kPageTokens + 1));
  EXPECT_EQ(pages.in_use(), 2u);
  EXPECT_EQ(pages.length(id), 0u);
  pages.advance(id, kPageTokens + 1);
  EXPECT_EQ(pages.length(id), kPageTokens + 1);
}

TEST(KvPages, TruncateGivesBackWhatIsBehind) {
  KvPages pages(10, 5);
  const SequenceId id = pages.open();
  ASSERT_TRUE(pages.reserve(id, 4 * kPageTokens));
  pages.advance(id, 4 * kPageTokens);
  const auto before = table_of(pages, id);
  pages.truncate(id, 2 * kPageTokens + 1);
  EXPECT_EQ(table_of(pages, id), std::vector<uint32_t>(before.begin(), before.begin() + 3));
  pages.truncate(id, 2 * kPageTokens);
  EXPECT_EQ(pages.in_use(), 2u);
  pages.truncate(id, 0);
  EXPECT_EQ(pages.in_use(), 0u);
  EXPECT_EQ(pages.length(id), 0u);
  EXPECT_THROW(pages.truncate(id, 1), std::logic_error);
}

TEST(KvPages, SpentBudgetChangesNothing) {
  KvPages pages(5, 5);
  const SequenceId a = pages.open(), b = pages.open();
  ASSERT_TRUE(pages.reserve(a, 3 * kPageTokens));
  ASSERT_TRUE(pages.reserve(b, kPageTokens));
  const auto tables = std::pair(table_of(pages, a), table_of(pages, b));
  EXPECT_FALSE(pages.reserve(b, 3 * kPageTokens));
  EXPECT_EQ(tables, std::pair(table_of(pages, a), table_of(pages, b)));
  EXPECT_EQ(pages.in_use(), 4u);
  EXPECT_TRUE(pages.reserve(b, 2 * kPageTokens));
  EXPECT_FALSE(pages.reserve(a, 3 * kPageTokens + 1));
  pages.close(b);
  EXPECT_TRUE(pages.reserve(a, 5 * kPageTokens));
  EXPECT_THROW(pages.reserve(a, 5 * kPageTokens + 1), std::logic_error);
}

TEST(KvPages, ClosedSequencesAreGone) {
  KvPages pages(5, 5);
  const SequenceId a = pages.open();
  ASSERT_TRUE(pages.reserve(a, 5 * kPageTokens));
  pages.close(a);
  EXPECT_EQ(pages.in_use(), 0u);
  EXPECT_THROW(pages.length(a), std::logic_error);
  EXPECT_THROW(pages.close(a), std::logic_error);
  const SequenceId b = pages.open();
  EXPECT_NE(a, b);
  EXPECT_TRUE(pages.reserve(b, 5 * kPageTokens));
}

// Random operations against a model that knows only lengths and counts.
TEST(KvPages, AgreesWithASimpleModel) {
  struct Simple {
    uint32_t length = 0, pages = 0;
  };
  constexpr uint32_t kTotal = 37, kEach = 9;
  std::mt19937 random(1);
  KvPages pages(kTotal, kEach);
  std::map<SequenceId, Simple> model;
  for (int i = 0; i < 20000; ++i) {
    uint32_t used = 0;
    for (const auto& [id, simple] : model) used += simple.pages;
    const auto pick = [&] {
      return std::next(model.begin(), static_cast<ptrdiff_t>(random() % model.size()));
    };
    const uint32_t choice = model.empty() ? 0 : random() % 8;
    if (choice == 0) {
      ASSERT_TRUE(model.emplace(pages.open(), Simple{}).second);
    } else if (choice == 1) {
      const auto at = pick();
      pages.close(at->first);
      model.erase(at);
    } else if (choice == 2) {
      auto& [id, simple] = *pick();
      simple.length = static_cast<uint32_t>(random() % (simple.length + 1));
      simple.pages = std::min(simple.pages, (simple.length + kPageTokens - 1) / kPageTokens);
      pages.truncate(id, simple.length);
    } else {
      auto& [id, simple] = *pick();
      const uint32_t length =
          std::min<uint32_t>(simple.length + random() % 50, kEach * kPageTokens);
      const uint32_t wanted = std::max(simple.pages, (length + kPageTokens - 1) / kPageTokens);
      const bool fits = used - simple.pages + wanted <= kTotal;
      ASSERT_EQ(pages.reserve(id, length), fits);
      if (fits) {
        simple.pages = wanted;
        if (choice > 3) pages.advance(id, simple.length = length);
      }
    }
    std::set<uint32_t> owned;
    uint32_t held = 0;
    for (const auto& [id, simple] : model) {
      ASSERT_EQ(pages.length(id), simple.length);
      const auto table = table_of(pages, id);
      ASSERT_EQ(table.size(), simple.pages);
      held += simple.pages;
      for (const uint32_t page : table) {
        ASSERT_LT(page, kTotal);
        ASSERT_TRUE(owned.insert(page).second) << "page " << page << " has two owners";
      }
    }
    ASSERT_EQ(pages.in_use(), held);
  }
}

// --- Batcher
// -------------------------------------------------------------------------------------------

struct Answer {
  std::vector<float> prompt;               // states of all rows of the prompt
  std::vector<std::vector<float>> logits;  // of each generated row
};

// A prompt, then tokens one by one, as a session does it.
Answer answer(Batcher& batcher, std::span<const int32_t> prompt, std::span<const int32_t> more) {
  Shard& shard = batcher.shard();
  Sequence sequence(shard);
  Answer result;
  Job job;
  job.sequence = sequence.id;
  job.to = 1;
  job.rows = static_cast<uint32_t>(prompt.size());
  job.tokens = prompt.data();
  job.wanted = Wanted::kAll;
  result.prompt.resize(prompt.size() * shard.width(1));
  job.out = result.prompt.data();
  batcher.run(job);
  shard.pages().truncate(sequence.id, 0);
  Job again;
  again.sequence = sequence.id;
  again.to = shard.head_point();
  again.rows = job.rows;
  again.tokens = prompt.data();
  again.out = result.logits.emplace_back(shard.width(again.to)).data();
  batcher.run(again);
  for (const int32_t& token : more) {
    Job one;
    one.phase = Phase::kGenerate;
    one.sequence = sequence.id;
    one.to = shard.head_point();
    one.rows = 1;
    one.tokens = &token;
    one.out = result.logits.emplace_back(shard.width(one.to)).data();
    batcher.run(one);
  }
  return result;
}

class BatcherTest : public testing::Test {
 protected:
  BatcherTest()
      : golden_("rand-a"), device_(make_cpu_device(2)), ids_(golden_.values<int32_t>("eval.ids")) {}
  std::unique_ptr<Shard> shard(uint64_t sequences, uint32_t max_rows = 64) {
    ShardOptions options = options_for(*golden_.model, 0, golden_.model->config().layers + 2);
    options.max_rows = max_rows;
    options.kv_bytes = kv_bytes_for(golden_.model->config(), golden_.model->config().layers,
                                    Profile::kF32, sequences);
    return std::make_unique<Shard>(*device_, *golden_.model, golden_.weights(), options);
  }
  std::span<const int32_t> prompt(size_t i) const {
    return std::span(ids_).subspan(3 * i, 5 + 7 * (i % 7));
  }
  std::span<const int32_t> more(size_t i) const { return std::span(ids_).subspan(5 * i + 2, 8); }

  Golden golden_;
  std::unique_ptr<Device> device_;
  std::vector<int32_t> ids_;
};

TEST_F(BatcherTest, ManyThreadsGetWhatTheyWouldGetAlone) {
  constexpr size_t kThreads = 12;
  const auto shared = shard(kThreads, 40);
  std::vector<Answer> alone, together(kThreads);
  {
    Batcher batcher(*shared);
    for (size_t i = 0; i < kThreads; ++i) alone.push_back(answer(batcher, prompt(i), more(i)));
  }
  for (const uint32_t slice : {4u, 16u, 64u}) {
    Batcher batcher(*shared, slice);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { together[i] = answer(batcher, prompt(i), more(i)); });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < kThreads; ++i) {
      EXPECT_EQ(first_difference(together[i].prompt, alone[i].prompt), -1);
      expect_same(together[i].logits, alone[i].logits, cat("thread ", i, ", slice ", slice));
    }
    EXPECT_EQ(batcher.depth(), 0u);
  }
  EXPECT_EQ(shared->pages().in_use(), 0u);
}

// Wanted rows of every kind arrive where they belong.
TEST_F(BatcherTest, DeliversListedRows) {
  const auto whole = shard(2, 16);
  Batcher batcher(*whole);
  const auto tokens = std::span(ids_).first(50);
  Sequence a(*whole), b(*whole);
  const size_t width = whole->width(1);
  std::vector<float> all(50 * width), some(4 * width);
  Job job;
  job.sequence = a.id;
  job.to = 1;
  job.rows = 50;
  job.tokens = tokens.data();
  job.wanted = Wanted::kAll;
  job.out = all.data();
  batcher.run(job);
  job.sequence = b.id;
  job.wanted = Wanted::kList;
  job.list = {0, 15, 16, 49};
  job.out = some.data();
  batcher.run(job);
  for (size_t i = 0; i < job.list.size(); ++i) {
    EXPECT_EQ(first_difference(std::span(some).subspan(i * width, width),
                               std::span(all).subspan(job.list[i] * width, width)),
              -1);
  }
}

// Jobs that fail, for each reason there is, amid others that do not.
TEST_F(BatcherTest, OneJobsErrorIsItsOwn) {
  const size_t width = golden_.model->config().channels;
  const auto small = shard(2);  // pages for two whole contexts
  Batcher reference(*small);
  std::vector<Answer> alone;
  for (size_t i = 0; i < 3; ++i) {
    alone.push_back(answer(reference, prompt(0), more(i)));
  }
  for (int round = 0; round < 20; ++round) {
    Batcher batcher(*small, 4);
    std::vector<Answer> answers(3);
    std::vector<std::thread> threads;
    // Holds one context's pages; the three below need one page each.
    Sequence holder(*small);
    ASSERT_TRUE(small->pages().reserve(holder.id, 64));
    for (size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] { answers[i] = answer(batcher, prompt(0), more(i)); });
    }
    const auto failing = [&](ErrorKind kind, std::vector<int32_t> tokens) {
      threads.emplace_back([&, kind, tokens = std::move(tokens)] {
        Sequence sequence(*small);
        std::vector<float> out(width);
        Job job;
        job.sequence = sequence.id;
        job.to = 1;
        job.rows = static_cast<uint32_t>(tokens.size());
        job.tokens = tokens.data();
        job.out = out.data();
        try {
          batcher.run(job);
          ADD_FAILURE() << "a job that cannot run ran";
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), kind) << error.what();
        }
      });
    };
    failing(ErrorKind::kInput, std::vector<int32_t>(65, 1));  // context 64
    failing(ErrorKind::kInput, {1, -1});
    failing(ErrorKind::kInput, {1, golden_.model->config().vocab});
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    for (size_t i = 0; i < 3; ++i) expect_same(answers[i].logits, alone[i].logits, "beside errors");

    // The holder takes another context but three pages: who wants four gets none, the rest run on.
    Sequence second(*small);
    ASSERT_TRUE(small->pages().reserve(second.id, 16));
    for (size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        try {
          answers[i] = answer(batcher, prompt(0), more(i));
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::kBusy);
          answers[i] = {};
        }
      });
    }
    failing(ErrorKind::kBusy, std::vector<int32_t>(64, 1));
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < 3; ++i) {
      if (!answers[i].logits.empty())
        expect_same(answers[i].logits, alone[i].logits, "beside busy");
    }
  }
  EXPECT_EQ(small->pages().in_use(), 0u);
}

}  // namespace
}  // namespace split
