// Several tokens a step: ids that may come next, which one step verifies. They are guessed from the
// text itself and from texts before it; how many are sent is what makes most tokens a millisecond.
// Each row of a step's logits is then sampled in its order, with its own history, and the first id
// that is not the guess ends it: the text is plain decoding's, greedy or drawn. Decides only: no
// model, clock or thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/sampler.h"

namespace split {

inline constexpr size_t kMostDrafts = 7;  // with the text's last id 8 rows: a narrow step's most

// The ids of a text, and what followed each 1 to 4 of them the last time. One thread at a time
// while it grows.
class DraftText {
 public:
  static constexpr size_t kLongest = 4;

  void push(int32_t id);
  std::span<const int32_t> ids() const { return ids_; }
  // The id that last followed the last `length` of `suffix`, which has as many; -1: never.
  int32_t after(std::span<const int32_t> suffix, size_t length) const;

 private:
  std::vector<int32_t> ids_;
  std::unordered_map<uint64_t, uint32_t> after_;  // by a hash of so many ids: the place behind them
};

// How often guesses were right: by how many ids led to one, and at which place of a draft, where
// all before it were right. Older ones count less.
class DraftRecord {
 public:
  // `drawn`: the text's ids are, and are not its likeliest ones.
  explicit DraftRecord(bool drawn = false) : prior_(drawn ? kDrawn : kLikeliest) {}
  // In 0 .. 1. While nothing is known of a place it is what the place before it has; a first guess
  // of likely ids is sent then, one of drawn ids once it would have been right.
  double chance(size_t length, size_t place) const;
  void add(size_t length, size_t place, bool right);

 private:
  static constexpr double kLikeliest = 0.8, kDrawn = 0.1;
  struct Count {
    double right = 0, all = 0;
  };
  double prior_;
  std::array<std::array<Count, kMostDrafts>, DraftText::kLongest> counts_{};
};

// Times of steps, by their rows: the least of the last few, since whatever else runs only adds to
// it. A size that was hardly tried is taken to cost what the next smaller one does, so that it is
// tried.
class DraftTimes {
 public:
  void add(size_t rows, double ms);
  double ms(size_t rows) const;

 private:
  struct Times {
    std::array<double, 8> ms{};  // the last ones
    size_t count = 0;            // of all
  };
  std::array<Times, kMostDrafts + 1> times_{};
};

// The memory of a process for one key: its last texts, how guesses went, and what steps took. Any
// thread.
class DraftMemory {
 public:
  static constexpr size_t kTexts = 8, kMostIds = 4096;  // of a text: its last ones

  std::vector<std::shared_ptr<const DraftText>> texts() const;  // the latest first
  // Texts whose ids are drawn have a record of their own.
  DraftRecord record(bool drawn = false) const;
  void keep(std::span<const int32_t> ids, const DraftRecord& record, bool drawn = false);
  DraftTimes times() const;
  void keep(const DraftTimes& times);

 private:
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<const DraftText>> texts_;
  std::array<DraftRecord, 2> records_{DraftRecord(false), DraftRecord(true)};
  DraftTimes times_;
};

// Milliseconds of a step of 1 .. 8 rows, from what is known of the line, the cloud and this
// machine.
struct DraftCost {
  double rtt_ms = 0;
  std::array<double, kMostDrafts + 1> cloud_ms{}, edge_ms{};  // [rows - 1]
  // A row takes the cloud's blocks and the line's bytes as a token's does, in vain too: where there
  // are such, so much of a step of one row is its price, beside the step's time.
  static constexpr double kRowPrice = 0.35;
  double row_ms = 0;

  double step_ms(size_t rows) const { return rtt_ms + cloud_ms[rows - 1] + edge_ms[rows - 1]; }
  double price_ms(size_t rows) const { return step_ms(rows) + static_cast<double>(rows) * row_ms; }
};

// Bounds of a draft: the flag, the cloud's word, the room that is left.
struct DraftLimits {
  static constexpr double kDear = 0.5;  // a cloud that asks more computes no row in vain

  size_t most = kMostDrafts;
  size_t cloud = kMostDrafts;  // its `draft`
  double price = 0;            // its own

  size_t count() const;
};

// How a text is drafted; by default not at all.
struct DraftOptions {
  size_t most = 0;
  bool always = false;            // as many as there are, not as many as pay
  DraftMemory* memory = nullptr;  // outlives the text
  bool drawn = false;             // its ids, which are not the likeliest then
};

// How many of the guesses, whose chances these are, make most tokens at the price.
size_t best_draft(std::span<const double> chances, const DraftCost& cost);

// The drafts of one text. One thread at a time.
class Drafts {
 public:
  // Without a memory it guesses from the text alone.
  explicit Drafts(std::span<const int32_t> prompt, DraftMemory* memory = nullptr,
                  bool drawn = false);
  ~Drafts();
  Drafts(const Drafts&) = delete;
  Drafts& operator=(const Drafts&) = delete;

  // The ids to send behind the text's last one: as many as pay, or as there are within the limits
  // where no cost is given. Valid until took().
  std::span<const int32_t> next(const DraftLimits& limits, const DraftCost* cost);
  // Says what came in their place: at least one id.
  void took(std::span<const int32_t> ids);

 private:
  void guess();

  DraftMemory* const memory_;
  const bool drawn_;
  const std::vector<std::shared_ptr<const DraftText>> before_;
  DraftText text_;
  DraftRecord record_;
  bool guessed_ = false;
  std::vector<int32_t> guesses_;  // as many as can be
  std::vector<size_t> lengths_;   // what led to each
};

}  // namespace split
