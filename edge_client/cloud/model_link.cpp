#include "edge_client/cloud/model_link.h"

#include "edge_client/cloud/cloud_completion.h"
#include "wire/codes.h"
#include "wire/step.h"

namespace split::edge {

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
  if (!remote_->still_has(options_.info)) {
    throw model_changed(remote_->origin(), options_.info.id);
  }
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

std::optional<CloudHints> ModelLink::load() const {
  const auto& said = remote_->said_of_load();
  if (!said) return std::nullopt;
  return CloudHints{said->want, said->draft, said->cached};
}

FinishReason ModelLink::stream(const Stream& stream, const OnToken& on_token) {
  FinishReason ended = room_for_session(
      [&] { return stream_on_session(*remote_, options_.info, stream, on_token); });
  if (ended == FinishReason::kNone) expect_same_model();  // the text goes on elsewhere
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
