// Settings of encoders that no golden has: each is applied as a pass in doubles over random weights
// applies it, itself held to what PyTorch computes for the goldens.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "run/naive_encoder.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

std::string config_of(const std::string& golden) {
  return read_file(model_dir("models/" + golden) + "/config.json", 1 << 20);
}

std::vector<float> floats_of(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(element_count(view.dims).value()));
  convert(view, DType::kF32, std::as_writable_bytes(std::span(values)));
  return values;
}

TEST(NaiveEncoder, IsThatOfPyTorch) {
  for (const std::string name : {"bert", "st-minilm", "xlmr", "roberta", "mpnet", "modernbert",
                                 "embgemma", "rerank-bert", "rerank-xlmr", "rerank-modernbert"}) {
    const Golden golden("models/" + name);
    const WeightSource weights = golden.weights();
    const NaiveEncoder naive(golden.checkpoint.config_json(), [&](const std::string& weight) {
      return floats_of(weights.view(weight));
    });
    for (int p = 0; p < golden.prompts(); ++p) {
      const std::string prefix = cat("p", p, ".");
      if (!golden.has(prefix + "hidden_all")) continue;
      size_t second = 0;
      if (golden.has(prefix + "types")) {
        const auto types = golden.values<int32_t>(prefix + "types");
        const auto at = std::ranges::find(types, 1);
        if (at != types.end()) second = static_cast<size_t>(at - types.begin());
      }
      const auto ids = golden.ids(p);
      const auto states = naive.states(ids, second);
      const auto want = golden.values<float>(prefix + "hidden_all");
      const auto layers = static_cast<size_t>(golden.model->config().layers);
      ASSERT_EQ(want.size() % ((layers + 1) * ids.size()), 0u);
      const size_t channels = want.size() / (layers + 1) / ids.size();
      for (size_t i = 0; i < want.size(); ++i) {
        const double got =
            states[i / channels / ids.size()][i / channels % ids.size()][i % channels];
        ASSERT_NEAR(got, want[i], 3e-5) << name << " " << prefix << i;
      }
      if (golden.has(prefix + "normed_first")) {
        const auto first = golden.values<float>(prefix + "normed_first");
        for (size_t i = 0; i < channels; ++i) EXPECT_NEAR(states.back()[0][i], first[i], 3e-5);
      }
    }
  }
}

// Weights of a model's names and shapes: those of norms are near what leaves a row as it is.
class RandomEncoder {
 public:
  explicit RandomEncoder(const Model& model) {
    std::mt19937 random(11);
    for (const Blob& blob : model.blobs()) {
      for (const WeightDecl& decl : blob.weights) {
        const bool norm = decl.name.find("orm") != decl.name.npos && decl.name.ends_with("weight");
        const bool gemma = model.config().model_type == "gemma3_text";
        std::normal_distribution<float> normal(norm && !gemma ? 1.0f : 0.0f,
                                               decl.dims.size() == 2 ? 0.2f : 0.3f);
        auto& [dims, values] = tensors_[decl.name];
        dims = decl.dims;
        values.resize(static_cast<size_t>(element_count(dims).value()));
        for (float& value : values) value = normal(random);
      }
    }
  }
  TensorView view(const std::string& name) const {
    const auto& [dims, values] = tensors_.at(name);
    return {DType::kF32, dims, std::as_bytes(std::span(values))};
  }
  const std::vector<float>& values(const std::string& name) const {
    return tensors_.at(name).second;
  }

 private:
  std::map<std::string, std::pair<Dims, std::vector<float>>> tensors_;
};

struct Setting {
  const char* name;
  const char* golden;  // its config.json is changed
  Json changes;        // null takes a setting away
  bool idle = false;   // transformers' code does not read it
};
const Json kBothRopes = {{"full_attention", {{"rope_type", "linear"}, {"factor", 3.0}}},
                         {"sliding_attention", {{"rope_theta", 500.0}}}};
const Setting kSettings[] = {
    {"bert_gelu_new", "bert", {{"hidden_act", "gelu_new"}}},
    {"bert_relu", "bert", {{"hidden_act", "relu"}}},
    {"bert_silu", "bert", {{"hidden_act", "silu"}}},
    {"bert_eps", "bert", {{"layer_norm_eps", 0.01}}},
    {"bert_usual_eps", "bert", {{"layer_norm_eps", nullptr}}, true},
    {"bert_one_type", "bert", {{"type_vocab_size", 1}}, true},
    {"bert_heads", "bert", {{"num_attention_heads", 2}}},
    {"bert_padding", "bert", {{"pad_token_id", 5}}, true},
    {"roberta_padding_0", "roberta", {{"pad_token_id", 0}}},
    {"roberta_padding_5", "roberta", {{"pad_token_id", 5}}},
    {"roberta_types", "roberta", {{"type_vocab_size", 2}}, true},
    {"roberta_relu", "roberta", {{"hidden_act", "relu"}}},
    {"roberta_usual_eps", "roberta", {{"layer_norm_eps", nullptr}}},
    {"xlmr_padding_2", "xlmr", {{"pad_token_id", 2}}},
    {"mpnet_padding", "mpnet", {{"pad_token_id", 0}}, true},
    {"mpnet_eps", "mpnet", {{"layer_norm_eps", 0.01}}},
    {"mpnet_silu", "mpnet", {{"hidden_act", "silu"}}},
    {"mpnet_heads", "mpnet", {{"num_attention_heads", 6}}},
    {"modernbert_odd", "modernbert", {{"local_attention", 7}}},
    {"modernbert_own_row", "modernbert", {{"local_attention", 1}}},
    {"modernbert_wide", "modernbert", {{"local_attention", 1000}}},
    {"modernbert_usual_window", "modernbert", {{"local_attention", nullptr}}},
    {"modernbert_every_1",
     "modernbert",
     {{"layer_types", nullptr}, {"global_attn_every_n_layers", 1}}},
    {"modernbert_every_2",
     "modernbert",
     {{"layer_types", nullptr}, {"global_attn_every_n_layers", 2}}},
    {"modernbert_usual_layers",
     "modernbert",
     {{"layer_types", nullptr}, {"global_attn_every_n_layers", nullptr}},
     true},
    {"modernbert_layer_types",
     "modernbert",
     {{"layer_types", Json::array({"sliding_attention", "full_attention", "full_attention",
                                   "sliding_attention", "full_attention"})}}},
    {"modernbert_older_thetas",
     "modernbert",
     {{"rope_parameters", nullptr}, {"global_rope_theta", 900.0}, {"local_rope_theta", 50.0}}},
    {"modernbert_usual_thetas", "modernbert", {{"rope_parameters", nullptr}}, true},
    {"modernbert_older_scaling",
     "modernbert",
     {{"rope_parameters", nullptr}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}}},
    {"modernbert_newer_ropes", "modernbert", {{"rope_parameters", kBothRopes}}},
    {"modernbert_silu", "modernbert", {{"hidden_activation", "silu"}}},
    {"modernbert_eps", "modernbert", {{"norm_eps", 0.01}}},
    {"modernbert_usual_eps", "modernbert", {{"norm_eps", nullptr}}, true},
    {"modernbert_heads", "modernbert", {{"num_attention_heads", 2}}},
    {"embgemma_odd", "embgemma", {{"sliding_window", 5}}},
    {"embgemma_own_row", "embgemma", {{"sliding_window", 1}}},
    {"embgemma_usual_window", "embgemma", {{"sliding_window", nullptr}}},
    {"embgemma_scale", "embgemma", {{"query_pre_attn_scalar", 50}}},
    {"embgemma_cap", "embgemma", {{"attn_logit_softcapping", 2.0}}},
    {"embgemma_logit_cap", "embgemma", {{"final_logit_softcapping", 2.0}}, true},
    {"embgemma_untied", "embgemma", {{"tie_word_embeddings", false}}, true},
    {"embgemma_keys", "embgemma", {{"num_key_value_heads", 3}}},
    {"embgemma_head_dim", "embgemma", {{"head_dim", 10}}},
    {"embgemma_bias", "embgemma", {{"attention_bias", true}}},
    {"embgemma_silu", "embgemma", {{"hidden_activation", "silu"}}},
    {"embgemma_eps", "embgemma", {{"rms_norm_eps", 0.01}}},
    {"embgemma_older_layers",
     "embgemma",
     {{"layer_types", nullptr},
      {"_sliding_window_pattern", nullptr},
      {"sliding_window_pattern", 2}}},
    {"embgemma_newer_layers",
     "embgemma",
     {{"layer_types", nullptr}, {"_sliding_window_pattern", 4}}},
    {"embgemma_older_thetas",
     "embgemma",
     {{"rope_parameters", nullptr}, {"rope_theta", 900.0}, {"rope_local_base_freq", 50.0}}},
    {"embgemma_usual_thetas", "embgemma", {{"rope_parameters", nullptr}}, true},
    {"embgemma_older_scaling",
     "embgemma",
     {{"rope_parameters", nullptr}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}}},
    {"embgemma_newer_ropes", "embgemma", {{"rope_parameters", kBothRopes}}},
    {"embgemma_other_name",
     "embgemma",
     {{"use_bidirectional_attention", nullptr}, {"use_bidirectional_attn", true}},
     true}};

class EncoderSettings : public testing::TestWithParam<std::tuple<size_t, const char*>> {};
INSTANTIATE_TEST_SUITE_P(All, EncoderSettings,
                         testing::Combine(testing::Range(size_t{0}, std::size(kSettings)),
                                          testing::Values("cpu", "vulkan")),
                         [](const auto& info) {
                           return cat(std::get<1>(info.param), "_",
                                      kSettings[std::get<0>(info.param)].name);
                         });

TEST_P(EncoderSettings, AreAppliedAsInTransformers) {
  const Setting& setting = kSettings[std::get<0>(GetParam())];
  const std::string base = config_of(setting.golden);
  Json changed = parse_json(base, 16, "config.json");
  for (const auto& [key, value] : setting.changes.members()) changed[key] = value;
  const std::string config = changed.dump();
  std::unique_ptr<Device> device;
  try {
    device = make_device({std::get<1>(GetParam()), 2});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDevice) throw;
    GTEST_SKIP() << error.what();
  }
  const bool long_run = std::getenv("SPLIT_LONG") != nullptr;
  if (device->can_be_lost() && !device->is_gpu() && !long_run && std::get<0>(GetParam()) % 4 != 0) {
    GTEST_SKIP() << device->name() << " has each fourth of them: SPLIT_LONG=1 runs all";
  }
  const auto model = make_model(config);
  ASSERT_TRUE(model->config().encodes());
  const RandomEncoder weights(*model);
  const auto get = [&](const std::string& name) { return weights.values(name); };
  std::vector<int32_t> ids = {0, 5, 1, 2, 1, 0};
  const int most = std::min(model->config().context, 140);
  while (static_cast<int>(ids.size()) < most) {
    ids.push_back(static_cast<int32_t>(ids.size() * 37 % 600));
  }
  const auto want = NaiveEncoder(config, get).states(ids);
  // Without the setting the states are others, or this tells nothing.
  bool fits = true;
  const auto usual = make_model(base);
  for (const Blob& blob : usual->blobs()) {
    for (const WeightDecl& decl : blob.weights) {
      fits = fits && model->weight(decl.name).dims == decl.dims;
    }
  }
  if (fits) {
    EXPECT_EQ(NaiveEncoder(base, get).states(ids) == want, setting.idle);
  }
  Shard shard(*device, *model,
              WeightSource([&](const std::string& name) { return weights.view(name); }),
              options_for(*model));
  Batcher batcher(shard);
  const auto channels = static_cast<size_t>(model->config().channels);
  for (size_t k = 0; k < want.size(); ++k) {
    const int layers = model->config().layers;
    const bool normed = static_cast<int>(k) > layers;
    const Point to = normed ? Point::pooled(layers, true) : Point(static_cast<int>(k));
    const SequenceId id = shard.pages().open();
    const auto got = append(
        batcher, id, {.range = {Point::tokens(), to}, .tokens = ids, .wanted = Wanted::kAll});
    shard.pages().close(id);
    double largest = 1;
    for (const auto& row : want[k]) {
      for (const double value : row) largest = std::max(largest, std::abs(value));
    }
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[k][i / channels][i % channels], 5e-5 * largest)
          << setting.name << " point " << k << " row " << i / channels;
    }
  }
}

}  // namespace
}  // namespace split::test
