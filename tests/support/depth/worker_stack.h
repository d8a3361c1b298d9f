// Runs work on a stack as small as those that serve requests, and tells how much of it was used.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <string_view>

namespace split::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
inline constexpr bool kFramesOfARelease = false;
#else
inline constexpr bool kFramesOfARelease = true;
#endif
// As http's workers, whose sanitizers have larger frames.
inline constexpr size_t kStack = kFramesOfARelease ? 1 << 20 : 8 << 20;
inline void* run_work(void* work) {
  (*static_cast<const std::function<void()>*>(work))();
  return nullptr;
}

// Runs `work` on a thread of kStack bytes behind a guard page, and returns how many it used.
inline size_t stack_of(const std::function<void()>& work) {
  constexpr size_t kGuard = 64 << 10;
  constexpr char kPaint = 0x5A;
  void* const all = ::mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  EXPECT_NE(all, MAP_FAILED);
  EXPECT_EQ(::mprotect(all, kGuard, PROT_NONE), 0);
  char* const stack = static_cast<char*>(all) + kGuard;
  std::memset(stack, kPaint, kStack);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  EXPECT_EQ(pthread_attr_setstack(&attributes, stack, kStack), 0);
  pthread_t thread;
  EXPECT_EQ(
      pthread_create(&thread, &attributes, run_work, const_cast<std::function<void()>*>(&work)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  const size_t free = std::string_view(stack, kStack).find_first_not_of(kPaint);
  ::munmap(all, kGuard + kStack);
  return kStack - free;
}

}  // namespace split::test
