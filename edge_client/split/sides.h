// The two sides of a sequence whose model runs in two places, as this machine knows them: the rows
// that each block has, in a session of the cloud and in a sequence of this machine's device, and
// where the cut is. Shared by the flow of the text (text_session.h) and the one that moves the cut
// (cut_mover.h). Computes and requests nothing.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "edge_client/split/flow.h"
#include "run/batcher.h"
#include "run/sequence.h"

namespace split::edge {

// Returns 32 random hex digits.
std::string random_session_id();

// How many leading rows of a sequence each of a model's first blocks has.
class FilledRows {
 public:
  explicit FilledRows(int layers) : rows_(static_cast<size_t>(layers)) {}

  // Notes a step: the blocks below `to` got the rows [past, end), and every block dropped rows
  // behind `past`.
  void step(uint32_t past, uint32_t end, int to);
  // Notes a fill of the blocks below `to` with the rows [past, end).
  void fill(uint32_t past, uint32_t end, int to);
  void cut_back(uint32_t rows);
  // Drops rows behind `rows` from the blocks [from, to).
  void limit(int from, int to, uint32_t rows);
  // Rows that all blocks below `to` have; `to` is at least 1.
  uint32_t below(int to) const;

 private:
  // Blocks below `to`, which may be beyond the last.
  size_t count(int to) const { return std::min(static_cast<size_t>(to), rows_.size()); }
  std::vector<uint32_t> rows_;
};

// A session of the cloud.
struct CloudSide {
  explicit CloudSide(int layers);
  // Notes what an error says of the session, in a request for the blocks [from, to). Returns true
  // if the request is to be repeated, from the rows that the session has.
  bool heed(const RemoteError& error, int from, int to);

  std::string session;    // 32 hex digits
  bool open = false;      // on the server, as far as we know
  bool reachable = true;  // the last request was answered
  FilledRows rows;        // rows that it has for certain
};

// A sequence of this machine's device.
class TailSide {
 public:
  // Keeps `keeps`, the owner of the batcher, alive.
  explicit TailSide(Batcher& batcher, std::shared_ptr<void> keeps = {});
  ~TailSide();
  TailSide(const TailSide&) = delete;
  TailSide& operator=(const TailSide&) = delete;

  Batcher& batcher() { return batcher_; }
  Shard& shard() { return batcher_.shard(); }
  KvPages& pages() { return batcher_.shard().pages(); }
  SequenceId sequence() const { return sequence_; }
  // A second sequence, for rows that no block here sees.
  SequenceId passing() const { return passing_; }
  // Whether the stages from this cut on are loaded by now.
  bool has(int cut);
  // Rows that all its blocks from the cut on have; UINT32_MAX if it has no such block.
  uint32_t rows_from(int cut);
  // The blocks from the cut on that have no more rows than the first of them.
  StageRange lagging(int cut);
  // How these come to compute rows from `row` on: up to where the next block's rows begin.
  KvPages::Again again(int cut, uint32_t row);
  const std::shared_ptr<void>& keeps() const { return keeps_; }

 private:
  const std::shared_ptr<void> keeps_;
  Batcher& batcher_;
  const SequenceId sequence_, passing_;
};

// One thread at a time.
struct SplitState {
  SplitState(const Model& model, Cut cut, int deepest, Batcher* tail, Requester requester);

  // The cloud's blocks.
  int blocks() const { return blocks(cut); }
  int blocks(Cut at) const { return at.blocks(layers()); }

  const Model& model;
  const Requester requester;  // owner of the tail's jobs
  Cut cut;
  const int deepest;  // cut that sessions are opened for
  CloudSide cloud;
  std::shared_ptr<TailSide> tail;  // null if this machine has no stages
  SequenceHistory history;
  uint32_t prompt_rows = 0;  // the history's
  uint32_t guesses = 0;      // last rows of the history, which may be dropped again
  bool interrupted = false;
  // Increased by everything that another flow may wait for.
  uint64_t version = 0;

  // Whether the rows missing behind `rows` are a lag that the next token's step can bring: few, and
  // all generated.
  static constexpr uint32_t kMostLag = 7;
  uint32_t sure_rows() const { return history.size() - std::min(history.size(), guesses); }
  bool near_end(uint32_t rows, uint32_t lag = kMostLag) const {
    const uint32_t all = sure_rows();
    return rows >= all || (all - rows <= lag && rows >= prompt_rows);
  }
  int layers() const { return model.config().layers; }
  // Floats of a row between both sides at this cut.
  size_t width(int at) const { return static_cast<size_t>(model.config().row_width(at)); }

  // Turns these rows into hidden states for a tail from the cut `at` on.
  SequenceRows behind(int at, SequenceRows rows, std::span<const float> hidden) const {
    rows.range.from = at;
    rows.tokens = {};
    rows.hidden = hidden;
    rows.width = static_cast<uint32_t>(width(at));
    return rows;
  }

  // Marks the tail's sequence as in a job until the result goes: only one at a time.
  [[nodiscard]] std::shared_ptr<void> hold() {
    held_ = true;
    return {nullptr, [this](void*) {
              held_ = false;
              ++version;
            }};
  }
  bool held() const { return held_; }

 private:
  bool held_ = false;
};

}  // namespace split::edge
