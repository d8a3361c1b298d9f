// Waiting and giving way, for code that also runs in a browser's tab. There a thread is a fibre:
// all share one processor, and another one runs only where this one waits. So nothing may spin, or
// compute longer than kTurn without a yield(). Natively these are std::atomic's own calls, and
// nothing.
#pragma once

#include <atomic>
#include <chrono>

namespace split::fibres {

// A tab draws 60 pictures a second, and an answer's next token shall be in the next one.
inline constexpr std::chrono::milliseconds kTurn{8};

#ifdef SPLIT_FIBRES

// Ends this fibre's turn until somebody wakes who waits for `key`. Of edge_client/web/system.
void wait_for_wake(const void* key);
void wake(const void* key, bool all);
// Lets the others run once this fibre has computed for kTurn.
void yield();

template <typename Value>
void wait(const std::atomic<Value>& word, Value old) {
  while (word.load() == old) wait_for_wake(&word);
}
template <typename Value>
void wake_one(std::atomic<Value>& word) {
  wake(&word, false);
}
template <typename Value>
void wake_all(std::atomic<Value>& word) {
  wake(&word, true);
}

#else

inline void yield() {}

// Returns once the word is another one than `old`.
template <typename Value>
void wait(const std::atomic<Value>& word, Value old) {
  word.wait(old);
}
template <typename Value>
void wake_one(std::atomic<Value>& word) {
  word.notify_one();
}
template <typename Value>
void wake_all(std::atomic<Value>& word) {
  word.notify_all();
}

#endif

}  // namespace split::fibres
