#include "base/resources/threads.h"

#include "base/error.h"

namespace split {

void no_more_threads() {
  throw Error(ErrorKind::kBusy,
              "[threads] the system gives this process no more threads: ulimit -u, or pids.max of "
              "its group");
}

}  // namespace split
