#include "bench/support/pair.h"

#include <algorithm>

#include "bench/support/loopback.h"
#include "bench/text_steps.h"
#include "edge_client/cloud/model_link.h"
#include "edge_client/drive/split_embed.h"
#include "edge_client/drive/split_forward.h"
#include "program/interrupt.h"

namespace split::bench {
namespace {

constexpr double kGoal = 0.95;  // of the unsplit run's tokens/s
constexpr uint32_t kPrompt = 100;
constexpr int kTokens = 16;  // of a repetition

// Greedy text, a piece at a time.
struct Text {
  Forward& forward;
  std::vector<int32_t> tokens;

  void next(std::span<const float> logits) {
    const auto best = std::max_element(logits.begin(), logits.end());
    tokens.push_back(static_cast<int32_t>(best - logits.begin()));
  }
  void start(std::span<const int32_t> prompt) {
    tokens.assign(prompt.begin(), prompt.end());
    next(forward.run({.tokens = prompt}));
  }
  double step() {
    return timed([&] {
      const auto past = static_cast<uint32_t>(tokens.size()) - 1;
      next(forward.run(
          {.past = past, .tokens = std::span(tokens).last(1), .phase = Phase::kGenerate}));
    });
  }
};

// An encoder's texts at each of three cuts: one trip for all of a request.
void measure_texts_pair(const RandomModel& model, Loopback& loopback, const Options& options,
                        Report& report) {
  constexpr uint32_t kTexts = 256, kLength = 16;
  const ModelConfig& config = model.config();
  const auto device = make_cpu_device(options.threads);
  const auto texts = random_texts(config, kTexts, kLength);
  const Sentences sentences = plain_sentences(config);
  report.note(cat("pair: ", kTexts, " texts of ", kLength, " tokens in a request, over loopback ",
                  "HTTP, f16, ", device->name(), " on each side"));
  edge::Remote remote(loopback.url(), std::chrono::milliseconds(60000));
  const wire::ModelInfo info = remote.model(options.size);
  Interrupt interrupt;
  edge::ModelLink link(remote, {info, config, {}, interrupt});
  for (const int cut : {1, config.layers / 2, config.layers}) {
    ShardOptions shard_options;
    shard_options.range = {cut, config.layers};
    shard_options.profile = Profile::kF16;
    shard_options.kv_bytes = kv_bytes_for(model.model(), {}, Profile::kF16, 4);
    std::optional<Shard> shard;
    std::optional<Batcher> tail;
    if (cut < config.layers) {
      shard.emplace(*device, model.model(), model.weights(), shard_options);
      tail.emplace(*shard);
    }
    edge::Placement place;
    place.cut = cut;
    place.range = shard_options.range;
    const edge::RetryOptions retry;
    const edge::SplitContext run{link,  place,    tail ? &*tail : nullptr, model.model(), nullptr,
                                 retry, interrupt};
    edge::SplitCounts counts;
    std::vector<double> split_seconds, whole_seconds;
    uint64_t trips = 0;
    for (unsigned i = 0; i <= options.runs; ++i) {
      std::vector<float> split, whole;
      const double mine = timed([&] {
        edge::EmbeddedTexts made = edge::embed_texts(run, texts, sentences, counts);
        trips += made.trips;
        split = std::move(made.values);
      });
      const double alone =
          timed([&] { whole = embed(loopback.model().batcher(), texts, sentences); });
      for (size_t at = 0; at < split.size(); at += sentences.dimensions()) {
        to_unit_length(std::span(split).subspan(at, sentences.dimensions()));
      }
      if (split != whole) {
        throw Error(ErrorKind::kRemote, "[bench] the pair gave other embeddings than the model");
      }
      if (i == 0) continue;  // first touches
      split_seconds.push_back(mine), whole_seconds.push_back(alone);
    }
    CHECK(trips == options.runs + 1);
    const std::string name = cat("pair_embed_", kTexts, "x", kLength, "_cut", cut);
    report.add(name, kTexts / median(split_seconds), "texts/s", kTexts / median(whole_seconds));
    report.add(name + "_over_unsplit", median(whole_seconds) / median(split_seconds), "", kGoal);
  }
}

}  // namespace

void measure_pair(const Options& options, Report& report) {
  const RandomModel model(options.size, DType::kF16);
  const ModelConfig& config = model.config();
  Loopback loopback(model, options);
  if (config.encodes()) return measure_texts_pair(model, loopback, options, report);
  const int cut = config.layers / 2;

  const auto device = make_cpu_device(options.threads);
  ShardOptions shard_options;
  shard_options.range = {cut, Point::head()};
  shard_options.profile = Profile::kF16;
  shard_options.kv_bytes = kv_bytes_for(model.model(), shard_options.range, Profile::kF16, 2);
  Shard shard(*device, model.model(), model.weights(), shard_options);
  Batcher tail(shard);
  report.note(cat("pair: cut ", cut, " of ", config.layers, " over loopback HTTP, f16, ",
                  device->name(), " on each side"));

  edge::Remote remote(loopback.url(), std::chrono::milliseconds(60000));
  const wire::ModelInfo info = remote.model(options.size);
  Interrupt interrupt;
  edge::SplitCounts counts;
  edge::ModelLink link(remote, {info, config, {}, interrupt});
  edge::SplitForward split(link, model.model(), cut, &tail, {}, interrupt, counts);
  LocalForward whole(loopback.model().batcher());

  const std::vector<int32_t> prompt = random_tokens(config, kPrompt);
  Text split_text{split, {}}, whole_text{whole, {}};
  std::vector<double> split_steps, whole_steps, split_prompts, whole_prompts;
  const unsigned pieces =
      std::min(options.runs, (static_cast<unsigned>(config.context) - kPrompt) / kTokens - 1);
  for (int i = 0; i < 2; ++i) {
    split_prompts.push_back(timed([&] { split_text.start(prompt); }));
    whole_prompts.push_back(timed([&] { whole_text.start(prompt); }));
  }
  for (unsigned piece = 0; piece < pieces; ++piece) {
    for (int i = 0; i < kTokens; ++i) split_steps.push_back(split_text.step());
    for (int i = 0; i < kTokens; ++i) whole_steps.push_back(whole_text.step());
  }
  if (split_text.tokens != whole_text.tokens) {
    throw Error(ErrorKind::kRemote, "[bench] the pair gave another text than the whole model");
  }
  const double pair = 1 / median(split_steps), unsplit = 1 / median(whole_steps);
  report.add("pair_tokens_per_second", pair, "tokens/s");
  report.add("unsplit_tokens_per_second", unsplit, "tokens/s");
  report.add("pair_over_unsplit", pair / unsplit, "", kGoal);
  report.add("pair_over_unsplit_best", minimum(whole_steps) / minimum(split_steps), "", kGoal);
  report.add("pair_step_p99_ms", 1e3 * quantile(split_steps, 0.99), "ms");
  report.add("unsplit_step_p99_ms", 1e3 * quantile(whole_steps, 0.99), "ms");
  report.add("pair_prompt_ms", 1e3 * minimum(split_prompts), "ms");
  report.add("unsplit_prompt_ms", 1e3 * minimum(whole_prompts), "ms");
  report.add("wire_mean_us", 1e3 * counts.traffic.wire_ms / static_cast<double>(counts.steps),
             "us");
}

}  // namespace split::bench
