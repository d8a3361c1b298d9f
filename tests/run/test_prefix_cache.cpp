// The index of prefixes, over pages that a model of what was written into them knows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "run/prefix_cache.h"

namespace split::test {
namespace {

constexpr int kLayers = 2;
constexpr StageRange kWhole{Point::tokens(), kLayers};
constexpr StageRange kFirst{Point::tokens(), 1};
constexpr uint64_t kRoomy = 1 << 20;

SequenceHistory rows_of(std::vector<int32_t> ids, Phase phase = Phase::kPrompt) {
  SequenceHistory rows;
  rows.append(ids, phase);
  return rows;
}

// Ids of whole pages, one kind of page for each letter.
SequenceHistory text(const std::string& letters, size_t more = 0) {
  std::vector<int32_t> ids;
  for (const char letter : letters) ids.insert(ids.end(), kPageTokens, letter);
  ids.insert(ids.end(), more, 1);
  return rows_of(ids);
}

std::vector<uint32_t> table_of(const KvPages& pages, SequenceId id) {
  std::vector<uint32_t> table(1000);
  table.resize(pages.copy_table(id, table.data()));
  return table;
}

struct Small : testing::Test {
  PrefixCache::Time now{};
  bool alike = true;
  KvPages pages{12, 8, kLayers};
  PrefixCache cache{pages,
                    {.phases_alike = [this] { return alike; },
                     .index_bytes = kRoomy,
                     .clock = [this] { return now; }}};

  // A sequence whose rows are computed, as far as they are not taken.
  struct Text {
    OneSequence sequence;
    uint32_t taken = 0;
    Text(KvPages& pages) : sequence(pages) {}
  };
  std::unique_ptr<Text> compute(const SequenceHistory& rows, const PrefixRoot& root = {"a", ""},
                                const StageRange& range = kWhole, bool puts = true) {
    auto made = std::make_unique<Text>(pages);
    const SequenceId id = made->sequence.id;
    made->taken = cache.take(root, id, 0, rows, range, rows.size() - 1, {}).rows;
    while (!pages.reserve(id, rows.size())) CHECK(cache.evict_one());
    pages.advance(id, range, rows.size());
    if (puts) cache.put(root, id, rows, range);
    return made;
  }
  uint32_t taken(const SequenceHistory& rows, const PrefixRoot& root = {"a", ""},
                 const StageRange& range = kWhole) {
    const OneSequence probe(pages);
    return cache.take(root, probe.id, 0, rows, range, rows.size() - 1, {}).rows;
  }
};

TEST_F(Small, TakesTheLongestPrefixInWholePages) {
  compute(text("xyz", 5));
  EXPECT_EQ(pages.in_use(), 0u);
  EXPECT_EQ(pages.spare(), 3u);
  EXPECT_EQ(taken(text("xyz", 9)), 48u);
  EXPECT_EQ(taken(text("xyw")), 32u);
  EXPECT_EQ(taken(text("xyz")), 32u);  // its last row is computed
  EXPECT_EQ(taken(text("w")), 0u);
  EXPECT_EQ(cache.taken_rows(), 48u + 32 + 32);
}

TEST_F(Small, RootsAreApart) {
  compute(text("xyz"), {"a", ""});
  for (const PrefixRoot& other : {PrefixRoot{"b", ""}, {"", ""}, {"a", "s"}, {"", "a"}}) {
    EXPECT_EQ(taken(text("xyz"), other), 0u) << other.owner << other.salt;
  }
  compute(text("xyz"), {"a", "s"});
  EXPECT_EQ(taken(text("xyz"), {"a", "s"}), 32u);
  cache.forget({"a", "s"});
  EXPECT_EQ(taken(text("xyz"), {"a", "s"}), 0u);
  EXPECT_EQ(taken(text("xyz"), {"a", ""}), 32u);
  cache.keep_owners([](const std::string& owner) { return owner != "a"; });
  EXPECT_EQ(taken(text("xyz"), {"a", ""}), 0u);
  EXPECT_EQ(pages.spare(), 0u);
}

TEST_F(Small, NobodyWaitsForAnotherRoot) {
  const OneSequence one(pages), other(pages);
  const SequenceHistory rows = text("abcdefg");
  const auto computing = cache.take({"a", ""}, one.id, 0, rows, kWhole, rows.size() - 1, {});
  int asked = 0;  // whether its client is there: again where it waits
  const auto taken = cache.take({"b", ""}, other.id, 0, rows, kWhole, rows.size() - 1,
                                [&] { return ++asked > 1; });
  EXPECT_EQ(taken.rows, 0u);
  EXPECT_EQ(asked, 1);
}

TEST_F(Small, AClientThatLeavesEndsItsWait) {
  const SequenceHistory rows = text("abcdefg");
  const OneSequence one(pages), other(pages);
  const auto computing = cache.take({"a", ""}, one.id, 0, rows, kWhole, rows.size() - 1, {});
  int asked = 0;
  const auto waited = cache.take({"a", ""}, other.id, 0, rows, kWhole, rows.size() - 1,
                                 [&] { return ++asked > 1; });
  EXPECT_EQ(waited.rows, 0u);
  EXPECT_EQ(asked, 2);
}

TEST_F(Small, APhaseBelongsToARowUnlessTheyAreAlike) {
  alike = false;
  compute(text("xyz"));
  SequenceHistory mixed = text("x");
  mixed.append(text("yz").tokens(), Phase::kGenerate);
  EXPECT_EQ(taken(mixed), 16u);
  alike = true;
  EXPECT_EQ(taken(mixed), 32u);
}

TEST_F(Small, AShallowRangeServesNoDeeperOneAndGivesWayToIt) {
  compute(text("xyz"), {"a", ""}, kFirst);
  EXPECT_EQ(taken(text("xyz"), {"a", ""}, kWhole), 0u);
  EXPECT_EQ(taken(text("xyz"), {"a", ""}, kFirst), 32u);
  compute(text("xy"), {"a", ""}, kWhole);
  EXPECT_EQ(taken(text("xyz"), {"a", ""}, kWhole), 32u);
  EXPECT_EQ(taken(text("xyzz"), {"a", ""}, kFirst), 48u);
  EXPECT_EQ(pages.spare(), 3u);
  // A sequence gets all that all of its pages have.
  const OneSequence probe(pages);
  cache.take({"a", ""}, probe.id, 0, text("xy", 1), kFirst, 32, {});
  EXPECT_EQ(pages.filled(probe.id, kWhole), 32u);
}

TEST_F(Small, APageInUseStaysAndTheOthersGiveWay) {
  const auto running = compute(text("abc"));
  compute(text("xyz"));
  EXPECT_EQ(pages.in_use(), 3u);
  const auto long_one = compute(text("pqrstuvw"));
  EXPECT_EQ(pages.in_use(), 11u);
  EXPECT_EQ(cache.evicted(), 2u);
  EXPECT_EQ(taken(text("xyz")), 16u);  // the last of a text goes first
  EXPECT_TRUE(cache.evict_one());
  EXPECT_FALSE(cache.evict_one());
  EXPECT_EQ(taken(text("abcd")), 48u);
}

TEST_F(Small, WhatWasTakenOutlivesWhatWasNot) {
  compute(text("abc"));
  EXPECT_EQ(taken(text("abcd")), 48u);
  for (int i = 0; i < 20; ++i) compute(text(std::string(6, static_cast<char>('A' + i))));
  EXPECT_EQ(taken(text("abcd")), 48u);
}

TEST_F(Small, TheOwnerWithMostPagesGivesWay) {
  compute(text("abc"), {"small", ""});
  for (int i = 0; i < 20; ++i) {
    const std::string letters(4, static_cast<char>('A' + i));
    compute(text(letters), {"large", ""});
    taken(text(letters + "+"), {"large", ""});
  }
  EXPECT_EQ(taken(text("abcd"), {"small", ""}), 48u);
}

TEST_F(Small, WhatIsUnusedForAnHourIsGone) {
  compute(text("abc"));
  now += std::chrono::minutes(59);
  EXPECT_EQ(taken(text("ab", 1)), 32u);
  now += std::chrono::minutes(2);
  EXPECT_EQ(cache.pages(), 2u);
  now += std::chrono::minutes(60);
  EXPECT_EQ(cache.pages(), 0u);
  EXPECT_EQ(pages.spare(), 0u);
}

TEST_F(Small, ALostDeviceEmptiesIt) {
  compute(text("abc"));
  pages.forget();
  EXPECT_EQ(pages.spare(), 0u);
  EXPECT_EQ(taken(text("abc")), 0u);
  compute(text("abc"));
  EXPECT_EQ(taken(text("abc")), 32u);
}

TEST_F(Small, AnIndexWithoutRoomKeepsFewerPages) {
  PrefixCache two(pages, {.index_bytes = 2 * PrefixCache::kNodeBytes});
  const SequenceHistory rows = text("abcd");
  {
    const OneSequence one(pages);
    ASSERT_TRUE(pages.reserve(one.id, rows.size()));
    pages.advance(one.id, kWhole, rows.size());
    two.put({"a", ""}, one.id, rows, kWhole);
    EXPECT_EQ(two.pages(), 2u);
  }
  EXPECT_EQ(pages.spare(), 2u);
}

TEST_F(Small, ASequenceLetsGoOfASharedPageThatItWritesInto) {
  const auto made = compute(text("ab", 7));
  const SequenceId id = made->sequence.id;
  EXPECT_TRUE(pages.owns(id, 32, 39));
  EXPECT_FALSE(pages.owns(id, 31, 39));
  EXPECT_EQ(pages.own(id, 35), 35u);
  EXPECT_EQ(pages.own(id, 21), 16u);
  EXPECT_EQ(pages.filled(id, kWhole), 16u);
  EXPECT_EQ(taken(text("ab", 1)), 32u);
}

// Random texts of three owners with cuts back, evictions, keys that go and devices that are lost:
// a row that is taken is the one that was written behind the same ids of the same root.
struct Everything {
  static constexpr uint32_t kTotal = 40, kEach = 10;
  std::mt19937 random;
  PrefixCache::Time now{};
  KvPages pages{kTotal, kEach, kLayers};
  PrefixCache cache;
  struct Text {
    SequenceId id = 0;
    PrefixRoot root;
    SequenceHistory rows;
    StageRange range;
  };
  std::vector<Text> texts;
  std::map<uint64_t, std::string> written;  // by block and place of a page: all that led there
  uint64_t taken = 0;

  explicit Everything(uint32_t seed)
      : random(seed),
        cache(pages, {.phases_alike = [] { return false; },
                      .index_bytes = (seed % 3 == 0 ? 20 : 100) * PrefixCache::kNodeBytes,
                      .clock = [this] { return now; }}) {}
  ~Everything() {
    for (const Text& one : texts) pages.close(one.id);
  }
  uint32_t draw(size_t below) { return static_cast<uint32_t>(random() % below); }

  std::string way(const Text& one, uint32_t row) const {
    std::string all = one.root.owner + "/" + one.root.salt + "/";
    for (uint32_t i = 0; i <= row; ++i) {
      all += static_cast<char>(one.rows.tokens()[i]);
      all += static_cast<char>(one.rows.phases()[i]);
    }
    return all;
  }
  static uint64_t place(uint32_t page, uint32_t row, int block) {
    return (uint64_t{page} * kPageTokens + row % kPageTokens) * kLayers +
           static_cast<uint64_t>(block);
  }
  void expect_rows(const Text& one) {
    const auto table = table_of(pages, one.id);
    for (int block = 0; block < kLayers; ++block) {
      for (uint32_t row = 0; row < pages.filled(one.id, block); ++row) {
        ASSERT_EQ(written[place(table[row / kPageTokens], row, block)], way(one, row));
      }
    }
  }
  // Writes the rows that a text lacks, as a step does. False: there is no room.
  bool compute(Text& one) {
    const uint32_t have = pages.own(one.id, pages.filled(one.id, one.range));
    while (!pages.reserve(one.id, one.rows.size())) {
      if (!cache.evict_one()) return false;
    }
    CHECK(pages.owns(one.id, have, one.rows.size()));
    const auto table = table_of(pages, one.id);
    for (uint32_t row = have; row < one.rows.size(); ++row) {
      for (int block = 0; block < one.range.blocks(kLayers); ++block) {
        written[place(table[row / kPageTokens], row, block)] = way(one, row);
      }
    }
    pages.advance(one.id, one.range, one.rows.size());
    return true;
  }
  void begin() {
    if (texts.size() > 5) return;
    Text one;
    one.root = {std::string(1, "abc"[draw(3)]), draw(4) == 0 ? "salt" : ""};
    one.range = draw(4) == 0 ? kFirst : kWhole;
    std::vector<int32_t> ids;
    for (uint32_t page = 1 + draw(kEach - 1); page > 0; --page) {
      ids.insert(ids.end(), kPageTokens, static_cast<int32_t>(draw(2)));
    }
    ids.resize(ids.size() - draw(kPageTokens), 0);
    if (draw(5) == 0) ids[draw(ids.size())] = 2;
    const size_t prompt = draw(3) == 0 ? draw(ids.size()) : ids.size();
    one.rows.append(std::span(ids).first(prompt), Phase::kPrompt);
    one.rows.append(std::span(ids).subspan(prompt), Phase::kGenerate);
    one.id = pages.open();
    taken += cache.take(one.root, one.id, 0, one.rows, one.range, draw(one.rows.size()), {}).rows;
    texts.push_back(one);
    expect_rows(one);
    const bool made = compute(texts.back());
    if (made && draw(4) > 0) cache.put(one.root, one.id, one.rows, one.range);
  }
  void step() {
    const uint32_t choice = draw(40);
    const size_t at = texts.empty() ? 0 : draw(texts.size());
    if (choice < 16 || texts.empty()) {
      begin();
    } else if (choice < 22) {  // another end
      Text& one = texts[at];
      one.rows.cut_back(draw(one.rows.size() + 1));
      if (pages.length(one.id) > one.rows.size()) pages.own(one.id, one.rows.size());
      const std::vector<int32_t> more(1 + draw(20), static_cast<int32_t>(draw(2)));
      if (one.rows.size() + more.size() <= kEach * kPageTokens) {
        one.rows.append(more, draw(2) == 0 ? Phase::kPrompt : Phase::kGenerate);
      }
      compute(one);
    } else if (choice < 27) {
      if (draw(2) == 0) texts[at].range = kWhole;
      cache.put(texts[at].root, texts[at].id, texts[at].rows, texts[at].range);
    } else if (choice < 36) {
      pages.close(texts[at].id);
      texts.erase(texts.begin() + static_cast<ptrdiff_t>(at));
    } else if (choice < 37) {
      cache.evict_one();
    } else if (choice == 37) {
      now += std::chrono::minutes(20);
    } else if (draw(8) == 0) {
      cache.keep_owners([&](const std::string& owner) { return owner != "b"; });
      cache.forget({"c", "salt"});
    } else if (draw(8) == 0) {
      pages.forget();
    }
    std::set<uint32_t> held;
    for (const Text& one : texts) {
      for (const uint32_t page : table_of(pages, one.id)) held.insert(page);
    }
    ASSERT_EQ(pages.in_use(), held.size());
    ASSERT_LE(pages.spare(), cache.pages());
    ASSERT_LE(pages.in_use() + pages.spare(), pages.total());
    if (!texts.empty()) expect_rows(texts[draw(texts.size())]);
  }
};

TEST(PrefixCache, GivesTheRowsThatWereWrittenBehindTheSameIds) {
  const int steps = std::getenv("SPLIT_LONG") != nullptr ? 200'000 : 5'000;
  uint64_t taken = 0;
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    Everything all(seed);
    for (int i = 0; i < steps / 5 && !testing::Test::HasFatalFailure(); ++i) all.step();
    taken += all.taken;
  }
  EXPECT_GT(taken, static_cast<uint64_t>(steps));
}

}  // namespace
}  // namespace split::test
