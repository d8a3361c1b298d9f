// One model of the cloud, over a connection to its server.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "edge_client/cloud/remote.h"
#include "edge_client/split/cloud_link.h"
#include "edge_client/split/retry.h"

namespace split::edge {

// Arguments of a link; referenced ones outlive it.
struct LinkOptions {
  const wire::ModelInfo& info;
  const ModelConfig& config;
  RetryOptions retry;  // for complete()
  Waiter& waiter;
  DType wire = DType::kF32;  // format of hidden states on the wire
  bool moves = false;        // each step names its cut, which may differ from its session's
  // The text is the connection's last, and closes its session there.
  bool last = false;
  // Ends a session on the server later, and never throws; empty: over a connection of its own.
  std::function<void(const std::string& session)> goodbye = {};
  // Returns sessions to end when the server has no room for another one of this key.
  std::function<std::vector<std::string>()> give_up = {};
  // Set once the server's rows have other bits than `info` says; null: of no interest.
  std::shared_ptr<std::atomic<bool>> other_bits = {};
};

class ModelLink : public CloudLink {
 public:
  ModelLink(std::shared_ptr<Remote> remote, LinkOptions options)
      : remote_(std::move(remote)), options_(std::move(options)) {}
  // The remote outlives it.
  ModelLink(Remote& remote, LinkOptions options)
      : ModelLink(std::shared_ptr<Remote>(std::shared_ptr<void>(), &remote), std::move(options)) {}

  // Every request throws `model_mismatch` too, if the server has another model now.
  std::vector<float> ask(const Send& send) override;
  FinishReason stream(const Stream& stream, const OnToken& on_token) override;
  Generated complete(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                     const GenerateOptions& options, const OnText& on_text,
                     SplitCounts& counts) override;
  std::optional<wire::LoadNote> load() const override { return remote_->said_of_load(); }
  void cancel() noexcept override { remote_->cancel(); }

 private:
  void expect_same_model();
  template <typename Call>
  auto room_for_session(const Call& call);
  void close(const Send& send) noexcept;

  const std::shared_ptr<Remote> remote_;
  const LinkOptions options_;
};

}  // namespace split::edge
