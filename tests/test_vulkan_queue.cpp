// How long drivers stay, how steps are cut into submissions and command buffers, and which programs
// share kernels.
#include <gtest/gtest.h>
#include <link.h>

#include <set>

#include "device/vulkan/recording.h"
#include "device/vulkan/rules.h"
#include "nn/model.h"
#include "tensor/tensor.h"

namespace split {
namespace {

// A device that takes 20 ms for what it was thought to do in 5 is given less at a time.
TEST(VulkanPace, LearnsWhatADeviceTakes) {
  vulkan::Pace pace;
  const vulkan::Cost decode{50'000'000, 0}, prompt{0, 1'000'000'000};
  const double first = pace.estimate_ms(decode);
  EXPECT_GT(first, 0);
  pace.learn(decode, 200);
  EXPECT_NEAR(pace.estimate_ms(decode), 200, 1);
  EXPECT_NEAR(pace.estimate_ms({25'000'000, 0}), 100, 1);
  const double before = pace.estimate_ms(prompt);
  pace.learn(prompt, before / 1000);
  EXPECT_NEAR(pace.estimate_ms(prompt), before / 4, 1e-3 * before) << "faster bit by bit";
  pace.learn(prompt, 30);
  pace.learn(prompt, 30);
  pace.learn(prompt, 30);
  EXPECT_NEAR(pace.estimate_ms(prompt), 30, 1);
  EXPECT_NEAR(pace.estimate_ms(decode), 200, 1) << "each has its own rate";
  pace.learn({1000, 0}, 5);
  EXPECT_NEAR(pace.estimate_ms(decode), 200, 1) << "too small to tell";
}

// The libraries of this process.
std::set<std::string> loaded_libraries() {
  std::set<std::string> names;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        static_cast<std::set<std::string>*>(to)->insert(info->dlpi_name);
        return 0;
      },
      &names);
  return names;
}

// Null without a device.
std::unique_ptr<vulkan::Instance> some_instance() {
  try {
    auto instance = std::make_unique<vulkan::Instance>();
    return instance->devices().empty() ? nullptr : std::move(instance);
  } catch (const Error&) {
    return nullptr;
  }
}

// A process can load some of them only so often.
TEST(VulkanInstance, LeavesItsDriversLoaded) {
  auto instance = some_instance();
  if (instance == nullptr) GTEST_SKIP() << "no Vulkan device";
  const std::set<std::string> with = loaded_libraries();
  instance.reset();
  EXPECT_EQ(loaded_libraries(), with);
}

vulkan::Segment empty_commands(vulkan::Context& context, const vulkan::Cost& cost) {
  const vulkan::Segment segment{context.command_buffer(), cost};
  VkCommandBufferBeginInfo begin{};
  begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  vulkan::check(vkBeginCommandBuffer(segment.commands, &begin), "vkBeginCommandBuffer");
  vulkan::check(vkEndCommandBuffer(segment.commands), "vkEndCommandBuffer");
  return segment;
}

TEST(VulkanQueue, CutsALongStepIntoSubmissions) {
  using namespace vulkan;
  auto instance = some_instance();
  if (instance == nullptr) GTEST_SKIP() << "no Vulkan device";
  Context context(std::move(instance), 0);
  Queue queue(context);
  std::vector<Segment> step;
  for (int i = 0; i < 6; ++i) {
    step.push_back(empty_commands(context, {20'000'000, 0}));  // 20 ms at the first pace
  }
  queue.run(step);
  EXPECT_EQ(queue.submissions(), 3u) << "two of 20 ms each";
  for (int i = 0; i < 8; ++i) queue.run(step);  // which takes no time in truth
  const uint64_t before = queue.submissions();
  queue.measure(true);
  queue.run(step);
  EXPECT_EQ(queue.submissions(), before + 1);
  if (context.capabilities().timestamp_bits > 0) {
    ASSERT_TRUE(queue.device_ms().has_value());
    EXPECT_LT(*queue.device_ms(), 1000);
  }
}

// Each command buffer costs a GPU 24 us, so that steps are cut only as far as they must be.
TEST(VulkanRecordings, AreOneCommandBufferOnceTheDeviceIsKnownToBeFastEnough) {
  using namespace vulkan;
  auto instance = some_instance();
  if (instance == nullptr) GTEST_SKIP() << "no Vulkan device";
  const auto core = std::make_shared<Core>(std::move(instance), 0);
  constexpr int64_t kWidth = 256;
  constexpr uint32_t kMost = 8192;
  const Tensor x = input("x", DType::kF32, {kRows, kWidth});
  const Tensor w = weight("w", DType::kF32, {kWidth, kWidth});
  const Program program = compile("two", {{"y", matmul(matmul(x, w), w)}}, kFuseRules);
  Limits limits;
  limits.rows = kMost;
  limits.arena_row_bytes = program.arena_row_bytes;
  VulkanWorkspace workspace(core, limits);
  const std::vector<float> values(kWidth * kWidth);
  VulkanBuffer weights(core, {DType::kF32, {kWidth, kWidth}, std::as_bytes(std::span(values))});
  VulkanBuffer in(core, kMost * kWidth * sizeof(float)), out(core, in.size());
  const Binding bindings[] = {{"x", &in}, {"w", &weights}, {"y", &out}};
  VulkanExecutable executable(core, program, workspace, bindings);
  Recordings recordings(core);
  bool copies = false;
  std::vector<Segment> segments;
  const auto command_buffers = [&](uint32_t rows) {
    RowBatch batch;
    batch.rows = rows;
    segments.clear();
    copies = recordings.get({&executable}, batch, {}, segments);
    return segments.size();
  };
  EXPECT_EQ(command_buffers(1), 1u);
  EXPECT_TRUE(copies) << "in the same one";
  EXPECT_EQ(command_buffers(16), 1u);
  EXPECT_FALSE(copies) << "many rows have as many sizes";
  const uint64_t sixteen = segments[0].cost.products;
  EXPECT_EQ(command_buffers(9), 1u);
  EXPECT_EQ(segments[0].cost.products, sixteen) << "tiles of rows are computed whole";
  EXPECT_EQ(command_buffers(kMost), 2u) << "two of 54 ms each at the first pace";
  const std::vector<Segment> fast = {empty_commands(core->context, {0, 1'000'000'000})};
  for (int i = 0; i < 4; ++i) core->queue.run(fast);
  EXPECT_EQ(command_buffers(kMost), 1u);
}

// Layers are alike; what another text could come of is not.
TEST(VulkanKernels, AreSharedByProgramsThatDifferInNamesAlone) {
  using namespace vulkan;
  auto instance = some_instance();
  if (instance == nullptr) GTEST_SKIP() << "no Vulkan device";
  const auto core = std::make_shared<Core>(std::move(instance), 0);
  Kernels& kernels = core->kernels;
  const auto model = make_model(
      R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 1, "vocab_size": 8,
          "n_positions": 8, "activation_function": "gelu"})");
  const auto block = [&](int layer, DType dtype) {
    const auto of = [&](const std::string&) { return dtype; };
    return compile(cat("block.", layer), model->trace_block(layer, of, DType::kF32), kFuseRules);
  };
  const auto gathered = [](const char* index, DType dtype, float number) {
    const Tensor rows = gather(weight("w", dtype, {8, 8}), input(index, DType::kI32, {kRows}));
    return compile(index, {{"y", rows * number}}, kFuseRules);
  };
  const Program first = block(0, DType::kF32), second = block(1, DType::kF32);
  EXPECT_EQ(kernels.like(first), kernels.like(second));
  const std::vector<Program> unlike = {first,
                                       block(0, DType::kF16),
                                       gathered("tokens", DType::kF32, 0.0f),
                                       gathered("tokens", DType::kF32, -0.0f),
                                       gathered("tokens", DType::kF16, 0.0f),
                                       gathered("positions", DType::kF32, 0.0f)};
  std::set<const Program*> all;
  for (const Program& program : unlike) all.insert(kernels.like(program));
  EXPECT_EQ(all.size(), unlike.size());

  int made = 0;
  const auto make = [&] { return Kernel{cat("text ", ++made), {}, {}}; };
  const Kernels::Key key{.what = Kernels::What::kGroup, .like = kernels.like(first)};
  Kernels::Key other = key;
  other.step = 1;
  const KeptKernel& one = kernels.get(key, make);
  EXPECT_EQ(*kernels.get(other, make).text, "text 2");
  EXPECT_EQ(&kernels.get(key, make), &one);
  EXPECT_EQ(*one.text, "text 1");
  EXPECT_EQ(made, 2);
}

}  // namespace
}  // namespace split
