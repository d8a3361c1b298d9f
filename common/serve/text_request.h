// Reads and bounds the fields that completions and chats share.
#pragma once

#include <string_view>
#include <vector>

#include "http/route.h"
#include "serve/text_backend.h"
#include "wire/fields.h"

namespace split::serve {

struct TextRequest {
  std::vector<std::vector<int32_t>> prompts;  // empty ids for a text that begins by its words
  std::optional<Json> words = {};             // TextBackend::begin_words
  GenerateOptions options;
  int choices = 1;
  int best_of = 1;  // texts made for each prompt, to return the likeliest `choices`
  bool echo = false;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // usage so far in each event
  bool return_token_ids = false;
  bool receipt = false;      // each choice has one (serve/audit/audits.h)
  bool to_the_end = false;   // no length was asked for
  bool skip_spaces = false;  // skips the text's first spaces
  std::string loosened;      // keywords of the answer's schema that are loosened: "format, pattern"
};

inline constexpr int kMaxChoices = 16;    // n and best_of
inline constexpr int kMaxLogprobs = 100;  // the k largest at each position
// A completion's limit: no client asks for a whole context there.
inline constexpr int kMaxTokensAsked = 1 << 24;

// Sampling, stop, seed, n, stream and stream_options, with OpenAI's defaults. Throws Error(kInput)
// like Fields, and Error(kBusy) if `memory` is too small; so do all functions below.
void read_common(wire::Fields& fields, TextRequest& request, MemoryShare& memory);

// Reads the form of an answer from response_format: {"type":"text"}, json_object, or json_schema;
// with `whole` also answer_form, the form itself.
void read_format(wire::Fields& fields, const TextModel& model, MemoryShare& memory,
                 AnswerForm& form, bool whole = false);
// Reads such a member's object, but for text.
void read_format(const Json& format, MemoryShare& memory, AnswerForm& form, bool whole);
inline constexpr char kFormatName[] = "response_format";
// Applies a form to the text, if it constrains or marks anything. Lists its schemas' keywords that
// text/json/ does not hold in `loosened` and in the log.
void set_form(AnswerForm form, const TextModel& model, MemoryShare& memory, TextRequest& request);

// Describes the fields that it reads.
std::vector<http::RequestField> common_fields();

// Reads one or more prompts from `value`, the field `name`: a string, a list of strings, a list of
// ids, or a list of lists of ids; at most `most` of them.
std::vector<std::vector<int32_t>> read_prompts(const Json& value, std::string_view name,
                                               const TextModel& model, bool special, size_t most,
                                               MemoryShare& memory);
// Returns a prompt of these ids after a check; errors name that field.
std::vector<int32_t> checked_prompt(std::vector<int32_t> ids, std::string_view name,
                                    const ModelConfig& config);

// Reads the common fields of a text that begins by these words, after its own, and reserves its
// memory. Throws HttpError 503 `loading` for fields that need the model.
TextRequest read_opened(wire::Fields& fields, Json words, int max_tokens, MemoryShare& memory);

// Refuses requests that take too long or list too much, or shortens them if no length was asked
// for, and reserves `memory`: logits and scratch of each choice, and listed tokens.
void check_cost(TextRequest& request, const ModelConfig& config, MemoryShare& memory);

}  // namespace split::serve
