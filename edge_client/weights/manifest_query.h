// The query for a manifest that names what is loaded here, by which the server knows what to make.
#pragma once

#include <string>

#include "edge_client/split/placement.h"
#include "wire/protocol.h"

namespace split::edge {

inline std::string manifest_query(const Placement& place, const StageFormats& formats) {
  const StageRange nothing{place.cut, place.cut};
  return wire::model_query(formats.text(), place.all_on_cloud ? nothing : place.range);
}

}  // namespace split::edge
