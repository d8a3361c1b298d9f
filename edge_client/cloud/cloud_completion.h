// --cut cloud: the whole text from the server's completions, as generate() would give it: ids are
// decoded here, so that bytes, stop strings and output are the same.
#pragma once

#include "base/json.h"
#include "edge_client/cloud/remote.h"
#include "edge_client/drive/split_text.h"
#include "edge_client/split/cloud_link.h"
#include "edge_client/split/retry.h"
#include "run/text/generate.h"

namespace split::edge {

// Like generate(). After a lost connection it asks again with the same seed; on_text does not get
// tokens twice. Throws RemoteError.
Generated complete_on_cloud(Remote& remote, const wire::ModelInfo& model,
                            const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                            const GenerateOptions& options, const OnText& on_text,
                            const RetryOptions& retry, Waiter& waiter, size_t layers,
                            SplitCounts& counts);

// Begins a text on a session with the prompt's own words, a completion's "prompt" or a chat's
// "messages" with their options, which the server tokenises: the model is not known here yet. Ends
// with the stream, or when `ready` returns true; then the text goes on as any other. Tries once.
// max_tokens below 0: the server's maximum. Throws RemoteError.
void open_on_cloud(Remote& remote, const std::string& model, const Json& words,
                   GenerateOptions options, const std::function<bool()>& ready,
                   const OnText& on_text, EarlyText& opened, SplitCounts& counts);

// Streams as CloudLink::stream does.
FinishReason stream_on_session(Remote& remote, const wire::ModelInfo& model, const Stream& asked,
                               const CloudLink::OnToken& on_token);

}  // namespace split::edge
