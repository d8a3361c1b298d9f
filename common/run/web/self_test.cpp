#include "run/self_test.h"

namespace split {

// The kernels of a tab are tested by the page (start.js).
std::unique_ptr<Device> make_tested_device(const DeviceOptions& options) {
  return make_device(options);
}

}  // namespace split
