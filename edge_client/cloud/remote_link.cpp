#include "edge_client/cloud/remote_link.h"

#include "base/json.h"
#include "edge_client/cloud/cloud_completion.h"

namespace split::edge {

template <typename Call>
auto RemoteLink::room_for_session(const Call& call) {
  try {
    return call();
  } catch (const RemoteError& error) {
    if (error.code != "too_many_sessions" || !on_full_) throw;
    const std::vector<std::string> given_up = on_full_();
    if (given_up.empty()) throw;
    for (const std::string& session : given_up) remote_.close_session(session);
  }
  return call();
}

// Asks where it was not asked on the connection of the answer just now: a text of other weights or
// ids would go on as another model's.
void RemoteLink::expect_same_model() {
  if (!remote_.still_has(info_)) throw model_changed(remote_.origin(), info_.id);
}

void RemoteLink::open(const std::string& session, const StageRange& range) {
  room_for_session([&] { return remote_.open_session(session, {info_.id, range}); });
  expect_same_model();
}

std::vector<float> RemoteLink::step(const std::string& session, const SequenceRows& rows,
                                    Traffic& traffic) {
  const auto to = moves_ ? std::optional(rows.range.to) : std::nullopt;
  const auto can = moves_ ? can_ : std::nullopt;
  std::vector<float> out = remote_.step(session, rows, channels(), traffic, to, can, wire_).values;
  expect_same_model();
  return out;
}

std::vector<float> RemoteLink::fill(const std::string& session, const SequenceRows& rows,
                                    Traffic& traffic) {
  std::vector<float> out = remote_.fill(session, rows, channels(), traffic, wire_).values;
  expect_same_model();
  return out;
}

void RemoteLink::close(const std::string& session) noexcept {
  try {
    if (goodbye_) return goodbye_(session);
    Remote(remote_.origin(), Remote::kGoodbye, remote_.credentials()).close_session(session);
  } catch (const std::exception&) {  // the server forgets idle sessions by itself
  }
}

void RemoteLink::look() { remote_.look(info_.id); }

std::optional<CloudSays> RemoteLink::load() const {
  const auto& said = remote_.said_of_load();
  if (!said) return std::nullopt;
  return CloudSays{said->want, said->draft};
}

std::vector<float> RemoteLink::forward(const SequenceRows& rows, Traffic& traffic) {
  const bool logits = rows.range.to == Point::head();
  const uint32_t columns = logits ? static_cast<uint32_t>(config_.vocab) : channels();
  std::vector<float> out = remote_.forward(info_.id, rows, columns, traffic, wire_).values;
  expect_same_model();
  return out;
}

std::vector<float> RemoteLink::texts(const TextRows& texts, bool pool, uint32_t width,
                                     Traffic& traffic) {
  std::vector<float> out = remote_.texts(info_.id, texts, pool, width, traffic, wire_).values;
  expect_same_model();
  return out;
}

std::string RemoteLink::stream(const std::string& session, std::span<const int32_t> ids,
                               const GenerateOptions& options, const OnToken& on_token,
                               SplitCounts& counts) {
  std::string ended = room_for_session([&] {
    return stream_on_session(remote_, info_.id, session, ids, options, can_, on_token, counts);
  });
  if (ended.empty()) expect_same_model();  // it goes on elsewhere
  return ended;
}

Generated RemoteLink::complete(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                               const GenerateOptions& options, const OnText& on_text,
                               SplitCounts& counts) {
  Generated made = complete_on_cloud(remote_, info_.id, tokenizer, prompt, options, on_text, retry_,
                                     waiter_, static_cast<size_t>(config_.layers), counts);
  expect_same_model();
  return made;
}

void RemoteLink::warm() noexcept {
  try {
    remote_.ping();
  } catch (const Error&) {  // whoever asks next will see
  }
}

}  // namespace split::edge
