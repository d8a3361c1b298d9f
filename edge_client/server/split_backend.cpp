#include "edge_client/server/split_backend.h"

#include "base/plain_words.h"
#include "http/message.h"
#include "serve/models.h"
#include "wire/codes.h"

namespace split::edge {

namespace {

// Passes on the message: it is one line without control characters, and its reader is this
// machine's user.
[[noreturn]] void throw_as_answer(const RemoteError& error) {
  if (error.transient()) {
    const std::string message =
        cat(error.status == 0 ? "the cloud does not answer: " : "", plain_words(error.what()));
    throw http::HttpError(503, wire::codes::kCloudUnavailable, message, {}, {{"Retry-After", "1"}});
  }
  throw http::HttpError(502, wire::codes::kCloudError, error.what());
}

template <typename Call>
auto answered(const Call& call) {
  try {
    return call();
  } catch (const RemoteError& error) {
    throw_as_answer(error);
  }
}

class BackendText : public Text {
 public:
  // If the text is `opened` by its words, the cloud's error about them is the answer.
  explicit BackendText(std::unique_ptr<Text> text, bool opened = false)
      : text_(std::move(text)), opened_(opened) {}
  bool next(const OnText& on_text) override {
    try {
      return text_->next(on_text);
    } catch (const RemoteError& error) {
      if (opened_ && error.status == 404)
        serve::refuse_while_loading();  // it supports no such
                                        // texts
      if (!opened_ || (error.status != 400 && error.status != 501)) throw_as_answer(error);
      throw http::HttpError(error.status, error.code, error.said);
    } catch (const Error& error) {  // a sampler takes no such logits
      if (error.kind() != ErrorKind::kIntegrity) throw;
      throw http::HttpError(500, wire::codes::kOverflow, plain_words(error.what()));
    }
  }
  Generated take() override { return text_->take(); }
  std::span<const int32_t> prompt() const override { return text_->prompt(); }
  size_t cached() const override { return text_->cached(); }

 private:
  const std::unique_ptr<Text> text_;
  const bool opened_;
};

}  // namespace

std::unique_ptr<Text> SplitBackend::begin(std::span<const int32_t> prompt,
                                          const GenerateOptions& options) {
  return std::make_unique<BackendText>(work_.begin(prompt, options));
}

std::unique_ptr<Text> SplitBackend::begin_words(const Json& words, const GenerateOptions& options) {
  return std::make_unique<BackendText>(work_.begin_words(words, options), true);
}

std::vector<float> SplitBackend::states(std::span<const int32_t> tokens) {
  return answered([&] { return work_.states(tokens); });
}

std::vector<float> SplitBackend::rows(const SequenceRows& rows, uint32_t prompt) {
  return answered([&] { return work_.rows(rows, prompt); });
}

serve::TextBackend::Embedded SplitBackend::embed(Texts texts, Seconds seconds,
                                                 const Sentences& sentences) {
  if (!sentences.meant()) return TextBackend::embed(texts, seconds, sentences);
  EmbeddedTexts made = answered([&] { return work_.embed(texts, sentences, seconds); });
  return {std::move(made.values), made.trips};
}

std::string SplitBackend::server_timing() const {
  const Receipt now = work_.counted();
  std::string header;
  serve::add_timing(header, "cut", now.cut.name());
  serve::add_timing(header, "device", now.device);
  if (now.counts.steps == 0) return header;  // a stream has no steps
  for (const Figure& figure : figures(now)) {
    if (!figure.timing.empty() && figure.value)
      serve::add_timing(header, figure.timing, *figure.value);
  }
  return header;
}

}  // namespace split::edge
