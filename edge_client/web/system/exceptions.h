// The part of C++'s exceptions that is a thread's, and so a fibre's.
#pragma once

namespace split::fibres {

struct ExceptionState {
  void* caught = nullptr;  // those whose handlers run, the innermost first
  unsigned uncaught = 0;   // thrown, and not in a handler yet
};
// Puts another state in place of the present one, which it returns.
ExceptionState exchange_exceptions(const ExceptionState& state);

}  // namespace split::fibres
