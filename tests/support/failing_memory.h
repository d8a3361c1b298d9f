// Allocations that fail: operator new of the whole program, one chosen allocation of which throws.
// One file of a test program includes this.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

namespace split::test {

inline std::atomic<long> allocations_left{-1};  // until one fails; negative: none does
inline std::atomic<long> large_allocations{0};  // of a MiB and more, but the test's own
inline thread_local bool of_the_test = false;   // a thread whose own never fail

inline bool allocation_fails() {
  if (of_the_test || allocations_left.load(std::memory_order_relaxed) < 0) return false;
  return allocations_left.fetch_sub(1) == 0;
}

inline void* allocate_or_fail(size_t size) {
  if (!of_the_test && size >= 1 << 20) ++large_allocations;
  void* const memory = allocation_fails() ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace split::test

void* operator new(size_t size) { return split::test::allocate_or_fail(size); }
void* operator new[](size_t size) { return split::test::allocate_or_fail(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
