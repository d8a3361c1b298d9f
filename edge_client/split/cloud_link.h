// The cloud as a split text sees it: sessions that hold rows of a sequence, and what it computes
// without one. The interface alone, so that what is decided here needs no server:
// cloud/remote_link.h asks one, tests answer themselves. Every answer has the rows that were asked
// for and finite values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "edge_client/split/counts.h"
#include "run/text/generate.h"
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

// Serves one model; one thread at a time. Every call throws RemoteError.
class CloudLink {
 public:
  virtual ~CloudLink() = default;

  // Opens a session without rows for these stages, or finds it as it is.
  virtual void open(const std::string& session, const StageRange& range) = 0;
  // A step of the session: what leaves the blocks before rows.range.to, [wanted rows, C], of all
  // tokens, the last or none.
  virtual std::vector<float> step(const std::string& session, const SequenceRows& rows,
                                  Traffic& traffic) = 0;
  // The same of rows that the session has, in place: for blocks that lack them.
  virtual std::vector<float> fill(const std::string& session, const SequenceRows& rows,
                                  Traffic& traffic) = 0;
  // Ends the session there, if that can be said in a moment.
  virtual void close(const std::string& session) noexcept = 0;

  // A step without a session: what leaves the rows' range, [wanted rows, C] or, at the head, of V.
  virtual std::vector<float> forward(const SequenceRows& rows, Traffic& traffic) = 0;
  // Whole texts in one trip: their rows where the range ends, one after the other, [rows, width];
  // or with `pool` an embedding of each, [texts, width], not scaled at the end.
  virtual std::vector<float> texts(const TextRows& /*texts*/, bool /*pool*/, uint32_t /*width*/,
                                   Traffic& /*traffic*/) {
    throw RemoteError("[edge] this cloud takes no lists of texts", 200, "");
  }
  // Goes on with a text of the whole model on a session, which is opened if need be: the prompt's
  // last options.generated ids were generated before. Calls on_token with each further token; false
  // ends it, and then nothing is returned, else the finish reason. One try.
  using OnToken = std::function<bool(const ScoredToken& token)>;
  virtual std::string stream(const std::string& /*session*/, std::span<const int32_t> /*ids*/,
                             const GenerateOptions& /*options*/, const OnToken& /*on_token*/,
                             SplitCounts& /*counts*/) {
    throw RemoteError("[edge] texts of this cloud are on no session", 200, "");
  }
  // As generate(), all of it there. What on_text has had is not given again after a retry.
  virtual Generated complete(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                             const GenerateOptions& options, const OnText& on_text,
                             SplitCounts& counts) = 0;
  // Steps and streams say from now on that the text could go on here from this cut on, if there is
  // one.
  virtual void offer(std::optional<int> /*can*/) {}
  // Asks the cloud for nothing but its load.
  virtual void look() {}
  // The cloud's last note of its load, of an answer to a step, of the stream so far or of a look;
  // none of one that does not say.
  virtual std::optional<CloudSays> load() const { return {}; }

  // Opens the connection that the next call wants, as far as that can be done.
  virtual void warm() noexcept {}
  // Ends what runs, for good. Any thread.
  virtual void cancel() noexcept {}
};

}  // namespace split::edge
