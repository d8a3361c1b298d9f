// The cloud of a split text, over a connection to its server.
#pragma once

#include <functional>

#include "edge_client/cloud/remote.h"
#include "edge_client/split/cloud_link.h"
#include "edge_client/split/retry.h"

namespace split::edge {

// Ends a session on the server, in its own time; must not throw.
using Goodbye = std::function<void(const std::string& session)>;

class RemoteLink : public CloudLink {
 public:
  // Remote, model and waiter outlive it. A session ends by `goodbye`, or over a connection of its
  // own.
  RemoteLink(Remote& remote, const wire::ModelInfo& info, const ModelConfig& config,
             RetryOptions retry, Waiter& waiter, Goodbye goodbye = {})
      : remote_(remote),
        info_(info),
        config_(config),
        retry_(std::move(retry)),
        waiter_(waiter),
        goodbye_(std::move(goodbye)) {}

  // Each step says where it goes from now on, which is not where its session does.
  void set_moves(bool moves) { moves_ = moves; }
  // Hidden states travel in this format from now on.
  void set_wire(DType wire) { wire_ = wire; }

  // Where the server has no room for another session of this key, it gets the room of these.
  using GiveUp = std::function<std::vector<std::string>()>;
  void set_on_full(GiveUp give_up) { on_full_ = std::move(give_up); }

  // Also when the server has another model now, as the others throw too: `model_mismatch`.
  void open(const std::string& session, const StageRange& range) override;
  std::vector<float> step(const std::string& session, const SequenceRows& rows,
                          Traffic& traffic) override;
  std::vector<float> fill(const std::string& session, const SequenceRows& rows,
                          Traffic& traffic) override;
  void close(const std::string& session) noexcept override;
  std::vector<float> forward(const SequenceRows& rows, Traffic& traffic) override;
  std::vector<float> texts(const TextRows& texts, bool pool, uint32_t width,
                           Traffic& traffic) override;
  std::string stream(const std::string& session, std::span<const int32_t> ids,
                     const GenerateOptions& options, const OnToken& on_token,
                     SplitCounts& counts) override;
  Generated complete(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                     const GenerateOptions& options, const OnText& on_text,
                     SplitCounts& counts) override;
  void offer(std::optional<int> can) override { can_ = can; }
  void look() override;
  std::optional<CloudSays> load() const override;
  void warm() noexcept override;
  void cancel() noexcept override { remote_.cancel(); }

 private:
  void expect_same_model();
  template <typename Call>
  auto room_for_session(const Call& call);
  uint32_t channels() const { return static_cast<uint32_t>(config_.channels); }

  Remote& remote_;
  const wire::ModelInfo& info_;
  const ModelConfig& config_;
  const RetryOptions retry_;
  Waiter& waiter_;
  const Goodbye goodbye_;
  bool moves_ = false;
  DType wire_ = DType::kF32;
  std::optional<int> can_;
  GiveUp on_full_;
};

}  // namespace split::edge
