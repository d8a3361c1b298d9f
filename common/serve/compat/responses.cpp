#include "serve/compat/responses.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>

#include "base/error.h"
#include "base/log.h"
#include "serve/compat/response_adapter.h"
#include "serve/compat/responses_input.h"
#include "serve/compat/unread_fields.h"

namespace split::serve {
namespace {

using wire::Fields;
using Asked = ResponseAsked;
using Name = std::pair<std::string_view, std::string_view>;

constexpr Name kResponsesNames[] = {{"max_completion_tokens", "max_output_tokens"},
                                    {"messages", "input"},
                                    {"response_format", "text"}};

std::string next_id() {
  static std::atomic<uint64_t> counter{0};
  static const uint64_t start = std::random_device()();
  return cat(Hex{start}, "-", Hex{counter.fetch_add(1)});
}

class ResponseText : public ResponseAdapter {
 public:
  explicit ResponseText(Asked asked)
      : asked_(std::move(asked)),
        id_(next_id()),
        created_(std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count()) {}

  std::string whole(const Json& answer) override {
    take(answer);
    if (items_.empty()) items_.push_back(new_item(Item::kMessage));
    return response(status(), output()).dump() + "\n";
  }

  http::Events event(const Json& event) override {
    if (const Json* const error = event.find("error")) return failed(*error);
    http::Events out = opened_ ? http::Events() : open(event);
    return out + take(event);
  }

  http::Events end() override {
    http::Events out;
    if (items_.empty()) out += add(Item::kMessage);
    for (size_t i = 0; i < items_.size(); ++i) out += close(i);
    return out + named(cat("response.", status()), {{"response", response(status(), output())}});
  }

  std::string_view type() const override { return "text/event-stream"; }

 private:
  // A part of the answer, in the order in which they began.
  struct Item {
    enum Kind : uint8_t { kReasoning, kMessage, kCall } kind;
    std::string id, text;    // a call's arguments
    std::string call, name;  // for calls
    bool closed = false;
  };

  const char* status() const { return reason_ == "length" ? "incomplete" : "completed"; }

  // Events are numbered in the order of these calls.
  http::Events named(const std::string& name, Json json) {
    json["type"] = name;
    json["sequence_number"] = sequence_++;
    return {{json.dump(), name}};
  }

  Item new_item(Item::Kind kind) const {
    constexpr const char* kPrefixes[] = {"rs_", "msg_", "fc_"};
    Item item{kind, cat(kPrefixes[kind], id_), {}, {}, {}};
    if (kind == Item::kCall) item.id += cat("-", items_.size());
    return item;
  }
  // The place of a text: the one content of an item, or a call's arguments.
  Json place(size_t index) const {
    Json json = {{"item_id", items_[index].id}, {"output_index", index}};
    if (items_[index].kind != Item::kCall) json["content_index"] = 0;
    return json;
  }
  static Json content(const Item& item) {
    if (item.kind == Item::kReasoning) return {{"type", "reasoning_text"}, {"text", item.text}};
    return {{"type", "output_text"},
            {"text", item.text},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }
  static Json told(const Item& item, const char* status) {
    if (item.kind == Item::kCall) {
      return {{"type", "function_call"}, {"id", item.id},          {"call_id", item.call},
              {"name", item.name},       {"arguments", item.text}, {"status", status}};
    }
    const bool begun = std::string_view(status) == "in_progress";
    Json json = {{"type", item.kind == Item::kMessage ? "message" : "reasoning"},
                 {"id", item.id},
                 {"status", status},
                 {"content", begun ? Json::array() : Json::array({content(item)})}};
    if (item.kind == Item::kMessage) json["role"] = "assistant";
    if (item.kind == Item::kReasoning) json["summary"] = Json::array();
    return json;
  }
  Json output() const {
    Json list = Json::array();
    for (const Item& one : items_) {
      list.push_back(told(one, &one == &items_.back() ? status() : "completed"));
    }
    return list;
  }

  http::Events add(Item::Kind kind, const ToldCall* call = nullptr) {
    http::Events out;
    // Words may go on behind calls; a thought or a call ends where another item begins.
    for (size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].kind != Item::kMessage) out += close(i);
    }
    items_.push_back(new_item(kind));
    const size_t index = items_.size() - 1;
    Item& item = items_.back();
    if (call != nullptr) item.call = call->id, item.name = call->name;
    out += named("response.output_item.added",
                 {{"output_index", index}, {"item", told(item, "in_progress")}});
    if (kind == Item::kCall) return out;
    Json part = place(index);
    part["part"] = content(item);
    return out + named("response.content_part.added", std::move(part));
  }

  http::Events close(size_t index) {
    Item& item = items_[index];
    if (std::exchange(item.closed, true)) return {};
    Json text = place(index), done = {{"output_index", index}};
    text[item.kind == Item::kCall ? "arguments" : "text"] = item.text;
    if (item.kind == Item::kMessage) text["logprobs"] = Json::array();
    if (item.kind == Item::kCall) text["name"] = item.name;
    http::Events out = named(kEvents[item.kind] + ".done", std::move(text));
    if (item.kind != Item::kCall) {
      Json part = place(index);
      part["part"] = content(item);
      out += named("response.content_part.done", std::move(part));
    }
    done["item"] = told(item, index + 1 == items_.size() ? status() : "completed");
    return out + named("response.output_item.done", std::move(done));
  }

  http::Events put(Item::Kind kind, const std::string& text, const ToldCall* call = nullptr) {
    http::Events out;
    size_t at = items_.size();
    while (at > 0 && items_[at - 1].kind != kind) --at;
    const bool begins = kind == Item::kCall ? !call->name.empty() : at == 0;
    if (begins) out = add(kind, call), at = items_.size();
    items_[at - 1].text += text;
    if (text.empty()) return out;
    Json delta = place(at - 1);
    delta["delta"] = text;
    if (kind == Item::kMessage) delta["logprobs"] = Json::array();
    return out + named(kEvents[kind] + ".delta", std::move(delta));
  }

  Json usage() const {
    if (usage_.is_null()) return {};
    const Json* const details = usage_.find("completion_tokens_details");
    Json json = {
        {"input_tokens", usage_["prompt_tokens"]},
        {"input_tokens_details", usage_["prompt_tokens_details"]},
        {"output_tokens", usage_["completion_tokens"]},
        {"output_tokens_details",
         {{"reasoning_tokens", details == nullptr ? Json(0) : details->at("reasoning_tokens")}}},
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
            {"parallel_tool_calls", asked_.parallel},
            {"previous_response_id", nullptr},
            {"reasoning", {{"effort", asked_.effort}, {"summary", nullptr}}},
            {"store", false},
            {"temperature", asked_.temperature},
            {"text", {{"format", asked_.format}}},
            {"tool_choice", asked_.choice},
            {"tools", asked_.tools},
            {"top_p", asked_.top_p},
            {"truncation", "disabled"},
            {"usage", usage()}};
  }

  http::Events take(const Json& answer) {
    model_ = answer["model"].text();
    http::Events out;
    const std::string thought = thought_of(answer), words = text_of(answer);
    if (!thought.empty()) out += put(Item::kReasoning, thought);
    if (!words.empty()) out += put(Item::kMessage, words);
    for (const ToldCall& one : calls_of(answer)) out += put(Item::kCall, one.arguments, &one);
    const std::string reason = finish_reason_of(answer);
    if (!reason.empty()) reason_ = reason;
    const Json* const usage = answer.find("usage");
    if (usage != nullptr && !usage->is_null()) usage_ = *usage;
    return out;
  }

  http::Events open(const Json& event) {
    opened_ = true;
    model_ = event["model"].text();
    const Json begun = response("in_progress", Json::array());
    http::Events out = named("response.created", {{"response", begun}});
    return out + named("response.in_progress", {{"response", begun}});
  }

  // No response.completed follows.
  http::Events failed(const Json& error) {
    Json json = error;
    json["error"] = error;  // clients look for it here
    return named("error", std::move(json));
  }

  inline static const std::string kEvents[] = {"response.reasoning_text", "response.output_text",
                                               "response.function_call_arguments"};
  const Asked asked_;
  const std::string id_;
  const int64_t created_;
  bool opened_ = false;
  int64_t sequence_ = 0;
  std::vector<Item> items_;
  std::string model_, reason_;
  Json usage_;
};

// Parts of an answer that OpenAI's server adds if asked. None of them is made here.
constexpr std::string_view kIncluded[] = {
    "code_interpreter_call.outputs", "computer_call_output.output.image_url",
    "file_search_call.results",      "message.input_image.image_url",
    "message.output_text.logprobs",  "reasoning.encrypted_content",
    "web_search_call.results",       "web_search_call.action.sources"};

void refuse_beyond_text(Fields& fields) {
  for (const char* key : {"conversation", "previous_response_id", "prompt"}) {
    if (!fields.has(key)) continue;
    const Json& value = fields.raw(key);
    if (!value.is_array() || !value.empty()) Fields::refuse(key, "is not supported");
  }
  if (fields.boolean_or("background", false)) Fields::refuse("background", "is not supported");
  if (fields.text_or("truncation", "disabled") != "disabled") {
    Fields::refuse("truncation", "expected \"disabled\"");
  }
  if (!fields.has("include")) return;
  for (const std::string& one : fields.texts("include", std::size(kIncluded))) {
    if (std::ranges::find(kIncluded, one) == std::end(kIncluded)) {
      Fields::refuse("include", cat("expected OpenAI's names, got ", shown(one)));
    }
  }
}

}  // namespace

http::Response responses(const http::Request& request, const http::Handler& chat) {
  Fields fields(request.body, request.memory.get(), Fields::kDeep);
  Asked asked;
  if (fields.has("instructions")) asked.instructions = fields.text("instructions");
  // Pays for the input's conversion, and for copies of all that the answer repeats.
  constexpr uint64_t kRepeats = 8;
  request.memory->take(request.memory->bytes());
  request.memory->take(kRepeats *
                       (fields.has("instructions") ? asked.instructions.text().size() : 0));
  if (fields.has("text")) request.memory->take(kRepeats / 2 * request.memory->bytes());
  Json to = Json::object();
  to["messages"] = response_messages(fields.take("input"), asked.instructions);
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
  read_response_text(fields, asked, to);
  read_response_tools(fields, asked, to);
  refuse_beyond_text(fields);
  finish_tolerant(fields);
  const std::string left_out = asked.left_out;
  if (!left_out.empty()) log_info(cat("left out of a request: tools of type ", left_out));
  http::Response response =
      retold(request, chat, std::move(to), std::make_shared<ResponseText>(std::move(asked)),
             kResponsesNames);
  if (!left_out.empty()) response.headers.set("Split-Tools-Left-Out", left_out);
  return response;
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
          {"tools", "array", "Functions that the model may call."},
          {"tool_choice", "", "auto, none, required, a function, or allowed_tools."},
          {"parallel_tool_calls", "boolean", "Whether there may be several calls (true)."},
          {"reasoning", "object", "effort: none asks for no thought."},
          {"text", "object", "format: text, or as the response_format of a chat."}};
}

}  // namespace split::serve
