// The devices of the registry for tests that run on each. A device that is not there is skipped and
// says so.
#pragma once

#include <gtest/gtest.h>

#include "support/device_bench.h"

namespace split::test {

inline std::vector<std::string> device_kind_names() {
  std::vector<std::string> names;
  for (const DeviceKind& kind : device_kinds()) names.emplace_back(kind.name);
  return names;
}

// The device of a kind, or null with a reason to skip.
inline std::unique_ptr<Device> device_of(const std::string& kind, std::string& why_not) {
  try {
    return make_device({kind, 2});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDevice) throw;
    why_not = error.what();
    return nullptr;
  }
}

class EveryDevice : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string why_not;
    device_ = device_of(GetParam(), why_not);
    if (!device_) GTEST_SKIP() << why_not;
  }
  FuseRules rules() const { return device_->fuse_rules(); }
  std::unique_ptr<Device> device_;
};

}  // namespace split::test
