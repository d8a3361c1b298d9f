// The rows of a sequence as their owner remembers them, each token with its phase: a device or a
// server that lost them gets them again, in pieces of one phase, so that their bits repeat. Knows
// nothing of where they are sent.
#pragma once

#include <span>
#include <vector>

#include "step/rows.h"

namespace split {

// One thread at a time.
class SequenceHistory {
 public:
  // Rows of one piece: bounds a request's bodies (6 MB for 1,600 channels in 1,024 rows) and the
  // time until its answer.
  static constexpr uint32_t kPieceRows = 256;

  std::span<const int32_t> tokens() const { return tokens_; }
  std::span<const Phase> phases() const { return phases_; }
  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }
  // Forgets all rows behind the first `past`, which are there.
  void cut_back(uint32_t past);
  void append(std::span<const int32_t> tokens, Phase phase);

  // A fingerprint of the first `rows` ids, by which two machines see whether they mean the same
  // rows: FNV-1a of 64 bits (Fowler, Noll, Vo) that takes an id where the original takes a byte.
  uint64_t digest(uint32_t rows) const;
  // How many leading rows are those of `other`: of the same phases too, unless these are alike.
  uint32_t common(const SequenceHistory& other, bool phases_alike) const;
  // The rows from `at` on that are of one phase, before `until`: at most kPieceRows of them. No
  // results are wanted.
  SequenceRows piece(uint32_t at, uint32_t until) const;

  // Calls `send` with a piece of the rows [have(), until), of which no results are wanted, until
  // have() says that all are there. `send` may fail to bring them and return: it is asked again.
  template <typename Have, typename Send>
  void replay(uint32_t until, const Have& have, const Send& send) const {
    for (uint32_t at; (at = have()) < until;) send(piece(at, until));
  }

 private:
  std::vector<int32_t> tokens_;
  std::vector<Phase> phases_;  // of each token
};

}  // namespace split
