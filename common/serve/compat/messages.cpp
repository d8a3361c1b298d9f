#include "serve/compat/messages.h"

#include <optional>

#include "base/error.h"
#include "serve/calls/shapes.h"
#include "serve/compat/messages_input.h"
#include "serve/compat/response_adapter.h"

namespace split::serve {
namespace {

using wire::Fields;
using Name = std::pair<std::string_view, std::string_view>;

constexpr Name kMessagesNames[] = {{"stop", "stop_sequences"}};

class MessageText : public ResponseAdapter {
 public:
  std::string whole(const Json& answer) override {
    take(answer);
    Json content = Json::array();
    const std::string thought = thought_of(answer);
    if (!thought.empty()) content.push_back(block("thinking", thought));
    for (const ToldPart& one : parts_of(answer)) {
      content.push_back(one.call ? called(*one.call, arguments_object(one.call->arguments))
                                 : block("text", one.words));
    }
    Json json = message(std::move(content));
    json["stop_reason"] = reason();
    json["stop_sequence"] = stop_;
    return json.dump() + "\n";
  }

  http::Events event(const Json& event) override {
    if (const Json* const error = event.find("error")) {
      const Json* const message = error->find("message");
      return named(
          "error",
          {{"error",
            {{"type", "api_error"}, {"message", message == nullptr ? Json("") : *message}}}});
    }
    take(event);
    http::Events out;
    if (const std::string thought = thought_of(event); !thought.empty()) {
      out += piece("thinking", "thinking_delta", "thinking", thought);
    }
    if (const std::string words = text_of(event); !words.empty()) {
      out += piece("text", "text_delta", "text", words);
    }
    for (const ToldCall& one : calls_of(event)) {
      if (!one.name.empty()) out += open("tool_use", called(one, Json::object()));
      if (!one.arguments.empty()) {
        out += delta({{"type", "input_json_delta"}, {"partial_json", one.arguments}});
      }
    }
    // Nothing was sent yet: usage is right from the first token on.
    if (out.empty() && !begun_ && finish_.empty()) return named("ping", Json::object());
    return begin() + out;
  }

  http::Events end() override {
    http::Events out = begin() + close();
    out += named("message_delta", {{"delta", {{"stop_reason", reason()}, {"stop_sequence", stop_}}},
                                   {"usage", usage()}});
    return out + named("message_stop", Json::object());
  }

  std::string_view type() const override { return "text/event-stream"; }

 private:
  static http::Events named(const std::string& name, Json json) {
    json["type"] = name;
    return {{json.dump(), name}};
  }

  static Json block(const char* type, const std::string& text) {
    Json json = {{"type", type}};
    json[std::string_view(type) == "text" ? "text" : "thinking"] = text;
    if (std::string_view(type) == "thinking") json["signature"] = "";
    return json;
  }
  static Json called(const ToldCall& one, Json input) {
    return {{"type", "tool_use"},
            {"id", cat("toolu_", one.id)},
            {"name", one.name},
            {"input", std::move(input)}};
  }

  void take(const Json& answer) {
    if (const Json* const model = answer.find("model")) model_ = model->text();
    const std::string reason = finish_reason_of(answer);
    if (!reason.empty()) {
      finish_ = reason;
      const Json* const stop = answer["choices"][size_t{0}].find("stop_reason");
      if (stop != nullptr) stop_ = *stop;
    }
    const Json* const usage = answer.find("usage");
    if (usage != nullptr && !usage->is_null()) usage_ = *usage;
  }

  Json reason() const {
    if (finish_ == "tool_calls") return "tool_use";
    if (finish_ == "length") return "max_tokens";
    return stop_.is_null() ? "end_turn" : "stop_sequence";
  }

  // A prompt's rows are the computed and the cached ones.
  Json usage() const {
    const auto count = [&](const char* name) {
      const Json* const found = usage_.find(name);
      return found == nullptr || !found->is_number() ? int64_t{0} : found->get<int64_t>();
    };
    const Json* const details = usage_.find("prompt_tokens_details");
    const Json* const found = details == nullptr ? nullptr : details->find("cached_tokens");
    const int64_t cached = found == nullptr ? 0 : found->get<int64_t>();
    Json json = {{"input_tokens", count("prompt_tokens") - cached},
                 {"cache_read_input_tokens", cached},
                 {"output_tokens", count("completion_tokens")}};
    if (const Json* const cost = usage_.find("splitcompute")) json["splitcompute"] = *cost;
    return json;
  }

  Json message(Json content) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model_},
            {"content", std::move(content)},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", usage()}};
  }

  http::Events begin() {
    if (std::exchange(begun_, true)) return {};
    return named("message_start", {{"message", message(Json::array())}});
  }

  // Begins a block, once it has content.
  http::Events open(const char* kind, Json block) {
    http::Events out = close();
    open_ = kind;
    return out +
           named("content_block_start", {{"index", blocks_}, {"content_block", std::move(block)}});
  }
  http::Events close() {
    if (open_.empty()) return {};
    open_.clear();
    return named("content_block_stop", {{"index", blocks_++}});
  }
  http::Events delta(Json delta) const {
    return named("content_block_delta", {{"index", blocks_}, {"delta", std::move(delta)}});
  }
  http::Events piece(const char* kind, const char* type, const char* name,
                     const std::string& text) {
    http::Events out;
    if (open_ != kind) out = open(kind, block(kind, ""));
    return out + delta({{"type", type}, {name, text}});
  }

  const std::string id_ = "msg_" + new_call_id();
  bool begun_ = false;
  size_t blocks_ = 0;
  std::string open_;  // the open block's kind
  std::string model_, finish_;
  Json stop_, usage_ = Json::object();
};

class CountedTokens : public ResponseAdapter {
 public:
  std::string whole(const Json& answer) override {
    return Json{{"input_tokens", answer["prompt_tokens"]}}.dump() + "\n";
  }
};

http::Response told(const http::Request& request, const http::Handler& handler, bool counts) {
  Fields fields(request.body, request.memory.get(), Fields::kDeep);
  request.memory->take(2 * request.memory->bytes());  // for the chat's body
  Json body = chat_of_messages(fields, counts);
  std::shared_ptr<ResponseAdapter> retelling;
  if (counts)
    retelling = std::make_shared<CountedTokens>();
  else
    retelling = std::make_shared<MessageText>();
  return retold(request, handler, std::move(body), std::move(retelling), kMessagesNames);
}

}  // namespace

std::vector<http::Route> message_routes(http::Handler chat, http::Handler count,
                                        const std::vector<int>& statuses) {
  std::vector<http::RequestField> prompt = {
      {"model", "string", "A model's id (GET /v1/models); the first one by default."},
      {"messages", "array", "The messages, each with role and content: text or blocks.", true},
      {"system", "", "What stands before them: text or blocks."},
      {"tools", "array", "Functions that the model may call."},
      {"tool_choice", "object", "auto, any, none or tool, and disable_parallel_tool_use."},
      {"thinking", "object", "type: disabled asks for no thought."}};
  std::vector<http::RequestField> body = prompt;
  for (const http::RequestField& one : std::initializer_list<http::RequestField>{
           {"max_tokens", "integer", "The most tokens to write.", true},
           {"temperature", "number", "0 always takes the likeliest token."},
           {"top_p", "number", "Draws from the likeliest tokens that make up this probability."},
           {"top_k", "integer", "Draws from this many of the likeliest tokens."},
           {"stop_sequences", "array", "Texts at which the answer ends."},
           {"stream", "boolean", "Sends the answer as server-sent events while it is written."}}) {
    body.push_back(one);
  }
  std::vector<http::Route> routes = {
      {.method = "POST",
       .path = "/v1/messages",
       .summary = "Answers messages, as Anthropic's route of this name does.",
       .statuses = statuses,
       .body = body,
       .handler = [chat = std::move(chat)](
                      const http::Request& request) { return told(request, chat, false); }},
      {.method = "POST",
       .path = "/v1/messages/count_tokens",
       .summary = "Counts the tokens of a prompt, as Anthropic's route of this name does.",
       .statuses = statuses,
       .body = prompt,
       .handler = [count = std::move(count)](const http::Request& request) {
         return told(request, count, true);
       }}};
  for (http::Route& route : routes) route.typed_errors = true;
  return routes;
}

}  // namespace split::serve
