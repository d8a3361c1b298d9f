// The order in which this program's threads take locks: README.md says what each one guards.
#pragma once

#include "base/resources/ranked_mutex.h"

namespace split::edge {

// A thread that holds one takes none before it.
enum class LockOrder : int {
  kAnswer,
  kAnswers,
  kPlacing,
  kPlacements,
  kLook,
  kLoading,
  kRequest,
  kRescue,
  kEngine,
  kTurns,
  kTexts,
  kText,
  kForecasts,
  kFailover,
  kFetch,
  kReserve,
  kPool,
  kMaking,
  kParsing,
  kLoad,
  kServer,
  kProgress,
  kService,
  kLost,
  kNotice,
  kEvents,
  kLines,
  kEditor
};

#ifdef SPLIT_LOCK_ORDER
using Mutex = RankedMutex<true>;
#else
using Mutex = RankedMutex<false>;
#endif

}  // namespace split::edge
