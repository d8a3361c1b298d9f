// The steps of gated DeltaNet on Vulkan beside the CPU's: equal bits of rows and of states, in
// steps of any rows of any sequences, cut back and begun again.
#include <random>

#include "compile/compile.h"
#include "device/drawn.h"
#include "vulkan/vulkan_bench.h"

namespace split::test {
namespace {

constexpr uint32_t kSequences = 4, kPages = 40;

// Usual numbers, and some that are tiny, zero of either sign, or large.
std::vector<float> odd_numbers(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> all;
  for (size_t i = 0; i < count; ++i) {
    const float x = static_cast<float>(random() % 20001) / 10000.0f - 1.0f;
    const uint32_t kind = random() % 32;
    all.push_back(kind == 0   ? 0.0f
                  : kind == 1 ? -0.0f
                  : kind == 2 ? std::ldexp(x, -60)
                  : kind == 3 ? std::ldexp(x, -140)
                  : kind == 4 ? std::ldexp(x, 6)
                              : x);
  }
  return all;
}

Limits limits_for(const Program& program, uint32_t rows) {
  Limits limits;
  limits.rows = rows;
  limits.sequences = kSequences;
  limits.pages_per_sequence = kPages;
  limits.pages = kPages;
  limits.states = kSequences + 1;
  limits.arena_row_bytes = program.arena_row_bytes;
  return limits;
}

// Rows of some sequences.
struct StateRows {
  std::vector<int32_t> positions;
  std::vector<uint32_t> sequences;
  std::vector<float> x, a, b;
};

// The two steps on a device, with the states of all sequences.
class DeltaNet {
 public:
  DeltaNet(Device& device, const StateShape& shape, DType dtype, DType vector, uint32_t most)
      : device_(device), shape_(shape) {
    const auto count = [](size_t n) { return static_cast<int64_t>(n); };
    const Tensor state = input("state", DType::kF32, {count(shape.floats())});
    const Tensor mixed =
        conv_rows(input("x", DType::kF32, {kRows, count(shape.width())}),
                  weight("w", dtype, {count(shape.width()), 1, count(shape.taps)}), state, shape);
    const auto heads = count(shape.value_heads);
    const auto rows = [&](const char* name) { return input(name, DType::kF32, {kRows, heads}); };
    const Program program =
        compile("delta_net",
                {{"y", delta(mixed, rows("a"), rows("b"), weight("a_log", DType::kF32, {heads}),
                             weight("dt_bias", vector, {heads}), state, shape)}},
                device.fuse_rules());
    const Limits limits = limits_for(program, most);
    workspace_ = device.workspace(limits);
    device.prepare({&program, 1}, *workspace_);
    std::vector<Binding> bindings;
    for (const Slot& slot : program.slots) {
      if (slot.kind == SlotKind::kTemp || slot.dtype == DType::kI32) continue;
      std::unique_ptr<Buffer>& buffer = buffers_[slot.name];
      if (slot.kind == SlotKind::kWeight) {
        const auto values = odd_numbers(static_cast<size_t>(*element_count(slot.dims)), 7);
        weights_.push_back(
            converted({DType::kF32, slot.dims, std::as_bytes(std::span(values))}, slot.dtype));
        buffer = device.upload(slot, weights_.back().view);
      } else if (slot.name == "state") {
        buffer = device.alloc_states(limits, shape);
        const std::vector<float> none(buffer->size() / sizeof(float), NAN);
        device.write(*buffer, 0, std::as_bytes(std::span(none)));
      } else {
        buffer = device.alloc(most * static_cast<size_t>(slot.dims[1]) * sizeof(float));
      }
      bindings.push_back({slot.name, buffer.get()});
    }
    executable_ = device.load(program, *workspace_, bindings);
    device.settle();
  }

  // `states`: by sequence.
  std::vector<float> run(const StateRows& rows, std::span<const uint32_t> states) {
    for (const auto& [name, values] : {std::pair("a", &rows.a), {"b", &rows.b}}) {
      device_.write(*buffers_.at(name), 0, std::as_bytes(std::span(*values)));
    }
    std::vector<float> y(rows.positions.size() * shape_.value_heads * shape_.value_dim);
    RowBatch batch;
    batch.rows = static_cast<uint32_t>(rows.positions.size());
    batch.positions = rows.positions;
    batch.sequences = rows.sequences;
    batch.states = {&states, 1};
    batch.in = buffers_.at("x").get();
    batch.in_bytes = std::as_bytes(std::span(rows.x));
    batch.out = buffers_.at("y").get();
    batch.out_bytes = std::as_writable_bytes(std::span(y));
    Executable* const programs[] = {executable_.get()};
    device_.run(*workspace_, programs, batch);
    return y;
  }
  std::vector<float> states() const {
    const Buffer& buffer = *buffers_.at("state");
    std::vector<float> all(buffer.size() / sizeof(float));
    device_.read(buffer, 0, std::as_writable_bytes(std::span(all)));
    return all;
  }

 private:
  Device& device_;
  const StateShape shape_;
  std::unique_ptr<Workspace> workspace_;
  std::map<std::string, std::unique_ptr<Buffer>> buffers_;
  std::list<OwnedTensor> weights_;
  std::unique_ptr<Executable> executable_;
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Steps of a few rows, of many, and of a prompt beside generated rows, until each sequence has more
// pages than its state has halves. A sequence may go back 16 rows, or begin again.
void expect_equal_bits(Device& device, const StateShape& shape, DType dtype, DType vector,
                       uint32_t steps, uint32_t most_rows = 96) {
  const auto cpu = make_cpu_device(1);
  DeltaNet here(device, shape, dtype, vector, most_rows),
      there(*cpu, shape, dtype, vector, most_rows);
  std::mt19937 engine(static_cast<uint32_t>(shape.width()));
  const auto random = [&] { return static_cast<uint32_t>(engine()); };
  std::vector<uint32_t> lengths(kSequences), furthest(kSequences);
  const std::vector<uint32_t> states = {3, 0, 4, 1};
  for (uint32_t step = 0; step < steps; ++step) {
    StateRows rows;
    const uint32_t kind = random() % 3, most = kind == 0 ? 2 : kind == 1 ? 20 : most_rows;
    for (uint32_t sequence = 0; sequence < kSequences; ++sequence) {
      uint32_t &length = lengths[sequence], &reach = furthest[sequence];
      if (random() % 16 == 0) length = reach = 0;
      if (random() % 3 == 0) length -= std::min(length, random() % 17);
      length = std::max(length, reach - std::min(reach, 16u));
      const auto used = static_cast<uint32_t>(rows.positions.size());
      const uint32_t left = std::min(kPages * kPageTokens - length, most_rows - used);
      const uint32_t count = std::min(left, random() % (most + 1));
      for (uint32_t row = 0; row < count; ++row) {
        rows.positions.push_back(static_cast<int32_t>(length++));
        rows.sequences.push_back(sequence);
      }
      reach = std::max(reach, length);
    }
    if (rows.positions.empty()) continue;
    const size_t count = rows.positions.size();
    rows.x = odd_numbers(count * shape.width(), random());
    rows.a = odd_numbers(count * shape.value_heads, random());
    rows.b = odd_numbers(count * shape.value_heads, random());
    ASSERT_TRUE(same(here.run(rows, states), there.run(rows, states)))
        << "step " << step << " of " << count << " rows";
    ASSERT_TRUE(same(here.states(), there.states())) << "step " << step << " of " << count;
  }
}

class VulkanStates : public Vulkan {};

TEST_F(VulkanStates, HaveTheBitsOfTheCpu) {
  constexpr StateShape kShapes[] = {{2, 4, 12, 12, 4},  {3, 3, 8, 20, 2}, {1, 3, 128, 128, 4},
                                    {1, 1, 256, 40, 8}, {2, 2, 1, 1, 3},  {2, 6, 16, 16, 4, true}};
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  for (size_t i = 0; i < std::size(kShapes); ++i) {
    SCOPED_TRACE(i);
    expect_equal_bits(*device_, kShapes[i], kTypes[i % 3], kTypes[(i + 1) % 3],
                      runs_all() ? 400 : 40);
  }
}

TEST_F(VulkanStates, HaveThemWhereADeviceBindsAndSeesLess) {
  for (const auto& [variable, value] : {std::pair("SPLIT_VULKAN_ADDRESSES", "1"),
                                        {"SPLIT_VULKAN_DISABLE", "host_visible"},
                                        {"SPLIT_VULKAN_DISABLE", "small_tiles"},
                                        {"SPLIT_VULKAN_DISABLE", "shared"},
                                        {"SPLIT_VULKAN_MAX_RANGE", "600000"}}) {
    SCOPED_TRACE(value);
    const auto device = device_with(variable, value);
    // Its states are 568,320 bytes, its rows more.
    expect_equal_bits(*device, {8, 8, 12, 24, 4}, DType::kBF16, DType::kF32, 12, 640);
    if (value == std::string_view("small_tiles")) {
      expect_equal_bits(*device, {1, 2, 128, 20, 4}, DType::kF32, DType::kF32, 12, 640);
    }
    if (value == std::string_view("shared")) {
      expect_equal_bits(*device, {1, 1, 256, 20, 4}, DType::kF32, DType::kF32, 12, 640);
    }
  }
}

}  // namespace
}  // namespace split::test
