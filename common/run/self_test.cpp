#include "run/self_test.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>

#include "base/log.h"
#include "compile/compile.h"
#include "io/quantize.h"
#include "models/functional.h"

namespace split {
namespace {

constexpr uint32_t kMostRows = 40, kPages = 4;
constexpr int kChannels = 96, kHeads = 3;  // whole tiles of 16, and heads of 32
constexpr StateShape kState{1, 2, 24, 16, 4};

// One or two kernels as a Program from "x" [rows, width] to "y".
struct Case {
  std::string name;
  Tensor y;
  double error;  // an element's, relative to the largest
  DType cache = DType::kF32;
  bool units = false;  // where the device has matrix units
  Int8Rows int8 = Int8Rows::kNone;
};

std::vector<Case> cases() {
  const auto x = [](int64_t width) { return input("x", DType::kF32, {kRows, width}); };
  const auto b = [](int64_t width) { return weight("b", DType::kF32, {width}); };
  const auto attended = [&](DType cache) {
    return attention(x(3 * kChannels), input("k_cache", cache, {kChannels}),
                     input("v_cache", cache, {kChannels}),
                     {kHeads, kHeads, kChannels / kHeads, 0.2f});
  };
  const auto matrix = [](DType dtype) {
    return is_quantised(dtype) ? transpose(weight("w", dtype, {160, kChannels}))
                               : weight("w", dtype, {kChannels, 160});
  };
  // kHalf: matrix units round activations to halves, the CPU to bf16, both by quantised weights.
  constexpr double kFloat = 1e-4, kHalf = 1e-2;
  std::vector<Case> all;
  all.push_back(
      {"layer norm",
       layer_norm(x(kChannels), weight("g", DType::kF32, {kChannels}), b(kChannels), 1e-5f),
       kFloat});
  all.push_back({"activation", gelu_new(x(kChannels)), kFloat});
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
    all.push_back({cat("product by ", dtype_name(dtype)),
                   matmul(x(kChannels), matrix(dtype)) + b(160),
                   is_quantised(dtype) ? kHalf : kFloat});
  }
  for (const DType cache : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    all.push_back({cat("attention over ", dtype_name(cache)), attended(cache),
                   is_quantised(cache) ? kHalf : kFloat, cache});
  }
  constexpr int kSize = kChannels / kHeads;
  const auto table = [](const char* name) {
    return weight(name, DType::kF32, {kPages * kPageTokens, kSize / 2});
  };
  const Rotation rotation{table("cos"), table("sin"), input("positions", DType::kI32, {kRows})};
  all.push_back({"rotation", rotate(x(kChannels), rotation, kHeads), kFloat});
  all.push_back(
      {"rotation of normed heads",
       rotate(x(kChannels), {weight("g", DType::kF32, {kSize}), 1e-6f, 1.0f}, rotation, kHeads),
       kFloat});
  const Tensor shared = x(kChannels + 2 * kSize);
  all.push_back(
      {"attention in a window",
       attention(columns(shared, 0, kChannels), columns(shared, kChannels, kSize),
                 columns(shared, kChannels + kSize, kSize), input("k_cache", DType::kF32, {kSize}),
                 input("v_cache", DType::kF32, {kSize}), {kHeads, 1, kSize, 0.2f, 9, 0.5f}),
       kFloat});
  all.push_back({"top k", topk(x(1024), 40), 0});
  const auto state = input("state", DType::kF32, {static_cast<int64_t>(kState.floats())});
  const Tensor rows = x(static_cast<int64_t>(kState.width()));
  const Tensor mixed = conv_rows(
      rows, weight("w", DType::kF32, {static_cast<int64_t>(kState.width()), 1, 4}), state, kState);
  const auto each = [](const char* name) { return weight(name, DType::kF32, {2}); };
  const Tensor numbers = matmul(rows, weight("n", DType::kF32, {80, 2}));
  all.push_back({"gated DeltaNet",
                 norm_heads(delta(mixed, numbers, numbers, each("a"), each("b"), state, kState),
                            {weight("g", DType::kF32, {16}), 1e-6f, 0.0f}, 2) *
                     silu(head_part(mixed, 2, 8, 16)),
                 kFloat});
  for (const DType dtype : {DType::kF16, DType::kQ8_0, DType::kQ4_0}) {
    all.push_back({cat("product by ", dtype_name(dtype), " on matrix units"),
                   matmul(relu(x(kChannels)), matrix(dtype)) + b(160), kHalf, DType::kF32, true});
  }
  for (const DType cache : {DType::kF16, DType::kQ8_0}) {
    all.push_back({cat("attention by matrix units over ", dtype_name(cache)),
                   matmul(attended(cache), matrix(DType::kF16)) + b(160), kHalf, cache, true});
  }
  return all;
}

}  // namespace

std::vector<float> test_numbers(const std::string& name, size_t count) {
  auto state = static_cast<uint32_t>(std::accumulate(name.begin(), name.end(), 1));
  std::vector<float> values(count);
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
  }
  return values;
}

namespace {

// A case, loaded on a device.
class Loaded {
 public:
  Loaded(Device& device, const Case& test, bool wide) : device_(device) {
    const Program program = compile("self_test", {{"y", test.y}}, device.fuse_rules());
    Limits limits;
    limits.rows = kMostRows;
    limits.sequences = 1;
    limits.pages_per_sequence = limits.pages = kPages;
    limits.states = 1;
    limits.arena_row_bytes = program.arena_row_bytes;
    limits.matrix = test.units;
    limits.int8 = test.int8;
    limits.wide = wide;
    workspace_ = device.workspace(limits);
    std::vector<Binding> bindings;
    for (const Slot& slot : program.slots) {
      if (slot.kind == SlotKind::kTemp || slot.dtype == DType::kI32) continue;
      std::unique_ptr<Buffer>& buffer = buffers_[slot.name];
      if (slot.kind == SlotKind::kWeight) {
        const auto values = test_numbers(slot.name, static_cast<size_t>(*element_count(slot.dims)));
        const TensorView view{DType::kF32, slot.dims, std::as_bytes(std::span(values))};
        weights_.push_back(is_quantised(slot.dtype) ? quantised(view, slot.dtype, false, slot.name)
                                                    : converted(view, slot.dtype));
        buffer = device.upload(slot, weights_.back().view);
      } else if (slot.name == "state") {
        buffer = device.alloc_states(limits, kState);
      } else if (slot.dims.size() == 1) {
        buffer = device.alloc_pages(limits, slot.dims[0], test.cache);
      } else {
        const auto width = static_cast<size_t>(slot.dims[1]);
        (slot.name == "x" ? x_width_ : y_width_) = width;
        buffer = device.alloc(kMostRows * width * sizeof(float));
      }
      bindings.push_back({slot.name, buffer.get()});
    }
    executable_ = device.load(program, *workspace_, bindings);
  }

  // Returns "y" of the last of `steps`, consecutive steps of so many rows each.
  std::vector<float> run(Phase phase, const std::vector<uint32_t>& steps) {
    std::vector<float> y;
    uint32_t past = 0;
    const std::vector<uint32_t> sequences(kMostRows, 0);
    std::vector<uint32_t> pages(kPages);
    std::iota(pages.rbegin(), pages.rend(), 0u);
    for (const uint32_t rows : steps) {
      const std::vector<float> x = test_numbers(cat("x", past), rows * x_width_);
      std::vector<int32_t> positions(rows);
      std::iota(positions.begin(), positions.end(), static_cast<int32_t>(past));
      std::vector<KeyRange> seen;
      for (uint32_t row = 0; row < rows; ++row) seen.push_back({0, past + row + 1});
      past += rows;
      y.resize(rows * y_width_);
      RowBatch batch;
      batch.phase = phase;
      batch.rows = rows;
      batch.positions = positions;
      batch.sequences = std::span(sequences).first(rows);
      batch.seen = seen;
      batch.page_tables = pages;
      batch.states = states_;
      batch.in = buffers_.at("x").get();
      batch.in_bytes = std::as_bytes(std::span(x));
      batch.out = buffers_.at("y").get();
      batch.out_bytes = std::as_writable_bytes(std::span(y));
      Executable* const programs[] = {executable_.get()};
      device_.run(*workspace_, programs, batch);
    }
    return y;
  }

 private:
  Device& device_;
  std::unique_ptr<Workspace> workspace_;
  std::map<std::string, std::unique_ptr<Buffer>> buffers_;
  std::deque<OwnedTensor> weights_;
  std::unique_ptr<Executable> executable_;
  size_t x_width_ = 0, y_width_ = 0;
  const uint32_t state_ = 0;
  const std::span<const uint32_t> states_[1] = {{&state_, 1}};
};

// Whether it has the case's kernels.
bool supports(const Device& device, const Case& test) {
  const Program program = compile("self_test", {{"y", test.y}}, device.fuse_rules());
  return device.supports_kv(test.cache) &&
         std::ranges::all_of(program.steps,
                             [&](const Step& step) { return device.supports(program, step); });
}

// Throws Error(kDevice) when `got` is not `want`.
void expect_close(const Device& device, const std::string& what, double error,
                  const std::vector<float>& got, const std::vector<float>& want) {
  double largest = 0, difference = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double apart = std::abs(double{got[i]} - double{want[i]});
    difference = std::isfinite(apart) ? std::max(difference, apart) : HUGE_VAL;
    largest = std::max(largest, std::abs(double{want[i]}));
  }
  if (difference <= error * largest) return;
  throw Error(ErrorKind::kDevice,
              cat("[", device.name(), "] computes wrongly: ", what, " differs from the CPU's by ",
                  difference / largest, ", expected ", error, " at most"));
}

}  // namespace

namespace {

// A block of a model of the Llama family up to some step, in q8_0 and q4_0.
Tensor exact_step(std::string_view step) {
  constexpr int64_t kInner = 160, kQueries = 192, kKeys = 64;
  constexpr int kSize = 32;
  const auto by = [](const Tensor& x, const char* name, DType dtype, int64_t inner, int64_t width) {
    return matmul(x, transpose(weight(name, dtype, {width, inner})));
  };
  const auto norm = [](const Tensor& x, const char* name) {
    return rms_norm(x, weight(name, DType::kF32, {kChannels}), 1e-5f);
  };
  const auto table = [](const char* name) {
    return weight(name, DType::kF32, {kPages * kPageTokens, kSize / 2});
  };
  const Tensor x = input("x", DType::kF32, {kRows, kChannels});
  Tensor normed = norm(x, "g1");
  if (step == "norm") return normed;
  Tensor qkv = by(normed, "qkv", DType::kQ8_0, kChannels, kQueries + 2 * kKeys);
  if (step == "product") return qkv;
  const Rotation rotation{table("cos"), table("sin"), input("positions", DType::kI32, {kRows})};
  Tensor attended = attention(
      rotate(columns(qkv, 0, kQueries), rotation, kQueries / kSize),
      rotate(columns(qkv, kQueries, kKeys), rotation, kKeys / kSize),
      columns(qkv, kQueries + kKeys, kKeys), input("k_cache", DType::kBF16, {kKeys}),
      input("v_cache", DType::kBF16, {kKeys}), {kQueries / kSize, kKeys / kSize, kSize, 0.2f});
  if (step == "attention") return attended;
  const Tensor middle = x + by(attended, "o", DType::kQ4_0, kQueries, kChannels);
  const Tensor again = norm(middle, "g2");
  return middle + by(silu(by(again, "gate", DType::kQ8_0, kChannels, kInner)) *
                         by(again, "up", DType::kQ4_0, kChannels, kInner),
                     "down", DType::kQ8_0, kInner, kChannels);
}

constexpr ExactBits kExactBits[] = {
    {"norm", {0x56d75b67639047d5u, 0xcbb807c96d320ad3u, 0xe8c0aa328e0e5519u}},
    {"product", {0x89c9d2c1b0467cb0u, 0x49e9b2a2d4ce9b20u, 0xd5599607dd97577cu}},
    {"attention", {0x15aa1967a958ab90u, 0xd97b386a34351661u, 0xdb96b67a6f9b0d6eu}},
    {"block", {0x8794c34a9279b8f3u, 0x748ec927b78aaabcu, 0xd9cc2ed235064f19u}},
};

uint64_t hash_of(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const std::byte byte : std::as_bytes(std::span(values))) {
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace

std::span<const ExactBits> exact_bits() { return kExactBits; }

const char* exact_difference(Device& device) {
  std::deque<Loaded> all;  // before the first runs, as in self_test()
  for (const ExactBits& bits : kExactBits) {
    Case test{bits.step, exact_step(bits.step), 0, DType::kBF16};
    test.int8 = Int8Rows::kAll;
    all.emplace_back(device, test, false);
  }
  device.settle();
  const std::vector<uint32_t> steps[] = {{kMostRows}, {20, 1}, {20, 5}};
  for (size_t n = 0; n < all.size(); ++n) {
    for (size_t i = 0; i < std::size(steps); ++i) {
      const Phase phase = i == 0 ? Phase::kPrompt : Phase::kGenerate;
      if (hash_of(all[n].run(phase, steps[i])) != kExactBits[n].hashes[i])
        return kExactBits[n].step;
    }
  }
  return nullptr;
}

void self_test(Device& device) {
  const auto cpu = make_cpu_device(1);
  struct Pair {
    Case test;
    bool wide;
    std::unique_ptr<Loaded> here, there;
  };
  // All are loaded before the first runs, so that pipelines are made in parallel.
  std::vector<Pair> pairs;
  for (const Case& test : cases()) {
    if (!supports(device, test)) continue;
    for (const bool wide : {false, true}) {
      if (wide && !test.units) continue;
      pairs.push_back({test, wide, std::make_unique<Loaded>(device, test, wide),
                       std::make_unique<Loaded>(*cpu, test, wide)});
    }
  }
  device.settle();
  for (const Pair& pair : pairs) {
    const Phase phase = pair.wide ? Phase::kGenerate : Phase::kPrompt;
    // Steps of many rows and of few, the latter over earlier keys.
    for (const std::vector<uint32_t>& steps :
         {std::vector<uint32_t>{kMostRows}, std::vector<uint32_t>{20, 1},
          std::vector<uint32_t>{20, 5}}) {
      expect_close(device, cat(pair.test.name, " of ", steps.back(), " rows"), pair.test.error,
                   pair.here->run(phase, steps), pair.there->run(phase, steps));
    }
  }
}

std::unique_ptr<Device> passed(std::unique_ptr<Device> device, const DeviceOptions& options) {
  if (!device->fingerprint()) return device;
  try {
    self_test(*device);
  } catch (const Error& error) {
    if (options.device != "auto") throw;
    log_warning(cat(error.what(), "; the CPU takes its place"));
    return make_cpu_device(options.threads);
  }
  return device;
}

}  // namespace split
