// The shape of an answer's choice for a completion and for a chat, whole and as events.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "run/text/text_loop.h"
#include "serve/logprobs.h"

namespace split::serve {

// A call's id: nine letters and digits, which every template takes, unique in this process.
std::string new_call_id();

// All pieces of a choice, joined like a stream of them.
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
  bool chats;                 // a first event without text, and structured calls
  Json (*choice)(Said said);  // a whole answer's choice
  // An event's choice, for a piece that was added to `said`, or null.
  Json (*piece)(const TextPiece* piece, const Said& said, bool first);
};
extern const Shape kCompletionShape, kChatShape;

}  // namespace split::serve
