// A request's texts on an engine, for common/serve.
#pragma once

#include "edge_client/engine/request.h"
#include "serve/text_backend.h"

namespace split::edge {

// Its texts and states throw HttpError 502 `cloud_error` or 503 `cloud_unavailable` if the cloud
// fails.
class SplitBackend : public serve::TextBackend {
 public:
  // Keeps `engine` alive.
  SplitBackend(const std::shared_ptr<Engine>& engine, std::shared_ptr<PlacedModel> split = {},
               std::string owner = {})
      : engine_(engine), work_(*engine, std::move(split), std::move(owner)) {}

  std::unique_ptr<Text> begin(std::span<const int32_t> prompt,
                              const GenerateOptions& options) override;
  std::unique_ptr<Text> begin_words(const Json& words, const GenerateOptions& options) override;
  std::vector<float> states(std::span<const int32_t> tokens) override;
  // The rows of a receipt (serve/audit/audits.h).
  std::vector<float> rows(const SequenceRows& rows, uint32_t prompt);
  Embedded embed(Texts texts, Seconds seconds, const Sentences& sentences) override;
  void cancel() noexcept override { work_.cancel(); }
  std::string receipt() const override { return cost_json(work_.counted()); }
  std::string server_timing() const override;

 private:
  const std::shared_ptr<Engine> engine_;
  EngineRequest work_;
};

}  // namespace split::edge
