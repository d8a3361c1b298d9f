// Waiting and yielding, for code that also runs in a browser's tab. There a thread is a fibre: all
// share one processor, and another one runs only while this one waits. So nothing may spin, or
// compute longer than kTurn without a yield(). Natively these are std::atomic's own calls, and
// no-ops.
#pragma once

#include <atomic>
#include <chrono>

namespace split::fibres {

// A tab draws 60 pictures a second, and an answer's next token must make the next one.
inline constexpr std::chrono::milliseconds kTurn{8};

#ifdef SPLIT_FIBRES

// Suspends this fibre until `key` is woken. Defined in base/web/fibres.cpp.
void wait_for_wake(const void* key);
void wake(const void* key, bool all);
// Lets other fibres run if this one has computed for kTurn.
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

// Waits until the word differs from `old`.
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
