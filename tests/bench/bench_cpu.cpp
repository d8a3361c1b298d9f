// The area cpu: whole-model steps on the CPU device beside what this machine's memory and the bare
// matrix products allow, all measured in alternation in one process.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "bench/kernels.h"
#include "bench/steps.h"
#include "bench/support/bare_products.h"
#include "bench/support/pair.h"
#include "bench/text_steps.h"
#include "bench/tokenizer_rows.h"

namespace split::bench {
namespace {

constexpr uint32_t kBatches[] = {2, 4, 8, 16, 32};
constexpr int kDecodes = 12;     // steps of a repetition
constexpr int kBusySteps = 200;  // beside a busy process

// A process that computes all the time, as a neighbour would.
class BusyProcess {
 public:
  BusyProcess() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a reader of the table may go and end the parent
    for (volatile unsigned i = 0;;) i = i + 1;
  }
  ~BusyProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  BusyProcess(const BusyProcess&) = delete;
  BusyProcess& operator=(const BusyProcess&) = delete;

 private:
  pid_t pid_;
};

// One profile's steps and their times; `blocks` of weights where it takes several.
struct Side {
  Side(const Options& options, Device& device, Profile profile, std::optional<DType> kv = {},
       std::string_view blocks = {})
      : name(cat(profile_name(profile), kv ? "_kv8" : "", blocks.empty() ? "" : "_", blocks)),
        formats(blocks.empty() ? profile_formats(profile) : StageFormats::parse(blocks)),
        model(options.size, profile == Profile::kF32 ? DType::kF32 : DType::kF16),
        steps(device, model, profile, kv, false, formats) {
    steps.sample_too();
    rows = std::min(512u, static_cast<uint32_t>(model.config().context));
  }

  void measure() {
    for (int i = 0; i < kDecodes; ++i) {
      decode.push_back(steps.decode(kBatchContext));
      decode_long.push_back(steps.decode(steps.long_context()));
    }
    for (size_t i = 0; i < std::size(kBatches); ++i) {
      for (int k = 0; k < 3; ++k) batch[i].push_back(steps.batch(kBatches[i]));
    }
    for (int i = 0; i < 2; ++i) prefill.push_back(steps.prefill(rows));
  }

  std::string name;
  StageFormats formats;
  RandomModel model;
  Steps steps;
  uint32_t rows;  // of the prompt
  std::vector<double> decode, decode_long, prefill, batch[std::size(kBatches)];
};

void report_side(Report& report, const Side& side, double bandwidth,
                 const std::vector<double>& bare) {
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
  const auto rows = static_cast<double>(side.rows);
  std::optional<double> limit, best;
  if (!bare.empty()) limit = rows / median(bare), best = rows / minimum(bare);
  report.add(cat("prefill_", side.rows, "_", f), rows / median(side.prefill), "tokens/s", limit);
  report.add(cat("prefill_", side.rows, "_", f, "_best"), rows / minimum(side.prefill), "tokens/s",
             best);
  for (size_t i = 0; i < std::size(kBatches); ++i) {
    report.add(cat("batch_", kBatches[i], "_", f), kBatches[i] / median(side.batch[i]), "tokens/s",
               bound(kBatches[i], kBatchContext));
  }
}

constexpr Profile kProfiles[] = {Profile::kF16,  Profile::kBF16,       Profile::kQ8_0,
                                 Profile::kInt8, Profile::kInt8Decode, Profile::kQ4_0,
                                 Profile::kF32};

// Those that a comma-separated list names, all for an empty one.
std::vector<Profile> profiles_of(const std::string& list) {
  if (list.empty()) return {std::begin(kProfiles), std::end(kProfiles)};
  std::vector<Profile> result;
  std::istringstream names(list);
  for (std::string name; std::getline(names, name, ',');) {
    const std::optional<Profile> profile = profile_from_name(name);
    if (!profile) {
      throw Error(ErrorKind::kInput,
                  cat("--profiles: expected some of f16,bf16,q8_0,int8,int8_decode,q4_0,f32, got '",
                      name, "'"));
    }
    result.push_back(*profile);
  }
  return result;
}

int run(int argc, char** argv) {
  std::string list;
  const auto options = parse_options(
      argc, argv,
      "bench_cpu: whole-model steps on the CPU device, to the greedy token\n\n"
      "Limits: decode and batches, the weights and KV bytes of a step at the read bandwidth of\n"
      "this run; prefill, the bare matrix products of the blocks in bf16 by oneDNN in this run.\n",
      "", [&](Flags& flags) {
        flags.text("profiles", "LIST",
                   "some of f16,bf16,q8_0,int8,int8_decode,q4_0,f32 (all); the pair is f16", &list);
      });
  if (!options) return 0;
  const std::vector<Profile> profiles = profiles_of(list);
  const auto device = make_cpu_device(options->threads);
  Report report(*options, "cpu", device->name());
  if (RandomModel(options->size, DType::kF16).config().encodes()) {
    measure_texts(*options, profiles, *device, report);
    if (std::ranges::find(profiles, Profile::kF16) != profiles.end())
      measure_pair(*options, report);
    report.finish();
    return 0;
  }
  std::vector<std::unique_ptr<Side>> sides;
  const auto add = [&](Profile profile, std::optional<DType> kv = {},
                       std::string_view blocks = {}) {
    sides.push_back(std::make_unique<Side>(*options, *device, profile, kv, blocks));
    sides.back()->steps.batch(kMostSequences);  // fills the caches, touches the memory
  };
  for (const Profile profile : profiles) {
    add(profile);
    const ModelConfig& config = sides[0]->model.config();
    if (profile == Profile::kQ8_0 && config.channels / config.heads % kBlock == 0) {
      add(profile, DType::kQ8_0);
    }
    if (profile == Profile::kInt8) add(profile, {}, "q4_0");
  }
  BareProducts bare(sides[0]->model.config(), sides[0]->rows, options->threads);
  std::vector<double> bandwidths, bare_seconds;
  for (unsigned i = 0; i < options->runs; ++i) {
    for (const auto& side : sides) {
      if (const auto seconds = bare.run()) bare_seconds.push_back(*seconds);
      bandwidths.push_back(read_bandwidth_pass(options->threads));
      side->measure();
    }
  }
  const double bandwidth = quantile(bandwidths, 1);
  report.add("read_bandwidth", bandwidth / 1e9, "GB/s");
  report.add("read_bandwidth_median", median(bandwidths) / 1e9, "GB/s");
  for (const auto& side : sides) report_side(report, *side, bandwidth, bare_seconds);
  {
    Steps& steps = sides.front()->steps;
    const BusyProcess neighbour;
    std::vector<double> busy;
    for (int i = 0; i < kBusySteps; ++i) busy.push_back(steps.decode(kBatchContext));
    report.add("busy_step_p50_ms", 1e3 * median(busy), "ms");
    report.add("busy_step_p99_over_p50", quantile(busy, 0.99) / median(busy), "", 2.0);
  }
  measure_grouped_heads(*options, sides[0]->model.config(), *device, report);
  if (sides[0]->model.config().model_type != "gpt2") measure_tokenizers(*options, report);
  sides.clear();  // their memory
  if (std::ranges::find(profiles, Profile::kF16) != profiles.end()) measure_pair(*options, report);
  report.finish();
  return 0;
}

}  // namespace
}  // namespace split::bench

int main(int argc, char** argv) { return split::bench::run_main(split::bench::run, argc, argv); }
