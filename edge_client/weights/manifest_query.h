// A manifest's words about placement: the query that names what is loaded here, by which the server
// knows what to make, and the abilities of its sessions.
#pragma once

#include <string>

#include "edge_client/split/placement.h"
#include "wire/protocol.h"

namespace split::edge {

inline std::string manifest_query(const Placement& place, const StageFormats& formats) {
  const Point at = place.range.from.is_tokens() ? Point(0) : place.range.from;
  const StageRange nothing{at, at};
  return wire::model_query(formats.text(), place.cut.is_cloud() ? nothing : place.range);
}

inline CloudSessions sessions_of(const wire::ModelInfo& info) {
  return {.move = info.knows("to") && info.knows("fill"), .stream = info.knows("completions")};
}

}  // namespace split::edge
