// The area cpu: whole-model steps on the CPU device beside what this machine's memory and the bare
// matrix products allow, all measured in alternation in one process.
#include <algorithm>

#include "bench/kernels.h"
#include "bench/steps.h"

namespace split::bench {
namespace {

constexpr uint32_t kBatches[] = {2, 4, 8, 16, 32};
constexpr int kDecodes = 12;  // steps of a repetition

// One profile's steps and their times.
struct Side {
  Side(const Options& options, Device& device, Profile profile)
      : name(profile_name(profile)),
        formats(profile_formats(profile)),
        model(options.size, profile == Profile::kF32 ? DType::kF32 : DType::kF16),
        steps(device, model, profile) {
    rows = std::min(512u, static_cast<uint32_t>(model.config().context));
    const int64_t c = model.config().channels;
    const DType dtype =
        formats.block.value_or(profile == Profile::kF32 ? DType::kF32 : DType::kF16);
    const std::pair<int64_t, int64_t> shapes[] = {{c, 3 * c}, {c, c}, {c, 4 * c}, {4 * c, c}};
    for (const auto& [inner, columns] : shapes) {
      products.push_back(std::make_unique<MatmulBench>(
          device, MatmulShape{inner, columns, dtype, is_quantised(dtype)},
          steps.shard().options().max_rows, 16e6));
    }
  }

  // Seconds of a prompt's matrix products alone, in the slices that the prompt runs in.
  double bare_products() {
    double seconds = 0;
    for (const auto& product : products) {
      for (uint32_t done = 0; done < rows;) {
        const uint32_t count = std::min(rows - done, steps.shard().options().max_rows);
        seconds += model.config().layers * product->run(count);
        done += count;
      }
    }
    return seconds;
  }

  void measure() {
    for (int i = 0; i < kDecodes; ++i) {
      decode.push_back(steps.decode(kBatchContext));
      decode_long.push_back(steps.decode(steps.long_context()));
    }
    for (size_t i = 0; i < std::size(kBatches); ++i) {
      for (int k = 0; k < 3; ++k) batch[i].push_back(steps.batch(kBatches[i]));
    }
    prefill.push_back(steps.prefill(rows));
    bare.push_back(bare_products());
  }

  std::string name;
  StageFormats formats;
  RandomModel model;
  Steps steps;
  uint32_t rows;  // of the prompt
  std::vector<std::unique_ptr<MatmulBench>> products;
  std::vector<double> decode, decode_long, prefill, bare, batch[std::size(kBatches)];
};

void report_side(Report& report, const Side& side, double bandwidth) {
  const double weights = side.model.step_bytes(side.formats);
  const auto bound = [&](double sequences, uint32_t context) {
    return sequences * bandwidth / (weights + sequences * side.steps.kv_bytes(context));
  };
  const std::string& f = side.name;
  report.note(cat(f, ": a token reads ", static_cast<int>(weights / 1e6), " MB of weights"));
  const uint32_t context = side.steps.long_context();
  report.add(cat("decode_", f), 1 / median(side.decode), "tokens/s", bound(1, kBatchContext));
  report.add(cat("decode_", f, "_best"), 1 / minimum(side.decode), "tokens/s",
             bound(1, kBatchContext));
  report.add(cat("decode_", f, "_ctx", context), 1 / median(side.decode_long), "tokens/s",
             bound(1, context));
  report.add(cat("prefill_", side.rows, "_", f), side.rows / median(side.prefill), "tokens/s",
             side.rows / median(side.bare));
  report.add(cat("prefill_", side.rows, "_", f, "_best"), side.rows / minimum(side.prefill),
             "tokens/s", side.rows / minimum(side.bare));
  for (size_t i = 0; i < std::size(kBatches); ++i) {
    report.add(cat("batch_", kBatches[i], "_", f), kBatches[i] / median(side.batch[i]), "tokens/s",
               bound(kBatches[i], kBatchContext));
  }
}

int run(int argc, char** argv) {
  const auto options = parse_options(
      argc, argv,
      "bench_cpu: whole-model steps on the CPU device\n\n"
      "Limits: decode and batches, the weights and KV bytes of a step at the read bandwidth of\n"
      "this run; prefill, the bare matrix products of the blocks.\n",
      "");
  if (!options) return 0;
  const auto device = make_cpu_device(options->threads);
  Report report(*options, "cpu", device->name());
  std::vector<std::unique_ptr<Side>> sides;
  for (const Profile profile : {Profile::kF16, Profile::kF32, Profile::kQ8_0, Profile::kQ4_0}) {
    sides.push_back(std::make_unique<Side>(*options, *device, profile));
    sides.back()->steps.batch(kMostSequences);  // fills the caches, touches the memory
  }
  std::vector<double> bandwidths;
  for (unsigned i = 0; i < options->runs; ++i) {
    for (const auto& side : sides) {
      bandwidths.push_back(read_bandwidth_pass(options->threads));
      side->measure();
    }
  }
  const double bandwidth = quantile(bandwidths, 1);
  report.add("read_bandwidth", bandwidth / 1e9, "GB/s");
  report.add("read_bandwidth_median", median(bandwidths) / 1e9, "GB/s");
  for (const auto& side : sides) report_side(report, *side, bandwidth);
  report.finish();
  return 0;
}

}  // namespace
}  // namespace split::bench

int main(int argc, char** argv) { return split::bench::run_main(split::bench::run, argc, argv); }
