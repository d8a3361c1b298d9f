#include "serve/text_backend.h"

#include <cstdio>
#include <mutex>

#include "base/json.h"
#include "http/message.h"
#include "serve/models.h"
#include "wire/codes.h"

namespace split::serve {
namespace {

class LocalBackend : public TextBackend {
 public:
  LocalBackend(const ModelConfig& config, const Tokenizer* tokenizer, OpenForward open,
               std::string device)
      : config_(config),
        tokenizer_(tokenizer),
        open_(std::move(open)),
        device_(std::move(device)) {}

  std::unique_ptr<Text> begin(std::span<const int32_t> prompt,
                              const GenerateOptions& options) override {
    return std::make_unique<LocalText>(*this, prompt, options);
  }

  std::string server_timing() const override {
    const std::lock_guard lock(mutex_);
    std::string header;
    if (!device_.empty()) add_timing(header, "device", device_);
    if (spent_.compute_ms > 0) {
      add_timing(header, "queue", spent_.queue_ms);
      add_timing(header, "compute", spent_.compute_ms);
    }
    return header;
  }

 private:
  // The rows of a text, whose time counts once it ends.
  struct Rows {
    Rows(LocalBackend& backend, std::unique_ptr<Forward> forward)
        : backend(backend), forward(std::move(forward)) {}
    ~Rows() {
      const std::lock_guard lock(backend.mutex_);
      const Forward::Spent spent = forward->spent();
      backend.spent_.queue_ms += spent.queue_ms;
      backend.spent_.compute_ms += spent.compute_ms;
    }
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;
    LocalBackend& backend;
    const std::unique_ptr<Forward> forward;
  };
  struct LocalText : private Rows, public Generation {
    LocalText(LocalBackend& backend, std::span<const int32_t> prompt,
              const GenerateOptions& options)
        : Rows(backend, backend.open_(prompt.size() - options.generated, options)),
          Generation(*forward, backend.config_, backend.tokenizer_, prompt, options) {}
  };

  const ModelConfig& config_;
  const Tokenizer* tokenizer_;
  const OpenForward open_;
  const std::string device_;
  mutable std::mutex mutex_;  // guards:
  Forward::Spent spent_;
};

}  // namespace

void add_timing(std::string& header, std::string_view name, double ms) {
  char number[32];
  std::snprintf(number, sizeof number, ";dur=%.3f", ms);
  header += cat(header.empty() ? "" : ", ", name, number);
}

// Adds a timing, whose description is a quoted string of plain characters.
void add_timing(std::string& header, std::string_view name, std::string_view description) {
  header += cat(header.empty() ? "" : ", ", name, ";desc=\"");
  for (const char c : description) {
    if (c >= ' ' && c < 0x7f && c != '"' && c != '\\') header += c;
  }
  header += '"';
}

std::unique_ptr<Text> TextBackend::begin_words(const Json&, const GenerateOptions&) {
  refuse_while_loading();
}

std::vector<float> TextBackend::states(std::span<const int32_t>) {
  throw http::HttpError(501, wire::codes::kNotSupported, "this server has no embeddings");
}

TextBackend::Embedded TextBackend::embed(Texts texts, Seconds, const Sentences& sentences) {
  Embedded out;
  for (const std::vector<int32_t>& ids : texts) {
    const std::vector<float> one = sentences.pool(states(ids), false);
    out.values.insert(out.values.end(), one.begin(), one.end());
    ++out.trips;
  }
  return out;
}

TextModel local_backend(std::string id, const ModelConfig& config, const Tokenizer* tokenizer,
                        OpenForward open, std::string device) {
  return {std::move(id), &config, tokenizer,
          [&config, tokenizer, open = std::move(open), device = std::move(device)] {
            return std::make_unique<LocalBackend>(config, tokenizer, open, device);
          }};
}

Json usage_of(const TextBackend& work, const TokenCounts& tokens) {
  Json usage = read_usage_of(work, tokens.prompt);
  usage["prompt_tokens_details"] = {{"cached_tokens", tokens.cached}};
  usage["completion_tokens"] = tokens.completion;
  usage["total_tokens"] = tokens.prompt + tokens.completion;
  return usage;
}

Json read_usage_of(const TextBackend& work, size_t tokens) {
  Json usage = {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
  const std::string receipt = work.receipt();
  if (!receipt.empty()) usage["splitcompute"] = parse_json(receipt, 8, "the receipt");
  return usage;
}

}  // namespace split::serve
