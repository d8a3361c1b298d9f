// The area gpu: loading and whole-model steps on a Vulkan device, with its logits compared with the
// CPU's f32 ones in the same run. Needs no file: the binary, libvulkan and a driver are enough.
// Limits are what this device's memory and launches allow, measured in the same run; of what they
// do not bound, the project's goals on an H200, for the sizes that have some.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include "base/bytes.h"
#include "bench/kernels.h"
#include "bench/steps.h"

namespace split::bench {
namespace {

constexpr double kWorstError = 1e-2;  // of the f16 profile's logits; more is a wrong result
// The bound beside blocks, where the CPU's rows are rounded to BF16: 2e-2 for Llama-3.2-1B.
constexpr double kWorstOfBlocks = 4e-2;
constexpr uint32_t kContext = 300;

// Microseconds, milliseconds and GB/s by name.
std::optional<double> goal(const std::string& size, const std::string& name) {
  static const std::map<std::string, std::pair<double, double>> kGoals = {
      {"decode_f16_gpu_us", {300, 1750}}, {"decode_f16_wall_us", {320, 1770}},
      {"batch_2_us", {600, 3500}},        {"batch_4_us", {600, 3500}},
      {"batch_8_us", {690, 4025}},        {"batch_32_us", {1067, 2667}},
      {"prefill_512_us", {1500, 13000}},  {"pipelines_cold_ms", {500, 500}},
      {"pipelines_warm_ms", {20, 20}},    {"upload_gbps", {25, 25}},
  };
  const auto at = kGoals.find(name);
  if (at == kGoals.end() || (size != "gpt2" && size != "gpt2-xl")) return std::nullopt;
  return size == "gpt2" ? at->second.first : at->second.second;
}

// The bounds of a step of few rows: no cache holds a model, and each dispatch waits for the last.
class Machine {
 public:
  explicit Machine(Device& device)
      : device_(device),
        matrix_(device, kMatrix, 1, 0),
        launches_(device, kNothing, 1, 128 * kNothing.weight_bytes()),
        launch_(device, kNothing, 1, 0) {}

  void measure() {
    matrix_seconds_ = std::min(matrix_seconds_, device_seconds(matrix_));
    dispatch_seconds_ = std::min(dispatch_seconds_, device_seconds(launches_));
    submit_seconds_ = std::min(submit_seconds_, launch_.run(1) - device_seconds(launch_));
  }
  double bytes_per_second() const { return kMatrix.weight_bytes() / matrix_seconds_; }
  // Seconds of a dispatch that waits for the one before it.
  double dispatch_seconds() const { return dispatch_seconds_; }
  // Until a caller has a result, beyond the device's time.
  double submit_seconds() const { return std::max(0.0, submit_seconds_); }
  // Seconds of a step's dispatches and of the bytes that they read.
  double step_seconds(int dispatches, double bytes) const {
    return dispatches * dispatch_seconds() + bytes / bytes_per_second();
  }

 private:
  // Half a GB; next to nothing.
  static constexpr MatmulShape kMatrix{4096, 65536, DType::kF16, true};
  static constexpr MatmulShape kNothing{64, 64, DType::kF32, false};

  // Seconds of one product; a device that tells no time is timed by its caller.
  double device_seconds(MatmulBench& bench) {
    device_.measure(true);
    const double wall = bench.run(1);
    const auto ms = device_.device_ms();
    device_.measure(false);
    return ms ? *ms / 1e3 / static_cast<double>(bench.copies()) : wall;
  }

  Device& device_;
  MatmulBench matrix_, launches_, launch_;
  double matrix_seconds_ = 1e9, dispatch_seconds_ = 1e9, submit_seconds_ = 1e9;
};

// Caches of ours and of the drivers go to `dir`.
void use_cache_dir(const std::string& dir) {
  for (const char* variable :
       {"XDG_CACHE_HOME", "__GL_SHADER_DISK_CACHE_PATH", "MESA_SHADER_CACHE_DIR"}) {
    CHECK(::setenv(variable, dir.c_str(), 1) == 0);
  }
}

struct Loaded {
  std::unique_ptr<Device> device;
  std::unique_ptr<Steps> steps;
  double device_ms = 0, shard_ms = 0;
};

Loaded load(const Options& options, const MeasuredModel& model) {
  Loaded loaded;
  loaded.device_ms = 1e3 * timed([&] { loaded.device = make_device({options.device, 0}); });
  loaded.shard_ms = 1e3 * timed([&] {
                      loaded.steps = std::make_unique<Steps>(*loaded.device, model, Profile::kF16);
                    });
  return loaded;
}

// |got - expected| / |expected|, the worst of a prompt's last logits and a generated token's.
void compare(Steps& gpu, const MeasuredModel& model, Profile profile, unsigned threads,
             Report& report) {
  const auto cpu_device = make_cpu_device(threads);
  Steps cpu(*cpu_device, model, profile);
  const auto vocab = static_cast<size_t>(model.config().vocab);
  double worst = 0;
  bool same = true;
  for (const bool prompt : {true, false}) {
    for (Steps* steps : {&gpu, &cpu}) {
      if (prompt) {
        steps->prefill(64);
      } else {
        steps->decode(64);
      }
    }
    const std::span<const float> got(gpu.logits().data(), vocab);
    const std::span<const float> expected(cpu.logits().data(), vocab);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < vocab; ++i) {
      difference += std::pow(double{got[i]} - double{expected[i]}, 2);
      norm += std::pow(double{expected[i]}, 2);
    }
    const double error = std::sqrt(difference / norm);
    worst = std::isfinite(error) ? std::max(worst, error) : 1e30;
    same = same && std::max_element(got.begin(), got.end()) - got.begin() ==
                       std::max_element(expected.begin(), expected.end()) - expected.begin();
  }
  const std::string_view name = profile_name(profile);
  const double most = is_quantised(profile_formats(profile).of("block.0").value_or(DType::kF32))
                          ? kWorstOfBlocks
                          : kWorstError;
  report.add(cat("logits_relative_error", profile == Profile::kF32 ? "" : cat("_", name)), worst,
             "", most);
  report.note(cat("logits against the CPU's with ", name,
                  " weights: the same most likely token: ", same ? "yes" : "no"));
  if (worst > most) {
    report.finish();
    throw Error(ErrorKind::kDevice, cat("[bench] the device's logits are wrong by ", worst));
  }
}

// Numbers that a comma-separated list names, those that the model has room for.
std::vector<uint32_t> lengths_of(const std::string& list, const MeasuredModel& model) {
  std::vector<uint32_t> result;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const auto length = parse_u64(word, 1, 1u << 20);
    if (!length) {
      throw Error(ErrorKind::kInput,
                  cat("--prompts: expected numbers of tokens like 16,512, got '", list, "'"));
    }
    if (*length <= static_cast<uint32_t>(model.config().context))
      result.push_back(static_cast<uint32_t>(*length));
  }
  return result;
}

// Prompts of these lengths, in turn.
template <typename Add>
void time_prompts(Steps& steps, const std::vector<uint32_t>& lengths, unsigned runs,
                  const Add& add) {
  std::map<uint32_t, std::vector<double>> seconds;
  for (unsigned i = 0; i < runs; ++i) {
    for (const uint32_t length : lengths) seconds[length].push_back(steps.prefill(length));
  }
  for (const auto& [length, each] : seconds) {
    add(cat("prefill_", length, "_us"), 1e6 * median(each), "us");
  }
}

// Steps of 1 to 32 sequences to the 64 largest logits of each, on a narrow and on a wide shard in
// turn, and from how many on the wide one is the faster.
template <typename Add>
void time_sequences(Steps& narrow, Steps& wide, const Options& options, Report& report,
                    const Add& add) {
  const auto warm = Clock::now();
  while (seconds_since(warm) < 0.5) wide.batch(kMostSequences, true);
  uint32_t from = 0;
  for (uint32_t sequences = 1; sequences <= kMostSequences; sequences *= 2) {
    std::vector<double> by_lanes, by_units;
    for (unsigned i = 0; i < 5 * options.runs; ++i) {
      by_lanes.push_back(narrow.batch(sequences, true));
      by_units.push_back(wide.batch(sequences, true));
    }
    add(cat("batch_", sequences, "_top_narrow_us"), 1e6 * median(by_lanes), "us");
    add(cat("batch_", sequences, "_top_wide_us"), 1e6 * median(by_units), "us");
    if (median(by_units) >= median(by_lanes))
      from = 0;
    else if (from == 0)
      from = sequences;
  }
  report.note(from == 0 ? cat("--wide is slower up to ", kMostSequences, " sequences")
                        : cat("--wide is the faster one from ", from, " sequences on"));
}

int run(int argc, char** argv) {
  std::string named, prompts = "16,32,64,128,256,512,1024,2048";
  int context_limit = 0;
  auto options = parse_options(
      argc, argv,
      "bench_gpu: loading and whole-model steps, f16 weights, on a Vulkan device\n\n"
      "Limits: of steps of few rows, five dispatches a block and the bytes that they read, as\n"
      "fast as this device makes and reads them in this run; else the project's goals on an H200\n"
      "(gpt2 and gpt2-xl). --threads are the reference's.\n",
      "vulkan", [&](Flags& flags) {
        flags.text("model", "DIR|SIZE", "a checkpoint, or a size as --size has it", &named);
        flags.text("prompts", "LIST", "lengths of prompts (16 to 2048)", &prompts);
        flags.number("context", "N",
                     "most positions of a text (what the model was made for, 4096 at most)",
                     &context_limit, 512, 1 << 24);
      });
  if (!options) return 0;
  const std::vector<std::string> sizes = random_model_sizes();
  const bool random = named.empty() || std::ranges::find(sizes, named) != sizes.end();
  if (!named.empty()) options->size = named;
  const ScratchDir scratch;
  use_cache_dir(scratch.path());
  const auto made = [&]() -> std::unique_ptr<MeasuredModel> {
    const auto most = context_limit > 0 ? std::optional(context_limit) : std::nullopt;
    if (!random) return std::make_unique<FileModel>(named, most);
    return std::make_unique<RandomModel>(options->size, DType::kF16, 1, most);
  }();
  const MeasuredModel& model = *made;
  const std::vector<uint32_t> lengths = lengths_of(prompts, model);

  // The first load has no pipeline cache; later ones, each on a new device, have the first one's.
  // A second Shard on the same device, which has its pipelines, takes no time for these.
  // The time of tuning is reported by itself.
  const char* const value = std::getenv("SPLIT_VULKAN_DISABLE");
  const std::string disabled = value == nullptr ? "" : value;
  CHECK(::setenv("SPLIT_VULKAN_DISABLE", cat(disabled, ",tuner").c_str(), 1) == 0);
  Loaded gpu = load(*options, model);
  CHECK(::setenv("SPLIT_VULKAN_DISABLE", disabled.c_str(), 1) == 0);
  Report report(*options, "gpu", gpu.device->name());
  std::string goals;
  const auto add = [&](const std::string& name, double value, const std::string& unit,
                       std::optional<double> limit = {}) {
    const std::optional<double> wanted = goal(options->size, name);
    report.add(name, value, unit, limit ? limit : wanted);
    if (limit && wanted) goals += cat(goals.empty() ? "" : ", ", name, " ", *wanted);
  };
  compare(*gpu.steps, model, Profile::kF32, options->threads, report);
  const double cold_ms = gpu.shard_ms;
  gpu = Loaded();
  gpu = load(*options, model);
  const double tuned_ms = gpu.shard_ms;
  std::vector<double> warm, again;
  for (unsigned i = 0; i < std::min(options->runs, 3u); ++i) {
    gpu = Loaded();
    gpu = load(*options, model);
    warm.push_back(gpu.shard_ms);
    gpu.steps.reset();
    again.push_back(1e3 * timed([&] {
                      gpu.steps = std::make_unique<Steps>(*gpu.device, model, Profile::kF16);
                    }));
  }
  const double base_ms = minimum(again);
  add("pipelines_cold_ms", std::max(0.0, cold_ms - base_ms), "ms");
  add("tuning_ms", std::max(0.0, tuned_ms - base_ms), "ms");
  add("pipelines_warm_ms", std::max(0.0, minimum(warm) - base_ms), "ms");
  add("shard_load_cold_ms", cold_ms, "ms");
  add("shard_load_warm_ms", minimum(warm), "ms");
  add("device_open_ms", gpu.device_ms, "ms");
  // Weights are laid out, and written to the device, when a Shard binds them.
  add("upload_gbps", model.total_bytes() / base_ms / 1e6, "GB/s");

  Steps& steps = *gpu.steps;
  const uint32_t context = std::min(kContext, steps.long_context());
  const uint32_t prompt = std::min(512u, static_cast<uint32_t>(model.config().context));
  constexpr uint32_t kBatches[] = {2, 4, 8, 16, 32};
  std::vector<double> decode, decode_long, batch[std::size(kBatches)];
  // A GPU that rested runs slowly for its first 300 ms.
  for (const auto start = Clock::now(); seconds_since(start) < 0.5;) steps.decode(context);
  Machine machine(*gpu.device);
  // Token after token, as a text is made. The device's own times are measured apart, which
  // lengthens what a caller sees, and each in turn with one of those.
  const auto decode_twice = [&](Steps& steps, uint32_t at, std::vector<double>& seconds,
                                std::vector<double>& device_us) {
    seconds.push_back(steps.decode(at));
    gpu.device->measure(true);
    steps.decode(at);
    if (const auto ms = gpu.device->device_ms()) device_us.push_back(1e3 * *ms);
    gpu.device->measure(false);
  };
  std::map<uint32_t, std::vector<double>> device_us;
  const std::map<uint32_t, std::vector<double>*> wall = {{context, &decode},
                                                         {steps.long_context(), &decode_long}};
  std::map<uint32_t, std::vector<double>> longer;
  for (const uint32_t keys : {4096u, 8192u, 16384u}) {
    if (keys <= static_cast<uint32_t>(model.config().context)) longer[keys - 1];
  }
  for (unsigned i = 0; i < 20 * options->runs; ++i) {
    for (const auto& [at, seconds] : wall) decode_twice(steps, at, *seconds, device_us[at]);
    for (auto& [at, seconds] : longer) decode_twice(steps, at, seconds, device_us[at]);
    machine.measure();
  }
  add("read_gbps", machine.bytes_per_second() / 1e9, "GB/s");
  add("dispatch_us", 1e6 * machine.dispatch_seconds(), "us");
  add("submit_us", 1e6 * machine.submit_seconds(), "us");
  // Microseconds of `rows` rows that see `keys` keys each.
  const auto limit_us = [&](double rows, uint32_t keys, const StageFormats& formats) {
    const int dispatches = 5 * model.config().layers + 2;  // and the embedding, the head
    return 1e6 * machine.step_seconds(dispatches,
                                      model.step_bytes(formats) + rows * steps.kv_bytes(keys));
  };
  const auto wall_limit_us = [&](double rows, uint32_t keys, const StageFormats& formats) {
    return limit_us(rows, keys, formats) + 1e6 * machine.submit_seconds();
  };
  for (unsigned i = 0; i < options->runs; ++i) {
    for (size_t b = 0; b < std::size(kBatches); ++b) {
      for (int k = 0; k < 5; ++k) batch[b].push_back(steps.batch(kBatches[b]));
    }
  }
  for (const auto& [at, us] : device_us) {
    if (us.empty()) continue;
    add(at == context ? "decode_f16_gpu_us" : cat("decode_f16_ctx", at, "_gpu_us"), median(us),
        "us", limit_us(1, at, {}));
  }
  add("decode_f16_wall_us", 1e6 * median(decode), "us", wall_limit_us(1, context, {}));
  add("decode_f16_wall_best_us", 1e6 * minimum(decode), "us", wall_limit_us(1, context, {}));
  add(cat("decode_f16_ctx", steps.long_context(), "_wall_us"), 1e6 * median(decode_long), "us",
      wall_limit_us(1, steps.long_context(), {}));
  for (const auto& [at, seconds] : longer) {
    add(cat("decode_f16_ctx", at, "_wall_us"), 1e6 * median(seconds), "us",
        wall_limit_us(1, at, {}));
  }
  add("decode_f16_weights_gbps", model.step_bytes() / median(decode) / 1e9, "GB/s");
  for (size_t b = 0; b < std::size(kBatches); ++b) {
    const char* const kind = kBatches[b] > 8 ? "_narrow_us" : "_us";
    add(cat("batch_", kBatches[b], kind), 1e6 * median(batch[b]), "us",
        wall_limit_us(kBatches[b], kBatchContext, {}));
  }
  time_prompts(steps, lengths, options->runs, add);
  std::vector<double> tail, tail_logits, tail_gpu_us;
  for (unsigned i = 0; i < 20 * options->runs; ++i) {
    tail.push_back(steps.tail(context, true));
    tail_logits.push_back(steps.tail(context, false));
  }
  gpu.device->measure(true);
  for (unsigned i = 0; i < 20 * options->runs; ++i) {
    steps.tail(context, true);
    if (const auto ms = gpu.device->device_ms()) tail_gpu_us.push_back(1e3 * *ms);
  }
  gpu.device->measure(false);
  if (!tail_gpu_us.empty()) add("tail_gpu_us", median(tail_gpu_us), "us");
  add("tail_wall_us", 1e6 * median(tail), "us");
  add("tail_all_logits_wall_us", 1e6 * median(tail_logits), "us");

  {  // as a server for many sessions is
    Steps wide(*gpu.device, model, Profile::kF16, {}, true);
    time_sequences(steps, wide, *options, report, add);
    std::vector<double> many, all;
    for (unsigned i = 0; i < 5 * options->runs; ++i) {
      many.push_back(wide.batch(kMostSequences, true));
      all.push_back(wide.batch(kMostSequences));
    }
    add("batch_32_us", 1e6 * median(many), "us", wall_limit_us(32, kBatchContext, {}));
    add("batch_32_tokens_per_second", 32 / median(many), "tokens/s");
    add("batch_32_all_logits_us", 1e6 * median(all), "us");
  }
  for (const Profile profile : {Profile::kQ8_0, Profile::kInt8, Profile::kQ4_0}) {
    const std::string name(profile_name(profile));
    Steps quantised(*gpu.device, model, profile);
    compare(quantised, model, profile, options->threads, report);
    std::vector<double> one, one_us, prompts, few, many;
    quantised.prefill(prompt);  // its pipelines may still be made
    for (const auto start = Clock::now(); seconds_since(start) < 0.5;) quantised.decode(context);
    for (unsigned i = 0; i < options->runs; ++i) {
      for (int k = 0; k < 20; ++k) decode_twice(quantised, context, one, one_us);
      prompts.push_back(quantised.prefill(prompt));
    }
    Steps wide(*gpu.device, model, profile, {}, true);
    for (unsigned i = 0; i < 5 * options->runs; ++i) {
      few.push_back(wide.batch(8, true));
      many.push_back(wide.batch(32, true));
    }
    const StageFormats formats = profile_formats(profile);
    if (!one_us.empty()) {
      add(cat("decode_", name, "_gpu_us"), median(one_us), "us", limit_us(1, context, formats));
    }
    add(cat("decode_", name, "_wall_us"), 1e6 * median(one), "us",
        wall_limit_us(1, context, formats));
    add(cat("prefill_", prompt, "_", name, "_us"), 1e6 * median(prompts), "us");
    add(cat("batch_8_", name, "_wide_us"), 1e6 * median(few), "us",
        wall_limit_us(8, kBatchContext, formats));
    add(cat("batch_32_", name, "_us"), 1e6 * median(many), "us",
        wall_limit_us(32, kBatchContext, formats));
  }
  if (!goals.empty()) report.note(cat("goals on an H200: ", goals));
  report.finish();
  return 0;
}

}  // namespace
}  // namespace split::bench

int main(int argc, char** argv) { return split::bench::run_main(split::bench::run, argc, argv); }
