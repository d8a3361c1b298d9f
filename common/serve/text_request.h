// Reads and bounds the fields that completions and chats have in common.
#pragma once

#include <string_view>
#include <vector>

#include "http/route.h"
#include "serve/text_backend.h"
#include "wire/fields.h"

namespace split::serve {

struct TextRequest {
  std::vector<std::vector<int32_t>> prompts;  // of one that begins by its words, one without ids
  std::optional<Json> words = {};             // TextBackend::begin_words
  GenerateOptions options;
  int choices = 1;
  int best_of = 1;  // texts made for each prompt, of which the likeliest `choices` are given
  bool echo = false;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  // with each event, what it took so far
  bool return_token_ids = false;
  bool to_the_end = false;   // nobody said how long it may get
  bool skip_spaces = false;  // those that a text begins with
  std::string loosened;      // keywords of the answer's schema that are not held: "format, pattern"
};

inline constexpr int kMaxChoices = 16;    // n and best_of
inline constexpr int kMaxLogprobs = 100;  // the k largest at each position
// A completion's default: nobody asks for the whole context there.
inline constexpr int kMaxTokensAsked = 1 << 24;

// Sampling, stop, seed, n, stream and stream_options, with OpenAI's defaults. Throws Error(kInput)
// as Fields does, and Error(kBusy) where `memory` has too little for what it makes, as all below.
void read_common(wire::Fields& fields, TextRequest& request, MemoryShare& memory);

// Reads what response_format says of an answer's form: {"type":"text"}, json_object, or
// json_schema; with `whole` also answer_form, the form itself.
void read_format(wire::Fields& fields, const TextModel& model, MemoryShare& memory,
                 AnswerForm& form, bool whole = false);
// Has the text held to it, if it holds or tells anything. Keywords of its schemas that text/json/
// does not hold are in `loosened` and in the log.
void set_form(AnswerForm form, const TextModel& model, MemoryShare& memory, TextRequest& request);

// Describes the fields that it reads.
std::vector<http::RequestField> common_fields();

// One prompt or more from `value`, the field `name`: a string, a list of strings, a list of ids, or
// a list of lists of ids; at most `most` of them.
std::vector<std::vector<int32_t>> read_prompts(const Json& value, std::string_view name,
                                               const TextModel& model, bool special, size_t most,
                                               MemoryShare& memory);
// A prompt of these ids, if it is one; errors name that field.
std::vector<int32_t> checked_prompt(std::vector<int32_t> ids, std::string_view name,
                                    const ModelConfig& config);

// Reads what a text that begins by these words has in common with others, behind what is its own,
// and takes the memory that it will hold. Throws HttpError 503 `loading` for what needs the model.
TextRequest read_opened(wire::Fields& fields, Json words, int max_tokens, MemoryShare& memory);

// Refuses what would take too long or too much to list, or shortens it where nobody asked for that,
// and takes from `memory` what it will hold: logits and scratch of each choice, and what is listed.
void check_cost(TextRequest& request, const ModelConfig& config, MemoryShare& memory);

}  // namespace split::serve
