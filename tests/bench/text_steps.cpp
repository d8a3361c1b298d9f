#include "bench/text_steps.h"

#include "bench/support/bare_products.h"
#include "run/text/texts.h"

namespace split::bench {
namespace {

struct Request {
  uint32_t texts, length;
};
constexpr Request kRequests[] = {{1, 128}, {256, 16}};

ShardOptions options_of(const Model& model, Profile profile) {
  ShardOptions options;
  options.profile = profile;
  options.formats = profile_formats(profile);
  options.kv_bytes = kv_bytes_for(model, {}, profile, 64);
  options.range.to = Point::pooled(model.config().layers, model.config().has_norm());
  return options;
}

}  // namespace

TextSteps::TextSteps(Device& device, const Model& model, const WeightSource& weights,
                     Profile profile)
    : shard_(device, model, weights, options_of(model, profile)),
      batcher_(shard_),
      sentences_(plain_sentences(model.config())) {}

double TextSteps::embed(uint32_t texts, uint32_t length) {
  const auto all = random_texts(shard_.model().config(), texts, length);
  return timed([&] { embeddings_ = bench::embed(batcher_, all, sentences_); });
}

std::vector<std::vector<int32_t>> random_texts(const ModelConfig& config, uint32_t texts,
                                               uint32_t length) {
  const std::vector<int32_t> ids = random_tokens(config, size_t{texts} * length);
  std::vector<std::vector<int32_t>> all;
  for (size_t at = 0; at < ids.size(); at += length) {
    const auto one = std::span(ids).subspan(at, length);
    all.emplace_back(one.begin(), one.end());
  }
  return all;
}

Sentences plain_sentences(const ModelConfig& config) {
  return Sentences::read(
      {}, [](const std::string&) { return std::string(); }, config);
}

std::vector<float> embed(Batcher& batcher, std::span<const std::vector<int32_t>> texts,
                         const Sentences& sentences) {
  const ModelConfig& config = batcher.shard().model().config();
  std::vector<int32_t> ids;
  std::vector<uint32_t> lengths;
  for (const auto& text : texts) {
    ids.insert(ids.end(), text.begin(), text.end());
    lengths.push_back(static_cast<uint32_t>(text.size()));
  }
  Forward::Spent spent;
  const std::vector<float> rows =
      run_texts(batcher,
                {.range = {.to = Point::pooled(config.layers, config.has_norm())},
                 .lengths = lengths,
                 .tokens = ids},
                {}, spent);
  std::vector<float> embeddings;
  size_t at = 0;
  for (const uint32_t length : lengths) {
    const size_t floats = length * static_cast<size_t>(config.channels);
    const auto one = sentences.pool(std::span(rows).subspan(at, floats), true);
    embeddings.insert(embeddings.end(), one.begin(), one.end());
    at += floats;
  }
  return embeddings;
}

void measure_texts(const Options& options, std::span<const Profile> profiles, Device& device,
                   Report& report) {
  struct Side {
    Profile profile;
    std::unique_ptr<RandomModel> model;
    std::unique_ptr<TextSteps> steps;
    std::vector<double> seconds[std::size(kRequests)];
  };
  std::vector<Side> sides;
  for (const Profile profile : profiles) {
    auto model = std::make_unique<RandomModel>(
        options.size, profile == Profile::kF32 ? DType::kF32 : DType::kF16);
    auto steps = std::make_unique<TextSteps>(device, model->model(), model->weights(), profile);
    sides.push_back({profile, std::move(model), std::move(steps), {}});
  }
  std::vector<std::unique_ptr<BareProducts>> bare;
  std::vector<double> bare_seconds[std::size(kRequests)];
  for (const Request& request : kRequests) {
    bare.push_back(std::make_unique<BareProducts>(sides[0].model->config(),
                                                  request.texts * request.length, options.threads));
    for (const Side& side : sides) side.steps->embed(request.texts, request.length);
  }
  for (unsigned run = 0; run < options.runs; ++run) {
    for (size_t i = 0; i < std::size(kRequests); ++i) {
      if (const auto seconds = bare[i]->run()) bare_seconds[i].push_back(*seconds);
      for (Side& side : sides) {
        side.seconds[i].push_back(side.steps->embed(kRequests[i].texts, kRequests[i].length));
      }
    }
  }
  for (const Side& side : sides) {
    for (size_t i = 0; i < std::size(kRequests); ++i) {
      const double texts = kRequests[i].texts;
      std::optional<double> limit;
      if (!bare_seconds[i].empty()) limit = texts / median(bare_seconds[i]);
      report.add(cat("embed_", kRequests[i].texts, "x", kRequests[i].length, "_",
                     profile_name(side.profile)),
                 texts / median(side.seconds[i]), "texts/s", limit);
    }
  }
}

}  // namespace split::bench
