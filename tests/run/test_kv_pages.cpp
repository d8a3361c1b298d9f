// The pages of keys and values.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <set>

#include "run/kv_pages.h"

namespace split::test {
namespace {

constexpr int kLayers = 3;
constexpr StageRange kWhole{Point::tokens(), kLayers};

std::vector<uint32_t> table_of(const KvPages& pages, SequenceId id) {
  std::vector<uint32_t> table(1000);
  table.resize(pages.copy_table(id, table.data()));
  return table;
}

TEST(KvPages, CountsWholePages) {
  KvPages pages(10, 5, kLayers);
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
  pages.advance(id, kWhole, kPageTokens + 1);
  EXPECT_EQ(pages.length(id), kPageTokens + 1);
}

// Pages of the program's own are taken and given back, and never in use.
TEST(KvPages, CountsNoPagesOfASequenceThatDoesNotCount) {
  KvPages pages(3, 3, kLayers);
  const SequenceId own = pages.open(false), other = pages.open();
  ASSERT_TRUE(pages.reserve(own, 2 * kPageTokens));
  EXPECT_EQ(pages.in_use(), 0u);
  ASSERT_TRUE(pages.reserve(other, kPageTokens));
  EXPECT_EQ(pages.in_use(), 1u);
  EXPECT_FALSE(pages.reserve(other, 2 * kPageTokens));
  pages.advance(own, kWhole, 2 * kPageTokens);
  pages.truncate(own, 1);
  EXPECT_EQ(pages.in_use(), 1u);
  pages.close(own);
  EXPECT_EQ(pages.in_use(), 1u);
  ASSERT_TRUE(pages.reserve(other, 3 * kPageTokens));
  EXPECT_EQ(pages.in_use(), 3u);
}

TEST(KvPages, TruncateGivesBackWhatIsBehind) {
  KvPages pages(10, 5, kLayers);
  const SequenceId id = pages.open();
  ASSERT_TRUE(pages.reserve(id, 4 * kPageTokens));
  pages.advance(id, kWhole, 4 * kPageTokens);
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
  KvPages pages(5, 5, kLayers);
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
  KvPages pages(5, 5, kLayers);
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

TEST(KvPages, EachBlockHasRowsOfItsOwn) {
  KvPages pages(10, 5, kLayers);
  const SequenceId id = pages.open();
  ASSERT_TRUE(pages.reserve(id, 40));
  pages.advance(id, {Point::tokens(), 2}, 20);
  const auto filled = [&] {
    std::vector<uint32_t> rows;
    for (int block = 0; block < kLayers; ++block) rows.push_back(pages.filled(id, block));
    return rows;
  };
  EXPECT_EQ(filled(), (std::vector<uint32_t>{20, 20, 0}));
  EXPECT_EQ(pages.filled(id, {Point::tokens(), 2}), 20u);
  EXPECT_EQ(pages.filled(id, kWhole), 0u);
  EXPECT_EQ(pages.filled(id, {Point::tokens(), 0}), 20u);      // no block: the length
  EXPECT_EQ(pages.filled(id, {kLayers, Point::head()}), 20u);  // of the head's point
  pages.advance(id, kWhole, 7);  // a fill: nothing behind it is forgotten
  EXPECT_EQ(filled(), (std::vector<uint32_t>{20, 20, 7}));
  EXPECT_EQ(pages.length(id), 20u);
  pages.advance(id, {Point::tokens(), 1}, 40);
  EXPECT_EQ(filled(), (std::vector<uint32_t>{40, 20, 7}));
  EXPECT_EQ(pages.length(id), 40u);
  pages.truncate(id, 18);
  EXPECT_EQ(filled(), (std::vector<uint32_t>{18, 18, 7}));
  EXPECT_EQ(pages.in_use(), 2u);
  pages.forget();
  EXPECT_EQ(filled(), (std::vector<uint32_t>{0, 0, 0}));
  EXPECT_EQ(pages.in_use(), 0u);
}

// Random operations against a model that knows only lengths and counts.
TEST(KvPages, AgreesWithASimpleModel) {
  struct Simple {
    uint32_t length = 0, pages = 0;
    std::array<uint32_t, kLayers> filled{};
  };
  constexpr uint32_t kTotal = 37, kEach = 9;
  std::mt19937 random(1);
  KvPages pages(kTotal, kEach, kLayers);
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
      for (uint32_t& filled : simple.filled) filled = std::min(filled, simple.length);
      pages.truncate(id, simple.length);
    } else {
      auto& [id, simple] = *pick();
      const uint32_t length =
          std::min<uint32_t>(simple.length + random() % 50, kEach * kPageTokens);
      const uint32_t wanted = std::max(simple.pages, (length + kPageTokens - 1) / kPageTokens);
      const bool fits = used - simple.pages + wanted <= kTotal;
      ASSERT_EQ(pages.reserve(id, length), fits);
      if (fits) simple.pages = wanted;
      if (fits && choice > 3) {
        // Through some blocks, as far as they go or not.
        const int end = static_cast<int>(random() % (kLayers + 1));
        const int begin = static_cast<int>(random() % static_cast<size_t>(end + 1));
        const uint32_t rows = choice < 6 ? length : static_cast<uint32_t>(random() % (length + 1));
        pages.advance(id, {begin, end}, rows);
        simple.length = std::max(simple.length, rows);
        for (int block = begin; block < end; ++block) {
          uint32_t& filled = simple.filled[static_cast<size_t>(block)];
          filled = std::max(filled, rows);
        }
      }
    }
    std::set<uint32_t> owned;
    uint32_t held = 0;
    for (const auto& [id, simple] : model) {
      ASSERT_EQ(pages.length(id), simple.length);
      for (int block = 0; block < kLayers; ++block) {
        ASSERT_EQ(pages.filled(id, block), simple.filled[static_cast<size_t>(block)]);
      }
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

// Random operations of sequences and a cache against a model that knows who holds a page.
TEST(KvPages, HasTheHoldersOfASimpleModel) {
  constexpr uint32_t kTotal = 37, kEach = 9;
  const int calls = std::getenv("SPLIT_LONG") != nullptr ? 1'000'000 : 100'000;
  struct Simple {
    uint32_t length = 0;
    std::vector<uint32_t> pages;
  };
  std::mt19937 random(2);
  const auto draw = [&](size_t below) { return static_cast<uint32_t>(random() % below); };
  KvPages pages(kTotal, kEach, kLayers);
  std::map<SequenceId, Simple> model;
  std::set<uint32_t> cached;
  const auto holders = [&](uint32_t page) {
    return std::ranges::count_if(
        model, [&](const auto& one) { return std::ranges::count(one.second.pages, page) > 0; });
  };
  for (int i = 0; i < calls; ++i) {
    const uint32_t choice = model.empty() ? 0 : draw(10);
    if (choice == 0 && model.size() < 8) {
      // Some of what the cache holds; or nothing.
      std::vector<uint32_t> adopted(cached.begin(), cached.end());
      std::ranges::shuffle(adopted, random);
      adopted.resize(std::min<size_t>({adopted.size(), draw(4), kEach}));
      const SequenceId id = pages.open();
      ASSERT_FALSE(pages.adopt(id, adopted, kWhole, pages.generation() + 1));
      ASSERT_TRUE(pages.adopt(id, adopted, kWhole, pages.generation()));
      model[id] = {static_cast<uint32_t>(adopted.size() * kPageTokens), adopted};
    } else if (model.empty()) {
      continue;
    } else {
      const auto at = std::next(model.begin(), static_cast<ptrdiff_t>(draw(model.size())));
      auto& [id, one] = *at;
      if (choice == 1) {
        pages.close(id);
        model.erase(at);
      } else if (choice < 4) {
        const uint32_t length = draw(one.length + 1), page = length / kPageTokens;
        const bool shared =
            page < one.pages.size() &&
            holders(one.pages[page]) + (cached.contains(one.pages[page]) ? 1 : 0) > 1;
        one.length = shared ? page * static_cast<uint32_t>(kPageTokens) : length;
        ASSERT_EQ(pages.own(id, length), one.length);
        one.pages.resize((one.length + kPageTokens - 1) / kPageTokens);
      } else if (choice < 7) {
        const uint32_t length = std::min<uint32_t>(one.length + draw(50), kEach * kPageTokens);
        if (pages.reserve(id, length)) {
          const auto table = table_of(pages, id);
          ASSERT_TRUE(std::ranges::equal(one.pages, std::span(table).first(one.pages.size())));
          for (size_t page = one.pages.size(); page < table.size(); ++page) {
            ASSERT_EQ(holders(table[page]), 0);
            ASSERT_FALSE(cached.contains(table[page]));
          }
          one = {length, table};
          pages.advance(id, kWhole, length);
        }
      } else if (choice < 9) {
        const size_t index = draw(kEach);
        const auto page = pages.share(id, index, pages.generation());
        const bool whole = (index + 1) * kPageTokens <= one.length;
        ASSERT_EQ(page.has_value(), whole && !cached.contains(one.pages[index]));
        if (page) cached.insert(*page);
      } else if (!cached.empty()) {
        const uint32_t page =
            *std::next(cached.begin(), static_cast<ptrdiff_t>(draw(cached.size())));
        pages.let_go(page, pages.generation());
        cached.erase(page);
      }
    }
    if (draw(5000) == 0) {
      const uint64_t before = pages.generation();
      pages.forget();
      for (auto& [id, one] : model) one = {};
      for (const uint32_t page : cached) pages.let_go(page, before);
      cached.clear();
    }
    std::set<uint32_t> held;
    for (const auto& [id, one] : model) {
      ASSERT_EQ(pages.length(id), one.length);
      ASSERT_EQ(table_of(pages, id), one.pages);
      held.insert(one.pages.begin(), one.pages.end());
    }
    const auto spare =
        std::ranges::count_if(cached, [&](uint32_t page) { return !held.contains(page); });
    ASSERT_EQ(pages.in_use(), held.size());
    ASSERT_EQ(pages.spare(), static_cast<uint32_t>(spare));
    for (const uint32_t page : cached) {
      ASSERT_EQ(pages.held_by_cache_alone(page), !held.contains(page));
    }
  }
}

}  // namespace
}  // namespace split::test
