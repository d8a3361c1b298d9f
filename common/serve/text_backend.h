// The backend of this layer's routes: an open model, and for each request its TextBackend, which
// computes texts and states and reports their cost at the end. The cloud's runs on one machine, the
// edge's on two; routes see no difference.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "run/sentences.h"
#include "run/text/generate.h"
#include "serve/audit/audits.h"
#include "serve/choices.h"
#include "text/form/answer_format.h"

namespace split::serve {

// The backend of one request. Any number of threads. Throws Error and HttpError.
class TextBackend {
 public:
  virtual ~TextBackend() = default;

  // Begins a text. Its cost is counted when it is destroyed, before the backend.
  virtual std::unique_ptr<Text> begin(std::span<const int32_t> prompt,
                                      const GenerateOptions& options) = 0;
  // Begins a text by a prompt's own words, which another machine encodes: a completion's "prompt",
  // or a chat's "messages" and their options. With max_tokens below 0 it ends where the context
  // does. Only for models without a config.
  virtual std::unique_ptr<Text> begin_words(const Json& words, const GenerateOptions& options);
  // Returns the final norm's output for each token, [tokens, C].
  virtual std::vector<float> states(std::span<const int32_t> tokens);
  // Computes the embeddings of texts [texts, dimensions], not scaled at the end, and counts the
  // trips to the other machine. One text after another by default. For pairs, computes their
  // scores; `seconds` is SequenceRows', or empty.
  struct Embedded {
    std::vector<float> values;
    uint64_t trips = 0;
  };
  using Texts = std::span<const std::vector<int32_t>>;
  using Seconds = std::span<const uint32_t>;
  virtual Embedded embed(Texts texts, Seconds seconds, const Sentences& sentences);
  // Call when the client has gone: running texts end soon, by an Error or as "cancelled", and so do
  // later ones.
  virtual void cancel() noexcept {}
  // Returns the cost so far: a JSON object, or nothing, and the value of a Server-Timing header,
  // which names the place before anything ran.
  virtual std::string receipt() const { return {}; }
  virtual std::string server_timing() const { return {}; }
};

// A model. Everything outlives the answers, streams included. Without a config nothing else of the
// model is known yet: its texts begin by their words alone.
struct TextModel {
  std::string id;
  const ModelConfig* config = nullptr;
  const Tokenizer* tokenizer = nullptr;  // null: ids only
  std::function<std::unique_ptr<TextBackend>()> begin;
  std::chrono::milliseconds quiet{15000};  // a quiet stream gets a comment after it
  // Returns the comment before a stream's next event; empty: no comment.
  std::function<std::string()> comment = {};
  SpareThreads* spare = nullptr;         // for several texts of an answer at once
  const Sentences* sentences = nullptr;  // makes embeddings of texts; null: impossible
  const ChatTemplate* chat = nullptr;    // makes a prompt of messages; null: no template
  const AnswerFormat* format = nullptr;  // the form of calls and thoughts; null: none
  bool special_in_content = false;       // recognises special tokens in messages
  bool own_template = false;             // `chat` replaces the model's own
  // Makes receipts, and says of what model, or throws why there are none; null: not of these texts.
  Audits* audits = nullptr;
  std::function<AuditedModel()> audited = {};
};

// Finds a model by id; "": the only or first one. Throws HttpError 404 `model_not_found`.
using FindModel = std::function<TextModel(const std::string& id)>;

// Makes the sequence of a text, whose rows from `generated_from` on are generated.
using OpenForward =
    std::function<std::unique_ptr<Forward>(size_t generated_from, const GenerateOptions& options)>;
// Makes a model whose texts run on sequences from `open`, on this device.
TextModel local_backend(std::string id, const ModelConfig& config, const Tokenizer* tokenizer,
                        OpenForward open, std::string device = {});

// Tokens of a text: the prompt's, those of them that were cached, and new ones.
struct TokenCounts {
  size_t prompt = 0, cached = 0, completion = 0;
};
// {"prompt_tokens","prompt_tokens_details","completion_tokens","total_tokens","splitcompute"?};
// `read_usage_of`, for texts that are only read, has no members about answers.
Json usage_of(const TextBackend& work, const TokenCounts& tokens);
Json read_usage_of(const TextBackend& work, size_t tokens);

// Adds a part of a Server-Timing header.
void add_timing(std::string& header, std::string_view name, double ms);
void add_timing(std::string& header, std::string_view name, std::string_view description);

}  // namespace split::serve
