#include "serve/text_request.h"

#include <charconv>
#include <cmath>
#include <random>

#include "base/log.h"
#include "base/resources/memory_budget.h"
#include "serve/models.h"
#include "text/json/in_order.h"
#include "wire/step.h"

namespace split::serve {
namespace {

using wire::Fields;

constexpr size_t kMaxBiases = 1024;
// Positions of all choices, with their listed tokens: bounds the time and the answer's size.
constexpr uint64_t kMaxEntries = 1 << 18;
constexpr uint64_t kEntryBytes = 256;       // JSON values and their text, at most
constexpr uint64_t kChoiceBytes = 8 << 10;  // a choice beside its logits and positions

uint64_t draw_seed() {
  std::random_device device;
  // 53 bits, so that clients that read numbers as doubles can send it back.
  return (uint64_t{device()} << 32 | device()) >> 11;
}

// Reads {"id": a number in -100..100}, like OpenAI.
std::vector<LogitBias> read_biases(Fields& fields, MemoryShare& memory) {
  constexpr const char* kName = "logit_bias";
  std::vector<LogitBias> biases;
  if (!fields.has(kName)) return biases;
  const Json& given = fields.raw(kName);
  if (!given.is_object() || given.size() > kMaxBiases) {
    Fields::refuse(kName, cat("expected an object of at most ", kMaxBiases, " token ids"));
  }
  memory.take(given.size() * sizeof(LogitBias));
  biases.reserve(given.size());
  for (const auto& [key, value] : given.members()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || id < 0 || cat(id) != key) {
      Fields::refuse(kName, cat("expected token ids as names, got ", shown(key)));
    }
    const bool fits = value.is_number() && std::abs(value.get<double>()) <= 100;
    if (!fits) Fields::refuse(kName, "expected numbers in -100..100");
    biases.push_back({id, static_cast<float>(value.get<double>())});
  }
  return biases;
}

// Reads a repetition penalty: transformers' is of the whole text, others' of its last tokens.
void read_repetition(Fields& fields, SamplingOptions& sampling) {
  constexpr int kRecent = 64;
  const bool recent = fields.has("repeat_penalty");
  if (recent && fields.has("repetition_penalty")) {
    Fields::refuse("repeat_penalty", "expected no 'repetition_penalty' beside it");
  }
  const char* const name = recent ? "repeat_penalty" : "repetition_penalty";
  sampling.repetition_penalty = static_cast<float>(fields.number_or(name, 0.01, 100, 1));
  sampling.repeat_last_n = static_cast<int>(
      fields.integer_or("repeat_last_n", -1, kMaxTokensAsked, recent ? kRecent : -1));
}

}  // namespace

void read_common(Fields& fields, TextRequest& request, MemoryShare& memory) {
  GenerateOptions& options = request.options;
  options.sampling.temperature = static_cast<float>(fields.number_or("temperature", 0, 100, 1));
  options.sampling.top_p = static_cast<float>(fields.number_or("top_p", 0, 1, 1));
  options.sampling.top_k = static_cast<int>(fields.integer_or("top_k", 0, 1 << 24, 0));
  read_repetition(fields, options.sampling);
  options.sampling.min_p = static_cast<float>(fields.number_or("min_p", 0, 1, 0));
  options.min_tokens =
      static_cast<int>(fields.integer_or("min_tokens", 0, kMaxTokensAsked, options.min_tokens));
  options.sampling.presence_penalty =
      static_cast<float>(fields.number_or("presence_penalty", -2, 2, 0));
  options.sampling.frequency_penalty =
      static_cast<float>(fields.number_or("frequency_penalty", -2, 2, 0));
  options.sampling.logit_bias = read_biases(fields, memory);
  options.seeded = fields.has("seed");
  options.sampling.seed = options.seeded
                              ? static_cast<uint64_t>(fields.integer("seed", INT64_MIN, INT64_MAX))
                              : draw_seed();
  if (fields.has("stop")) {
    const std::vector<std::string> stop =
        fields.texts("stop", StopTexts::kMost, StopTexts::kMostBytes);
    if (!StopTexts::fit(stop)) Fields::refuse("stop", "expected strings that are not empty");
    memory.take(stop.size() * StopTexts::kTextBytes);
    options.stop = stop;
  }
  options.ignore_end = fields.boolean_or("ignore_eos", false);
  options.cache_prompt = fields.boolean_or("cache_prompt", true);
  options.cache_salt = wire::read_salt(fields);
  request.choices = static_cast<int>(fields.integer_or("n", 1, kMaxChoices, 1));
  request.best_of = request.choices;
  request.stream = fields.boolean_or("stream", false);
  request.return_token_ids = fields.boolean_or("return_token_ids", false);
  request.receipt = fields.boolean_or("receipt", false);
  if (fields.has("stream_options")) {
    if (!fields.raw("stream_options").is_object()) {
      Fields::refuse("stream_options", "expected an object");
    }
    Fields more(&fields.raw("stream_options"));
    request.include_usage = more.boolean_or("include_usage", false);
    request.continuous_usage = more.boolean_or("continuous_usage_stats", false);  // vLLM's name
    more.ignore("include_obfuscation");  // no padding is sent
    more.finish();
  }
}

void read_format(Fields& fields, const TextModel& model, MemoryShare& memory, AnswerForm& form,
                 bool whole) {
  if (!fields.has(kFormatName)) return;
  const Json& format = fields.raw(kFormatName);
  if (!format.is_object()) Fields::refuse(kFormatName, "expected an object");
  if (Fields(&format).text_or("type", "") == "text") return;
  if (model.tokenizer == nullptr) Fields::refuse(kFormatName, "the model has no tokenizer");
  read_format(format, memory, form, whole);
}

void read_format(const Json& format, MemoryShare& memory, AnswerForm& form, bool whole) {
  constexpr const char* kName = kFormatName;
  Fields parts(&format);
  const std::string type = parts.text_or("type", "");
  const Json* const named = parts.has("json_schema") ? &parts.raw("json_schema") : nullptr;
  const Json* schema = named == nullptr ? nullptr : named->find("schema");
  if (type == "answer_form" && whole) {
    form = AnswerForm::read(format);
  } else if (type == "json_object") {
    form.schema = "";
  } else if (type == "json_schema" && schema != nullptr) {
    // Reads a schema as text: its members keep their order through programs that sort them.
    const Json read = schema->is_string() ? parse_json(schema->text(), AnswerForm::kMostDepth,
                                                       "the schema", &memory)
                                          : Json();
    if (schema->is_string()) schema = &read;
    // The request of each choice that the cloud writes contains it.
    const size_t bytes = schema_in_order(*schema, &memory).size();
    if (bytes > AnswerForm::kMostBytes) {
      Fields::refuse(kName, cat("expected a schema of at most ", AnswerForm::kMostBytes,
                                " bytes beside its descriptions, got ", bytes));
    }
    form.schema = json_in_order(*schema, &memory);
  } else {
    Fields::refuse(kName,
                   "expected {\"type\":\"text\"}, {\"type\":\"json_object\"} or "
                   "{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{...}}}");
  }
}

void set_form(AnswerForm form, const TextModel& model, MemoryShare& memory, TextRequest& request) {
  GenerateOptions& options = request.options;
  if (!form.schema && !form.calls() && !form.format.thinks()) return;
  if (model.tokenizer == nullptr) return;
  const auto made = std::make_shared<const TextForm>(std::move(form), *model.tokenizer,
                                                     options.ignore_end, &memory);
  for (const std::string& one : made->loosened()) {
    request.loosened += cat(request.loosened.empty() ? "" : ", ", one);
  }
  if (!request.loosened.empty()) log_info(cat("not held of a schema: ", request.loosened));
  options.form = made;
}

std::vector<http::RequestField> common_fields() {
  return {{"temperature", "number",
           "0 always takes the likeliest token; higher values draw more freely."},
          {"top_p", "number", "Draws from the likeliest tokens that make up this probability."},
          {"top_k", "integer", "Draws from this many of the likeliest tokens."},
          {"repetition_penalty", "number", "Above 1, makes tokens that have occurred less likely."},
          {"repeat_penalty", "number",
           "The same for tokens that are among the last repeat_last_n of prompt and answer."},
          {"repeat_last_n", "integer",
           "The number of these tokens (64 with repeat_penalty); -1: all, 0: none."},
          {"presence_penalty", "number",
           "Above 0, makes tokens of the answer so far less likely, once."},
          {"frequency_penalty", "number",
           "Above 0, makes tokens of the answer so far less likely, for each time they came."},
          {"logit_bias", "object", "What is added to the logits of token ids, -100 to 100."},
          {"min_p", "number",
           "Draws from tokens that are at least so many times as likely as the best."},
          {"min_tokens", "integer", "Nothing ends an answer before so many tokens."},
          {"seed", "integer", "The same seed gives the same text."},
          {"stop", "",
           "A text, or a list of at most 16, at which the answer ends; each of at most 1 KiB."},
          {"response_format", "object",
           "json_object, or json_schema with a schema that the answer is of."},
          {"cache_prompt", "boolean",
           "False: no row of the prompt is taken from another text's, nor kept for others."},
          {"cache_salt", "string",
           "Rows are shared with texts of the same key and salt alone; at most 128 bytes."},
          {"n", "integer",
           "The number of texts for each prompt; they use this seed and those that follow it."},
          {"stream", "boolean", "Sends the text as server-sent events while it is written."},
          {"stream_options", "object", "include_usage and continuous_usage_stats."},
          {"ignore_eos", "boolean", "Goes on when the model ends the text."},
          {"return_token_ids", "boolean", "Returns the ids of the tokens too."},
          {"receipt", "boolean",
           "Returns with each text a receipt that POST /v1/audit is asked with."}};
}

namespace {

// Makes errors about the prompt name this field.
template <typename Make>
auto checked(std::string_view name, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    throw Error(ErrorKind::kInput, error.what(), std::string(name));
  }
}

}  // namespace

std::vector<int32_t> checked_prompt(std::vector<int32_t> ids, std::string_view name,
                                    const ModelConfig& config) {
  return checked(name, [&] {
    check_prompt(config, ids);
    return std::move(ids);
  });
}

std::vector<std::vector<int32_t>> read_prompts(const Json& value, std::string_view name,
                                               const TextModel& model, bool special, size_t most,
                                               MemoryShare& memory) {
  const ModelConfig& config = *model.config;
  const auto encode = [&](const Json& text) {
    return checked(
        name, [&] { return prompt_ids(config, model.tokenizer, text.text(), special, &memory); });
  };
  const auto ids_of = [&](const Json& list) {
    std::vector<int32_t> ids =
        Fields::integers_of(list, name, 0, config.vocab - 1, wire::kMaxStepTokens);
    if (ids.empty()) Fields::refuse(name, "expected at least one token id");
    return checked_prompt(std::move(ids), name, config);
  };
  if (value.is_string()) return {encode(value)};
  if (!value.is_array() || value.empty()) {
    Fields::refuse(name, "expected a string, a list of strings or a list of token ids");
  }
  if (value[0].is_number()) return {ids_of(value)};
  if (value.size() > most) Fields::refuse(name, cat("expected at most ", most, " prompts"));
  std::vector<std::vector<int32_t>> prompts;
  for (const Json& item : value) prompts.push_back(item.is_string() ? encode(item) : ids_of(item));
  return prompts;
}

TextRequest read_opened(Fields& fields, Json words, int max_tokens, MemoryShare& memory) {
  constexpr uint64_t kHeld = 4 << 20;  // logits and scratch of 200,000 tokens
  TextRequest request;
  request.prompts.resize(1);
  request.words = std::move(words);
  request.options.max_tokens = max_tokens;
  read_common(fields, request, memory);
  const bool lists = fields.has("logprobs") && !fields.raw("logprobs").is_boolean();
  const bool one = request.choices == 1 && fields.integer_or("best_of", 1, kMaxChoices, 1) == 1;
  if (lists || !one || request.receipt || fields.has("response_format") ||
      fields.boolean_or("echo", false) || !request.options.sampling.logit_bias.empty()) {
    refuse_while_loading();
  }
  memory.take(kHeld);
  return request;
}

void check_cost(TextRequest& request, const ModelConfig& config, MemoryShare& memory) {
  const auto choices = static_cast<uint64_t>(request.best_of);
  const auto listed = static_cast<uint64_t>(1 + std::max(0, request.options.logprobs));
  if (request.to_the_end) {  // has a single prompt
    const uint64_t all = kMaxEntries / (choices * listed), prompt = request.prompts[0].size();
    const uint64_t most = all - std::min(all, prompt);
    request.options.max_tokens = std::min(request.options.max_tokens, static_cast<int>(most));
  }
  uint64_t positions = 0;  // at most 64 contexts
  for (const auto& prompt : request.prompts) {
    positions += prompt.size();
    positions += std::min(static_cast<uint64_t>(request.options.max_tokens),
                          static_cast<uint64_t>(config.context) - prompt.size());
  }
  for (const LogitBias& one : request.options.sampling.logit_bias) {
    if (one.id >= config.vocab) {
      Fields::refuse("logit_bias",
                     cat("expected token ids in 0..", config.vocab - 1, ", got ", one.id));
    }
  }
  if (request.options.form != nullptr) {
    memory.take(TokenGrammar::kMostBytes +
                TokenGrammar::kMostMasks * static_cast<uint64_t>(config.vocab));
  }
  if (positions * choices * listed > kMaxEntries) {
    Fields::refuse("max_tokens",
                   cat("prompts and tokens, times n, times logprobs and 1, expected at most ",
                       kMaxEntries, ", got ", positions * choices * listed));
  }
  // A sampler sorts pairs of a token and its logit. Scoring a prompt holds many rows.
  const uint64_t floats =
      static_cast<uint64_t>(config.vocab) * (request.options.score_prompt ? kScoreRows + 4 : 5);
  memory.take(request.prompts.size() * choices * (floats * sizeof(float) + kChoiceBytes) +
              positions * choices * listed * kEntryBytes);
}

}  // namespace split::serve
