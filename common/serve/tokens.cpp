#include "serve/tokens.h"

#include "serve/chat.h"
#include "text/utf8.h"
#include "wire/fields.h"

namespace split::serve {
namespace {

using wire::Fields;

constexpr size_t kMostGivenTokens = 1 << 20;
constexpr uint64_t kBytesAToken = 16;  // its digits, in a text that has grown

const Tokenizer& tokenizer_of(const TextModel& model, std::string_view field) {
  if (model.tokenizer == nullptr) Fields::refuse(field, "the model has no tokenizer");
  return *model.tokenizer;
}

http::Response tokenize(const http::Request& request, const FindModel& find) {
  Fields fields(request.body, request.memory.get());
  const TextModel model = find(fields.text_or("model", ""));
  const std::string content = fields.text("content");
  const EncodeOptions options{.add_special = fields.boolean_or("add_special", false),
                              .parse_special = fields.boolean_or("parse_special", true),
                              .memory = request.memory.get()};
  fields.finish();
  const Tokenizer& tokenizer = tokenizer_of(model, "content");
  request.memory->take(kBytesAToken * content.size());
  std::string list;
  for (const int32_t id : tokenizer.encode(content, options)) {
    list += cat(list.empty() ? "" : ",", id);
  }
  return http::Response::json(200, cat("{\"tokens\":[", list, "]}\n"));
}

http::Response detokenize(const http::Request& request, const FindModel& find) {
  Fields fields(request.body, request.memory.get());
  const TextModel model = find(fields.text_or("model", ""));
  const std::vector<int32_t> ids =
      fields.integers("tokens", 0, model.config->vocab - 1, kMostGivenTokens);
  fields.finish();
  const Tokenizer& tokenizer = tokenizer_of(model, "tokens");
  request.memory->take(ids.size() * tokenizer.longest());
  const std::string text = to_valid_utf8(tokenizer.decode(ids));
  return http::Response::json(200, cat("{\"content\":", json_quote(text), "}\n"));
}

}  // namespace

std::vector<http::Route> token_routes(const FindModel& find, std::vector<int> statuses) {
  const http::RequestField model = {"model", "string",
                                    "A model's id (GET /v1/models); the first one by default."};
  const auto route = [&](const char* path, const char* summary,
                         std::vector<http::RequestField> body,
                         http::Response (*answer)(const http::Request&, const FindModel&)) {
    return http::Route{
        .method = "POST",
        .path = path,
        .summary = summary,
        .statuses = statuses,
        .body = std::move(body),
        .handler = [find, answer](const http::Request& request) { return answer(request, find); }};
  };
  std::vector<http::Route> routes = {
      route("/tokenize", "Returns the tokens of a text, as llama-server does.",
            {model,
             {"content", "string", "The text.", true},
             {"add_special", "boolean", "Adds what the model puts around a text (false)."},
             {"parse_special", "boolean", "Reads special tokens in the text as these (true)."}},
            tokenize),
      route("/detokenize", "Returns the text of tokens, as llama-server does.",
            {model, {"tokens", "array", "Token ids.", true}}, detokenize)};
  statuses.push_back(501);
  routes.push_back(route("/apply-template", "Returns a chat as the prompt that it becomes.",
                         template_fields(), apply_template));
  return routes;
}

}  // namespace split::serve
