#include "device/vulkan/runtime/queue.h"

#include <algorithm>
#include <cmath>

#include "base/resources/clock.h"

namespace split::vulkan {

double Pace::estimate_ms(const Cost& cost) const {
  return 1e3 * (static_cast<double>(cost.weights) / weights_ +
                static_cast<double>(cost.products) / products_);
}

void Pace::learn(const Cost& cost, double ms) {
  // The larger part of the run teaches its rate; what is too small to fill the device teaches none.
  const double weights_ms = 1e3 * static_cast<double>(cost.weights) / weights_;
  const double products_ms = estimate_ms(cost) - weights_ms;
  const bool wide = products_ms > weights_ms;
  const double own_ms = std::max(ms - (wide ? weights_ms : products_ms), ms / 2);
  const auto work = static_cast<double>(wide ? cost.products : cost.weights);
  if (work < 1e6 || own_ms <= 0) return;
  double& rate = wide ? products_ : weights_;
  // A device slows down at once (heat, company) and is believed to be faster bit by bit.
  rate = std::min(1e3 * work / own_ms, 4 * rate);
}

Queue::Queue(Context& context) : context_(context) {
  VkSemaphoreTypeCreateInfo type{};
  type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
  info.pNext = &type;
  VkSemaphore semaphore = VK_NULL_HANDLE;
  check(vkCreateSemaphore(context_.device(), &info, nullptr, &semaphore), "vkCreateSemaphore");
  timeline_ = {context_.device(), semaphore, vkDestroySemaphore};
  if (context_.capabilities().timestamp_bits > 0) make_stamps();
}

Queue::~Queue() {
  vkDeviceWaitIdle(context_.device());
  for (VkCommandBuffer& commands : stamp_) {
    if (commands == VK_NULL_HANDLE) continue;
    vkFreeCommandBuffers(context_.device(), context_.pool(), 1, &commands);
  }
}

void Queue::make_stamps() {
  VkQueryPoolCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = 2;
  VkQueryPool pool = VK_NULL_HANDLE;
  check(vkCreateQueryPool(context_.device(), &info, nullptr, &pool), "vkCreateQueryPool");
  stamps_ = {context_.device(), pool, vkDestroyQueryPool};
  for (uint32_t i = 0; i < 2; ++i) {
    stamp_[i] = context_.command_buffer();
    vulkan::begin(stamp_[i]);
    stamp(stamp_[i], i);
    end(stamp_[i]);
  }
}

void Queue::stamp(VkCommandBuffer commands, uint32_t which) const {
  if (which == 0) vkCmdResetQueryPool(commands, stamps_.get(), 0, 2);
  vkCmdWriteTimestamp(
      commands,
      which == 0 ? VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT : VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
      stamps_.get(), which);
}

void Queue::run(const std::vector<Segment>& segments) {
  try {
    run_all(segments);
  } catch (const Error&) {
    vkDeviceWaitIdle(context_.device());  // what still runs ends before its buffers do
    throw;
  }
}

void Queue::run_all(const std::vector<Segment>& segments) {
  const auto start = Clock::now();
  Cost all;
  double pending_ms = 0;
  std::vector<VkCommandBuffer> pending;
  const bool stamps =
      measure_ && std::none_of(segments.begin(), segments.end(),
                               [](const Segment& segment) { return segment.timed; });
  if (stamps) pending.push_back(stamp_[0]);
  for (const Segment& segment : segments) {
    const double ms = pace_.estimate_ms(segment.cost);
    if (pending_ms > 0 && pending_ms + ms > kSubmissionMs) {
      submit(pending);
      pending.clear();
      pending_ms = 0;
    }
    pending.push_back(segment.commands);
    pending_ms += ms;
    all += segment.cost;
  }
  if (stamps) pending.push_back(stamp_[1]);
  submit(pending);
  wait(value_);
  pace_.learn(all, ms_since(start));
  device_ms_.reset();
  if (!measure_) return;
  uint64_t ticks[2] = {};
  check(vkGetQueryPoolResults(context_.device(), stamps_.get(), 0, 2, sizeof ticks, ticks,
                              sizeof ticks[0], VK_QUERY_RESULT_64_BIT),
        "vkGetQueryPoolResults");
  const uint32_t bits = context_.capabilities().timestamp_bits;
  const uint64_t mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  device_ms_ = static_cast<double>((ticks[1] - ticks[0]) & mask) *
               static_cast<double>(context_.capabilities().properties.limits.timestampPeriod) / 1e6;
}

uint64_t Queue::begin(VkCommandBuffer commands) {
  submit(std::span(&commands, 1));
  return value_;
}

void Queue::submit(std::span<const VkCommandBuffer> commands) {
  ++value_;
  ++submissions_;
  const VkSemaphore semaphore = timeline_.get();
  VkTimelineSemaphoreSubmitInfo timeline{};
  timeline.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
  timeline.signalSemaphoreValueCount = 1;
  timeline.pSignalSemaphoreValues = &value_;
  VkSubmitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.pNext = &timeline;
  info.commandBufferCount = static_cast<uint32_t>(commands.size());
  info.pCommandBuffers = commands.data();
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &semaphore;
  check(vkQueueSubmit(context_.queue(), 1, &info, VK_NULL_HANDLE), "vkQueueSubmit");
}

bool Queue::done(uint64_t number) const {
  uint64_t reached = 0;
  check(vkGetSemaphoreCounterValue(context_.device(), timeline_.get(), &reached),
        "vkGetSemaphoreCounterValue");
  return reached >= number;
}

void Queue::wait(uint64_t number) const {
  const VkSemaphore semaphore = timeline_.get();
  // A blocking wait costs 20-30 us more than a spin on a GPU; a software device needs the core.
  const bool software = context_.capabilities().software;
  const auto spin_end = Clock::now() + std::chrono::microseconds(software ? 0 : 5000);
  while (Clock::now() < spin_end && !done(number)) continue;
  VkSemaphoreWaitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
  info.semaphoreCount = 1;
  info.pSemaphores = &semaphore;
  info.pValues = &number;
  constexpr uint64_t kSecond = 1'000'000'000;
  const uint64_t limit = (software ? 600 : 30) * kSecond;
  const VkResult result = vkWaitSemaphores(context_.device(), &info, limit);
  check(result, "vkWaitSemaphores");
  if (result == VK_TIMEOUT) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] a step did not end within ", limit / kSecond, " s"));
  }
}

}  // namespace split::vulkan
