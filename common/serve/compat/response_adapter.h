// An answer of one of OpenAI's routes, told in another route's words: the same texts from the same
// code, whole or as a stream, behind another envelope. Knows no model.
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

// Tells one answer. One thread at a time.
class ResponseAdapter {
 public:
  virtual ~ResponseAdapter() = default;
  virtual std::string whole(const Json& answer) = 0;  // the body
  // Events for one of its events, which may be {"error"}, and for its good end.
  virtual http::Events event(const Json&) { return {}; }
  virtual http::Events end() { return {}; }
  virtual std::string_view type() const { return {}; }  // of the stream
};

// The text of an answer's or an event's first choice, and why it ended; empty: it has not.
std::string text_of(const Json& answer);
// Parts of it beside words.
struct ToldCall {
  size_t index;
  std::string id, name;  // empty where the call was told before, and its arguments go on
  std::string arguments;
};
std::string thought_of(const Json& answer);
std::vector<ToldCall> calls_of(const Json& answer);
// Words and calls of a whole answer in the order in which they were written.
struct ToldPart {
  std::string words;
  std::optional<ToldCall> call;
};
std::vector<ToldPart> parts_of(const Json& answer);
// A call's arguments where they are an object; of one that was cut, none.
Json arguments_object(const std::string& arguments);
std::string finish_reason_of(const Json& answer);

// A chat's message.
Json message_of(std::string_view role, Json content);

// Asks `handler` with another body, which is freed before, and tells its answer. `names`: fields of
// that body and what they are called in this request's, for errors.
http::Response retold(const http::Request& request, const http::Handler& handler, Json body,
                      std::shared_ptr<ResponseAdapter> retelling,
                      std::span<const std::pair<std::string_view, std::string_view>> names);

}  // namespace split::serve
