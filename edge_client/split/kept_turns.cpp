#include "edge_client/split/kept_turns.h"

#include <algorithm>

namespace split::edge {

// Rows that both sides have where they are needed; the last one's logits are always new.
uint32_t KeptTurns::rows_for(const KeptTurn& turn, const TurnWanted& wanted) {
  if (turn.owner != wanted.owner || wanted.prompt.empty()) return 0;
  SequenceHistory prompt;
  prompt.append(wanted.prompt.first(wanted.prompt.size() - 1), Phase::kPrompt);
  uint32_t rows = turn.history.common(prompt, wanted.phases_alike);
  if (wanted.cut > 0) {
    if (!turn.cloud.open || turn.deepest != wanted.deepest) return 0;
    rows = std::min(rows, turn.cloud.rows.below(wanted.cut));
  }
  if (wanted.cut < wanted.layers) {
    if (!turn.tail || &turn.tail->batcher() != wanted.tail) return 0;
    rows = std::min(rows, turn.tail->rows_from(wanted.cut));
  }
  return rows < kLeastRows ? 0 : rows;
}

std::optional<TurnTaken> KeptTurns::take(const TurnWanted& wanted) {
  auto best = turns_.end();
  uint32_t most = 0;
  for (auto at = turns_.begin(); at != turns_.end(); ++at) {
    const uint32_t rows = rows_for(*at, wanted);
    if (rows <= most) continue;
    most = rows;
    best = at;
  }
  if (best == turns_.end()) return std::nullopt;
  TurnTaken taken{std::move(*best), most};
  turns_.erase(best);
  return taken;
}

std::optional<KeptTurn> KeptTurns::put(KeptTurn turn) {
  if (turn.history.size() < kLeastRows) return turn;
  turns_.push_back(std::move(turn));
  return turns_.size() > kMost ? drop_one(nullptr) : std::nullopt;
}

std::optional<KeptTurn> KeptTurns::drop_one(const Batcher* tail) {
  const auto at = std::ranges::find_if(turns_, [&](const KeptTurn& turn) {
    return tail == nullptr || (turn.tail && &turn.tail->batcher() == tail &&
                               turn.tail->pages().length(turn.tail->sequence()) > 0);
  });
  if (at == turns_.end()) return std::nullopt;
  KeptTurn dropped = std::move(*at);
  turns_.erase(at);
  return dropped;
}

std::vector<KeptTurn> KeptTurns::drop_others(const Batcher* tail) {
  const auto other = [&](const KeptTurn& turn) {
    return turn.tail && &turn.tail->batcher() != tail;
  };
  const auto from = std::stable_partition(turns_.begin(), turns_.end(), std::not_fn(other));
  std::vector<KeptTurn> dropped(std::make_move_iterator(from),
                                std::make_move_iterator(turns_.end()));
  turns_.erase(from, turns_.end());
  return dropped;
}

}  // namespace split::edge
