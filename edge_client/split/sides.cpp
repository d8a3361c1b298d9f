#include "edge_client/split/sides.h"

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "wire/codes.h"

namespace split::edge {

std::string random_session_id() {
  std::array<std::byte, 16> bits{};
  random_bytes(bits);
  return to_hex(bits);
}

void FilledRows::step(uint32_t past, uint32_t end, int to) {
  cut_back(past);
  fill(past, end, to);
}

void FilledRows::fill(uint32_t past, uint32_t end, int to) {
  for (uint32_t& rows : std::span(rows_).first(count(to))) {
    if (rows >= past) rows = std::max(rows, end);
  }
}

void FilledRows::cut_back(uint32_t most) { limit(0, static_cast<int>(rows_.size()), most); }

void FilledRows::limit(int from, int to, uint32_t most) {
  for (size_t block = static_cast<size_t>(from); block < count(to); ++block) {
    rows_[block] = std::min(rows_[block], most);
  }
}

uint32_t FilledRows::below(int to) const {
  CHECK(to > 0);
  return *std::min_element(rows_.begin(), rows_.begin() + static_cast<ptrdiff_t>(count(to)));
}

CloudSide::CloudSide(int layers) : session(random_session_id()), rows(layers) {}

bool CloudSide::heed(const RemoteError& error, int from, int to) {
  namespace codes = wire::codes;
  if (error.code == codes::kSessionUnknown) {
    open = false;
  } else if (error.code == codes::kPositionMismatch) {
    rows.cut_back(0);
  } else if (error.code == codes::kDepthMismatch) {
    rows.limit(from, to, error.have.value_or(0));
  } else if (error.code == codes::kSessionConflict || error.code == codes::kDraining) {
    // A balancer may keep the old id at a server that drains, and sends a new one elsewhere.
    session = random_session_id();
    open = false;
    rows.cut_back(0);
  } else {
    return false;
  }
  return true;
}

TailSide::TailSide(Batcher& batcher, std::shared_ptr<void> keeps)
    : keeps_(std::move(keeps)),
      batcher_(batcher),
      sequence_(pages().open()),
      passing_(pages().open()) {}

TailSide::~TailSide() {
  pages().close(sequence_);
  pages().close(passing_);
}

bool TailSide::has(int cut) {
  const Point to = shard().options().range.to;
  return StageRange::from_block(cut, to).from >= shard().floor() && shard().floor() < to;
}

uint32_t TailSide::rows_from(int cut) {
  const int layers = shard().model().config().layers;
  if (cut >= layers) return UINT32_MAX;
  return pages().filled(sequence_, {cut, Point(layers)});
}

StageRange TailSide::lagging(int cut) {
  int to = cut;
  while (to < shard().model().config().layers && pages().filled(sequence_, to) <= rows_from(cut)) {
    ++to;
  }
  return {cut, to};
}

KvPages::Again TailSide::again(int cut, uint32_t row) {
  const StageRange blocks = lagging(cut);
  KvPages::Again again = pages().again(sequence_, blocks, row);
  again.end = std::min(again.end, rows_from(blocks.to.block()));
  return again;
}

SplitState::SplitState(const Model& model, Cut cut, int deepest, Batcher* tail, Requester requester)
    : model(model),
      requester(std::move(requester)),
      cut(cut),
      deepest(deepest),
      cloud(model.config().layers),
      tail(tail == nullptr ? nullptr : std::make_shared<TailSide>(*tail)) {}

}  // namespace split::edge
