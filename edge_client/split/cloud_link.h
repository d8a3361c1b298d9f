// The cloud as a split text sees it: sessions that hold rows of a sequence, and what it computes
// without one. The interface alone, so that what is decided here needs no server:
// cloud/model_link.h asks one, tests answer themselves. Every answer has the rows that were asked
// for and finite values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "edge_client/place/counts.h"
#include "run/text/generate.h"
#include "step/rows.h"
#include "step/texts.h"

namespace split::edge {

// No answer, a refusal, or an answer that makes no sense.
class RemoteError : public Error {
 public:
  RemoteError(const std::string& message, int status, std::string code)
      : Error(ErrorKind::kRemote, message), status(status), code(std::move(code)) {}

  // Whether the same request may succeed later: no answer, a server that is busy or restarting, or
  // a request that it got with other bytes.
  bool transient() const;
  // Whether the cloud, or what it had of a text, is gone.
  bool loses() const;

  int status;                           // 0: no answer; 200: one that makes no sense
  std::string code;                     // for programs: "session_unknown"
  std::string said;                     // the server's own words, one tame line; empty: none
  std::optional<unsigned> retry_after;  // seconds
  std::optional<uint32_t> have;         // of "depth_mismatch": rows that the blocks have
};

// A request, and what its answer is.
struct Send {
  enum Call : uint8_t {
    kOpen,     // of a session without rows for the stages of `rows`, or as it is
    kStep,     // of the session: what leaves the blocks before rows.range.to, [wanted rows, C]
    kFill,     // of rows that the session has, in place, for blocks that lack them; as kStep
    kForward,  // without a session: what leaves the rows' range, [wanted rows, C], at the head V
    kTexts,    // whole texts in one trip: their rows where the range ends, [rows, width]
    kEmbed,    // of these, an embedding of each, [texts, width], not scaled at the end
    kLook,     // the cloud's load alone
    kPing,     // nothing: the connection is open then, if that can be; throws nothing
    kClose,    // the session ends, if that can be said in a moment; throws nothing
  };
  Call call;
  std::string session = {};
  SequenceRows rows = {};
  Traffic* traffic = nullptr;   // its cost, also where it fails
  std::optional<int> can = {};  // of kStep: the lowest cut from which the text could go on here
  // It names the ids that the text has before these rows, for kFill in them too: a session that has
  // other ones, which another server kept from before, is refused.
  std::optional<uint64_t> digest = {};
  bool again = false;  // of kStep: these rows were another session's, which was lost
  TextRows texts = {};
  uint32_t width = 0;
};

// The cloud goes on with a text of the whole model on a session, which is opened if need be: the
// last options.generated of the ids were generated before.
struct Stream {
  std::string session;
  std::vector<int32_t> ids;
  GenerateOptions options;
  SplitCounts* counts;
  std::optional<int> can = {};  // the lowest cut from which the text could go on here
  bool again = false;           // its rows were another session's, which was lost
};

// Serves one model; one thread at a time. Every call throws RemoteError.
class CloudLink {
 public:
  virtual ~CloudLink() = default;

  virtual std::vector<float> ask(const Send& send) = 0;
  // Calls on_token with each token; false ends it, and then nothing is returned, else the finish
  // reason. One try.
  using OnToken = std::function<bool(const ScoredToken& token)>;
  virtual std::string stream(const Stream& stream, const OnToken& on_token) = 0;
  // Generates a text as generate() does, all of it there. What on_text has had is not given again
  // after a retry.
  virtual Generated complete(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                             const GenerateOptions& options, const OnText& on_text,
                             SplitCounts& counts) = 0;
  // The cloud's last note of its load, of an answer to a step, of the stream so far or of a look;
  // none of one that does not say.
  virtual std::optional<CloudHints> load() const { return {}; }
  // Ends what runs, for good. Any thread.
  virtual void cancel() noexcept {}
};

}  // namespace split::edge
