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

// How the members of the family differ.
struct Traits {
  std::string_view model_type;
  bool counted = false;    // positions count tokens, from behind padding's id on
  bool biased = false;     // one table for all blocks biases scores by distance
  const char* query = "";  // name of an attention's query
  const char* key = "";
  const char* value = "";
  const char* out = "";
  const char* norm = "";
};
constexpr Traits kTraits[] = {{.model_type = "bert",
                               .query = ".attention.self.query",
                               .key = ".attention.self.key",
                               .value = ".attention.self.value",
                               .out = ".attention.output.dense",
                               .norm = ".attention.output.LayerNorm"},
                              {.model_type = "mpnet",
                               .counted = true,
                               .biased = true,
                               .query = ".attention.attn.q",
                               .key = ".attention.attn.k",
                               .value = ".attention.attn.v",
                               .out = ".attention.attn.o",
                               .norm = ".attention.LayerNorm"}};

// Settings of BERT's config.json beyond those that all models have.
struct BertConfig : ModelConfig {
  Traits traits;
  int token_types = 0;
  float norm_eps = 1e-12f;
  Op activation = Op::k_gelu;
};

// RoBERTa and XLM-R are BERT with other positions.
Traits traits_of(std::string_view model_type) {
  const auto at = std::ranges::find(kTraits, model_type, &Traits::model_type);
  if (at != std::end(kTraits)) return *at;
  Traits traits = kTraits[0];
  traits.model_type = model_type;
  traits.counted = true;
  return traits;
}

BertConfig read_bert_config(std::string_view config_json, std::optional<int> context) {
  const Json json = parse_json(config_json, 16, "[config.json]");
  const ConfigReader reader(json);
  BertConfig config;
  config.kind = ModelKind::kEncoder;
  config.model_type = reader.text_or("model_type", "bert");
  config.traits = traits_of(config.model_type);
  config.layers = reader.integer("num_hidden_layers", 1, 1024);
  config.channels = reader.integer("hidden_size", 1, kMaxSize);
  config.heads = reader.integer("num_attention_heads", 1, kMaxSize);
  config.vocab = reader.integer("vocab_size", 1, kMaxVocab);
  config.max_positions = reader.integer("max_position_embeddings", 1, kMaxSize);
  if (config.channels % config.heads != 0) {
    reader.refuse("num_attention_heads", cat("expected a divisor of hidden_size ", config.channels,
                                             ", got ", config.heads));
  }
  config.kv_heads = config.heads;
  config.head_dim = config.channels / config.heads;
  config.inner = reader.integer_or("intermediate_size", 1, kMaxSize, 4 * config.channels);
  if (!config.traits.biased) {
    config.token_types = reader.integer_or("type_vocab_size", 1, kMaxSize, 2);
  }
  config.norm_eps = static_cast<float>(reader.number_or("layer_norm_eps", 1e-15, 1.0, 1e-12));
  config.activation = reader.activation_or("hidden_act", "gelu");
  config.ranks = reader.ranks();
  if (config.traits.counted) {
    config.marks = Marks::kPositions;
    // The padding of MPNet is 1 whatever config.json says, in transformers too.
    config.padding =
        config.traits.biased ? 1 : reader.integer_or("pad_token_id", 0, kMaxVocab - 1, 1);
  } else if (config.ranks && config.token_types > 1) {
    config.marks = Marks::kTypes;
  }
  const int unused = config.padding + 1;  // the table's rows before the first token's
  if (unused >= config.max_positions) {
    reader.refuse("max_position_embeddings",
                  cat("expected more than ", unused, ", got ", config.max_positions));
  }
  config.max_positions -= unused;
  config.context = served_context(config.max_positions, context);
  const int buckets =
      reader.integer_or("relative_attention_num_buckets", 1, kMaxSize, kBiasBuckets);
  if (config.traits.biased && buckets != kBiasBuckets) {
    reader.refuse("relative_attention_num_buckets",
                  cat("expected ", kBiasBuckets, ", got ", buckets));
  }
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
    Blob& tables =
        blobs_.emplace_back(Blob{"embeddings",
                                 {{"embeddings.word_embeddings.weight", {config.vocab, channels}},
                                  {"embeddings.position_embeddings.weight",
                                   {config.max_positions + config.padding + 1, channels}}}});
    if (config.token_types > 0) {
      tables.weights.push_back({.name = kTypes,
                                .dims = {config.token_types, channels},
                                .first_row = config.marks != Marks::kTypes});
    }
    std::ranges::copy(norm("embeddings.LayerNorm"), std::back_inserter(tables.weights));
    stages_.push_back({.name = "embed",
                       .blobs = {"embeddings"},
                       .takes = Takes::kTokens,
                       .width = channels,
                       .trace = [this](const StageTypes& types) { return embed(types); }});
    if (config.traits.biased) blobs_.push_back({"bias", {{kBias, {kBiasBuckets, config.heads}}}});
    for (int layer = 0; layer < config.layers; ++layer) {
      const std::string at = cat("encoder.layer.", layer);
      Blob& blob = blobs_.emplace_back(Blob{at, {}});
      const Traits& names = config.traits;
      const auto product = [&](const std::string& name, int64_t outputs, int64_t inputs) {
        blob.weights.push_back({at + name + ".weight", {outputs, inputs}, Product::kOutIn});
        blob.weights.push_back({at + name + ".bias", {outputs}});
      };
      for (const char* name : {names.query, names.key, names.value, names.out}) {
        product(name, channels, channels);
      }
      std::ranges::copy(norm(at + names.norm), std::back_inserter(blob.weights));
      product(".intermediate.dense", inner, channels);
      product(".output.dense", channels, inner);
      std::ranges::copy(norm(at + ".output.LayerNorm"), std::back_inserter(blob.weights));
      const std::vector<std::string> blobs =
          names.biased ? std::vector<std::string>{at, "bias"} : std::vector{at};
      stages_.push_back(
          {.name = cat("block.", layer),
           .blobs = blobs,
           .quantised = blobs,
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

  static constexpr const char* kBias = "encoder.relative_attention_bias.weight";

  // Without types, every token has type 0: a text alone, no pair.
  NamedOutput embed(const StageTypes& types) const {
    const auto symbol = [](const char* name) { return input(name, DType::kI32, {kRows}); };
    const Tensor positions = symbol(bert_.marks == Marks::kPositions ? "marks" : "positions");
    Tensor sum = gather(stored("embeddings.word_embeddings.weight", types), symbol("tokens")) +
                 gather(stored("embeddings.position_embeddings.weight", types), positions);
    if (bert_.marks == Marks::kTypes) {
      sum = sum + gather(stored(kTypes, types), symbol("marks"));
    } else if (bert_.token_types > 0) {
      sum = sum + stored(kTypes, types);
    }
    return {"hidden", normed(sum, "embeddings.LayerNorm", types)};  // [R, C]
  }

  NamedOutput block(int layer, const StageTypes& types) const {
    const std::string at = cat("encoder.layer.", layer);
    const Traits& names = bert_.traits;
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
    const Tensor bias =
        names.biased ? split::weight(kBias, DType::kF32, {kBiasBuckets, bert_.heads}) : 0.0f;
    const Tensor attended = attention(
        product(x, names.query), product(x, names.key), product(x, names.value),
        input("k_cache", types.cache, {channels}), input("v_cache", types.cache, {channels}), heads,
        bias);  // [R, C]
    const Tensor y = normed(x + product(attended, names.out), at + names.norm, types);
    const Tensor inner = unary(bert_.activation, product(y, ".intermediate.dense"));
    return {"hidden_out",
            normed(y + product(inner, ".output.dense"), at + ".output.LayerNorm", types)};
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
  std::map<std::pair<std::string_view, Op>, std::string> all;
  const auto add = [&](std::string_view type, std::string_view activation, Op op,
                       const char* architecture) {
    const std::pair key(std::string_view(architecture) == "" ? type : architecture, op);
    all.emplace(key, Json{{"model_type", type},
                          {"architectures", Json::array({architecture})},
                          {"num_hidden_layers", 1},
                          {"hidden_size", 8},
                          {"num_attention_heads", 1},
                          {"vocab_size", 8},
                          {"max_position_embeddings", 8},
                          {"num_labels", 1},
                          {"hidden_act", activation}}
                         .dump());
  };
  for (const auto& [name, op] : activations()) add("bert", name, op, "");
  for (const char* type : {"roberta", "mpnet"}) add(type, "gelu", Op::k_gelu, "");
  add("bert", "gelu", Op::k_gelu, "BertForSequenceClassification");
  std::vector<std::string> configs;
  for (auto& [op, config] : all) configs.push_back(std::move(config));
  return configs;
}

bool is_beside_bert(std::string_view name) {
  return name.starts_with("cls.") || name.starts_with("lm_head.") || name.starts_with("pooler.") ||
         name.starts_with("classifier.") || name == "embeddings.position_ids" ||
         name == "embeddings.token_type_ids";
}

}  // namespace split
