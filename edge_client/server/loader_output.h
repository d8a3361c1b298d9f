// The output of lines and bars about loads: stderr, unless quiet.
#pragma once

#include <string>

#include "edge_client/weights/model_choice.h"
#include "edge_client/weights/progress.h"
#include "program/world.h"

namespace split::edge {

// The console outlives both.
inline ProgressTo progress_on(const Console& console, bool quiet) {
  return quiet ? ProgressTo{} : ProgressTo{console.err, console.err_is_terminal};
}
inline ModelChoice::Note notes_on(const Console& console, bool quiet) {
  if (quiet) return {};
  return [&console](const std::string& line) { console.err(line + "\n"); };
}

}  // namespace split::edge
