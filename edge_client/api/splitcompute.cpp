#include "edge_client/api/splitcompute.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/plain_words.h"
#include "edge_client/api/edge.h"
#include "edge_client/options/command_line.h"

using split::edge::ApiAnswer;
using split::edge::Edge;

struct sc_edge {
  Edge edge;
};

struct sc_answer {
  std::shared_ptr<ApiAnswer> asked;
};

namespace {

constexpr int kOptionsDepth = 2;

void tell(const char* what, char* error, size_t size) {
  if (error == nullptr || size == 0) return;
  const size_t length = std::min(std::strlen(what), size - 1);
  std::memcpy(error, what, length);
  error[length] = 0;
}

// Returns the value of `call`, or `otherwise` after an exception: none leaves the library.
template <typename Call, typename Value>
Value guarded(Value otherwise, const Call& call) noexcept {
  try {
    return call();
  } catch (...) {  // std::bad_alloc, or no thread
    return otherwise;
  }
}

}  // namespace

const char* sc_version(void) { return SPLIT_VERSION; }

sc_edge* sc_open(const char* options, char* error, size_t size) {
  try {
    if (options == nullptr) throw split::Error(split::ErrorKind::kInput, "options: expected JSON");
#ifndef SPLIT_FIBRES  // a page gets the lines of its tab
    split::set_log_format(split::LogFormat::kNone);
#endif
    const split::Json given = split::parse_json(options, kOptionsDepth, "options:");
    return new sc_edge{Edge(split::edge::read_engine_options(given))};
  } catch (const std::exception& failed) {
    return guarded(static_cast<sc_edge*>(nullptr), [&] {
      tell(split::plain_words(failed.what()).c_str(), error, size);
      return nullptr;
    });
  }
}

void sc_close(sc_edge* edge) { delete edge; }

sc_answer* sc_ask(sc_edge* edge, const char* method, const char* path, const char* body,
                  size_t size) {
  if (edge == nullptr || method == nullptr || path == nullptr) return nullptr;
  return guarded(static_cast<sc_answer*>(nullptr), [&] {
    return new sc_answer{
        edge->edge.ask(method, path, body == nullptr ? std::string() : std::string(body, size))};
  });
}

int sc_status(sc_answer* answer) {
  if (answer == nullptr) return 0;
  return guarded(503, [&] { return answer->asked->status(); });
}

const char* sc_next(sc_answer* answer, size_t* size) {
  if (size != nullptr) *size = 0;
  if (answer == nullptr) return nullptr;
  return guarded(static_cast<const char*>(nullptr), [&]() -> const char* {
    const std::string* const text = answer->asked->next();
    if (text == nullptr) return nullptr;
    if (size != nullptr) *size = text->size();
    return text->c_str();
  });
}

void sc_cancel(sc_answer* answer) {
  if (answer != nullptr) answer->asked->cancel();
}

void sc_free(sc_answer* answer) {
  if (answer == nullptr) return;
  guarded(0, [&] {
    answer->asked->drop();
    return 0;
  });
  delete answer;
}
