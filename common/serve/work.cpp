#include "serve/work.h"

#include "http/message.h"

namespace split::serve {
namespace {

class ForwardWork : public Work {
 public:
  using Open = std::function<std::unique_ptr<Forward>()>;
  ForwardWork(const ModelConfig& config, const Tokenizer* tokenizer, Open open)
      : config_(config), tokenizer_(tokenizer), open_(std::move(open)) {}

  Generated generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                     const OnText& on_text) override {
    return split::generate(*open_(), config_, tokenizer_, prompt, options, on_text);
  }

 private:
  const ModelConfig& config_;
  const Tokenizer* tokenizer_;
  Open open_;
};

}  // namespace

std::vector<float> Work::states(std::span<const int32_t>) {
  throw http::HttpError(501, "not_supported", "this server has no embeddings");
}

WorkModel work_on(std::string id, const ModelConfig& config, const Tokenizer* tokenizer,
                  std::function<std::unique_ptr<Forward>()> open) {
  return {std::move(id), &config, tokenizer, [&config, tokenizer, open = std::move(open)] {
            return std::make_unique<ForwardWork>(config, tokenizer, open);
          }};
}

}  // namespace split::serve
