// Several tokens a step: ids that may come next, which one step verifies. They are guessed from the
// text itself and from earlier texts; the number sent gives most tokens a millisecond. Each row of
// a step's logits is then sampled in order, with its own history, and the first id that is not the
// guess ends it: the text is plain decoding's, greedy or drawn. Decides only: no model, clock or
// thread.
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

inline constexpr size_t kMostDrafts = 7;  // with the text's last id: 8, a narrow step's rows

// The ids of a text, and the id that last followed each run of 1 to 4 of them. One thread at a time
// while it grows.
class DraftText {
 public:
  static constexpr size_t kLongest = 4;

  void push(int32_t id);
  std::span<const int32_t> ids() const { return ids_; }
  // The id that last followed the last `length` ids of `suffix`, which has as many; -1: never.
  int32_t after(std::span<const int32_t> suffix, size_t length) const;

 private:
  std::vector<int32_t> ids_;
  std::unordered_map<uint64_t, uint32_t> after_;  // a hash of ids -> the place behind them
};

// How often guesses were right: by how many ids led to one, and by its place in a draft, if all
// before it were right. Older outcomes count less.
class DraftRecord {
 public:
  // `drawn`: the text's ids are drawn, not the likeliest.
  explicit DraftRecord(bool drawn = false) : prior_(drawn ? kDrawn : kLikeliest) {}
  // In 0 .. 1. An unknown place has the chance of the place before it; a first guess is sent at
  // once for likeliest ids, for drawn ids once one would have been right.
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

// Times of steps, by their rows: the least of the last few, since other work on the machine only
// adds to it. A size that was hardly tried is taken to cost as much as the next smaller one, so
// that it is tried.
class DraftTimes {
 public:
  void add(size_t rows, double ms);
  double ms(size_t rows) const;

 private:
  struct Times {
    std::array<double, 8> ms{};  // the last ones
    size_t count = 0;            // all times
  };
  std::array<Times, kMostDrafts + 1> times_{};
};

// A process's memory for one key: its last texts, the record of guesses, and times of steps. Any
// thread.
class DraftMemory {
 public:
  static constexpr size_t kTexts = 8, kMostIds = 4096;  // kMostIds: a text's last ones

  std::vector<std::shared_ptr<const DraftText>> texts() const;  // the latest first
  // The record of texts, apart for drawn ids.
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
  // Price of a row on another machine, right or wrong, as a part of a one-row step's time: it takes
  // the cloud's blocks and the line's bytes. Comes on top of the step's time.
  static constexpr double kRowPrice = 0.35;
  double row_ms = 0;

  double step_ms(size_t rows) const { return rtt_ms + cloud_ms[rows - 1] + edge_ms[rows - 1]; }
  double price_ms(size_t rows) const { return step_ms(rows) + static_cast<double>(rows) * row_ms; }
};

// Bounds of a draft: the flag, the cloud's limit, the room that is left.
struct DraftLimits {
  static constexpr double kDear = 0.5;  // the price from which no row may be in vain

  size_t most = kMostDrafts;
  size_t cloud = kMostDrafts;  // the cloud's `draft`
  double price = 0;            // the cloud's price

  size_t count() const;
};

// How a text is drafted; by default not at all.
struct DraftOptions {
  size_t most = 0;
  bool always = false;            // all guesses, not as many as pay
  DraftMemory* memory = nullptr;  // outlives the text
  bool drawn = false;             // ids are drawn, not the likeliest
};

// How many of the guesses, with these chances, make most tokens at the price.
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

  // The ids to send behind the text's last one: as many as pay, or as the limits allow if no cost
  // is given. Valid until took().
  std::span<const int32_t> next(const DraftLimits& limits, const DraftCost* cost);
  // Notes the ids that came in their place: at least one.
  void took(std::span<const int32_t> ids);

 private:
  void guess();

  DraftMemory* const memory_;
  const bool drawn_;
  const std::vector<std::shared_ptr<const DraftText>> before_;
  DraftText text_;
  DraftRecord record_;
  bool guessed_ = false;
  std::vector<int32_t> guesses_;  // as many as possible
  std::vector<size_t> lengths_;   // how many ids led to each
};

}  // namespace split
