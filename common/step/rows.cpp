#include "step/rows.h"

namespace split {

uint32_t SequenceRows::count() const {
  return static_cast<uint32_t>(hidden.empty() ? tokens.size() : hidden.size() / width);
}

SequenceRows SequenceRows::slice(uint32_t first, uint32_t count) const {
  SequenceRows part = *this;
  part.past += first;
  if (hidden.empty()) {
    part.tokens = tokens.subspan(first, count);
  } else {
    part.hidden = hidden.subspan(size_t{first} * width, size_t{count} * width);
  }
  part.wanted = wanted.slice(this->count(), first, count);
  return part;
}

}  // namespace split
