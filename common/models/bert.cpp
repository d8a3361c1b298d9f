#include "models/bert.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/json.h"
#include "models/config_reader.h"
#include "models/functional.h"

namespace split {
namespace {

// Settings of BERT's config.json beyond those that all models have.
struct BertConfig : ModelConfig {
  int token_types = 0;
  float norm_eps = 1e-12f;
  Op activation = Op::k_gelu;
};

BertConfig read_bert_config(std::string_view config_json, std::optional<int> context) {
  const Json json = parse_json(config_json, 16, "[config.json]");
  const ConfigReader reader(json);
  BertConfig config;
  config.kind = ModelKind::kEncoder;
  config.model_type = "bert";
  config.layers = reader.integer("num_hidden_layers", 1, 1024);
  config.channels = reader.integer("hidden_size", 1, kMaxSize);
  config.heads = reader.integer("num_attention_heads", 1, kMaxSize);
  config.vocab = reader.integer("vocab_size", 1, kMaxVocab);
  config.max_positions = reader.integer("max_position_embeddings", 1, kMaxSize);
  config.context = served_context(config.max_positions, context);
  if (config.channels % config.heads != 0) {
    reader.refuse("num_attention_heads", cat("expected a divisor of hidden_size ", config.channels,
                                             ", got ", config.heads));
  }
  config.kv_heads = config.heads;
  config.head_dim = config.channels / config.heads;
  config.inner = reader.integer_or("intermediate_size", 1, kMaxSize, 4 * config.channels);
  config.token_types = reader.integer_or("type_vocab_size", 1, kMaxSize, 2);
  config.norm_eps = static_cast<float>(reader.number_or("layer_norm_eps", 1e-15, 1.0, 1e-12));
  config.activation = reader.activation_or("hidden_act", "gelu");
  const std::string positions = reader.text_or("position_embedding_type", "absolute");
  if (positions != "absolute") {
    reader.refuse("position_embedding_type", cat("expected \"absolute\", got ", shown(positions)));
  }
  for (const char* decoder : {"is_decoder", "add_cross_attention"}) {
    if (reader.boolean_or(decoder, false)) {
      reader.refuse(decoder, "expected false: this BERT is an encoder");
    }
  }
  return config;
}

class Bert : public Model {
 public:
  explicit Bert(const BertConfig& config) : bert_(config) {
    config_ = config;
    const int64_t channels = config.channels, inner = config.inner;
    const auto norm = [&](const std::string& name) {
      return std::array{WeightDecl{name + ".weight", {channels}},
                        WeightDecl{name + ".bias", {channels}}};
    };
    Blob& tables = blobs_.emplace_back(
        Blob{"embeddings",
             {{"embeddings.word_embeddings.weight", {config.vocab, channels}},
              {"embeddings.position_embeddings.weight", {config.max_positions, channels}},
              {.name = kTypes, .dims = {config.token_types, channels}, .first_row = true}}});
    std::ranges::copy(norm("embeddings.LayerNorm"), std::back_inserter(tables.weights));
    stages_.push_back({.name = "embed",
                       .blobs = {"embeddings"},
                       .takes = Takes::kTokens,
                       .width = channels,
                       .trace = [this](const StageTypes& types) { return embed(types); }});
    for (int layer = 0; layer < config.layers; ++layer) {
      const std::string at = cat("encoder.layer.", layer);
      Blob& blob = blobs_.emplace_back(Blob{at, {}});
      const auto product = [&](const char* name, int64_t outputs, int64_t inputs) {
        blob.weights.push_back({at + name + ".weight", {outputs, inputs}, Product::kOutIn});
        blob.weights.push_back({at + name + ".bias", {outputs}});
      };
      product(".attention.self.query", channels, channels);
      product(".attention.self.key", channels, channels);
      product(".attention.self.value", channels, channels);
      product(".attention.output.dense", channels, channels);
      std::ranges::copy(norm(at + ".attention.output.LayerNorm"), std::back_inserter(blob.weights));
      product(".intermediate.dense", inner, channels);
      product(".output.dense", channels, inner);
      std::ranges::copy(norm(at + ".output.LayerNorm"), std::back_inserter(blob.weights));
      stages_.push_back(
          {.name = cat("block.", layer),
           .blobs = {at},
           .quantised = {at},
           .width = channels,
           .kv = {config.kv_heads, config.head_dim},
           .trace = [this, layer](const StageTypes& types) { return block(layer, types); }});
    }
  }

  bool is_inside(std::string_view tensor) const override {
    return tensor.starts_with("embeddings.") || tensor.starts_with("encoder.");
  }

 private:
  static constexpr const char* kTypes = "embeddings.token_type_embeddings.weight";

  // Every token is of type 0: a text alone, no pair of them.
  NamedOutput embed(const StageTypes& types) const {
    const Tensor tokens = input("tokens", DType::kI32, {kRows});
    const Tensor positions = input("positions", DType::kI32, {kRows});
    const Tensor sum = gather(stored("embeddings.word_embeddings.weight", types), tokens) +
                       gather(stored("embeddings.position_embeddings.weight", types), positions) +
                       stored(kTypes, types);
    return {"hidden", normed(sum, "embeddings.LayerNorm", types)};  // [R, C]
  }

  NamedOutput block(int layer, const StageTypes& types) const {
    const std::string at = cat("encoder.layer.", layer, ".");
    const auto product = [&](const Tensor& x, const char* name) {
      return linear(x, transpose(stored(at + name + ".weight", types)),
                    stored(at + name + ".bias", types));
    };
    const int64_t channels = bert_.channels;
    const Tensor x = input("hidden", DType::kF32, {kRows, channels});
    const AttentionHeads heads{.heads = bert_.heads,
                               .kv_heads = bert_.kv_heads,
                               .head_dim = bert_.head_dim,
                               .scale = static_cast<float>(1 / std::sqrt(double(bert_.head_dim))),
                               .causal = false};
    const Tensor attended =
        attention(product(x, "attention.self.query"), product(x, "attention.self.key"),
                  product(x, "attention.self.value"), input("k_cache", types.cache, {channels}),
                  input("v_cache", types.cache, {channels}), heads);  // [R, C]
    const Tensor y = normed(x + product(attended, "attention.output.dense"),
                            at + "attention.output.LayerNorm", types);
    const Tensor inner = unary(bert_.activation, product(y, "intermediate.dense"));
    return {"hidden_out",
            normed(y + product(inner, "output.dense"), at + "output.LayerNorm", types)};
  }

  Tensor normed(const Tensor& x, const std::string& name, const StageTypes& types) const {
    return layer_norm(x, stored(name + ".weight", types), stored(name + ".bias", types),
                      bert_.norm_eps);
  }

  Tensor stored(const std::string& name, const StageTypes& types) const {
    const DType type = types.weight(name);
    const WeightDecl& decl = weight(name);
    return split::weight(name, type, decl.first_row ? Dims{decl.dims[1]} : stored_dims(decl, type));
  }

  const BertConfig bert_;
};

}  // namespace

std::unique_ptr<Model> make_bert(std::string_view config_json, std::optional<int> context) {
  return std::make_unique<Bert>(read_bert_config(config_json, context));
}

std::vector<std::string> bert_examples() {
  std::map<Op, std::string> all;
  for (const auto& [name, op] : activations()) {
    all.emplace(op, Json{{"model_type", "bert"},
                         {"num_hidden_layers", 1},
                         {"hidden_size", 8},
                         {"num_attention_heads", 1},
                         {"vocab_size", 8},
                         {"max_position_embeddings", 8},
                         {"hidden_act", name}}
                        .dump());
  }
  std::vector<std::string> configs;
  for (auto& [op, config] : all) configs.push_back(std::move(config));
  return configs;
}

bool is_beside_bert(std::string_view name) {
  return name.starts_with("cls.") || name.starts_with("pooler.") ||
         name.starts_with("classifier.") || name == "embeddings.position_ids" ||
         name == "embeddings.token_type_ids";
}

}  // namespace split
