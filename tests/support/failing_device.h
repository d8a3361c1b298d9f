// The CPU behind a driver that fails: at one step, or from that step on, or at loads too.
#pragma once

#include "forwarding_device.h"

namespace split::test {

class FailingDevice : public ForwardingDevice {
 public:
  // Step number `at`, from 0, fails and takes everything with it; with `for_good` it never starts
  // again.
  explicit FailingDevice(int at, bool for_good = false)
      : ForwardingDevice(make_cpu_device(1)), at_(at), for_good_(for_good) {}

  bool can_be_lost() const override { return true; }
  void restart() override {
    ++restarts;
    if (for_good_) fail();
  }
  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    if (steps++ == at_) fail();
    ForwardingDevice::run(workspace, programs, batch);
  }

  int steps = 0, restarts = 0;

 private:
  [[noreturn]] static void fail() {
    throw Error(ErrorKind::kDevice, "[test] VK_ERROR_DEVICE_LOST");
  }

  const int at_;
  const bool for_good_;
};

// The CPU with a memory of keys and values that goes bad: what is kept there is no numbers any
// more.
class BadMemory : public ForwardingDevice {
 public:
  BadMemory() : ForwardingDevice(make_cpu_device(1)) {}

  std::unique_ptr<Buffer> alloc_pages(const Limits& limits, int64_t channels,
                                      DType dtype) override {
    auto buffer = ForwardingDevice::alloc_pages(limits, channels, dtype);
    pages.push_back(buffer.get());
    return buffer;
  }
  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    if (bad_steps > 0) {
      --bad_steps;
      spoil();
    }
    ForwardingDevice::run(workspace, programs, batch);
  }
  // Whatever is kept there.
  void spoil() {
    for (Buffer* const one : pages) {
      write(*one, 0, std::vector<std::byte>(one->size(), std::byte{0xff}));
    }
  }

  int bad_steps = 0;           // that find all rows before them spoilt
  std::vector<Buffer*> pages;  // of the shards that are there
};

}  // namespace split::test
