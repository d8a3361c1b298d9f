// The two sides of a sequence whose model runs in two places, as this machine knows them: which
// rows each block has, in a session of the cloud and in a sequence of this machine's device, and
// where the cut is. What the flow of the text (course.h) and the one that moves the cut (lane.h)
// both see. Computes and asks nothing.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "edge_client/split/flow.h"
#include "run/batcher.h"
#include "run/sequence.h"

namespace split::edge {

// 32 hex digits that nobody else draws.
std::string random_session_id();

// Leading rows of a sequence that each of a model's first blocks has.
class FilledRows {
 public:
  explicit FilledRows(int layers) : rows_(static_cast<size_t>(layers)) {}

  // A step gave the blocks below `to` the rows [past, end), and all forgot what was behind `past`.
  void step(uint32_t past, uint32_t end, int to);
  // A fill gave them these rows of those that there are.
  void fill(uint32_t past, uint32_t end, int to);
  void cut_back(uint32_t rows);
  // The blocks [from, to) have no more.
  void limit(int from, int to, uint32_t rows);
  // Rows that all blocks below `to` have; there is one at least.
  uint32_t below(int to) const;

 private:
  // Blocks below `to`, which may be behind the last.
  size_t count(int to) const { return std::min(static_cast<size_t>(to), rows_.size()); }
  std::vector<uint32_t> rows_;
};

// A session of the cloud.
struct CloudSide {
  explicit CloudSide(int layers);
  // Notes what an error says of it: true where it is asked again then, from what it has. Blocks
  // [from, to) were asked for.
  bool heed(const RemoteError& error, int from, int to);

  std::string session;    // 32 hex digits
  bool open = false;      // on the server, as far as we know
  bool reachable = true;  // it answered last time
  FilledRows rows;        // that it surely has
};

// A sequence of this machine's device.
class TailSide {
 public:
  // `keeps` is held while this lives: what the batcher is a part of.
  explicit TailSide(Batcher& batcher, std::shared_ptr<void> keeps = {});
  ~TailSide();
  TailSide(const TailSide&) = delete;
  TailSide& operator=(const TailSide&) = delete;

  Batcher& batcher() { return batcher_; }
  Shard& shard() { return batcher_.shard(); }
  KvPages& pages() { return batcher_.shard().pages(); }
  SequenceId sequence() const { return sequence_; }
  // Another, for rows that no block here sees.
  SequenceId passing() const { return passing_; }
  // Whether it has the stages from this cut on, by now.
  bool has(int cut);
  // Rows that all its blocks from the cut on have; more than any text has where there are none.
  uint32_t rows_from(int cut);
  const std::shared_ptr<void>& keeps() const { return keeps_; }

 private:
  const std::shared_ptr<void> keeps_;
  Batcher& batcher_;
  const SequenceId sequence_, passing_;
};

// One thread at a time.
struct SplitState {
  SplitState(const Model& model, int cut, int deepest, Batcher* tail, Requester requester);

  // Users say Move::kCloud for the cut behind the last one, where the head is the cloud's too.
  int cut_named(int name) const { return name == Move::kCloud ? layers() + 1 : name; }
  int name() const { return on_cloud() ? Move::kCloud : cut; }
  bool on_cloud() const { return cut > layers(); }

  const Model& model;
  const Requester requester;  // of the tail's jobs
  int cut;
  const int deepest;  // cut that sessions are opened for
  CloudSide cloud;
  std::shared_ptr<TailSide> tail;  // none when there are no stages for this machine
  SequenceHistory history;
  uint32_t prompt_rows = 0;  // of it
  uint32_t guesses = 0;      // its last rows, which may have to go again
  bool interrupted = false;
  // Changes with everything that a flow may wait for another to do.
  uint64_t version = 0;

  // Whether what is missing behind so many rows is a lag that the next token's step can bring: few
  // rows, all generated.
  static constexpr uint32_t kMostLag = 7;
  uint32_t sure_rows() const { return history.size() - std::min(history.size(), guesses); }
  bool near_end(uint32_t rows, uint32_t lag = kMostLag) const {
    const uint32_t all = sure_rows();
    return rows >= all || (all - rows <= lag && rows >= prompt_rows);
  }
  int layers() const { return model.config().layers; }
  size_t channels() const { return static_cast<size_t>(model.config().channels); }

  // Gives these rows behind the cloud's blocks, as a tail from this cut on takes them.
  SequenceRows behind(int at, SequenceRows rows, std::span<const float> hidden) const {
    rows.range.from = at;
    rows.tokens = {};
    rows.hidden = hidden;
    rows.width = static_cast<uint32_t>(channels());
    return rows;
  }

  // Holds the tail's sequence, which is in one job at a time.
  class Hold {
   public:
    explicit Hold(SplitState& sides) : sides_(sides) { sides_.held_ = true; }
    ~Hold() {
      sides_.held_ = false;
      ++sides_.version;
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    SplitState& sides_;
  };
  bool held() const { return held_; }

 private:
  bool held_ = false;
};

}  // namespace split::edge
