// Serves models until a signal ends it.
#pragma once

#include "cloud_server/commands/options.h"

namespace split::cloud {

// Returns the exit code. Throws Error for unusable flags, keys, certificates or models.
int serve_command(Options options);

}  // namespace split::cloud
