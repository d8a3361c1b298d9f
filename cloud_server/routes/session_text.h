// A text that the whole model makes on a session of a client's, which has it for one step at a
// time: fills run between two of them, and what was computed stays when the text ends.
#pragma once

#include "cloud_server/state/cloud.h"
#include "run/forward.h"

namespace split::cloud {

// News of a text's reader, and of the load, that go beside the text.
struct LoadBeside {
  std::optional<int> can;
  bool again = false;  // its first rows were another session's
  wire::LoadNote note;

  // A comment, where a reader has something else to do than at the last one; or empty.
  std::string comment();

 private:
  std::optional<wire::LoadNote> told_;
};

// A session of all blocks, from tokens. Each call computes what the session lacks: it may have the
// text's first rows already, from steps and fills, and has none where a device was lost.
class SessionForward : public Forward {
 public:
  // Rows from `generated_from` on are generated ones.
  SessionForward(Cloud& cloud, ServedModel& model, SessionName name, Requester requester,
                 std::shared_ptr<LoadBeside> beside, size_t generated_from,
                 std::optional<PrefixRoot> root);

  // As Forward. Throws HttpError 404 `session_unknown` where the session has gone.
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
  uint32_t cached_ = 0;  // that the session had, or took
};

}  // namespace split::cloud
