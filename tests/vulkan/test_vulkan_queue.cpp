// How long drivers stay, how steps are cut into submissions and command buffers, which programs
// share kernels, and what is known of one before it is loaded.
#include <gtest/gtest.h>
#include <link.h>

#include <map>
#include <set>

#include "device/vulkan/codegen/rules.h"
#include "device/vulkan/program/recording.h"
#include "models/model.h"
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

class WithVulkan : public testing::Test {
 protected:
  void SetUp() override {
    try {
      instance_ = std::make_unique<vulkan::Instance>();
    } catch (const Error&) {  // no loader, or no driver
    }
    if (instance_ == nullptr || instance_->devices().empty()) GTEST_SKIP() << "no Vulkan device";
  }

  std::unique_ptr<vulkan::Instance> instance_;
};
using VulkanInstance = WithVulkan;
using VulkanQueue = WithVulkan;
using VulkanRecordings = WithVulkan;
using VulkanNeeds = WithVulkan;
using VulkanMemory = WithVulkan;
using VulkanKernels = WithVulkan;

// A process can load some of them only so often.
TEST_F(VulkanInstance, LeavesItsDriversLoaded) {
  const std::set<std::string> with = loaded_libraries();
  instance_.reset();
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

TEST_F(VulkanQueue, CutsALongStepIntoSubmissions) {
  using namespace vulkan;
  Context context(std::move(instance_), 0);
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
TEST_F(VulkanRecordings, AreOneCommandBufferOnceTheDeviceIsKnownToBeFastEnough) {
  using namespace vulkan;
  const auto core = std::make_shared<Core>(std::move(instance_), 0);
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

// Memory and pipelines are asked for before the first weight is there, all of them at once.
TEST_F(VulkanNeeds, AreWhatLoadingTakes) {
  using namespace vulkan;
  const auto core = std::make_shared<Core>(std::move(instance_), 0);
  const auto model = make_model(
      R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 1, "vocab_size": 8,
          "n_positions": 32, "activation_function": "gelu_new"})");
  for (const DType dtype : {DType::kF16, DType::kQ8_0}) {
    const auto of = [&](const std::string& name) {
      return model->weight(name).product == Product::kNone ? DType::kF32 : dtype;
    };
    const Program block =
        compile("block", {model->stage("block.0").trace({of, DType::kF16})}, kFuseRules);
    Limits limits;
    limits.rows = limits.sequences = 16;
    limits.pages_per_sequence = limits.pages = 2;
    limits.arena_row_bytes = block.arena_row_bytes;
    limits.matrix = true;
    VulkanWorkspace workspace(core, limits);
    const VulkanExecutable::Needs needs = VulkanExecutable::needs(core, block, workspace);
    for (const auto& keys : needs.pipelines) {
      for (const PipelineKey& key : keys) core->pipelines.begin(key);
    }
    std::map<size_t, std::vector<size_t>> expected;
    std::vector<size_t> all;
    for (const auto& [slot, parts] : needs.memory) {
      expected[slot] = parts;
      all.insert(all.end(), parts.begin(), parts.end());
    }
    core->memory.reserve(all);
    const size_t begun = core->pipelines.begun(), blocks = core->memory.blocks(MemoryUse::kModel);

    const std::vector<std::byte> zeros(64 * 256 * sizeof(float));
    std::map<size_t, VulkanBuffer> buffers;
    std::vector<Binding> bindings;
    for (size_t i = 0; i < block.slots.size(); ++i) {
      const Slot& slot = block.slots[i];
      if (slot.kind == SlotKind::kTemp || slot.dtype == DType::kI32) continue;
      const bool cache = slot.kind != SlotKind::kWeight && slot.dims.size() == 1;
      VulkanBuffer& buffer =
          slot.kind == SlotKind::kWeight
              ? buffers
                    .try_emplace(i, core,
                                 TensorView{slot.dtype, slot.dims,
                                            std::span(zeros).first(
                                                tensor_bytes(slot.dtype, slot.dims).value())})
                    .first->second
              : buffers
                    .try_emplace(i, core,
                                 cache ? cache_bytes(limits, slot.dims[0], slot.dtype)
                                       : 16 * 64 * sizeof(float),
                                 cache ? MemoryUse::kModel : MemoryUse::kDevice)
                    .first->second;
      bindings.push_back({slot.name, &buffer});
    }
    const VulkanExecutable executable(core, block, workspace, bindings);
    core->memory.wait_filled();
    EXPECT_EQ(core->pipelines.begun(), begun);
    EXPECT_EQ(core->memory.blocks(MemoryUse::kModel), blocks);
    for (const auto& [slot, parts] : expected) {
      EXPECT_EQ(buffers.at(slot).parts(), parts) << block.slots[slot].name;
    }
    core->pipelines.settle();
  }
}

// Room that was made and not taken is given back.
TEST_F(VulkanMemory, GivesBackWhatNobodyTook) {
  using namespace vulkan;
  Core core(std::move(instance_), 0);
  Memory& memory = core.memory;
  memory.reserve(std::vector<size_t>{1000, 2000});
  EXPECT_EQ(memory.blocks(MemoryUse::kModel), 1u);
  {
    const Allocation one(memory, 1000, MemoryUse::kModel), two(memory, 2000, MemoryUse::kModel);
    EXPECT_EQ(one.buffer(), two.buffer());
    EXPECT_EQ(memory.blocks(MemoryUse::kModel), 1u) << "both are in it";
    memory.trim();
    EXPECT_EQ(memory.blocks(MemoryUse::kModel), 1u);
  }
  EXPECT_EQ(memory.blocks(MemoryUse::kModel), 0u);
  memory.reserve(std::vector<size_t>{1000});
  memory.trim();
  EXPECT_EQ(memory.blocks(MemoryUse::kModel), 0u);
}

// Layers are alike; what another text could come of is not.
TEST_F(VulkanKernels, AreSharedByProgramsThatDifferInNamesAlone) {
  using namespace vulkan;
  const auto core = std::make_shared<Core>(std::move(instance_), 0);
  Kernels& kernels = core->kernels;
  const auto model = make_model(
      R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 1, "vocab_size": 8,
          "n_positions": 8, "activation_function": "gelu"})");
  const auto block = [&](int layer, DType dtype) {
    const auto of = [&](const std::string&) { return dtype; };
    return compile(cat("block.", layer),
                   {model->stage(cat("block.", layer)).trace({of, DType::kF32})}, kFuseRules);
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
