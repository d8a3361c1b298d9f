// Rows of texts that have ended, kept for texts that go on from them: the next turn of a chat has
// the last one's rows on both sides, and only its own are computed and sent. A row is as good as
// new where its tokens, and those before it, are the new text's, in the same phase unless the
// phases are alike; so a text's bits do not depend on what was kept. Rows are their owner's: of
// nobody else's text. Knows no thread and no socket: whoever keeps turns ends their sessions.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/split/sides.h"

namespace split::edge {

// The rows of one text: in a session of the cloud, in a sequence here, or both.
struct KeptTurn {
  CloudSide cloud;
  std::shared_ptr<TailSide> tail;    // perhaps none
  SequenceHistory history;           // its rows
  int deepest = 0;                   // cut that the session was opened for
  std::string owner = {};            // whose they are
  std::shared_ptr<void> keeps = {};  // what the tail is a part of
};

// A text that is about to begin.
struct TurnWanted {
  std::string owner;
  std::span<const int32_t> prompt;
  bool phases_alike = false;  // on both sides
  int cut = 0;                // as TwoSides counts it: beyond the last block the cloud has all
  int deepest = 0;
  const Batcher* tail = nullptr;  // that it runs on here
  int layers = 0;
};

// A turn, and how many of its leading rows a text goes on from.
struct TurnTaken {
  KeptTurn turn;
  uint32_t rows = 0;
};

// One thread at a time.
class KeptTurns {
 public:
  static constexpr size_t kMost = 4;
  static constexpr uint32_t kLeastRows = 16;  // that are worth it

  // The turn whose rows spare the text most, if any do; it is kept no more.
  std::optional<TurnTaken> take(const TurnWanted& wanted);
  // Returns the turn that it takes the place of, which was used least lately; or the turn itself,
  // where it has too few rows.
  std::optional<KeptTurn> put(KeptTurn turn);
  // The one used least lately of those that have rows on this tail; null: of all.
  std::optional<KeptTurn> drop_one(const Batcher* tail);
  // All but those on this tail, or on none.
  std::vector<KeptTurn> drop_others(const Batcher* tail);
  size_t size() const { return turns_.size(); }

 private:
  static uint32_t rows_for(const KeptTurn& turn, const TurnWanted& wanted);
  std::deque<KeptTurn> turns_;  // the last one at the end
};

}  // namespace split::edge
