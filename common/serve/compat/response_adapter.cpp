#include "serve/compat/response_adapter.h"

#include "base/error.h"
#include "base/release.h"
#include "base/resources/memory_budget.h"
#include "text/json/in_order.h"

namespace split::serve {
namespace {

constexpr int kDepth = 16, kArgumentsDepth = 64;

// Converts a stream's events for a sink.
class ToldSink : public http::Sink {
 public:
  ToldSink(ResponseAdapter& retelling, http::Sink& sink) : retelling_(retelling), sink_(sink) {}
  bool tell(const http::Events& events, std::string_view comment) override {
    http::Events told;
    for (const http::Event& one : events) {
      told += retelling_.event(parse_json(one.json, kDepth, "an event"));
    }
    return sink_.tell(told, retelling_.type() == "text/event-stream" ? comment : "");
  }
  bool done() override { return sink_.tell(retelling_.end()); }
  bool write(std::string_view bytes) override { return sink_.write(bytes); }
  bool full() const override { return sink_.full(); }
  bool client_gone() override { return sink_.client_gone(); }

 private:
  ResponseAdapter& retelling_;
  http::Sink& sink_;
};

const Json* first_choice(const Json& answer) {
  const Json* const choices = answer.find("choices");
  return choices == nullptr || choices->empty() ? nullptr : &choices->at(0);
}

// Returns the message or the delta, else the choice itself.
const Json* first_message(const Json& answer) {
  const Json* part = first_choice(answer);
  if (part == nullptr) return nullptr;
  for (const char* inside : {"message", "delta"}) {
    if (const Json* const more = part->find(inside)) part = more;
  }
  return part;
}

std::string told_text(const Json& json, const char* name) {
  const Json* const text = json.find(name);
  return text != nullptr && text->is_string() ? text->text() : "";
}

// Returns an error about a field with the client's name for it.
Error renamed(const Error& error,
              std::span<const std::pair<std::string_view, std::string_view>> names) {
  for (const auto& [inner, outer] : names) {
    if (error.field() != inner) continue;
    std::string message = error.what();
    const std::string quoted = cat("'", inner, "'");
    if (message.starts_with(quoted)) message.replace(0, quoted.size(), cat("'", outer, "'"));
    return {error.kind(), message, std::string(outer)};
  }
  return error;
}

}  // namespace

std::string text_of(const Json& answer) {
  const Json* const part = first_message(answer);
  if (part == nullptr) return {};
  for (const char* name : {"text", "content"}) {
    const Json* const text = part->find(name);
    if (text != nullptr && text->is_string()) return text->text();
  }
  return {};
}

std::string thought_of(const Json& answer) {
  const Json* const part = first_message(answer);
  return part == nullptr ? "" : told_text(*part, "reasoning_content");
}

std::vector<ToldCall> calls_of(const Json& answer) {
  std::vector<ToldCall> calls;
  const Json* const part = first_message(answer);
  const Json* const list = part == nullptr ? nullptr : part->find("tool_calls");
  if (list == nullptr || !list->is_array()) return calls;
  for (const Json& one : *list) {
    const Json *index = one.find("index"), &function = one["function"];
    calls.push_back({index == nullptr ? calls.size() : index->get<size_t>(), told_text(one, "id"),
                     told_text(function, "name"), told_text(function, "arguments")});
  }
  return calls;
}

std::vector<ToldPart> parts_of(const Json& answer) {
  const std::vector<ToldCall> calls = calls_of(answer);
  const Json* const message = first_message(answer);
  const Json* const ordered = message == nullptr ? nullptr : message->find("content_parts");
  std::vector<ToldPart> parts;
  if (ordered != nullptr) {
    for (const Json& one : *ordered) {
      const Json* const index = one.find("index");
      parts.push_back(index == nullptr ? ToldPart{told_text(one, "text"), {}}
                                       : ToldPart{{}, calls.at(index->get<size_t>())});
    }
    return parts;
  }
  if (std::string words = text_of(answer); !words.empty()) parts.push_back({std::move(words), {}});
  for (const ToldCall& one : calls) parts.push_back({{}, one});
  return parts;
}

Json arguments_object(const std::string& arguments) {
  try {
    Json object = parse_json(arguments, kArgumentsDepth, "arguments");
    if (object.is_object()) return object;
  } catch (const Error&) {  // a call that was cut
  }
  return Json::object();
}

std::string finish_reason_of(const Json& answer) {
  const Json* const choice = first_choice(answer);
  const Json* const reason = choice == nullptr ? nullptr : choice->find("finish_reason");
  return reason != nullptr && reason->is_string() ? reason->text() : "";
}

Json message_of(std::string_view role, Json content) {
  Json message = {{"role", role}};
  message["content"] = std::move(content);
  return message;
}

http::Response retold(const http::Request& request, const http::Handler& handler, Json body,
                      std::shared_ptr<ResponseAdapter> retelling,
                      std::span<const std::pair<std::string_view, std::string_view>> names) {
  // Copies of the request's bytes, also while they grow: values do not get longer.
  constexpr uint64_t kCopies = 4;
  request.memory->take(kCopies * request.body.size());
  http::Request inner = request;
  release(inner.body);
  inner.body = json_in_order(body, request.memory.get());  // keeps the order of a schema's members
  release(body);
  http::Response response;
  try {
    response = handler(inner);
  } catch (const Error& error) {
    throw renamed(error, names);
  }
  if (!response.stream) {
    response.body =
        retelling->whole(parse_json(response.body, kDepth, "the answer", request.memory.get()));
    return response;
  }
  response.content_type = retelling->type();
  response.stream = [retelling = std::move(retelling),
                     stream = std::move(response.stream)](http::Sink& sink) {
    ToldSink to(*retelling, sink);
    return stream(to);
  };
  return response;
}

}  // namespace split::serve
