#include "edge_client/cloud/model_link.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/log.h"
#include "base/resources/clock.h"
#include "edge_client/cloud/cloud_completion.h"
#include "wire/codes.h"
#include "wire/step.h"

namespace split::edge {
namespace {

constexpr uint64_t kMostFrame = 64 << 10;  // bytes of a tensor beside its values

// A request for rows.
struct RowsRequest {
  std::string path, body;
  std::string_view type = wire::kJsonType;
};

RowsRequest request_of(const Send& send, const AskedModel& model) {
  const SequenceRows& rows = send.rows;
  RowsRequest request{wire::model_forward_path(path_segment(model.id)), {}};
  auto& [path, body, type] = request;
  if (!rows.hidden.empty()) {
    const bool step = send.call == Send::kStep;
    path = step ? cat(wire::session_forward_path(send.session), "?", wire::step_query(rows))
                : cat(path, "?", wire::forward_query(rows, model.wire));
    body = wire::hidden_frame(rows, model.wire);
    type = wire::kTensorType;
    return request;
  }
  switch (send.call) {
    case Send::kStep:
    case Send::kFill: {
      const bool fill = send.call == Send::kFill;
      wire::StepFields fields{.fill = fill, .count = rows.count(), .wire = model.wire};
      if (fill || model.moves) fields.to = rows.range.to;
      if (!fill && model.moves) fields.can = send.can;
      if (model.digests) fields.digest = send.digest;
      fields.again = model.again && send.again;
      path = wire::session_forward_path(send.session);
      body = wire::step_json(rows, fields);
      break;
    }
    case Send::kForward:
      body = wire::forward_json(rows, model.wire);
      break;
    default:
      body = wire::forward_json(send.texts, send.call == Send::kEmbed, model.wire);
  }
  return request;
}

}  // namespace

std::vector<float> Remote::ask(const Send& send, const AskedModel& model) {
  const auto start = Clock::now();
  size_t rows = send.rows.wanted_count();
  uint32_t columns = model.width(send.rows.range.to);
  std::string_view name = "hidden";
  uint64_t beside = kMostFrame;  // bytes
  bool rounds = rows > 0;
  switch (send.call) {
    case Send::kOpen:  // the cloud computes nothing
      ask("PUT", wire::session_path(send.session),
          wire::to_json(
              wire::SessionRequest{model.id, send.rows.range, cache_prompt_, cache_salt_}),
          wire::kJsonType, kMostJson);
      send.traffic->wire_ms += ms_since(start);
      return {};
    case Send::kClose:
      ask("DELETE", wire::session_path(send.session), {}, {}, kMostJson);
      return {};
    case Send::kLook:
      load_note_.reset();
      if (const auto now = load(model.id)) load_note_ = wire::LoadNote{.want = now->want};
      return {};
    case Send::kPing:
      try {
        ping();
      } catch (const Error&) {  // the next request will notice
      }
      return {};
    case Send::kStep:
    case Send::kFill:
      break;
    case Send::kForward:
      if (send.rows.range.to == Point::head()) columns = model.vocab;
      name = wire::result_name(send.rows.range.to);
      rounds = !send.rows.hidden.empty() || send.rows.range.to != Point::head();
      break;
    case Send::kTexts:
    case Send::kEmbed:
      rounds = send.call == Send::kTexts;
      rows = rounds ? send.texts.wanted_count() : send.texts.lengths.size();
      columns = send.width;
      name = rounds ? wire::result_name(send.texts.range.to) : wire::kEmbedding;
      beside += send.texts.lengths.size() * sizeof(uint32_t);
      break;
  }
  Traffic none;
  Traffic& traffic = send.traffic == nullptr ? none : *send.traffic;
  if (rounds && model.wire != DType::kF32) traffic.rows = model.wire;
  const RowsRequest request = request_of(send, model);
  const http::Headers headers = traced({{"Accept", std::string(wire::kTensorType)}});
  const auto sent = Clock::now();
  http::Reply reply;
  try {
    reply = client_.send({.method = "POST",
                          .path = request.path,
                          .body = request.body,
                          .content_type = request.type,
                          .headers = headers,
                          .max_bytes = uint64_t{rows} * columns * sizeof(float) + beside});
  } catch (const http::NoReply& error) {
    throw no_answer(error);
  }
  const double all = ms_since(sent);
  const double cloud = std::min(all, server_ms(reply.headers.get("Server-Timing")));
  traffic += {request.body.size(), reply.body.size(), cloud, all - cloud};
  expect_ok(reply, request.path);
  if (send.call == Send::kStep || send.call == Send::kFill) {
    const auto load = reply.headers.get(wire::kLoadHeader);
    load_note_ = load ? wire::parse_load_note(*load) : std::nullopt;
    if (const auto cached = reply.headers.get(wire::kCachedHeader); cached && load_note_) {
      const auto known = parse_u64(*cached, 0, send.rows.count());
      load_note_->cached = static_cast<uint32_t>(known.value_or(0));
    }
    if (rows == 0) return {};
  }
  return tensor(reply, name, rows, columns);
}

template <typename Call>
auto ModelLink::room_for_session(const Call& call) {
  try {
    return call();
  } catch (const RemoteError& error) {
    if (error.code != wire::codes::kTooManySessions || !options_.give_up) throw;
    const std::vector<std::string> given_up = options_.give_up();
    if (given_up.empty()) throw;
    for (const std::string& session : given_up) remote_->ask({Send::kClose, session}, {});
  }
  return call();
}

// Compares the model, unless this connection did just now: with other weights or ids a text would
// go on as another model's.
void ModelLink::expect_same_model() {
  const Remote::Has has = remote_->still_has(options_.info);
  if (has == Remote::Has::kAnother) throw model_changed(remote_->origin(), options_.info.id);
  if (has == Remote::Has::kSame || !options_.other_bits) return;
  if (options_.other_bits->exchange(true)) return;
  log_warning(cat("[server] ", remote_->origin(), ": its rows have other bits than '",
                  options_.info.bits, "' from now on: a move may change a text"));
}

void ModelLink::close(const Send& send) noexcept {
  try {
    if (options_.last && remote_->leave(send.session)) return;
    if (options_.goodbye) return options_.goodbye(send.session);
    Remote(remote_->origin(), Remote::kGoodbye, remote_->credentials()).ask(send, {});
  } catch (const std::exception&) {  // the server forgets idle sessions by itself
  }
}

std::vector<float> ModelLink::ask(const Send& send) {
  if (send.call == Send::kClose) {
    close(send);
    return {};
  }
  const AskedModel model{.id = options_.info.id,
                         .channels = static_cast<uint32_t>(options_.config.channels),
                         .vocab = static_cast<uint32_t>(options_.config.vocab),
                         .row_parts = options_.config.row_parts,
                         .wire = options_.wire,
                         .moves = options_.moves,
                         .digests = options_.info.knows(wire::kDigestFeature),
                         .again = options_.info.knows(wire::kAgainFeature)};
  const bool begins = send.call == Send::kOpen;
  std::vector<float> values = begins ? room_for_session([&] { return remote_->ask(send, model); })
                                     : remote_->ask(send, model);
  if (send.call != Send::kLook && send.call != Send::kPing) expect_same_model();
  return values;
}

FinishReason ModelLink::stream(const Stream& stream, const OnToken& on_token) {
  FinishReason ended = room_for_session(
      [&] { return stream_on_session(*remote_, options_.info, stream, on_token); });
  const bool goes_on = ended == FinishReason::kNone;  // the text, elsewhere
  if (goes_on || (load() && !load()->bits.empty())) expect_same_model();
  return ended;
}

Generated ModelLink::complete(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                              const GenerateOptions& options, const OnText& on_text,
                              SplitCounts& counts) {
  Generated made = complete_on_cloud(*remote_, options_.info, tokenizer, prompt, options, on_text,
                                     options_.retry, options_.waiter,
                                     static_cast<size_t>(options_.config.layers), counts);
  expect_same_model();
  return made;
}

}  // namespace split::edge
