// How a text session begins with rows that are there, and leaves its own.
#include <algorithm>

#include "edge_client/split/text_session.h"

namespace split::edge {
namespace {

// Counts the generated rows at the end.
uint32_t last_answer(const SequenceHistory& history) {
  uint32_t rows = 0;
  for (uint32_t at = 0; at < history.size();) {
    const SequenceRows piece = history.piece(at, history.size());
    rows = piece.phase == Phase::kGenerate ? rows + piece.count() : 0;
    at += piece.count();
  }
  return rows;
}

}  // namespace

void TextSession::adopt(const std::string& session, std::span<const int32_t> ids, size_t prompt,
                        bool lost) {
  if (lost) cloud_.was_lost();
  sides_.cloud.session = session;
  sides_.cloud.open = true;
  if (ids.size() <= prompt) return;
  lead(ids.first(prompt), Phase::kPrompt, sides_.layers());
  lead(ids.subspan(prompt, ids.size() - 1 - prompt), Phase::kGenerate, sides_.layers());
  sides_.prompt_rows = static_cast<uint32_t>(prompt);
  sides_.cloud.rows.step(0, sides_.history.size(), sides_.layers());
  ++sides_.version;
}

uint32_t TextSession::rows_of(const CachedSession& turn, std::span<const int32_t> prompt,
                              bool phases_alike) const {
  if (prompt.empty()) return 0;
  TailSide* const tail = sides_.tail.get();
  // A tail that is still to come has unknown phases.
  phases_alike &= tail != nullptr ? tail->shard().same_bits_in_both_phases() : !mover_;
  SequenceHistory own;
  own.append(prompt.first(prompt.size() - 1), Phase::kPrompt);
  uint32_t rows = turn.history.common(own, phases_alike);
  if (sides_.cut > 0) {
    if (!turn.cloud.open || turn.deepest != sides_.deepest) return 0;
    rows = std::min(rows, turn.cloud.rows.below(sides_.blocks()));
  }
  if (sides_.cut < sides_.layers()) {
    const bool same = tail != nullptr && turn.tail && &turn.tail->batcher() == &tail->batcher();
    if (!same) return 0;
    rows = std::min(rows, turn.tail->rows_from(sides_.blocks()));
  }
  return rows > shared_.known(prompt) ? rows : 0;
}

void TextSession::go_on_from(CachedSession turn, uint32_t rows) {
  CHECK(sides_.history.size() == 0 && rows <= turn.history.size());
  if (turn.tail && sides_.tail && &turn.tail->batcher() == &sides_.tail->batcher()) {
    sides_.tail = std::move(turn.tail);
    const uint32_t there = forget_tail(rows);
    if (sides_.cut < sides_.layers()) rows = std::min(rows, there);
  }
  sides_.history = std::move(turn.history);
  if (const uint32_t last = last_answer(sides_.history); last > 0) answer_before_ = last + 1;
  sides_.history.cut_back(rows);
  sides_.prompt_rows = kept_rows_ = rows;
  if (turn.cloud.open && turn.deepest == sides_.deepest) {
    sides_.cloud = std::move(turn.cloud);
    sides_.cloud.rows.cut_back(rows);
  }
  counts_.kept_rows += rows;
  counts_.cached_rows += rows;
  ++sides_.version;
}

CachedSession TextSession::keep() {
  leave_rows();
  CachedSession turn{.cloud = CloudSide(sides_.layers()),
                     .tail = sides_.tail,
                     .history = std::move(sides_.history),
                     .deepest = sides_.deepest};
  if (sides_.cloud.open && sides_.cloud.reachable) std::swap(turn.cloud, sides_.cloud);
  return turn;
}

}  // namespace split::edge
