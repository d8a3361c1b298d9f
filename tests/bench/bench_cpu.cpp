// bench_cpu DIR [THREADS] [PROFILE]: tokens a second of a checkpoint on the CPU device, prefill and
// decode, beside what the weights' bytes cost at this machine's read bandwidth, measured in the
// same run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "io/checkpoint.h"
#include "run/batcher.h"

namespace split {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Bytes a second that the threads read together from memory: the best of a few passes over 512 MiB.
double read_bandwidth(unsigned threads) {
  constexpr size_t kWords = size_t{64} << 20;
  const std::vector<uint64_t> memory(kWords, 1);
  std::vector<uint64_t> sums(threads);
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    const auto start = Clock::now();
    std::vector<std::thread> workers;
    for (unsigned t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        uint64_t chains[32] = {};
        const size_t first = kWords / threads * t;
        for (size_t i = first; i + 32 <= first + kWords / threads; i += 32) {
          for (size_t c = 0; c < 32; ++c) chains[c] += memory[i + c];
        }
        for (const uint64_t chain : chains) sums[t] += chain;
      });
    }
    for (std::thread& worker : workers) worker.join();
    best = std::max(best, kWords * sizeof(uint64_t) / seconds_since(start));
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  CHECK(total == 5 * (kWords / threads / 32 * 32) * threads);
  return best;
}

int run(const std::string& dir, unsigned threads, const std::string& profile_text) {
  const Checkpoint checkpoint(dir);
  const auto model = make_model(checkpoint.config_json());
  const ModelConfig& config = model->config();
  const auto profile = profile_from_name(profile_text);
  if (!profile) throw Error(ErrorKind::kInput, "[bench] profile: expected f32 or f16");
  const auto device = make_cpu_device(threads);
  ShardOptions options;
  options.last = config.layers + 2;
  options.profile = *profile;
  options.kv_bytes = kv_bytes_for(config, config.layers, *profile, 16);
  const auto weight = [&](const std::string& name) { return checkpoint.at(name); };
  Shard shard(*device, *model, weight, options);
  Batcher batcher(shard);

  // What a token reads: every matrix but the embeddings, which give a row; a tied head is one of
  // them.
  double weight_bytes = 0;
  for (const Stage& stage : model->stages()) {
    if (stage.name == "embed") continue;
    for (const std::string& blob : stage.blobs) {
      for (const WeightDecl& decl : model->blob(blob).weights) {
        const size_t size = *profile == Profile::kF16 ? 2 : dtype_size(weight(decl.name).dtype);
        weight_bytes += static_cast<double>(*element_count(decl.dims)) * static_cast<double>(size);
      }
    }
  }

  std::vector<int32_t> prompt(std::min<size_t>(512, static_cast<size_t>(config.context) - 72));
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(config.vocab));
  }
  std::vector<float> logits(static_cast<size_t>(config.vocab));
  const auto step = [&](SequenceId id, Phase phase, std::span<const int32_t> tokens) {
    Job job;
    job.phase = phase;
    job.sequence = id;
    job.to = shard.head_point();
    job.rows = static_cast<uint32_t>(tokens.size());
    job.tokens = tokens.data();
    job.out = logits.data();
    const auto start = Clock::now();
    batcher.run(job);
    return seconds_since(start);
  };
  const double bandwidth =
      read_bandwidth(device->name().find("(1 ") != std::string::npos ? 1 : threads);
  std::printf("%s on %s, profile %s\n", dir.c_str(), device->name().c_str(), profile_text.c_str());
  std::printf("read bandwidth      %8.1f GB/s\n", bandwidth / 1e9);
  std::printf("weights of a token  %8.1f MB, %.2f ms at that bandwidth\n", weight_bytes / 1e6,
              1e3 * weight_bytes / bandwidth);

  std::vector<double> prefill, decode;
  for (int pass = 0; pass < 3; ++pass) {
    const SequenceId id = shard.pages().open();
    prefill.push_back(step(id, Phase::kPrompt, prompt));
    shard.pages().truncate(id, 8);
    for (int i = 0; i < 64; ++i) {
      decode.push_back(step(id, Phase::kGenerate, std::span(prompt).subspan(i, 1)));
    }
    shard.pages().close(id);
  }
  const double token = median(decode);
  std::printf("prefill %4zu        %8.1f tokens/s\n", prompt.size(),
              static_cast<double>(prompt.size()) / median(prefill));
  std::printf("decode              %8.1f tokens/s, %.2f ms, %.2f of the read bandwidth\n",
              1 / token, 1e3 * token, weight_bytes / token / bandwidth);

  // Steps of several sequences, as a server of many sessions runs them.
  for (const uint32_t rows : {2u, 3u, 4u, 8u, 16u}) {
    std::vector<ShardRows> parts(rows);
    for (ShardRows& part : parts) {
      part.sequence = shard.pages().open();
      part.count = 1;
      part.tokens = prompt.data();
      part.wanted = {0};
    }
    std::vector<float> out(rows * logits.size());
    std::vector<double> times;
    for (int i = 0; i < 24; ++i) {
      for (const ShardRows& part : parts) {
        CHECK(shard.pages().reserve(part.sequence, shard.pages().length(part.sequence) + 1));
      }
      const auto start = Clock::now();
      shard.forward(Phase::kGenerate, 0, shard.head_point(), parts, out.data());
      times.push_back(seconds_since(start));
    }
    for (const ShardRows& part : parts) shard.pages().close(part.sequence);
    std::printf("%2u rows a step      %8.1f tokens/s, %.2f ms a step\n", rows, rows / median(times),
                1e3 * median(times));
  }
  return 0;
}

}  // namespace
}  // namespace split

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::cerr << "bench_cpu DIR [THREADS] [f32|f16]\n";
    return 2;
  }
  try {
    return split::run(argv[1], argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 2,
                      argc > 3 ? argv[3] : "f32");
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
