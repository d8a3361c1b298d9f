#include "models/model.h"

#include <algorithm>

#include "base/json.h"
#include "models/bert.h"
#include "models/config_reader.h"
#include "models/gemma4.h"
#include "models/gpt2.h"
#include "models/llama.h"
#include "models/qwen35.h"

namespace split {
namespace {

// The registry: one line for each model.
struct Entry {
  std::string_view model_type;
  std::unique_ptr<Model> (*make)(std::string_view config_json, std::optional<int> context);
  TensorNames names;
  // Null if another entry's examples have all its kernels.
  std::vector<std::string> (*examples)() = nullptr;
};
constexpr Entry kModels[] = {
    {"gpt2", make_gpt2, kGpt2Names, gpt2_examples},
    {"bert", make_bert, kBertNames, bert_examples},
    {"roberta", make_bert, kBertNames},
    {"xlm-roberta", make_bert, kBertNames},
    {"mpnet", make_bert, kBertNames},
    {"llama", make_llama, kLlamaNames, llama_examples},
    {"mistral", make_llama, kLlamaNames},
    {"qwen2", make_llama, kLlamaNames},
    {"qwen3", make_llama, kLlamaNames},
    {"gemma2", make_llama, kLlamaNames},
    {"gemma3_text", make_llama, kLlamaNames},
    {"modernbert", make_llama, kModernBertNames},
    {"qwen3_5", make_qwen35, kQwen35Names, qwen35_examples},
    {"qwen3_5_text", make_qwen35, kQwen35Names},
    {"gemma4", make_gemma4, kGemma4Names, gemma4_examples},
    {"gemma4_text", make_gemma4, kGemma4Names},
};

// Throws Error(kInput) if no model of the registry fits.
const Entry& entry_of(std::string_view config_json) {
  const Json config = parse_json(config_json, 16, "[config.json]");
  if (!config.is_object()) {
    throw Error(ErrorKind::kInput, "[config.json] expected a JSON object");
  }
  const Json* named = config.find("model_type");
  const std::string type = named != nullptr && named->is_string() ? named->text() : "";
  std::string known;
  for (const Entry& entry : kModels) {
    if (entry.model_type == type) {
      ConfigReader(config).refuse_packed_weights();
      return entry;
    }
    known += cat(known.empty()                     ? "\""
                 : &entry == std::end(kModels) - 1 ? " or \""
                                                   : ", \"",
                 entry.model_type, "\"");
  }
  throw Error(ErrorKind::kInput,
              cat("[config.json] model_type: expected ", known, ", got ", shown(type)));
}

template <typename T>
const T& find_named(const std::vector<T>& list, std::string_view name, std::string_view what) {
  const auto at =
      std::find_if(list.begin(), list.end(), [&](const T& t) { return t.name == name; });
  if (at != list.end()) return *at;
  throw Error(ErrorKind::kNotFound, cat("[model] no ", what, " '", name, "'"));
}

}  // namespace

void ModelConfig::add_marks(std::span<const int32_t> tokens, uint32_t second,
                            std::vector<int32_t>& to) const {
  int32_t position = padding;
  for (size_t row = 0; marks != Marks::kNone && row < tokens.size(); ++row) {
    const bool pads = tokens[row] == padding;
    const bool behind = second > 0 && row >= second;
    to.push_back(marks == Marks::kTypes ? (behind ? 1 : 0) : pads ? padding : ++position);
  }
}

int64_t ModelConfig::row_width(int point) const {
  int64_t width = channels;
  for (const RowPart& part : row_parts) width += part.at(point);
  return width;
}

Dims stored_dims(const WeightDecl& decl, DType dtype) {
  const bool blocks = is_quantised(dtype);
  const bool read =
      !blocks || decl.looked_up || (decl.product != Product::kNone && dtype != DType::kQ5_K);
  if (format_name(dtype).empty() || !read) {
    throw Error(ErrorKind::kShape, cat("[model] weight '", decl.name,
                                       "': expected F32, F16 or BF16, got ", dtype_name(dtype)));
  }
  return blocks && decl.product == Product::kInOut ? Dims{decl.dims[1], decl.dims[0]} : decl.dims;
}

std::string Stage::kind() const {
  if (kv.state.keeps()) return "linear attention";
  if (kv.heads == 0) return "";
  const bool shares = kv.source >= 0 && name != cat("block.", kv.source);
  return cat("attention", kv.window > 0 ? cat(", window ", kv.window) : "",
             shares ? cat(", keys of block ", kv.source) : "");
}

const Blob& Model::blob(std::string_view name) const { return find_named(blobs_, name, "blob"); }
const Stage& Model::stage(std::string_view name) const {
  return find_named(stages_, name, "stage");
}

const WeightDecl& Model::weight(std::string_view name) const {
  for (const Blob& blob : blobs_) {
    for (const WeightDecl& decl : blob.weights) {
      if (decl.name == name) return decl;
    }
  }
  throw Error(ErrorKind::kNotFound, cat("[model] no weight '", name, "'"));
}

bool Model::stays_on_disk(std::string_view name) const {
  return std::ranges::all_of(blob(name).weights, [&](const WeightDecl& decl) {
    return std::ranges::any_of(stages_, [&](const Stage& stage) {
      return std::ranges::find(stage.tables, decl.name) != stage.tables.end();
    });
  });
}

uint64_t Model::parameters(const Stage& stage) const {
  uint64_t count = 0;
  for (const std::string& name : stage.blobs) {
    for (const WeightDecl& weight : blob(name).weights) {
      count += static_cast<uint64_t>(element_count(weight.dims).value());
    }
  }
  return count;
}

void Model::add_head(bool tied, const std::string& embedding,
                     std::function<NamedOutput(const StageTypes&)> trace) {
  blobs_.push_back({"lm_head",
                    {{"lm_head.weight",
                      {config_.vocab, config_.channels},
                      Product::kOutIn,
                      tied ? embedding + ".weight" : ""}}});
  stages_.push_back({.name = "head",
                     .blobs = {tied ? embedding : "lm_head"},
                     .quantised = {"lm_head"},
                     .takes = Takes::kOutRows,
                     .width = config_.vocab,
                     .joins_last = true,
                     .logits = true,
                     .trace = std::move(trace)});
}

std::string Model::head_weight(const StageTypes& types) const {
  const std::string own = "lm_head.weight", &from = weight(own).from;
  return from.empty() || is_quantised(types.weight(own)) ? own : from;
}

void Model::add_stops(std::span<const int> ids) {
  for (const int id : ids) {
    if (id < 0 || id >= config_.vocab ||
        std::ranges::find(config_.stops, id) != config_.stops.end())
      continue;
    config_.stops.push_back(id);
    if (config_.end_of_text < 0) config_.end_of_text = id;
  }
}

void Model::lower_context(int context) {
  CHECK(context >= 1 && context <= config_.context);
  for (Constant& table : constants_) {
    if (table.dims.size() < 2 || table.dims[0] != config_.context) continue;
    table.dims[0] = context;
    table.values.resize(static_cast<size_t>(*element_count(table.dims)));
  }
  config_.context = context;
}

const Constant* Model::constant(std::string_view name) const {
  const auto at = std::ranges::find(constants_, name, &Constant::name);
  return at == constants_.end() ? nullptr : &*at;
}

const Stage& Model::block(int layer) const { return stages_.at(static_cast<size_t>(layer) + 1); }

std::string TensorNames::name_of(std::string_view full) const {
  for (const std::string_view prefix : prefixes) {
    if (!full.starts_with(prefix)) continue;
    full.remove_prefix(prefix.size());
    break;
  }
  for (const Alias& alias : aliases) {
    if (!full.ends_with(alias.end)) continue;
    return cat(full.substr(0, full.size() - alias.end.size()), alias.ours);
  }
  return std::string(full);
}

std::unique_ptr<Model> make_model(std::string_view config_json, std::optional<int> context) {
  return entry_of(config_json).make(config_json, context);
}

TensorNames tensor_names(std::string_view config_json) { return entry_of(config_json).names; }

bool classifies(std::string_view config_json) {
  const Json config = parse_json(config_json, 16, "[config.json]");
  return ConfigReader(config).classifies();
}

std::vector<std::string> example_configs() {
  std::vector<std::string> all;
  for (const Entry& entry : kModels) {
    if (entry.examples == nullptr) continue;
    for (std::string& config : entry.examples()) all.push_back(std::move(config));
  }
  return all;
}

}  // namespace split
