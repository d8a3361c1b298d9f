#include "device/about.h"

#include "base/error.h"
#include "base/revision.h"
#include "device/cpu/kernels/kernels.h"
#include "device/device.h"

namespace split {

std::string version_text(std::string_view program, std::string_view version) {
  std::string kinds;
  for (const DeviceKind& kind : device_kinds()) kinds += cat(kinds.empty() ? "" : ", ", kind.name);
  return cat(program, " ", version, " (", source_revision(), ")\ndevices: ", kinds,
             "\ninstruction set: ", choose_kernels("").name, "\n");
}

}  // namespace split
