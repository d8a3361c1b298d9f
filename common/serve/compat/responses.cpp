#include "serve/compat/responses.h"

#include <atomic>
#include <chrono>
#include <random>

#include "base/error.h"
#include "http/sse.h"
#include "serve/compat/retold.h"
#include "text/json/in_order.h"
#include "wire/fields.h"

namespace split::serve {
namespace {

using wire::Fields;
using Name = std::pair<std::string_view, std::string_view>;

constexpr size_t kMaxItems = 1024;
constexpr Name kResponsesNames[] = {{"max_completion_tokens", "max_output_tokens"},
                                    {"messages", "input"},
                                    {"response_format", "text"}};

// Fields of the request that the answer repeats.
struct Asked {
  Json instructions, max_output_tokens, temperature, top_p;
  Json format = {{"type", "text"}};
};

std::string next_id() {
  static std::atomic<uint64_t> counter{0};
  static const uint64_t start = std::random_device()();
  return cat(Hex{start}, "-", Hex{counter.fetch_add(1)});
}

class ResponseText : public Retelling {
 public:
  explicit ResponseText(Asked asked)
      : asked_(std::move(asked)),
        id_(next_id()),
        created_(std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count()) {}

  std::string whole(const Json& answer) override {
    take(answer);
    return response(status(), Json::array({item(status())})).dump() + "\n";
  }

  std::string event(const Json& event) override {
    if (const Json* const error = event.find("error")) return failed(*error);
    std::string out = opened_ ? "" : open(event);
    const std::string piece = text_of(event);
    take(event);
    if (!piece.empty()) {
      Json delta = place();
      delta["delta"] = piece;
      delta["logprobs"] = Json::array();
      out += named("response.output_text.delta", std::move(delta));
    }
    return out;
  }

  std::string end() override {
    Json text = place(), part = place(), done = {{"output_index", 0}};
    text["text"] = text_;
    text["logprobs"] = Json::array();
    part["part"] = content();
    done["item"] = item(status());
    const Json all = response(status(), Json::array({item(status())}));
    std::string out = named("response.output_text.done", std::move(text));
    out += named("response.content_part.done", std::move(part));
    out += named("response.output_item.done", std::move(done));
    return out + named(cat("response.", status()), {{"response", all}});
  }

  std::string_view type() const override { return "text/event-stream"; }
  bool takes_comments() const override { return true; }

 private:
  const char* status() const { return reason_ == "length" ? "incomplete" : "completed"; }

  // The events are numbered in the order of the calls.
  std::string named(const std::string& name, Json json) {
    json["type"] = name;
    json["sequence_number"] = sequence_++;
    return cat("event: ", name, "\n", http::sse_event(json.dump()));
  }

  // Where the text is: the one content of the one item.
  Json place() const {
    return {{"item_id", cat("msg_", id_)}, {"output_index", 0}, {"content_index", 0}};
  }
  Json content() const {
    return {{"type", "output_text"},
            {"text", text_},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }
  Json item(const char* status) const {
    const bool begun = std::string_view(status) == "in_progress";
    return {{"type", "message"},
            {"id", cat("msg_", id_)},
            {"status", status},
            {"role", "assistant"},
            {"content", begun ? Json::array() : Json::array({content()})}};
  }

  Json usage() const {
    if (usage_.is_null()) return {};
    Json json = {{"input_tokens", usage_["prompt_tokens"]},
                 {"input_tokens_details", usage_["prompt_tokens_details"]},
                 {"output_tokens", usage_["completion_tokens"]},
                 {"output_tokens_details", {{"reasoning_tokens", 0}}},
                 {"total_tokens", usage_["total_tokens"]}};
    if (const Json* const cost = usage_.find("splitcompute")) json["splitcompute"] = *cost;
    return json;
  }

  Json response(const char* status, Json output) const {
    const bool cut = std::string_view(status) == "incomplete";
    return {{"id", cat("resp_", id_)},
            {"object", "response"},
            {"created_at", created_},
            {"status", status},
            {"background", false},
            {"error", nullptr},
            {"incomplete_details", cut ? Json{{"reason", "max_output_tokens"}} : Json()},
            {"instructions", asked_.instructions},
            {"max_output_tokens", asked_.max_output_tokens},
            {"metadata", Json::object()},
            {"model", model_},
            {"output", std::move(output)},
            {"parallel_tool_calls", false},
            {"previous_response_id", nullptr},
            {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
            {"store", false},
            {"temperature", asked_.temperature},
            {"text", {{"format", asked_.format}}},
            {"tool_choice", "none"},
            {"tools", Json::array()},
            {"top_p", asked_.top_p},
            {"truncation", "disabled"},
            {"usage", usage()}};
  }

  void take(const Json& answer) {
    model_ = answer["model"].text();
    text_ += text_of(answer);
    const std::string reason = finish_reason_of(answer);
    if (!reason.empty()) reason_ = reason;
    const Json* const usage = answer.find("usage");
    if (usage != nullptr && !usage->is_null()) usage_ = *usage;
  }

  std::string open(const Json& event) {
    opened_ = true;
    model_ = event["model"].text();
    const Json begun = response("in_progress", Json::array());
    Json added = {{"output_index", 0}}, part = place();
    added["item"] = item("in_progress");
    part["part"] = content();
    std::string out = named("response.created", {{"response", begun}});
    out += named("response.in_progress", {{"response", begun}});
    out += named("response.output_item.added", std::move(added));
    return out + named("response.content_part.added", std::move(part));
  }

  // No response.completed follows.
  std::string failed(const Json& error) {
    Json json = error;
    json["error"] = error;  // clients look for it here
    return named("error", std::move(json));
  }

  const Asked asked_;
  const std::string id_;
  const int64_t created_;
  bool opened_ = false;
  int64_t sequence_ = 0;
  std::string model_, text_, reason_;
  Json usage_;
};

// A text, or a list of parts of which each is text, as a chat has them.
Json content_of(const Json& content) {
  if (content.is_string()) return content;
  if (!content.is_array()) Fields::refuse("input", "expected content as text");
  std::string text;
  for (const Json& part : content) {
    const Json* const type = part.find("type");
    const Json* const words = part.find("text");
    const bool is_text = type != nullptr && type->is_string() && words != nullptr &&
                         words->is_string() &&
                         (*type == "input_text" || *type == "output_text" || *type == "text");
    if (!is_text) {
      Fields::refuse("input", "expected content of type \"input_text\" or \"output_text\" alone");
    }
    text += words->text();
  }
  return text;
}

Json messages_of(Json input, const Json& instructions) {
  Json messages = Json::array();
  if (!instructions.is_null()) messages.push_back(message_of("system", instructions));
  if (input.is_string()) {
    messages.push_back(message_of("user", std::move(input)));
    return messages;
  }
  if (!input.is_array() || input.empty() || input.size() > kMaxItems) {
    Fields::refuse("input", cat("expected a text or a list of 1..", kMaxItems, " messages"));
  }
  for (const Json& one : input) {
    if (!one.is_object()) Fields::refuse("input", "expected messages as objects");
    Fields item(&one);
    if (item.text_or("type", "message") != "message") {
      Fields::refuse("input", "expected items of type \"message\" alone");
    }
    if (!item.has("content")) Fields::refuse("input", "expected messages with content");
    messages.push_back(message_of(item.text("role"), content_of(item.raw("content"))));
    for (const char* key : {"id", "status", "phase"}) item.ignore(key);
    item.finish();
  }
  return messages;
}

// {"format": {"type", "name", "schema" ...}}, as a chat has it.
void read_text(Fields& fields, Asked& asked, Json& to) {
  if (!fields.has("text")) return;
  if (!fields.raw("text").is_object()) Fields::refuse("text", "expected an object");
  Fields text(&fields.raw("text"));
  text.ignore("verbosity");
  const bool has_format = text.has("format");
  if (has_format) asked.format = text.raw("format");
  text.finish();
  if (!has_format) return;
  const Json* const type = asked.format.find("type");
  if (type == nullptr || *type != "json_schema") {
    to["response_format"] = asked.format;
    return;
  }
  Json schema = Json::object();
  for (const auto& [name, value] : asked.format.members()) {
    const bool whole = name == "schema" && value.is_object();
    if (name != "type") schema.add(name, whole ? Json(json_in_order(value)) : value);
  }
  to["response_format"] = {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
}

void refuse_beyond_text(Fields& fields) {
  for (const char* key : {"tools", "include", "conversation", "previous_response_id", "prompt"}) {
    if (!fields.has(key)) continue;
    const Json& value = fields.raw(key);
    if (!value.is_array() || !value.empty()) Fields::refuse(key, "is not supported");
  }
  const std::string choice = fields.text_or("tool_choice", "auto");
  if (choice != "auto" && choice != "none") Fields::refuse("tool_choice", "is not supported");
  if (fields.boolean_or("background", false)) Fields::refuse("background", "is not supported");
  if (fields.text_or("truncation", "disabled") != "disabled") {
    Fields::refuse("truncation", "expected \"disabled\"");
  }
  fields.integer_or("top_logprobs", 0, 0, 0);
  // These change no answer here.
  for (const char* key : {"max_tool_calls", "metadata", "parallel_tool_calls", "prompt_cache_key",
                          "prompt_cache_retention", "reasoning", "safety_identifier",
                          "service_tier", "store", "stream_options", "user"}) {
    fields.ignore(key);
  }
}

}  // namespace

http::Response responses(const http::Request& request, const http::Handler& chat) {
  Fields fields(request.body, request.memory.get());
  Asked asked;
  if (fields.has("instructions")) asked.instructions = fields.text("instructions");
  // Pays for what is made of the input, and for copies of all that the answer repeats.
  constexpr uint64_t kRepeats = 8;
  request.memory->take(request.memory->bytes());
  request.memory->take(kRepeats *
                       (fields.has("instructions") ? asked.instructions.text().size() : 0));
  if (fields.has("text")) request.memory->take(kRepeats / 2 * request.memory->bytes());
  Json to = Json::object();
  to["messages"] = messages_of(fields.take("input"), asked.instructions);
  for (const char* key : {"model", "temperature", "top_p", "top_k", "seed", "repetition_penalty",
                          "repeat_penalty", "repeat_last_n"}) {
    if (fields.has(key)) to[key] = fields.raw(key);
  }
  for (const char* key : {"temperature", "top_p", "max_output_tokens"}) {
    if (fields.has(key) && !fields.raw(key).is_number()) Fields::refuse(key, "expected a number");
  }
  if (fields.has("temperature")) asked.temperature = fields.raw("temperature");
  if (fields.has("top_p")) asked.top_p = fields.raw("top_p");
  if (fields.has("max_output_tokens")) {
    to["max_completion_tokens"] = asked.max_output_tokens = fields.raw("max_output_tokens");
  }
  if (fields.boolean_or("stream", false)) {
    to["stream"] = true;
    to["stream_options"] = {{"include_usage", true}};
  }
  read_text(fields, asked, to);
  refuse_beyond_text(fields);
  fields.finish();
  return retold(request, chat, std::move(to), std::make_shared<ResponseText>(std::move(asked)),
                kResponsesNames);
}

std::vector<http::RequestField> response_fields() {
  return {{"model", "string", "A model's id (GET /v1/models); the first one by default."},
          {"input", "", "A text, or a list of messages, each with role and content.", true},
          {"instructions", "string", "What the system says before the input."},
          {"max_output_tokens", "integer",
           "The most tokens to write; by default as many as the context holds."},
          {"stream", "boolean", "Sends the text as server-sent events while it is written."},
          {"temperature", "number",
           "0 always takes the likeliest token; higher values draw more freely."},
          {"top_p", "number", "Draws from the likeliest tokens that make up this probability."},
          {"top_k", "integer", "Draws from this many of the likeliest tokens."},
          {"repetition_penalty", "number", "As a chat's, and repeat_penalty and repeat_last_n."},
          {"seed", "integer", "The same seed gives the same text."},
          {"text", "object", "format: text, or as the response_format of a chat."}};
}

}  // namespace split::serve
