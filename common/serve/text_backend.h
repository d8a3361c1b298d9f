// The backend that the routes of this layer run on: a model that somebody opened, and for each
// request its TextBackend, which computes texts and states and says at the end what they cost. The
// cloud's runs on one machine, the edge's on two; routes see no difference.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "run/sentences.h"
#include "run/text/generate.h"
#include "serve/choices.h"
#include "text/form/answer_format.h"

namespace split::serve {

// A text of a TextBackend, begun. One thread at a time, not always the same.
class Text {
 public:
  virtual ~Text() = default;
  // Does what Generation::next and take do.
  virtual bool next(const OnText& on_text) = 0;
  virtual Generated take() = 0;
  // Returns the ids of a text that began by its words, as far as they are known.
  virtual std::span<const int32_t> prompt() const { return {}; }
  // How many tokens of the prompt did not have to be computed, as far as that is known.
  virtual size_t cached() const { return 0; }
};

// One request's. Any number of threads: its texts may run at once. Throws Error and HttpError.
class TextBackend {
 public:
  virtual ~TextBackend() = default;

  // Its cost is counted when the text is gone; it goes before the backend.
  virtual std::unique_ptr<Text> begin(std::span<const int32_t> prompt,
                                      const GenerateOptions& options) = 0;
  // Begins a text by a prompt's own words, of which somebody else makes ids: a completion's
  // "prompt", or a chat's "messages" and what belongs to these. With max_tokens below 0 it ends
  // where the context does. For models without a config alone.
  virtual std::unique_ptr<Text> begin_words(const Json& words, const GenerateOptions& options);
  // One to its end.
  Generated generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                     const OnText& on_text);
  // Returns the final norm's output for each token, [tokens, C].
  virtual std::vector<float> states(std::span<const int32_t> tokens);
  // The embeddings of texts [texts, dimensions], not scaled at the end, and how often the other
  // machine was asked for them. Text after text, unless a backend knows better. Of pairs their
  // scores; `seconds` as SequenceRows has them, or none.
  struct Embedded {
    std::vector<float> values;
    uint64_t trips = 0;
  };
  using Texts = std::span<const std::vector<int32_t>>;
  using Seconds = std::span<const uint32_t>;
  virtual Embedded embed(Texts texts, Seconds seconds, const Sentences& sentences);
  // When nobody waits for it any more: what runs ends soon, by an Error or as
  // "cancelled", and so does what is asked for later.
  virtual void cancel() noexcept {}
  // Returns the cost so far: a JSON object, or nothing, and the value of a Server-Timing header,
  // which before anything ran says on what it will.
  virtual std::string receipt() const { return {}; }
  virtual std::string server_timing() const { return {}; }
};

// Everything outlives the answers, streams included. Without a config nothing else of the model is
// known yet: its texts begin by their words alone.
struct TextModel {
  std::string id;
  const ModelConfig* config = nullptr;
  const Tokenizer* tokenizer = nullptr;  // null: ids only
  std::function<std::unique_ptr<TextBackend>()> begin;
  std::chrono::milliseconds quiet{15000};  // of a stream, until a comment is sent
  // Gives the comment before a stream's next event; none where there is nothing to say.
  std::function<std::string()> comment = {};
  SpareThreads* spare = nullptr;         // for several texts of an answer at once
  const Sentences* sentences = nullptr;  // how texts become embeddings, where they may
  const ChatTemplate* chat = nullptr;    // how messages become a prompt; null: the model has none
  const AnswerFormat* format = nullptr;  // how its answers have calls and thoughts; null: not
  bool special_in_content = false;       // special tokens in messages are these, not plain text
  bool own_template = false;             // `chat` is not to be the model's own
};

// Finds a model by id; "" asks for the only or first one. Throws HttpError 404 `model_not_found`.
using FindModel = std::function<TextModel(const std::string& id)>;

// Makes the sequence of a text, whose rows from `generated_from` on are generated ones.
using OpenForward =
    std::function<std::unique_ptr<Forward>(size_t generated_from, const GenerateOptions& options)>;
// A model whose texts run on sequences that `open` makes, on this device.
TextModel local_backend(std::string id, const ModelConfig& config, const Tokenizer* tokenizer,
                        OpenForward open, std::string device = {});

// The parts of a Server-Timing header, one after the other.
void add_timing(std::string& header, std::string_view name, double ms);
void add_timing(std::string& header, std::string_view name, std::string_view description);

}  // namespace split::serve
