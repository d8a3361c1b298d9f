// A text while it is made, on one machine (Generation) or on two (the edge's).
#pragma once

#include <span>

#include "run/text/text_loop.h"

namespace split {

// One thread at a time, not always the same.
class Text {
 public:
  virtual ~Text() = default;

  // Makes the next token, or ends the text; on_text may stop it. Returns false once it has ended.
  // After a throw the text has to be begun again.
  virtual bool next(const OnText& on_text) = 0;
  // Returns the text so far; all of it once it has ended. Call once.
  virtual Generated take() = 0;
  // Returns the prompt of a text that began by its words, as far as it is known.
  virtual std::span<const int32_t> prompt() const { return {}; }
  // Returns how many tokens of the prompt were cached, as far as known.
  virtual size_t cached() const { return 0; }
};

}  // namespace split
