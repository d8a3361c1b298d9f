// The part of C++'s exception state that belongs to a thread, and so to a fibre.
#pragma once

namespace split::fibres {

struct ExceptionState {
  void* caught = nullptr;  // exceptions whose handlers run, the innermost first
  unsigned uncaught = 0;   // thrown, and not caught yet
};
// Replaces the present state, and returns it.
ExceptionState exchange_exceptions(const ExceptionState& state);

}  // namespace split::fibres
