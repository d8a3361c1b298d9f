// The output of a loader's lines and bars: stderr, unless quiet.
#pragma once

#include <string>

#include "edge_client/weights/loader.h"
#include "program/world.h"

namespace split::edge {

// The console outlives both.
inline ProgressTo progress_on(const Console& console, bool quiet) {
  return quiet ? ProgressTo{} : ProgressTo{console.err, console.err_is_terminal};
}
inline LoaderOutput output_to(const Console& console, bool quiet) {
  if (quiet) return {};
  return {[&console](const std::string& line) { console.err(line + "\n"); },
          progress_on(console, false)};
}

}  // namespace split::edge
