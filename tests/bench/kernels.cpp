#include "bench/kernels.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace split::bench {
namespace {

// Many rows are bound by arithmetic, not memory: a few copies do.
constexpr size_t kWideCopies = 4;

double run_all(Device& device, Workspace& workspace,
               const std::vector<std::unique_ptr<Executable>>& executables, const RowBatch& batch) {
  std::vector<Executable*> programs;
  const size_t count =
      batch.rows > 32 ? std::min(executables.size(), kWideCopies) : executables.size();
  for (size_t i = 0; i < count; ++i) programs.push_back(executables[i].get());
  const double seconds = timed([&] { device.run(workspace, programs, batch); });
  return seconds / static_cast<double>(programs.size());
}

std::unique_ptr<Buffer> filled(Device& device, size_t floats, uint64_t seed) {
  const OwnedTensor values = random_tensor({static_cast<int64_t>(floats)}, DType::kF32, seed, 1.0f);
  auto buffer = device.alloc(values.storage.size());
  device.write(*buffer, 0, values.storage);
  return buffer;
}

}  // namespace

MatmulBench::MatmulBench(Device& device, const MatmulShape& shape, uint32_t max_rows, double bytes)
    : device_(device) {
  const Dims dims =
      shape.transposed ? Dims{shape.columns, shape.inner} : Dims{shape.inner, shape.columns};
  const Tensor w = weight("w", shape.dtype, dims);
  const Tensor x = input("x", DType::kF32, {kRows, shape.inner});
  const Program program = compile("matmul", {{"y", matmul(x, shape.transposed ? transpose(w) : w)}},
                                  device.fuse_rules());

  Limits limits;
  limits.rows = max_rows;
  limits.sequences = limits.pages_per_sequence = limits.pages = 1;
  limits.arena_row_bytes = program.arena_row_bytes;
  limits.matrix = shape.dtype == DType::kBF16;
  workspace_ = device.workspace(limits);
  buffers_.push_back(filled(device, max_rows * static_cast<size_t>(shape.inner), 7));
  buffers_.push_back(device.alloc(max_rows * static_cast<size_t>(shape.columns) * sizeof(float)));
  Buffer* const in = buffers_[0].get();
  Buffer* const out = buffers_[1].get();

  const double wanted = std::ceil(bytes / shape.weight_bytes());
  const auto copies = static_cast<size_t>(std::clamp(wanted, 1.0, 128.0));
  const Slot& slot = program.slots.at(static_cast<size_t>(program.find("w")));
  for (size_t i = 0; i < copies; ++i) {
    copies_.push_back(random_tensor(dims, shape.dtype, i));
    buffers_.push_back(device.upload(slot, copies_.back().view));
    const Binding bindings[] = {{"x", in}, {"y", out}, {"w", buffers_.back().get()}};
    executables_.push_back(device.load(program, *workspace_, bindings));
  }
}

double MatmulBench::run(uint32_t rows) {
  const std::vector<int32_t> positions(rows, 0);
  const std::vector<uint32_t> sequences(rows, 0), tables(1, 0);
  RowBatch batch;
  batch.phase = rows > 32 ? Phase::kPrompt : Phase::kGenerate;
  batch.rows = rows;
  batch.positions = positions;
  batch.sequences = sequences;
  batch.page_tables = tables;
  return run_all(device_, *workspace_, executables_, batch);
}

AttentionHeads heads_of(const ModelConfig& config) {
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .scale = 1 / std::sqrt(static_cast<float>(config.head_dim))};
}

void measure_grouped_heads(const Options& options, const ModelConfig& config, Device& device,
                           Report& report) {
  constexpr uint32_t kKeys = 4096, kLayers = 8;
  AttentionHeads heads = heads_of(config);
  if (heads.kv_heads == heads.heads) return;
  std::optional<double> goal;
  if (heads.heads == 4 * heads.kv_heads) goal = 0.35;
  AttentionBench grouped(device, heads, DType::kF16, kKeys, kLayers);
  heads.kv_heads = heads.heads;
  AttentionBench all(device, heads, DType::kF16, kKeys, kLayers);
  std::vector<double> shared, own;
  for (unsigned i = 0; i < 20 * options.runs; ++i) {
    shared.push_back(grouped.run()), own.push_back(all.run());
  }
  const std::string name = cat("attention_", kKeys, "_keys_");
  report.add(cat(name, config.heads, "_on_", config.kv_heads), 1e6 * median(shared), "us");
  report.add(cat(name, config.heads, "_on_", config.heads), 1e6 * median(own), "us");
  report.add(name + "grouped_over_all", median(shared) / median(own), "", goal);
}

AttentionBench::AttentionBench(Device& device, const AttentionHeads& heads, DType cache,
                               uint32_t context, uint32_t layers)
    : device_(device), context_(context) {
  const int64_t channels = int64_t{heads.kv_heads} * heads.head_dim;
  const int64_t outputs = int64_t{heads.heads} * heads.head_dim;
  const Tensor qkv = input("qkv", DType::kF32, {kRows, outputs + 2 * channels});
  const Tensor k = input("k_cache", cache, {channels});
  const Tensor v = input("v_cache", cache, {channels});
  const Program program =
      compile("attention", {{"y", attention(qkv, k, v, heads)}}, device.fuse_rules());

  Limits limits;
  limits.rows = std::max(1u, context);
  limits.sequences = 1;
  limits.pages_per_sequence = limits.pages = (context + kPageTokens - 1) / kPageTokens;
  limits.arena_row_bytes = program.arena_row_bytes;
  workspace_ = device.workspace(limits);
  const auto width = static_cast<size_t>(outputs);
  buffers_.push_back(filled(device, limits.rows * (width + 2 * static_cast<size_t>(channels)), 7));
  buffers_.push_back(device.alloc(limits.rows * width * sizeof(float)));
  Buffer* const in = buffers_[0].get();
  Buffer* const out = buffers_[1].get();
  for (uint32_t layer = 0; layer < layers; ++layer) {
    auto keys = device.alloc_pages(limits, channels, cache);
    auto values = device.alloc_pages(limits, channels, cache);
    const Binding bindings[] = {
        {"qkv", in}, {"y", out}, {"k_cache", keys.get()}, {"v_cache", values.get()}};
    executables_.push_back(device.load(program, *workspace_, bindings));
    buffers_.push_back(std::move(keys));
    buffers_.push_back(std::move(values));
  }

  // The cache holds numbers before it is measured.
  std::vector<int32_t> positions(context);
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<uint32_t> sequences(context, 0);
  std::vector<uint32_t> table(limits.pages);
  std::iota(table.begin(), table.end(), 0u);
  RowBatch batch;
  std::vector<KeyRange> seen;
  for (uint32_t row = 0; row < context; ++row) seen.push_back({0, row + 1});
  batch.rows = context;
  batch.positions = positions;
  batch.sequences = sequences;
  batch.seen = seen;
  batch.page_tables = table;
  std::vector<Executable*> programs;
  for (const auto& executable : executables_) programs.push_back(executable.get());
  device_.run(*workspace_, programs, batch);
}

double AttentionBench::run(uint32_t rows) {
  std::vector<int32_t> positions(rows);
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(context_ - rows));
  const std::vector<uint32_t> sequences(rows, 0);
  std::vector<uint32_t> table((context_ + kPageTokens - 1) / kPageTokens);
  std::iota(table.begin(), table.end(), 0u);
  std::vector<KeyRange> seen;
  for (uint32_t row = 0; row < rows; ++row) seen.push_back({0, context_ - rows + row + 1});
  RowBatch batch;
  batch.phase = rows > 1 ? Phase::kPrompt : Phase::kGenerate;
  batch.rows = rows;
  batch.positions = positions;
  batch.sequences = sequences;
  batch.seen = seen;
  batch.page_tables = table;
  return run_all(device_, *workspace_, executables_, batch);
}

}  // namespace split::bench
