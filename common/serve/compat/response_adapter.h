// Converts an answer of OpenAI's routes to another route's format: one code makes the texts, whole
// or as a stream, whatever the envelope. Knows no model.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "http/message.h"
#include "http/route.h"

namespace split::serve {

// Converts one answer. One thread at a time.
class ResponseAdapter {
 public:
  virtual ~ResponseAdapter() = default;
  virtual std::string whole(const Json& answer) = 0;  // the body
  // The events for one of a stream's events, which may be {"error"}, and for its good end.
  virtual http::Events event(const Json&) { return {}; }
  virtual http::Events end() { return {}; }
  virtual std::string_view type() const { return {}; }  // the stream's
};

// The text of an answer's or an event's first choice, and why it ended; empty: it has not.
std::string text_of(const Json& answer);
// The other parts of it.
struct ToldCall {
  size_t index;
  std::string id, name;  // empty: the arguments of an earlier call go on
  std::string arguments;
};
std::string thought_of(const Json& answer);
std::vector<ToldCall> calls_of(const Json& answer);
// Words and calls of a whole answer in their order.
struct ToldPart {
  std::string words;
  std::optional<ToldCall> call;
};
std::vector<ToldPart> parts_of(const Json& answer);
// A call's arguments if they are an object; else, when cut, none.
Json arguments_object(const std::string& arguments);
std::string finish_reason_of(const Json& answer);

// Makes a chat's message.
Json message_of(std::string_view role, Json content);

// Calls `handler` with another body, which is freed first, and converts its answer. `names`: fields
// of that body with their names in this request, for errors.
http::Response retold(const http::Request& request, const http::Handler& handler, Json body,
                      std::shared_ptr<ResponseAdapter> retelling,
                      std::span<const std::pair<std::string_view, std::string_view>> names);

}  // namespace split::serve
