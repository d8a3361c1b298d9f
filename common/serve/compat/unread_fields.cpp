#include "serve/compat/unread_fields.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "base/error.h"
#include "base/log.h"

namespace split::serve {
namespace {

// `harmless`: a JSON list of the values that change nothing, or kAny.
struct Row {
  std::string_view name, harmless, about;
};
constexpr std::string_view kAny = "*";

constexpr Row kUnread[] = {
    // OpenAI's fields for the user, storage or scheduling.
    {"user", kAny, "who asks"},
    {"safety_identifier", kAny, "who asks"},
    {"metadata", kAny, "notes of the client's"},
    {"client_metadata", kAny, "notes of the client's"},
    {"store", kAny, "no answer is kept here"},
    {"service_tier", kAny, "there is one"},
    {"prompt_cache_key", kAny, "what is cached changes no answer"},
    {"prompt_cache_retention", kAny, "what is cached changes no answer"},
    {"prediction", kAny, "a guess at the answer, which makes it faster at most"},
    {"parallel_tool_calls", kAny, "no tool is called"},
    {"reasoning_effort", kAny, "a wish for models that have it"},
    {"verbosity", kAny, "a wish for models that have it"},
    // OpenAI's fields that would change the answer.
    {"tools", "[[]]", "no tool is called here"},
    {"functions", "[[]]", "no function is called here"},
    {"tool_choice", R"(["none","auto"])", "no tool is called here"},
    {"function_call", R"(["none","auto"])", "no function is called here"},
    {"modalities", R"([["text"]])", "answers are text"},
    {"audio", "[]", "answers are text"},
    {"web_search_options", "[]", "nothing is searched"},
    {"suffix", R"([""])", "a text goes on behind its prompt"},
    {"best_of", "[1]", "of /v1/completions"},
    {"top_logprobs", "[0]", "of /v1/chat/completions"},
    {"stream_options", kAny, "of how a stream is sent"},
    {"max_tool_calls", kAny, "no tool is run here"},
    {"max_completion_tokens", "[]", "of /v1/chat/completions; max_tokens here"},
    {"reasoning", "[]", "of /v1/responses"},
    // Fields of llama.cpp and Ollama.
    {"keep_alive", kAny, "the model stays"},
    {"cache_prompt", kAny, "what is cached changes no answer"},
    {"id_slot", kAny, "requests share the device"},
    {"timings_per_token", kAny, "of the answer's figures"},
    {"return_progress", kAny, "of the answer's figures"},
    {"n_predict", "[-1]", "its name here is max_tokens"},
    {"n_probs", "[0]", "its name here is logprobs"},
    {"post_sampling_probs", "[false]", "log-probabilities are the model's own"},
    {"grammar", R"([""])", "not supported"},
    {"json_schema", "[]", "its name here is response_format"},
    {"samplers", "[]", "their order is fixed"},
    {"typical_p", "[1]", "not a way to draw here"},
    {"tfs_z", "[1]", "not a way to draw here"},
    {"mirostat", "[0]", "not a way to draw here"},
    {"mirostat_tau", kAny, "of mirostat"},
    {"mirostat_eta", kAny, "of mirostat"},
    {"dynatemp_range", "[0]", "not a way to draw here"},
    {"dynatemp_exponent", kAny, "of dynatemp_range"},
    {"xtc_probability", "[0]", "not a way to draw here"},
    {"xtc_threshold", kAny, "of xtc_probability"},
    {"dry_multiplier", "[0]", "not a way to draw here"},
    {"dry_base", kAny, "of dry_multiplier"},
    {"dry_allowed_length", kAny, "of dry_multiplier"},
    {"dry_penalty_last_n", kAny, "of dry_multiplier"},
    {"dry_sequence_breakers", kAny, "of dry_multiplier"},
    {"chat_template", R"([""])", "a server's choice"},
    {"chat_template_kwargs", "[{}]", "not supported"},
    {"add_generation_prompt", "[true]", "an answer is the assistant's next message"},
    {"continue_final_message", "[false]", "an answer is the assistant's next message"},
    // Fields of vLLM.
    {"request_id", kAny, "X-Request-Id is the header"},
    {"priority", kAny, "a key has it"},
    {"stop_token_ids", "[[]]", "stop takes texts"},
    {"length_penalty", "[1]", "of a beam search"},
    {"early_stopping", "[false]", "of a beam search"},
    {"use_beam_search", "[false]", "tokens are drawn"},
    {"skip_special_tokens", "[true]", "special tokens are no text"},
    {"spaces_between_special_tokens", kAny, "of skip_special_tokens"},
    {"add_special_tokens", "[true]", "not supported"},
};

void say_ignored(size_t row) {
  static std::array<std::atomic<bool>, std::size(kUnread)> said{};
  if (said[row].exchange(true)) return;
  log_info(cat("ignored: '", kUnread[row].name, "' of a request (", kUnread[row].about,
               "); said once for each field"));
}

bool is_harmless(const Row& row, const Json& value) {
  if (row.harmless == kAny) return true;
  const Json values = parse_json(row.harmless, 4, row.name);
  return std::ranges::find(values, value) != values.end();
}

}  // namespace

void finish_tolerant(const wire::Fields& fields) {
  fields.each_unread([](const std::string& name, const Json& value) {
    if (value.is_null()) return;
    const Row* const row = std::ranges::find(kUnread, std::string_view(name), &Row::name);
    if (row == std::end(kUnread)) wire::Fields::refuse_unknown(name);
    if (!is_harmless(*row, value)) {
      wire::Fields::refuse(name, cat("is not supported here: ", row->about));
    }
    say_ignored(static_cast<size_t>(row - kUnread));
  });
}

}  // namespace split::serve
