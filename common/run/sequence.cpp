#include "run/sequence.h"

#include <algorithm>

#include "base/error.h"

namespace split {

void SequenceHistory::cut_back(uint32_t past) {
  CHECK(past <= size());
  tokens_.resize(past);
  phases_.resize(past);
}

void SequenceHistory::append(std::span<const int32_t> tokens, Phase phase) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  phases_.resize(tokens_.size(), phase);
}

uint64_t SequenceHistory::digest(uint32_t rows) const {
  CHECK(rows <= size());
  constexpr uint64_t kBasis = 0xcbf29ce484222325, kPrime = 0x100000001b3;
  uint64_t hash = kBasis;
  for (const int32_t id : std::span(tokens_).first(rows)) {
    hash = (hash ^ static_cast<uint32_t>(id)) * kPrime;
  }
  return hash;
}

uint32_t SequenceHistory::common(const SequenceHistory& other, bool phases_alike) const {
  const uint32_t most = std::min(size(), other.size());
  uint32_t row = 0;
  while (row < most && tokens_[row] == other.tokens_[row] &&
         (phases_alike || phases_[row] == other.phases_[row])) {
    ++row;
  }
  return row;
}

SequenceRows SequenceHistory::piece(uint32_t at, uint32_t until) const {
  CHECK(at < until && until <= size());
  const auto phases = std::span(phases_).subspan(at, std::min(kPieceRows, until - at));
  const auto other = std::ranges::find_if(phases, [&](Phase phase) { return phase != phases[0]; });
  return {.past = at,
          .tokens = std::span(tokens_).subspan(at, static_cast<size_t>(other - phases.begin())),
          .phase = phases[0],
          .wanted = Wanted::kNone};
}

}  // namespace split
