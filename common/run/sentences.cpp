#include "run/sentences.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"

namespace split {
namespace {

// Names in sentence-transformers, before version 6 behind "pooling_mode_", and since then.
struct ModeName {
  PoolMode mode;
  std::string_view flag, word;
};
// In the order of their parts in an embedding.
constexpr ModeName kModes[] = {
    {PoolMode::kCls, "cls_token", "cls"},
    {PoolMode::kMax, "max_tokens", "max"},
    {PoolMode::kMean, "mean_tokens", "mean"},
    {PoolMode::kMeanSqrtLength, "mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
    {PoolMode::kWeightedMean, "weightedmean_tokens", "weightedmean"},
    {PoolMode::kLast, "lasttoken", "lasttoken"}};

constexpr int kDepth = 16;
constexpr int64_t kMostDense = 1 << 16;

[[noreturn]] void refuse(std::string_view file, const std::string& why) {
  throw Error(ErrorKind::kInput, cat("[", file, "] ", why));
}

Json object_of(const std::string& text, const std::string& name) {
  Json json = parse_json(text, kDepth, cat("[", name, "]"));
  if (!json.is_object()) refuse(name, "expected a JSON object");
  return json;
}

std::string last_word(std::string_view type) {
  const size_t dot = type.rfind('.');
  return std::string(dot == type.npos ? type : type.substr(dot + 1));
}

const Json* text_at(const Json& json, const char* key) {
  const Json* const value = json.find(key);
  return value != nullptr && value->is_string() ? value : nullptr;
}

bool is_true(const Json& json, const std::string& key) {
  const Json* const value = json.find(key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

// A whole number above 0; a float, as transformers writes "any", is above all others.
std::optional<uint32_t> length_at(const Json& json, const char* key) {
  const Json* const value = json.find(key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const double length = value->get<double>();
  if (!(length >= 1)) return std::nullopt;
  return static_cast<uint32_t>(std::min(length, 4e9));
}

constexpr std::string_view kActivations[] = {"Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid"};

bool is_there(Sentences::Files names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::vector<float> floats_of(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(element_count(view.dims).value()));
  convert(view, DType::kF32, std::as_writable_bytes(std::span(values)));
  return values;
}

// A file of weights in floats.
class FloatsFile {
 public:
  FloatsFile(const Sentences::ReadFile& file, const std::string& name)
      : name_(name), bytes_(file(name)), file_(Safetensors::parse(as_bytes_of(bytes_), name)) {}

  bool has(const std::string& tensor) const { return file_.tensors().contains(tensor); }
  std::vector<float> of(const std::string& tensor, const Dims& dims) const {
    const auto at = file_.tensors().find(tensor);
    const bool right = at != file_.tensors().end() && at->second.dims == dims &&
                       !format_name(at->second.dtype).empty() && !is_quantised(at->second.dtype);
    if (!right) refuse(name_, cat("expected floats '", tensor, "' ", to_string(dims)));
    return floats_of(at->second);
  }

 private:
  const std::string name_, bytes_;
  const Safetensors file_;
};

}  // namespace

std::string_view pool_mode_name(PoolMode mode) { return kModes[static_cast<size_t>(mode)].word; }

Sentences Sentences::read(Files names, const ReadFile& file, const ModelConfig& config) {
  const bool modules = is_there(names, "modules.json");
  Sentences sentences;
  sentences.meant_ = modules || config.encodes();
  sentences.channels_ = static_cast<size_t>(config.channels);
  sentences.point_ = Point::pooled(config.layers, config.has_norm());
  sentences.ranks_ = config.ranks;
  if (config.ranks) {
    sentences.read_classifier(file, names);
  } else if (modules) {
    sentences.read_modules(file("modules.json"), file, names);
  }
  sentences.max_tokens_ = static_cast<uint32_t>(config.context);
  if (!sentences.meant_) return sentences;
  std::optional<uint32_t> longest;
  for (const auto& [name, key] : {std::pair{"sentence_bert_config.json", "max_seq_length"},
                                  std::pair{"tokenizer_config.json", "model_max_length"}}) {
    if (longest || !is_there(names, name)) continue;
    const Json json = object_of(file(name), name);
    longest = length_at(json, key);
    if (key == std::string_view("max_seq_length") && is_true(json, "do_lower_case")) {
      refuse(name, "do_lower_case: expected false: the tokenizer alone changes a text");
    }
  }
  if (longest) sentences.max_tokens_ = std::min(*longest, sentences.max_tokens_);
  if (config.marks == Marks::kTypes) {
    constexpr const char* kName = "tokenizer_config.json";
    const Json json = is_there(names, kName) ? object_of(file(kName), kName) : Json();
    const Json* const inputs = json.find("model_input_names");
    sentences.types_ =
        inputs == nullptr || !inputs->is_array() ||
        std::ranges::any_of(*inputs, [](const Json& one) { return one == Json("token_type_ids"); });
  }
  constexpr const char* kPrompts = "config_sentence_transformers.json";
  if (is_there(names, kPrompts)) sentences.read_prompts(file(kPrompts));
  return sentences;
}

void Sentences::read_modules(const std::string& text, const ReadFile& file, Files names) {
  constexpr const char* kModules = "modules.json";
  const Json list = parse_json(text, kDepth, cat("[", kModules, "]"));
  if (!list.is_array() || list.size() < 1 || list.size() > 16) {
    refuse(kModules, "expected a list of 1 to 16 modules");
  }
  normalizes_ = false;
  bool transformer = false, pooling = false;
  for (const Json& one : list) {
    const Json* const type = one.is_object() ? text_at(one, "type") : nullptr;
    const Json* const path = one.is_object() ? text_at(one, "path") : nullptr;
    if (type == nullptr || path == nullptr) refuse(kModules, "expected a type and a path of each");
    const std::string word = last_word(type->text());
    const std::string config = path->text() + "/config.json";
    if (std::exchange(normalizes_, false)) modules_.push_back({});  // not the last
    if (word == "Transformer" && !transformer) {
      transformer = true;
      if (!path->text().empty()) refuse(kModules, "expected the Transformer at the path \"\"");
    } else if (word == "Pooling" && transformer && !pooling) {
      pooling = true;
      read_pooling(config, file(config));
    } else if (word == "Dense" && pooling) {
      modules_.push_back({read_dense(path->text(), file, names)});
    } else if (word == "Normalize" && pooling) {
      normalizes_ = true;
    } else {
      refuse(kModules,
             cat("expected a Transformer, a Pooling, and any of Dense and Normalize, got ",
                 shown(type->text())));
    }
  }
  if (!pooling) refuse(kModules, "expected a Pooling");
  size_t width = modes_.size() * channels_;
  for (const Module& module : modules_) {
    if (!module.dense) continue;
    if (module.dense->inputs != width) {
      refuse(kModules, cat("a Dense of ", module.dense->inputs, " features behind ", width));
    }
    width = module.dense->outputs;
  }
}

void Sentences::read_pooling(const std::string& name, const std::string& text) {
  const Json json = object_of(text, name);
  modes_.clear();
  const auto add = [&](std::string_view word) {
    const auto at = std::ranges::find_if(
        kModes, [&](const ModeName& mode) { return mode.word == word || mode.flag == word; });
    if (at == std::end(kModes)) {
      refuse(name, cat("pooling_mode: expected cls, max, mean, mean_sqrt_len_tokens, weightedmean ",
                       "or lasttoken, got ", shown(word)));
    }
    modes_.push_back(at->mode);
  };
  if (const Json* const mode = json.find("pooling_mode")) {
    if (mode->is_string()) add(mode->text());
    for (const Json& one : mode->is_array() ? *mode : Json::array()) {
      add(one.is_string() ? one.text() : "");
    }
  } else {
    for (const ModeName& mode : kModes) {
      const std::string key = cat("pooling_mode_", mode.flag);
      const bool usual = mode.mode == PoolMode::kMean && !json.contains(key);
      if (usual || is_true(json, key)) modes_.push_back(mode.mode);
    }
  }
  if (modes_.empty()) refuse(name, "expected a pooling mode");
  for (const char* key : {"word_embedding_dimension", "embedding_dimension"}) {
    const Json* const width = json.find(key);
    if (width == nullptr || !width->is_number()) continue;
    if (width->get<double>() != static_cast<double>(channels_)) {
      refuse(name, cat(key, ": expected ", channels_, ", the model's width"));
    }
  }
  const Json* const prompt = json.find("include_prompt");
  if (prompt != nullptr && prompt->is_boolean() && !prompt->get<bool>()) {
    refuse(name, "include_prompt: expected true");
  }
}

Sentences::Dense Sentences::read_dense(const std::string& path, const ReadFile& file, Files names) {
  const std::string name = path + "/config.json", weights = path + "/model.safetensors";
  const Json json = object_of(file(name), name);
  const auto size = [&](const char* key) {
    const Json* const value = json.find(key);
    if (value == nullptr || !value->is_number_integer() || value->get<int64_t>() < 1 ||
        value->get<int64_t>() > kMostDense) {
      refuse(name, cat(key, ": expected a whole number in 1..", kMostDense));
    }
    return static_cast<size_t>(value->get<int64_t>());
  };
  Dense dense;
  dense.inputs = size("in_features");
  dense.outputs = size("out_features");
  const Json* const activation = text_at(json, "activation_function");
  dense.activation = activation == nullptr ? "Tanh" : last_word(activation->text());
  if (std::ranges::find(kActivations, dense.activation) == std::end(kActivations)) {
    refuse(name, cat("activation_function: expected Identity, Tanh, ReLU, GELU, SiLU or Sigmoid, ",
                     "got ", shown(activation->text())));
  }
  if (!is_there(names, weights)) {
    refuse(name, cat("expected ", weights, " beside it: a pickle is refused"));
  }
  const FloatsFile floats(file, weights);
  const auto inputs = static_cast<int64_t>(dense.inputs);
  const auto outputs = static_cast<int64_t>(dense.outputs);
  dense.weight = floats.of("linear.weight", {outputs, inputs});
  const Json* const bias = json.find("bias");
  if (bias == nullptr || !bias->is_boolean() || bias->get<bool>()) {
    dense.bias = floats.of("linear.bias", {outputs});
  }
  return dense;
}

// Reads the classifier of a ...ForSequenceClassification: on the first row, or on the mean if
// config.json says so, a dense layer and one that gives the score. A ModernBERT norms between them.
void Sentences::read_classifier(const ReadFile& file, Files names) {
  const Json config = object_of(file("config.json"), "config.json");
  if (!is_there(names, kClassifierFile)) {
    refuse("config.json", "architectures: expected a classifier among the weights, got none");
  }
  const FloatsFile floats(file, kClassifierFile);
  const bool modern = floats.has("head.dense.weight");
  const bool own = floats.has("classifier.out_proj.weight");  // named as in RoBERTa
  const std::string last = own ? "classifier.out_proj" : "classifier";
  const auto dense = [&](const std::string& name, size_t outputs, const char* activation) {
    const auto rows = static_cast<int64_t>(outputs), columns = static_cast<int64_t>(channels_);
    Dense made{channels_, outputs, floats.of(name + ".weight", {rows, columns}), {}, activation};
    if (floats.has(name + ".bias")) made.bias = floats.of(name + ".bias", {rows});
    modules_.push_back({std::move(made)});
  };
  const Json* const pooling = text_at(config, "classifier_pooling");
  if (pooling != nullptr && pooling->text() != "cls" && pooling->text() != "mean") {
    refuse("config.json",
           cat("classifier_pooling: expected cls or mean, got ", shown(pooling->text())));
  }
  modes_ = {pooling != nullptr && pooling->text() == "mean" ? PoolMode::kMean : PoolMode::kCls};
  const Json* const head = text_at(config, "classifier_activation");
  if (modern && head != nullptr && head->text() != "gelu") {
    refuse("config.json", cat("classifier_activation: expected gelu, got ", shown(head->text())));
  }
  dense(modern ? "head.dense"
        : own  ? "classifier.dense"
               : "pooler.dense",
        channels_, modern ? "GELU" : "Tanh");
  if (modern) {
    const Json* const eps = config.find("norm_eps");
    modules_.push_back({.norm = floats.of("head.norm.weight", {static_cast<int64_t>(channels_)}),
                        .eps = eps != nullptr && eps->is_number() ? eps->get<double>() : 1e-5});
  }
  const Json* const made_by = config.find("sentence_transformers");
  const Json* activation = made_by == nullptr ? nullptr : text_at(*made_by, "activation_fn");
  if (activation == nullptr) activation = text_at(config, "sbert_ce_default_activation_function");
  const std::string word = activation == nullptr ? "Sigmoid" : last_word(activation->text());
  if (word != "Sigmoid" && word != "Identity") {
    refuse("config.json", cat("sentence_transformers.activation_fn: expected Sigmoid or Identity, ",
                              "got ", shown(word)));
  }
  dense(last, 1, word == "Sigmoid" ? "Sigmoid" : "Identity");
  normalizes_ = false;
}

void Sentences::read_prompts(const std::string& text) {
  constexpr const char* kName = "config_sentence_transformers.json";
  const Json json = object_of(text, kName);
  if (const Json* const prompts = json.find("prompts");
      prompts != nullptr && prompts->is_object()) {
    for (const auto& [name, prompt] : prompts->members()) {
      if (!prompt.is_string()) refuse(kName, cat("prompts: expected a text for ", shown(name)));
      prompts_.emplace(name, prompt.text());
    }
  }
  const Json* const usual = text_at(json, "default_prompt_name");
  if (usual == nullptr) return;
  const auto at = prompts_.find(usual->text());
  if (at == prompts_.end()) {
    refuse(kName,
           cat("default_prompt_name: expected one of the prompts, got ", shown(usual->text())));
  }
  default_prompt_ = at->second;
}

size_t Sentences::dimensions() const {
  size_t width = modes_.size() * channels_;
  for (const Module& module : modules_) {
    if (module.dense) width = module.dense->outputs;
  }
  return width;
}

const std::string& Sentences::prompt(const std::optional<std::string>& name) const {
  if (!name) return default_prompt_;
  const auto at = prompts_.find(*name);
  if (at != prompts_.end()) return at->second;
  std::string known;
  for (const auto& [one, text] : prompts_) known += cat(known.empty() ? "" : ", ", one);
  throw Error(ErrorKind::kInput,
              cat("expected ", known.empty() ? "none: the model has no prompts" : "one of " + known,
                  ", got ", shown(*name)),
              "prompt_name");
}

SentenceIds Sentences::encode(const Tokenizer* tokenizer, std::string_view text, bool truncate,
                              MemoryShare* memory) const {
  if (tokenizer == nullptr) {
    throw Error(ErrorKind::kInput, "the model has no tokenizer: expected token ids", "input");
  }
  return bounded(tokenizer->encode(text, {.add_special = true, .memory = memory}), truncate,
                 tokenizer->behind().size());
}

SentenceIds Sentences::bounded(std::vector<int32_t> ids, bool truncate, size_t closing) const {
  if (ids.size() <= max_tokens_) return {std::move(ids), false};
  if (!truncate) throw InputTooLong(max_tokens_, ids.size());
  closing = std::min<size_t>(closing, max_tokens_);
  const auto end = ids.end() - static_cast<std::ptrdiff_t>(closing);
  ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(max_tokens_ - closing), end);
  return {std::move(ids), true};
}

std::string Sentences::describe() const {
  Json modes = Json::array(), dense = Json::array();
  for (const PoolMode mode : modes_) modes.push_back(pool_mode_name(mode));
  for (const Module& module : modules_) {
    if (module.dense) dense.push_back(module.dense->outputs);
  }
  Json json = {{"normalize", normalizes_}};
  if (ranks_) json["ranks"] = true;
  json["modes"] = std::move(modes);
  json["dense"] = std::move(dense);
  return json.dump();
}

}  // namespace split
