// A text that the whole model generates on a client's session, locked for one step at a time: fills
// run between two steps, and the rows stay when the text ends.
#pragma once

#include "cloud_server/state/cloud.h"
#include "run/forward.h"

namespace split::cloud {

// A streamed text's load notes, and its reader's abilities.
struct LoadBeside {
  std::optional<int> can;
  bool again = false;  // its first rows belonged to a lost session
  wire::LoadNote note;

  // Returns a comment with the load if its reader should do something else than at the last one;
  // else empty.
  std::string comment();

 private:
  std::optional<wire::LoadNote> told_;
};

// A session of all blocks, from tokens. Each call computes what the session lacks: it may have the
// text's first rows already, from steps and fills, and has none after the loss of a device.
class SessionForward : public Forward {
 public:
  // Rows from `generated_from` on are generated ones.
  SessionForward(Cloud& cloud, ServedModel& model, SessionName name, Requester requester,
                 std::shared_ptr<LoadBeside> beside, size_t generated_from,
                 std::optional<PrefixRoot> root);

  // Like Forward::run. Throws HttpError 404 `session_unknown` if the session is gone.
  std::span<const float> run(const SequenceRows& rows) override;
  bool gives_top() const override { return shard().host_copy_is_slow(); }
  Spent spent() const override { return spent_; }
  uint32_t cached() const override { return cached_; }

 private:
  const Shard& shard() const { return model_.batcher().shard(); }
  void remember(const SequenceRows& rows);
  void run_in(Session& session, const SequenceRows& rows);
  PrefixCache::Taken take(Session& session, uint32_t at, uint32_t most);
  void forget_cached();
  void run_piece(Session& session, const SequenceRows& piece, float* out);

  Cloud& cloud_;
  ServedModel& model_;
  const SessionName name_;
  const Requester requester_;
  const std::shared_ptr<LoadBeside> beside_;
  const uint32_t generated_from_;
  std::optional<PrefixRoot> root_;
  SequenceHistory text_;  // all rows so far
  std::vector<float> out_;
  Spent spent_;
  uint32_t cached_ = 0;  // rows that the session had, or took from the prompt cache
};

}  // namespace split::cloud
