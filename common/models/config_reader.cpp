#include "models/config_reader.h"

#include <algorithm>

#include "base/error.h"

namespace split {
namespace {

constexpr Activation kActivations[] = {
    {"gelu_new", Op::k_gelu_new},  {"gelu_pytorch_tanh", Op::k_gelu_new},
    {"gelu_fast", Op::k_gelu_new}, {"gelu", Op::k_gelu},
    {"gelu_python", Op::k_gelu},   {"relu", Op::k_relu},
    {"silu", Op::k_silu},          {"swish", Op::k_silu}};

}  // namespace

std::span<const Activation> activations() { return kActivations; }

int ConfigReader::integer(const char* key, int low, int high) const {
  if (!has(key)) refuse(key, cat("expected a whole number in ", low, "..", high, ", got none"));
  const Json& value = json_[key];
  if (!value.is_number_integer() || value.get<int64_t>() < low || value.get<int64_t>() > high) {
    refuse(key, cat("expected a whole number in ", low, "..", high, ", got ", shown(value)));
  }
  return value.get<int>();
}

bool ConfigReader::boolean_or(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_[key].is_boolean()) refuse(key, cat("expected true or false, got ", shown(json_[key])));
  return json_[key].get<bool>();
}

double ConfigReader::number(const char* key, double low, double high) const {
  if (!has(key)) refuse(key, cat("expected a number in ", low, "..", high, ", got none"));
  const Json& value = json_[key];
  if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high)) {
    refuse(key, cat("expected a number in ", low, "..", high, ", got ", shown(value)));
  }
  return value.get<double>();
}

std::string ConfigReader::text_or(const char* key, const char* otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_[key].is_string()) refuse(key, cat("expected a string, got ", shown(json_[key])));
  return json_[key].get<std::string>();
}

Op ConfigReader::activation_or(const char* key, const char* otherwise) const {
  const std::string asked = text_or(key, otherwise);
  for (const auto& [name, op] : kActivations) {
    if (asked == name) return op;
  }
  const Op last = std::end(kActivations)[-1].op;
  std::string known;
  for (const auto& [name, op] : kActivations) {
    if (op_info(op).name != name) continue;
    known += cat(known.empty() ? "" : op == last ? " or " : ", ", name);
  }
  refuse(key, cat("expected ", known, ", got ", split::shown(asked)));
}

std::vector<int> ConfigReader::tokens(const char* key) const {
  if (!has(key)) return {};
  const Json& value = json_[key];
  std::vector<int> all;
  const auto add = [&](const Json& token) {
    if (!token.is_number_integer() || token.get<int64_t>() < -1 ||
        token.get<int64_t>() >= kMaxVocab) {
      refuse(key, cat("expected a whole number in -1..", kMaxVocab - 1, ", got ", shown(token)));
    }
    const int id = token.get<int>();
    if (id >= 0 && std::ranges::find(all, id) == all.end()) all.push_back(id);
  };
  if (!value.is_array()) {
    add(value);
    return all;
  }
  for (const Json& token : value) add(token);
  return all;
}

std::vector<bool> ConfigReader::kinds(const char* key, int blocks, const char* yes,
                                      const char* no) const {
  const Json& list = json_[key];
  if (!list.is_array() || list.size() != static_cast<size_t>(blocks)) {
    refuse(key, cat("expected a list of ", blocks, ", got ",
                    list.is_array() ? cat("one of ", list.size()) : shown(list)));
  }
  std::vector<bool> all;
  for (const Json& kind : list) {
    all.push_back(kind == Json(yes));
    if (all.back() || kind == Json(no)) continue;
    refuse(key, cat("expected \"", yes, "\" or \"", no, "\", got ", shown(kind)));
  }
  return all;
}

bool ConfigReader::classifies() const {
  const Json* const named = json_.find("architectures");
  return named != nullptr && named->is_array() && !named->empty() && (*named)[0].is_string() &&
         (*named)[0].text().ends_with("ForSequenceClassification");
}

bool ConfigReader::ranks() const {
  if (!classifies()) return false;
  // transformers' default is two labels.
  const bool listed = has("id2label") && json_["id2label"].is_object();
  const auto labels = listed ? static_cast<int64_t>(json_["id2label"].size())
                             : integer_or("num_labels", 0, kMaxSize, 2);
  if (labels != 1) refuse("num_labels", cat("expected 1, a score, got ", labels));
  return true;
}

void ConfigReader::refuse_packed_weights() const {
  if (!has("quantization_config")) return;
  refuse("quantization_config", cat("expected none, got ", shown(json_["quantization_config"]),
                                    ": weights packed by other tools are not supported"));
}

void ConfigReader::refuse(const std::string& key, const std::string& why) {
  throw Error(ErrorKind::kInput, cat("[config.json] ", key, ": ", why));
}

std::string ConfigReader::shown(const Json& value) {
  const std::string text = value.dump({.ascii = true});
  return text.size() <= 40 ? text : text.substr(0, 40) + "...";
}

int served_context(int max_positions, std::optional<int> asked) {
  if (!asked) return std::min(max_positions, kDefaultContext);
  if (*asked < 1 || *asked > max_positions) {
    throw Error(ErrorKind::kInput, cat("[model] context: expected 1 to ", max_positions,
                                       " positions, which it was made for, got ", *asked));
  }
  return *asked;
}

}  // namespace split
