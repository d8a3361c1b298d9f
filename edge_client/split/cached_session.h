// The rows of a text that has ended, for texts that go on from them: the next turn of a chat has
// the last one's rows on both sides, and only its own rows are computed and sent.
// drive/session_cache.h keeps them.
#pragma once

#include <memory>
#include <string>

#include "edge_client/split/sides.h"

namespace split::edge {

// Rows in a session of the cloud, in a sequence here, or both.
struct CachedSession {
  CloudSide cloud;
  std::shared_ptr<TailSide> tail;    // may be null
  SequenceHistory history;           // the tokens of these rows
  int deepest = 0;                   // cut that the session was opened for
  std::string owner = {};            // the tenant that may use them
  std::shared_ptr<void> keeps = {};  // owner of the tail's batcher
};

}  // namespace split::edge
