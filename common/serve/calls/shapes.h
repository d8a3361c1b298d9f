// How a completion and a chat word an answer's choice, whole and as events.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "run/text/text_loop.h"
#include "serve/logprobs.h"

namespace split::serve {

// A call's id: nine letters and digits, which every template takes, unique in this process.
std::string new_call_id();

// All pieces of a choice, joined as a stream of them would be.
struct Said {
  struct Call {
    std::string id, name, arguments;
    size_t behind = 0;  // bytes of words
  };
  std::string words, thought;
  std::vector<Call> calls;

  void add(const TextPiece& piece);
};

struct Shape {
  const char* id_prefix;
  const char* object;
  const char* chunk_object;
  LogprobLists::Kind logprobs;
  bool chats;                 // a first event without text, and calls as such
  Json (*choice)(Said said);  // what a whole answer says of a choice
  // And an event, of a piece that was added to `said` or of none.
  Json (*piece)(const TextPiece* piece, const Said& said, bool first);
};
extern const Shape kCompletionShape, kChatShape;

}  // namespace split::serve
