// The area kernels: matrix products at a model's shapes and attention of one token, on one device.
// A product's limit is the time that its weights take at the CPU's measured read bandwidth (CPU
// only); no limit is stated where arithmetic and not memory bounds it.
#include <algorithm>

#include "bench/kernels.h"

namespace split::bench {
namespace {

constexpr double kRotation = 256e6;  // bytes of weights: several times any cache here

int run(int argc, char** argv) {
  const auto options = parse_options(
      argc, argv, "bench_kernels: matrix products and attention on one device\n", "cpu");
  if (!options) return 0;
  const auto device = make_device({options->device, options->threads});
  const bool cpu = device->name().rfind("cpu", 0) == 0;
  const RandomModel model(options->size, DType::kF16);
  const ModelConfig& config = model.config();
  Report report(*options, "kernels", device->name());

  // The most of a few passes over memory, taken beside what is compared with it.
  double best = 0;
  const auto bandwidth_now = [&] {
    double now = 0;
    for (int i = 0; cpu && i < 3; ++i) now = std::max(now, read_bandwidth_pass(options->threads));
    best = std::max(best, now);
    return cpu ? std::optional(now) : std::nullopt;
  };

  const int64_t c = config.channels;
  const std::pair<int64_t, int64_t> shapes[] = {
      {c, 3 * c}, {c, c}, {c, 4 * c}, {4 * c, c}, {c, config.vocab}};
  for (const auto& [inner, columns] : shapes) {
    for (const DType dtype : {DType::kF16, DType::kF32, DType::kQ8_0, DType::kQ4_0}) {
      for (const bool transposed : {false, true}) {
        if (is_quantised(dtype) && !transposed) continue;
        const MatmulShape shape{inner, columns, dtype, transposed};
        MatmulBench bench(*device, shape, 512, kRotation);
        const auto bandwidth = bandwidth_now();
        for (const uint32_t rows : {1u, 8u, 32u, 512u}) {
          // Long enough runs to be seen; the widest are long by themselves.
          const unsigned runs = rows == 512 ? 1 : options->runs;
          std::vector<double> times;
          if (rows < 512) bench.run(rows);
          for (unsigned i = 0; i < runs; ++i) times.push_back(bench.run(rows));
          const double seconds = median(times);
          const std::string name =
              cat("matmul_", inner, "x", columns, "_", format_name(dtype),
                  transposed && !is_quantised(dtype) ? "_transposed" : "", "_rows", rows);
          const double flops =
              2.0 * static_cast<double>(inner) * static_cast<double>(columns) * rows;
          if (rows == 1) {
            report.add(name + "_gbps", shape.weight_bytes() / seconds / 1e9, "GB/s",
                       bandwidth ? std::optional(*bandwidth / 1e9) : std::nullopt);
          } else {
            report.add(name + "_gflops", flops / seconds / 1e9, "GFLOP/s");
          }
        }
      }
    }
  }

  for (const DType cache : {DType::kF16, DType::kF32}) {
    for (const uint32_t wanted : {128u, 1000u}) {
      const uint32_t context = std::min(wanted, static_cast<uint32_t>(config.context));
      AttentionBench bench(*device, heads_of(config), cache, context,
                           static_cast<uint32_t>(config.layers));
      const auto bandwidth = bandwidth_now();
      std::vector<double> times;
      for (unsigned i = 0; i < 20 * options->runs; ++i) times.push_back(bench.run());
      const double bytes = 2.0 * context * config.kv_heads * config.head_dim *
                           static_cast<double>(dtype_size(cache));
      report.add(cat("attention_context", context, cache == DType::kF16 ? "_f16_us" : "_f32_us"),
                 1e6 * median(times), "us",
                 bandwidth ? std::optional(1e6 * bytes / *bandwidth) : std::nullopt);
    }
  }
  // The end of a prompt whose beginning is known: bound by arithmetic.
  for (const DType cache : {DType::kF16, DType::kBF16}) {
    if (cache == DType::kBF16 && !cpu) continue;
    constexpr uint32_t kLayers = 4;
    const uint32_t context = std::min(2048u, static_cast<uint32_t>(config.context));
    AttentionBench bench(*device, heads_of(config), cache, context, kLayers);
    for (const uint32_t rows : {16u, 64u}) {
      bench.run(rows);
      std::vector<double> times;
      for (unsigned i = 0; i < options->runs; ++i) times.push_back(bench.run(rows));
      const double flops = 4.0 * rows * context * config.heads * config.head_dim;
      report.add(cat("attention_rows", rows, "_context", context,
                     cache == DType::kF16 ? "_f16" : "_bf16", "_gflops"),
                 flops / median(times) / 1e9, "GFLOP/s");
    }
  }
  if (cpu) report.add("read_bandwidth_gbps", best / 1e9, "GB/s");
  report.finish();
  return 0;
}

}  // namespace
}  // namespace split::bench

int main(int argc, char** argv) { return split::bench::run_main(split::bench::run, argc, argv); }
