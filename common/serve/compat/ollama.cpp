#include "serve/compat/ollama.h"

#include "base/error.h"
#include "base/figures.h"
#include "serve/compat/ollama_messages.h"
#include "serve/compat/ollama_text.h"
#include "serve/compat/response_adapter.h"
#include "serve/models.h"
#include "text/json/in_order.h"
#include "wire/fields.h"

namespace split::serve {
namespace {

using wire::Fields;
using Name = std::pair<std::string_view, std::string_view>;

constexpr int64_t kToTheEnd = 1 << 24;  // to the context's end, for num_predict below 0
constexpr std::string_view kTag = ":latest";

// Fields of OpenAI's bodies and Ollama's names of them.
constexpr Name kOllamaNames[] = {{"max_tokens", "num_predict"}, {"response_format", "format"}};
// Options with equal names in both.
constexpr const char* kAlike[] = {
    "temperature",       "top_k",          "top_p",        "min_p", "presence_penalty",
    "frequency_penalty", "repeat_penalty", "repeat_last_n"};
// Options of a machine or of memory, which change no text here.
constexpr const char* kIgnored[] = {"num_ctx",   "num_batch",  "num_gpu",   "main_gpu",
                                    "num_keep",  "num_thread", "low_vram",  "use_mmap",
                                    "use_mlock", "numa",       "vocab_only"};

class OllamaEmbeddings : public ResponseAdapter {
 public:
  explicit OllamaEmbeddings(std::string model) : model_(std::move(model)) {}
  std::string whole(const Json& answer) override {
    Json rows = Json::array();
    for (const Json& one : answer["data"]) rows.push_back(one["embedding"]);
    const std::string& id = answer["model"].text();
    const Json json = {{"model", model_.starts_with(id) ? model_ : id},
                       {"embeddings", std::move(rows)},
                       {"total_duration", ns(Clock::now() - start_)},
                       {"load_duration", 0},
                       {"prompt_eval_count", answer["usage"]["prompt_tokens"]}};
    return json.dump() + "\n";
  }

 private:
  const std::string model_;
  const Clock::time_point start_ = Clock::now();
};

// Returns a model's id for its name here, with a tag or without.
std::string id_of(std::string name) {
  if (name.ends_with(kTag)) name.resize(name.size() - kTag.size());
  return name;
}

void expect_none(Fields& fields, const char* key) {
  if (fields.has(key) && !fields.raw(key).empty() && fields.raw(key) != "") {
    Fields::refuse(key, "is not supported");
  }
}

// Moves a value from one body into another, which checks it.
void pass(Fields& from, const char* key, Json& to, const char* name) {
  if (from.has(key)) to[name] = from.take(key);
}

// Reads the options over Ollama's defaults.
void read_options(Fields& fields, Json& to) {
  to["temperature"] = 0.8;
  to["top_k"] = 40;
  to["top_p"] = 0.9;
  to["repeat_penalty"] = 1.1;
  to["max_tokens"] = kToTheEnd;
  if (!fields.has("options")) return;
  if (!fields.raw("options").is_object()) Fields::refuse("options", "expected an object");
  Fields options(fields.take("options").take_object());
  for (const char* key : kAlike) pass(options, key, to, key);
  pass(options, "stop", to, "stop");
  const int64_t tokens = options.integer_or("num_predict", -2, kToTheEnd, -1);
  if (tokens >= 0) to["max_tokens"] = tokens;
  const int64_t seed = options.integer_or("seed", INT64_MIN, INT64_MAX, -1);
  if (seed >= 0) to["seed"] = seed;
  for (const char* key : kIgnored) options.ignore(key);
  options.finish();
}

// Reads "json", or a schema.
void read_format(Fields& fields, Json& to) {
  if (!fields.has("format") || fields.raw("format") == "") return;
  Json format = fields.take("format");
  if (format == "json") {
    to["response_format"] = {{"type", "json_object"}};
  } else if (format.is_object()) {
    Json schema = {{"name", "format"}};
    schema["schema"] = json_in_order(format);
    to["response_format"] = {{"type", "json_schema"}};
    to["response_format"]["json_schema"] = std::move(schema);
  } else {
    Fields::refuse("format", "expected \"json\" or a JSON schema");
  }
}

// Reads the fields that both routes of texts have.
Json read_common(Fields& fields, const std::string& name) {
  Json to = {{"model", id_of(name)}};
  const bool stream = fields.boolean_or("stream", true);
  to["stream"] = stream;
  if (stream) to["stream_options"] = {{"include_usage", true}};
  read_options(fields, to);
  read_format(fields, to);
  // Only a wish: the template decides whether a model thinks.
  if (fields.has("think")) {
    const Json& think = fields.raw("think");
    const bool known = think.is_boolean() || think == "low" || think == "medium" || think == "high";
    if (!known) Fields::refuse("think", "expected true, false, low, medium or high");
    if (think == false) to["reasoning_effort"] = "none";
  }
  fields.ignore("keep_alive");
  return to;
}

OllamaModel find_model(const OllamaParts& parts, const std::string& name) {
  const std::string id = id_of(name);
  std::vector<std::string> ids;
  for (OllamaModel& model : parts.models()) {
    if (model.id == id || parts.any_model) return std::move(model);
    ids.push_back(std::move(model.id));
  }
  refuse_model(ids);
}

http::Response loaded(const OllamaParts& parts, const std::string& name, bool chat) {
  const std::string id = find_model(parts, name).id;
  return http::Response::json(200, OllamaText(id == id_of(name) ? name : id, chat).loaded());
}

Json taken_text(Fields& fields, const char* key) {
  if (!fields.has(key)) return "";
  if (!fields.raw(key).is_string()) Fields::refuse(key, "expected a string");
  return fields.take(key);
}

http::Response generate(const OllamaParts& parts, const http::Request& request) {
  Fields fields(request.body, request.memory.get());
  const std::string name = fields.text("model");
  Json prompt = taken_text(fields, "prompt"), system = taken_text(fields, "system");
  Json to = read_common(fields, name);
  const bool raw = fields.boolean_or("raw", false);
  for (const char* key : {"context", "images", "suffix", "template"}) expect_none(fields, key);
  fields.finish();
  if (prompt == "") return loaded(parts, name, false);
  const auto text = std::make_shared<OllamaText>(name, false);
  const bool instructed = system != "";
  if (raw || (!instructed && parts.models().at(0).chat_template.empty())) {
    to["prompt"] = std::move(prompt);
    return retold(request, parts.completions, std::move(to), text, kOllamaNames);
  }
  Json messages = Json::array();
  if (instructed) messages.push_back(message_of("system", std::move(system)));
  messages.push_back(message_of("user", std::move(prompt)));
  to["messages"] = std::move(messages);
  return retold(request, parts.chat, std::move(to), text, kOllamaNames);
}

http::Response chat(const OllamaParts& parts, const http::Request& request) {
  Fields fields(request.body, request.memory.get(), Fields::kDeep);
  const std::string name = fields.text("model");
  Json to = read_common(fields, name);
  if (fields.has("tools") && !fields.raw("tools").is_array()) {
    Fields::refuse("tools", "expected a list");
  }
  pass(fields, "tools", to, "tools");
  Json messages = Json::array();
  if (fields.has("messages")) {
    if (!fields.raw("messages").is_array()) Fields::refuse("messages", "expected a list");
    Json::Array given = fields.take("messages").take_array();
    messages = ollama_messages(Json(std::move(given)));
  }
  fields.finish();
  if (messages.empty()) return loaded(parts, name, true);
  to["messages"] = std::move(messages);
  return retold(request, parts.chat, std::move(to), std::make_shared<OllamaText>(name, true),
                kOllamaNames);
}

http::Response embed(const OllamaParts& parts, const http::Request& request) {
  Fields fields(request.body, request.memory.get());
  const std::string name = fields.text("model");
  Json to = {{"model", id_of(name)}};
  to["input"] = fields.take("input");
  pass(fields, "dimensions", to, "dimensions");
  to["truncate"] = fields.boolean_or("truncate", true);
  for (const char* key : {"keep_alive", "options"}) fields.ignore(key);
  fields.finish();
  return retold(request, parts.embeddings, std::move(to), std::make_shared<OllamaEmbeddings>(name),
                kOllamaNames);
}

// "12.6M"
std::string human_count(uint64_t count) {
  const auto in = [&](double unit) { return fixed(static_cast<double>(count) / unit, 1); };
  return count < 1'000'000       ? cat(in(1e3), "K")
         : count < 1'000'000'000 ? cat(in(1e6), "M")
                                 : cat(in(1e9), "B");
}

Json details(const OllamaModel& model) {
  return {{"parent_model", ""},
          {"format", "safetensors"},
          {"family", model.family},
          {"families", Json::array({model.family})},
          {"parameter_size", human_count(model.parameters)},
          {"quantization_level", model.quantization}};
}

Json described(const OllamaModel& model) {
  const std::string name = model.id + std::string(kTag);
  return {{"name", name}, {"model", name}, {"digest", model.digest}, {"details", details(model)}};
}

// Describes the model in the words of GGUF's metadata, and what it can do.
http::Response show(const OllamaParts& parts, const http::Request& request,
                    const std::string& since) {
  Fields fields(request.body, request.memory.get());
  const std::string name =
      fields.text(fields.has("name") && !fields.has("model") ? "name" : "model");
  fields.boolean_or("verbose", false);
  for (const char* key : {"system", "template", "options"}) fields.ignore(key);
  fields.finish();
  const OllamaModel model = find_model(parts, name);
  const ModelConfig& config = model.config;
  Json info = {{"general.architecture", model.family},
               {"general.basename", model.id},
               {"general.parameter_count", model.parameters}};
  const std::pair<const char*, int> numbers[] = {{"context_length", config.context},
                                                 {"embedding_length", config.channels},
                                                 {"block_count", config.layers},
                                                 {"feed_forward_length", config.inner},
                                                 {"attention.head_count", config.heads},
                                                 {"attention.head_count_kv", config.kv_heads},
                                                 {"vocab_size", config.vocab}};
  for (const auto& [key, value] : numbers) info.add(cat(model.family, ".", key), value);
  const Json json = {{"modelfile", cat("FROM ", model.id, "\n")},
                     {"parameters", ""},
                     {"template", model.chat_template},
                     {"details", details(model)},
                     {"model_info", std::move(info)},
                     {"capabilities", Json::array({config.encodes() ? "embedding" : "completion"})},
                     {"modified_at", since}};
  return http::Response::json(200, json.dump() + "\n");
}

// Lists the models; `more` completes each entry.
template <typename More>
http::Response list_of(const OllamaParts& parts, const More& more) {
  Json all = Json::array();
  for (const OllamaModel& model : parts.models()) {
    Json json = described(model);
    more(model, json);
    all.push_back(std::move(json));
  }
  return http::Response::json(200, Json{{"models", std::move(all)}}.dump() + "\n");
}

// Adds the fields that both routes of texts have behind `fields`.
std::vector<http::RequestField> with_text_fields(std::vector<http::RequestField> fields) {
  const http::RequestField common[] = {
      {"stream", "boolean", "Sends a line of JSON for each piece of the text (true)."},
      {"options", "object",
       "Sampling: temperature, top_k, top_p, min_p, repeat_penalty, repeat_last_n, "
       "presence_penalty, frequency_penalty, seed, num_predict and stop."},
      {"format", "object", "A JSON schema, or the text \"json\"."},
      {"think", "boolean", "Whether a model that thinks does so."}};
  fields.insert(fields.end(), std::begin(common), std::end(common));
  return fields;
}

}  // namespace

std::vector<http::Route> ollama_routes(OllamaParts given) {
  const auto parts = std::make_shared<const OllamaParts>(std::move(given));
  const http::RequestField model = {"model", "string", "The model's name.", true};
  const std::vector<int> of_the_model = {200, 404, 502};
  const std::string since = now();
  const auto at = [&](const auto& answer) {
    return [parts, answer](const http::Request& request) { return answer(*parts, request); };
  };
  std::vector<http::Route> routes = {
      {.method = "GET",
       .path = "/api/version",
       .summary = "Returns this server's version.",
       .handler = at([](const OllamaParts& parts, const http::Request&) {
         return http::Response::json(200, Json{{"version", parts.version}}.dump() + "\n");
       })},
      {.method = "GET",
       .path = "/api/tags",
       .summary = "Lists the model, as Ollama does.",
       .handler = at([since](const OllamaParts& parts, const http::Request&) {
         return list_of(parts, [&](const OllamaModel& model, Json& json) {
           json["size"] = model.bytes;
           json["modified_at"] = since;
         });
       })},
      {.method = "GET",
       .path = "/api/ps",
       .summary = "Says what of the model is on this machine, as Ollama does.",
       .handler = at([](const OllamaParts& parts, const http::Request&) {
         return list_of(parts, [](const OllamaModel& model, Json& json) {
           json["size"] = model.bytes_here;
           json["size_vram"] = model.bytes_on_gpu;
           json["context_length"] = model.config.context;
           json["expires_at"] = utc(std::time(nullptr) + 24 * 3600);  // in fact never
         });
       })},
      {.method = "POST",
       .path = "/api/show",
       .summary = "Describes the model and what it can do, as Ollama does.",
       .statuses = {200, 404},
       .body = {model, {"verbose", "boolean", "Changes nothing here."}},
       .handler = at([since](const OllamaParts& parts, const http::Request& request) {
         return show(parts, request, since);
       })},
      {.method = "POST",
       .path = "/api/generate",
       .summary = "Goes on with a prompt, as Ollama's route of this name does.",
       .statuses = of_the_model,
       .body = with_text_fields(
           {model,
            {"prompt", "string", "The text to go on with."},
            {"system", "string", "A chat's first message; the prompt is then its second one."},
            {"raw", "boolean", "Takes the prompt as it is, without the model's template."}}),
       .handler = at(generate)},
      {.method = "POST",
       .path = "/api/chat",
       .summary = "Answers messages, as Ollama's route of this name does.",
       .statuses = of_the_model,
       .body = with_text_fields({model,
                                 {"messages", "array", "The messages, each with role and content."},
                                 {"tools", "array", "Functions that the model may call."}}),
       .handler = at(chat)},
      {.method = "POST",
       .path = "/api/embed",
       .summary = "Returns an embedding of each text, as Ollama's route of this name does.",
       .statuses = of_the_model,
       .body = {model,
                {"input", "", "A text, or a list of texts.", true},
                {"dimensions", "integer", "The length of an embedding; only the model's own."},
                {"truncate", "boolean", "Cuts a text that is too long (true)."}},
       .handler = at(embed)}};
  for (http::Route& route : routes) route.plain_errors = true;
  return routes;
}

}  // namespace split::serve
