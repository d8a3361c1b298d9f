// A load's downloads and uploads go on at once: the server keeps back the end of the last blob
// until the device has taken a weight of the first, so that a load in two steps would wait for
// ever.
#include <gtest/gtest.h>

#include "edge_client/weights/local_tail.h"
#include "support/edge_world.h"
#include "support/forwarding_device.h"

namespace split::test {
namespace {

// The server waits for this; not for ever, so that a failure is one.
class Signal {
 public:
  void give() {
    const std::lock_guard lock(mutex_);
    given_ = true;
    changed_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return given_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool given_ = false;
};

// A device that says when it has loaded a program: then it has taken its weights.
class Watched : public ForwardingDevice {
 public:
  Watched(std::unique_ptr<Device> device, Signal& loaded)
      : ForwardingDevice(std::move(device)), loaded_(loaded) {}

  std::unique_ptr<Executable> load(const Program& program, Workspace& workspace,
                                   std::span<const Binding> bindings) override {
    auto executable = ForwardingDevice::load(program, workspace, bindings);
    loaded_.give();
    return executable;
  }

 private:
  Signal& loaded_;
};

void expect_overlap(std::unique_ptr<Device> device) {
  const Golden golden("demo");
  GatedCloud cloud("demo");
  const wire::ModelInfo info =
      wire::parse_model_info(Client(cloud.url()).request("GET", "/v1/models/demo").body);
  const StageRange range{golden.model->config().layers - 1, Point::head()};
  const auto blobs = edge::blobs_of(*golden.model, info, range, {});
  const wire::BlobInfo& last = blobs.back();
  ASSERT_GT(last.bytes, 2 * wire::kChunkBytes);
  Signal loaded;
  std::atomic<int> kept_back{0};
  std::atomic<bool> in_time{true};
  const std::string end = cat("-", last.bytes - 1);
  cloud.reset({}, [&](const http::Request& request, int) -> std::optional<http::Response> {
    const auto asked = request.headers.get("Range").value_or("");
    if (request.path_params[0] == last.sha256 && asked.ends_with(end)) {
      ++kept_back;
      if (!loaded.wait()) in_time = false;
    }
    return std::nullopt;
  });
  const TemporaryFolder cache;
  Interrupt interrupt;
  edge::BlobOrigin origin =
      edge::blob_origin(info, cloud.url(), std::chrono::seconds(60), in_process());
  edge::LocalTail tail(std::make_unique<Watched>(std::move(device), loaded), *golden.model, range,
                       {}, Profile::kF32, blobs,
                       std::make_unique<edge::BlobLoad>(edge::ShardCache(cache.path), origin, blobs,
                                                        edge::LoadOptions{}, interrupt));
  uint64_t bytes = 0;
  for (const wire::BlobInfo& blob : blobs) bytes += blob.bytes;
  EXPECT_EQ(tail.finish().downloaded, bytes);
  EXPECT_EQ(kept_back, 1);
  EXPECT_TRUE(in_time) << "the first program was loaded after the last download";
}

TEST(EdgeOverlap, OnTheCpu) { expect_overlap(make_cpu_device(1)); }

#ifdef SPLIT_WITH_VULKAN
TEST(EdgeOverlap, OnVulkan) {
  auto device = make_vulkan_device("any");
  if (device == nullptr) GTEST_SKIP() << "no Vulkan device";
  expect_overlap(std::move(device));
}
#endif

}  // namespace
}  // namespace split::test
