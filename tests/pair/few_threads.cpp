// Preloaded into a program: its system has no more than FEW_THREADS threads for it, the first one
// among them.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int> alive{1};

struct Begun {
  void* (*run)(void*);
  void* argument;
};

void* run_counted(void* given) {
  const Begun begun = *static_cast<Begun*>(given);
  delete static_cast<Begun*>(given);
  void* const result = begun.run(begun.argument);
  --alive;
  return result;
}

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  static const int most = std::atoi(std::getenv("FEW_THREADS"));
  if (++alive > most) {
    --alive;
    return EAGAIN;
  }
  auto* const begun = new (std::nothrow) Begun{run, argument};
  if (begun == nullptr) return EAGAIN;
  const int error = create(thread, attributes, run_counted, begun);
  if (error != 0) {
    --alive;
    delete begun;
  }
  return error;
}
