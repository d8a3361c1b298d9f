// The CPU behind a driver that fails: at one step, or from that step on, or at loads too.
#pragma once

#include "forwarding_device.h"

namespace split::test {

class FailingDevice : public ForwardingDevice {
 public:
  // Step number `at`, from 0, fails and takes everything with it; with `for_good` it never starts
  // again.
  explicit FailingDevice(int at, bool for_good = false)
      : ForwardingDevice(make_cpu_device(1)), fails_at(at), for_good_(for_good) {}

  bool can_be_lost() const override { return true; }
  void restart() override {
    ++restarts;
    if (for_good_) fail();
  }
  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    if (steps++ == fails_at) fail();
    ForwardingDevice::run(workspace, programs, batch);
  }

  int steps = 0, restarts = 0;
  int fails_at;

 private:
  [[noreturn]] static void fail() {
    throw Error(ErrorKind::kDevice, "[test] VK_ERROR_DEVICE_LOST");
  }

  const bool for_good_;
};

// Keeps exact1 until it is lost; `wrong`: started again it computes otherwise.
class ResetDevice : public FailingDevice {
 public:
  static constexpr int kSelfTest = 20;  // steps, when a shard in int8 is loaded

  explicit ResetDevice(bool wrong, int at = -1) : FailingDevice(at), wrong_(wrong) {}
  bool supports_kv(DType) const override { return true; }
  bool multiplies_int8(Int8Rows) const override { return true; }
  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    FailingDevice::run(workspace, programs, batch);
    if (restarts == 0 || !wrong_ || batch.out_bytes.empty()) return;
    reinterpret_cast<float*>(batch.out_bytes.data())[0] += 1e-7f;
  }

 private:
  const bool wrong_;
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
