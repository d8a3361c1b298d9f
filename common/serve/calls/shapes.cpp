#include "serve/calls/shapes.h"

#include <atomic>
#include <random>

#include "text/utf8.h"

namespace split::serve {
namespace {

Json function_of(std::string name, std::string arguments) {
  return {{"name", std::move(name)}, {"arguments", to_valid_utf8(arguments)}};
}

// Words and calls in their order, if words stand behind a call: the other members of a message do
// not tell it.
Json ordered_parts(const Said& said) {
  Json parts = Json::array();
  size_t told = 0;
  const auto tell_words = [&](size_t until) {
    if (until <= told) return;
    const std::string_view words = std::string_view(said.words).substr(told, until - told);
    parts.push_back({{"type", "text"}, {"text", to_valid_utf8(words)}});
    told = until;
  };
  for (size_t i = 0; i < said.calls.size(); ++i) {
    tell_words(std::min(said.calls[i].behind, said.words.size()));
    parts.push_back({{"type", "tool_call"}, {"index", i}});
  }
  tell_words(said.words.size());
  return parts;
}

Json chat_choice(Said said) {
  const bool ordered = !said.calls.empty() && said.calls.front().behind < said.words.size();
  Json parts = ordered ? ordered_parts(said) : Json();
  Json message = {{"role", "assistant"}, {"content", std::move(said.words)}, {"refusal", nullptr}};
  if (!said.thought.empty()) message["reasoning_content"] = to_valid_utf8(said.thought);
  if (ordered) message["content_parts"] = std::move(parts);
  for (Said::Call& one : said.calls) {
    message["tool_calls"].push_back(
        {{"id", std::move(one.id)},
         {"type", "function"},
         {"function", function_of(std::move(one.name), std::move(one.arguments))}});
  }
  return {{"message", std::move(message)}};
}

Json chat_piece(const TextPiece* piece, const Said& said, bool first) {
  Json delta = Json::object();
  if (first) delta["role"] = "assistant";
  if (piece == nullptr) return {{"delta", std::move(delta)}};
  if (piece->part == TextPiece::kWords) {
    delta["content"] = to_valid_utf8(piece->bytes);
  } else if (piece->part == TextPiece::kThought) {
    delta["reasoning_content"] = to_valid_utf8(piece->bytes);
  } else {
    Json call = {{"index", piece->call}};
    if (piece->part == TextPiece::kName) {
      call["id"] = said.calls.at(piece->call).id;
      call["type"] = "function";
      call["function"] = function_of(std::string(piece->bytes), "");
    } else {
      call["function"] = Json{{"arguments", to_valid_utf8(piece->bytes)}};
    }
    delta["tool_calls"] = Json::array({std::move(call)});
  }
  return {{"delta", std::move(delta)}};
}

}  // namespace

std::string new_call_id() {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  constexpr size_t kLength = 9;
  constexpr uint64_t kAll = 13'537'086'546'263'552;  // 62^9
  static std::atomic<uint64_t> counter{uint64_t{std::random_device()()} << 21};
  uint64_t number = counter.fetch_add(1) % kAll;
  std::string id;
  for (size_t i = 0; i < kLength; ++i, number /= kLetters.size()) {
    id += kLetters[number % kLetters.size()];
  }
  return id;
}

void Said::add(const TextPiece& piece) {
  switch (piece.part) {
    case TextPiece::kWords:
      words += piece.bytes;
      break;
    case TextPiece::kThought:
      thought += piece.bytes;
      break;
    case TextPiece::kName:
      calls.push_back({new_call_id(), std::string(piece.bytes), {}, words.size()});
      break;
    case TextPiece::kArguments:
      calls.at(piece.call).arguments += piece.bytes;
      break;
  }
}

const Shape kCompletionShape = {"cmpl-",
                                "text_completion",
                                "text_completion",
                                LogprobLists::Kind::kCompletion,
                                false,
                                [](Said said) {
                                  return Json{{"text", std::move(said.words)}};
                                },
                                [](const TextPiece* piece, const Said&, bool) {
                                  const bool words =
                                      piece != nullptr && piece->part == TextPiece::kWords;
                                  return Json{{"text", words ? to_valid_utf8(piece->bytes) : ""}};
                                }};

const Shape kChatShape = {
    "chatcmpl-", "chat.completion", "chat.completion.chunk", LogprobLists::Kind::kChat, true,
    chat_choice, chat_piece};

}  // namespace split::serve
