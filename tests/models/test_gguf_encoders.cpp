// Encoders as GGUF files: the golden directories, written as llama.cpp's converter writes such
// models, give the ids and the embeddings of sentence-transformers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/base64.h"
#include "base/file.h"
#include "base/json.h"
#include "run/sentences.h"
#include "support/gguf/file.h"
#include "support/golden_model.h"
#include "support/temporary_folder.h"

namespace split::test {
namespace {

struct Encoder {
  std::string golden, architecture;
  double bound = 1e-6;
  std::map<std::string, std::string> outside = {}, in_block = {};
  std::string blocks = {};
};

const Encoder kEncoders[] = {
    {"xlmr",
     "bert",
     1e-6,
     {{"embeddings.word_embeddings.weight", "token_embd.weight"},
      {"embeddings.position_embeddings.weight", "position_embd.weight"},
      {"embeddings.token_type_embeddings.weight", "token_types.weight"},
      {"embeddings.LayerNorm.weight", "token_embd_norm.weight"},
      {"embeddings.LayerNorm.bias", "token_embd_norm.bias"}},
     {{"attention.self.query", "attn_q"},
      {"attention.self.key", "attn_k"},
      {"attention.self.value", "attn_v"},
      {"attention.output.dense", "attn_output"},
      {"attention.output.LayerNorm", "attn_output_norm"},
      {"intermediate.dense", "ffn_up"},
      {"output.dense", "ffn_down"},
      {"output.LayerNorm", "layer_output_norm"}},
     "encoder.layer."},
    // As published, before the model's own names are made of them.
    {"modernbert",
     "modern-bert",
     1e-6,
     {{"embed_tokens.weight", "token_embd.weight"},
      {"embed_norm.weight", "token_embd_norm.weight"},
      {"norm.weight", "output_norm.weight"}},
     {{"self_attn.qkv_proj", "attn_qkv"},
      {"self_attn.o_proj", "attn_output"},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}},
     "layers."},
    {"embgemma",
     "gemma-embedding",
     1e-6,
     {{"embed_tokens.weight", "token_embd.weight"}, {"norm.weight", "output_norm.weight"}},
     {{"input_layernorm", "attn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"self_attn.o_proj", "attn_output"},
      {"post_attention_layernorm", "post_attention_norm"},
      {"pre_feedforward_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}},
     "layers."}};

std::vector<float> floats(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(*element_count(view.dims)));
  convert(view, DType::kF32, std::as_writable_bytes(std::span(values)));
  return values;
}

std::string gguf_name(const Encoder& encoder, const std::string& name) {
  if (const auto at = encoder.outside.find(name); at != encoder.outside.end()) return at->second;
  CHECK(name.starts_with(encoder.blocks));
  const size_t layer = encoder.blocks.size(), dot = name.find('.', layer), end = name.rfind('.');
  return cat("blk.", name.substr(layer, dot - layer), ".",
             encoder.in_block.at(name.substr(dot + 1, end - dot - 1)), name.substr(end));
}

// The weights, turned as the converter does: XLM-R's positions begin at 2, Gemma's norms have one
// more.
void add_weights(const Encoder& encoder, const Checkpoint& checkpoint, GgufFile& file) {
  for (const std::string& name : checkpoint.names()) {
    const TensorView& view = checkpoint.at(name);
    Dims dims = view.dims;
    std::vector<float> values = floats(view);
    const std::string as = gguf_name(encoder, name);
    if (as == "position_embd.weight") {
      values.erase(values.begin(), values.begin() + 2 * dims[1]);
      dims[0] -= 2;
    }
    if (encoder.golden == "embgemma" && name.find("norm") != name.npos) {
      for (float& value : values) value += 1;
    }
    file.tensor(as, dims, values);
  }
}

void add_settings(const Encoder& encoder, const Json& config, GgufFile& file) {
  const std::string at = encoder.architecture + ".";
  const auto number = [&](const char* key) { return config[key].get<double>(); };
  const auto size = [&](const char* key) { return config[key].get<uint64_t>(); };
  file.text("general.architecture", encoder.architecture);
  file.integer(at + "block_count", size("num_hidden_layers"));
  file.integer(at + "embedding_length", size("hidden_size"));
  file.integer(at + "feed_forward_length", size("intermediate_size"));
  file.integer(at + "attention.head_count", size("num_attention_heads"));
  const bool xlmr = encoder.golden == "xlmr";
  file.integer(at + "context_length", size("max_position_embeddings") - (xlmr ? 2 : 0));
  if (xlmr) {
    file.real(at + "attention.layer_norm_epsilon", number("layer_norm_eps"));
  } else if (encoder.golden == "modernbert") {
    file.real(at + "attention.layer_norm_epsilon", number("norm_eps"));
    file.integer(at + "attention.sliding_window", size("local_attention"));
    file.integer(at + "attention.sliding_window_pattern", size("global_attn_every_n_layers"));
    file.real(at + "rope.freq_base", 160000);
    file.real(at + "rope.freq_base_swa", 10000);
  } else {
    file.real(at + "attention.layer_norm_rms_epsilon", number("rms_norm_eps"));
    file.integer(at + "attention.head_count_kv", size("num_key_value_heads"));
    file.integer(at + "attention.key_length", size("head_dim"));
    file.integer(at + "attention.value_length", size("head_dim"));
    file.integer(at + "attention.sliding_window", size("sliding_window"));
    file.integer(at + "attention.sliding_window_pattern", 3);
    file.real(at + "rope.freq_base", 1e6);
  }
}

void add_tokenizer(const Encoder& encoder, const Json& json, const Json& config, GgufFile& file) {
  const Json &model = json["model"], &vocab = model["vocab"];
  enum : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };
  const size_t count = config["vocab_size"].get<size_t>();
  std::vector<std::string> tokens(count);
  std::vector<int32_t> types(count, kNormal);
  std::vector<float> scores(count);
  size_t most = 0;
  const auto add = [&](size_t id, const std::string& token, int32_t type) {
    tokens[id] = token, types[id] = type, most = std::max(most, id + 1);
  };
  if (vocab.is_array()) {
    for (size_t id = 0; id < vocab.size(); ++id) {
      add(id, vocab[id][0].text(), kNormal);
      scores[id] = vocab[id][1].get<float>();
    }
  } else {
    for (const auto& [token, id] : vocab.members()) add(id.get<size_t>(), token, kNormal);
  }
  if (model.contains("merges")) {
    std::vector<std::string> merges;
    std::map<std::string, size_t> ids;
    for (size_t id = 0; id < count; ++id) ids.emplace(tokens[id], id);
    for (const Json& merge : model["merges"]) {
      const bool pair = merge.is_array();
      merges.push_back(pair ? merge[0].text() + " " + merge[1].text() : merge.text());
      // SentencePiece's order of merges, as scores.
      if (pair) {
        const auto at = ids.find(merge[0].text() + merge[1].text());
        if (scores[at->second] == 0) scores[at->second] = -static_cast<float>(merges.size());
      }
    }
    if (encoder.golden == "modernbert") file.texts("tokenizer.ggml.merges", merges);
  }
  for (const Json& one : json["added_tokens"]) {
    const std::string content = one["content"].text();
    const bool special = one["special"].get<bool>();
    add(one["id"].get<size_t>(), content,
        content == "<unk>" ? kUnknown
        : special          ? kControl
                           : kUserDefined);
  }
  for (size_t id = 0; id < count; ++id) {
    if (tokens[id].empty()) tokens[id] = cat("[PAD", id, "]"), types[id] = 5;
  }
  const bool xlmr = encoder.golden == "xlmr", modern = encoder.golden == "modernbert";
  file.text("tokenizer.ggml.model", xlmr ? "t5" : modern ? "gpt2" : "llama");
  if (modern) file.text("tokenizer.ggml.pre", "modern-bert");
  file.texts("tokenizer.ggml.tokens", tokens);
  file.numbers("tokenizer.ggml.token_type", 5, types);
  if (!modern) file.numbers("tokenizer.ggml.scores", 6, scores);
  file.integer("tokenizer.ggml.bos_token_id", config["bos_token_id"].get<uint64_t>());
  file.integer("tokenizer.ggml.eos_token_id", config["eos_token_id"].get<uint64_t>());
  file.flag("tokenizer.ggml.add_bos_token", true);
  file.flag("tokenizer.ggml.add_eos_token", xlmr || modern);
  file.flag("tokenizer.ggml.add_space_prefix", xlmr);
  if (!xlmr) return;
  file.integer("tokenizer.ggml.unknown_token_id", model["unk_id"].get<uint64_t>());
  file.flag("tokenizer.ggml.remove_extra_whitespaces", true);
  const auto charsmap =
      from_base64(json["normalizer"]["normalizers"][0]["precompiled_charsmap"].text());
  file.numbers("tokenizer.ggml.precompiled_charsmap", 0,
               std::vector<uint8_t>(charsmap->begin(), charsmap->end()));
}

class GgufEncoders : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(All, GgufEncoders, testing::Range(size_t{0}, std::size(kEncoders)),
                         [](const auto& info) { return kEncoders[info.param].golden; });

TEST_P(GgufEncoders, GiveTheIdsAndTheEmbeddingsOfTheDirectory) {
  const Encoder& encoder = kEncoders[GetParam()];
  const Golden golden("models/" + encoder.golden);
  const std::filesystem::path dir = golden.checkpoint.path();
  const auto json = [&](const char* name) {
    return parse_json(read_file(dir / name, 8 << 20), 64, name);
  };
  const Json config = json("config.json"), modules = json("modules.json");
  GgufFile written;
  add_settings(encoder, config, written);
  add_tokenizer(encoder, json("tokenizer.json"), config, written);
  add_weights(encoder, golden.checkpoint, written);
  const Sentences own = Sentences::read(
      golden.checkpoint.files(),
      [&](const std::string& name) { return golden.checkpoint.file(name); },
      golden.model->config());
  const bool mean = own.modes()[0] == PoolMode::kMean;
  written.integer(encoder.architecture + ".pooling_type", mean ? 1 : 2);
  for (const char* dense : {"2_Dense", "3_Dense"}) {
    if (!std::filesystem::exists(dir / dense)) continue;
    const std::string bytes = read_file(dir / dense / "model.safetensors", 1 << 20);
    const Safetensors file = Safetensors::parse(as_bytes_of(bytes), dense);
    const TensorView& weight = file.tensors().at("linear.weight");
    written.tensor(cat("dense_", dense[0], ".weight"), weight.dims, floats(weight));
  }
  TemporaryFolder folder;
  const std::filesystem::path path = std::filesystem::path(folder.path) / "encoder.gguf";
  written.write(path);

  const Checkpoint checkpoint(path);
  const auto model = make_model(checkpoint.config_json());
  EXPECT_EQ(model->config().layers, golden.model->config().layers);
  const Sentences sentences = Sentences::read(
      checkpoint.files(), [&](const std::string& name) { return checkpoint.file(name); },
      model->config());
  const auto tokenizer = load_tokenizer(
      checkpoint.files(), [&](const char* name) { return checkpoint.file(name); }, "gguf");
  const auto own_tokenizer = load_tokenizer(dir);
  ASSERT_TRUE(tokenizer.has_value());
  const auto device = make_device({"cpu", 2});
  Shard shard(*device, *model, weights_of(checkpoint, *model), options_for(*model));
  Batcher batcher(shard);
  size_t compared = 0;
  const Json prompts = json("golden.json")["prompts"];
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string name = cat("p", i, ".embedding");
    if (!golden.has(name) || prompts[i]["text"].is_null()) continue;
    const std::string text = prompts[i]["text"].text();
    // Such a file has no rows for the position of padding.
    if (text.find("<pad>") != text.npos) continue;
    const auto whole = own_tokenizer->encode(text, {.add_special = true});
    EXPECT_EQ(tokenizer->encode(text, {.add_special = true}), whole) << name;
    const auto ids = sentences.encode(&*tokenizer, text, true).ids;
    const SequenceId id = shard.pages().open();
    const auto rows = append(
        batcher, id,
        {.range = {Point::tokens(), sentences.point()}, .tokens = ids, .wanted = Wanted::kAll});
    shard.pages().close(id);
    const auto got = sentences.pool(rows, true);
    auto want = golden.values<float>(name);
    to_unit_length(want);
    ASSERT_EQ(got.size(), want.size());
    const bool cut = whole.size() != golden.values<int32_t>(name + "_ids").size();
    for (size_t at = 0; !cut && at < want.size(); ++at) {
      ASSERT_NEAR(got[at], want[at], encoder.bound) << name;
    }
    compared += cut ? 0 : 1;
  }
  EXPECT_GE(compared, 3u);
}

}  // namespace
}  // namespace split::test
