// The cloud as a split text sees it: sessions that hold rows of a sequence, and computations
// without one. An interface, so that the logic of this folder needs no server: cloud/model_link.h
// asks one, tests answer themselves. Every answer has the rows that were asked for and finite
// values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "edge_client/place/counts.h"
#include "run/text/generate.h"
#include "step/rows.h"
#include "step/texts.h"
#include "wire/load_note.h"

namespace split::edge {

// No answer, a refusal, or an answer that makes no sense.
class RemoteError : public Error {
 public:
  RemoteError(const std::string& message, int status, std::string code)
      : Error(ErrorKind::kRemote, message), status(status), code(std::move(code)) {}

  // Whether the same request may succeed later: no answer, a server that is busy or restarting, or
  // a request that it got with other bytes.
  bool transient() const;
  // Whether the cloud, or its state of a text, is gone.
  bool loses() const;

  int status;        // 0: no answer; 200: an answer that makes no sense
  std::string code;  // machine-readable: "session_unknown"
  std::string said;  // the server's own message, one line without control characters; empty: none
  std::optional<unsigned> retry_after;  // seconds
  std::optional<uint32_t> have;         // rows, with "depth_mismatch", that the blocks have
};

// A request to the cloud.
struct Send {
  enum Call : uint8_t {
    kOpen,     // opens an empty session for the stages of `rows`, or uses the one there is
    kStep,     // a session's step: hidden states before rows.range.to, [wanted rows, C]
    kFill,     // rows that the session has, for blocks that lack them; results as kStep's
    kForward,  // no session: hidden states at the end of the rows' range, [wanted rows, C]; logits
               // at the head
    kTexts,    // whole texts in one trip: hidden states at the end of the range, [rows, width]
    kEmbed,    // one embedding of each such text, [texts, width], not normalised
    kLook,     // asks for the load alone
    kPing,     // opens the connection; best effort, never throws
    kClose,    // ends the session; best effort, never throws
  };
  Call call;
  std::string session = {};
  SequenceRows rows = {};
  Traffic* traffic = nullptr;   // the cost is added, also on failure
  std::optional<int> can = {};  // kStep: the lowest cut from which the text could go on here
  // Digest of the ids before these rows, and for kFill in them: the server refuses a session that
  // has other ids, kept by another server from before.
  std::optional<uint64_t> digest = {};
  bool again = false;  // kStep: these rows belonged to a session that was lost
  TextRows texts = {};
  uint32_t width = 0;
};

// A text of the whole model that the cloud generates on a session, which is opened if need be. The
// last options.generated of the ids were generated before.
struct Stream {
  std::string session;
  std::vector<int32_t> ids;
  GenerateOptions options;
  SplitCounts* counts;
  std::optional<int> can = {};  // the lowest cut from which the text could go on here
  bool again = false;           // its rows belonged to a session that was lost
};

// Serves one model; one thread at a time. Every call throws RemoteError.
class CloudLink {
 public:
  virtual ~CloudLink() = default;

  virtual std::vector<float> ask(const Send& send) = 0;
  // Calls on_token with each token until it returns false. Returns the finish reason; kNone if
  // on_token ended it. Tries once.
  using OnToken = std::function<bool(const ScoredToken& token)>;
  virtual FinishReason stream(const Stream& stream, const OnToken& on_token) = 0;
  // Generates a text as generate() does, all of it on the cloud. A retry does not give on_text what
  // it has had.
  virtual Generated complete(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                             const GenerateOptions& options, const OnText& on_text,
                             SplitCounts& counts) = 0;
  // The load that the cloud reported last, in a step, a stream or a look; none if it reported none.
  virtual std::optional<wire::LoadNote> load() const { return {}; }
  // Ends pending calls for good. Any thread.
  virtual void cancel() noexcept {}
};

}  // namespace split::edge
