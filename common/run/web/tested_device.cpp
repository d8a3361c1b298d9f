#include "run/self_test.h"

namespace split {

// A tab tests its GPU each time: browsers and drivers change beneath it. Its CPU's kernels are
// tested by the page (start.js).
std::unique_ptr<Device> make_tested_device(const DeviceOptions& options) {
  return passed(make_device(options), options);
}

}  // namespace split
