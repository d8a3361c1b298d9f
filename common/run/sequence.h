// The rows of a sequence as their owner remembers them, each token with its phase: a device or a
// server that lost them gets them again, in pieces of one phase, so that their bits repeat. Does
// not know where they are sent.
#pragma once

#include <span>
#include <vector>

#include "step/rows.h"

namespace split {

// One thread at a time.
class SequenceHistory {
 public:
  // Rows of one piece: bounds a request's body (6 MB for 1,600 channels in 1,024 rows) and the time
  // until its answer.
  static constexpr uint32_t kPieceRows = 256;

  std::span<const int32_t> tokens() const { return tokens_; }
  std::span<const Phase> phases() const { return phases_; }
  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }
  // Forgets all rows behind the first `past`, which are there.
  void cut_back(uint32_t past);
  void append(std::span<const int32_t> tokens, Phase phase);

  // A fingerprint of the first `rows` ids, by which two machines see whether they mean equal rows:
  // FNV-1a of 64 bits (Fowler, Noll, Vo), an id in place of a byte.
  uint64_t digest(uint32_t rows) const;
  // How many leading rows equal those of `other`, in their phases too unless these are alike.
  uint32_t common(const SequenceHistory& other, bool phases_alike) const;
  // The rows of one phase from `at` on, before `until`: at most kPieceRows of them. No results are
  // wanted.
  SequenceRows piece(uint32_t at, uint32_t until) const;

  // Calls `send` with a piece of the rows [have(), until), without results, until have() says that
  // all are there. `send` may fail to bring them and return: it is called again.
  template <typename Have, typename Send>
  void replay(uint32_t until, const Have& have, const Send& send) const {
    for (uint32_t at; (at = have()) < until;) send(piece(at, until));
  }

 private:
  std::vector<int32_t> tokens_;
  std::vector<Phase> phases_;  // each token's phase
};

}  // namespace split
