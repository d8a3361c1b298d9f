// Steps on the wire: rows of a sequence (step/rows.h) as JSON with their tokens, or as a query with
// a body of their hidden states. Written and read here alone. Input is checked, and a wrong field
// is Error(kInput) that names it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/resources/memory_budget.h"
#include "models/model.h"
#include "step/rows.h"
#include "step/texts.h"
#include "wire/protocol.h"
#include "wire/row_format.h"

namespace split::wire {

using Query = std::span<const std::pair<std::string, std::string>>;

// Received rows, with their memory.
class ReceivedRows {
 public:
  ReceivedRows() = default;
  ReceivedRows(ReceivedRows&&) = default;  // vectors keep their elements' addresses; there is no
                                           // copy
  ReceivedRows& operator=(ReceivedRows&&) = default;

  void own(std::vector<int32_t> tokens);
  void own(Matrix hidden);

  SequenceRows rows;

 private:
  std::vector<int32_t> tokens_;
  std::vector<float> hidden_;
};

// --- a session's step: past, phase and wanted rows; the session determines where it begins, and by
// default where it ends
struct StepFields {
  std::optional<Point> to = {};
  std::optional<int> can = {};  // the lowest cut from which this edge could go on
  // Computes rows that the session has, [past, past + count), again in place, so that all blocks
  // before `to` have them. The session knows their tokens, and none are sent.
  bool fill = false;
  uint32_t count = 0;
  // Digest of the sender's ids before these rows, and for a fill in them (SequenceHistory::digest):
  // the session's must be equal.
  std::optional<uint64_t> digest = {};
  bool again = false;        // the rows belonged to a session that was lost
  DType wire = DType::kF32;  // format of the answer's hidden states (wire/row_format.h)
};
struct StepRequest : StepFields {
  ReceivedRows received;
};
// Returns {"past","phase","rows","tokens"}, for a fill {"count","fill","past","rows"}, with "to"
// and "can" if given, "wire" unless f32, "digest" in 16 hex digits, and "again" if true.
std::string step_json(SequenceRows rows, StepFields fields = {});
// `memory` pays for the parsed JSON.
StepRequest parse_step(std::string_view json, const ModelConfig& config,
                       MemoryShare* memory = nullptr);
// Returns "past=0&phase=prompt&rows=all".
std::string step_query(const SequenceRows& rows);
// `body`: one frame "hidden", of at most a context's rows, which enter at the point `from`.
StepRequest parse_step(Query query, Bytes body, const ModelConfig& config, Point from = 0);
inline constexpr size_t kMaxStepTokens = 1 << 20;
// A feature of servers that read a digest.
inline constexpr std::string_view kDigestFeature = "digest";
// A feature of servers that read "again", in a step and beside a session's text.
inline constexpr std::string_view kAgainFeature = "again";

// --- a step without a session: a range and the wanted rows
struct ForwardRequest {
  ReceivedRows received;  // one text's, or several texts' one after the other
  // Rows of each text of a list; empty for a single text.
  std::vector<uint32_t> lengths;
  std::vector<uint32_t> seconds = {};  // the first rows of their second parts, of pairs
  int top = 0;                         // the likeliest tokens of each row of logits, if not 0
  bool pool =
      false;  // one embedding of each text (run/sentences.h); range.to is where its rows end
  std::optional<bool> normalize;  // an embedding's; nullopt: as the model does
  DType format = DType::kF32;     // format of the answer's tensor; q8_0 for hidden states alone

  // Returns the request as texts; `one` stores the length of a single text.
  TextRows texts(uint32_t& one) const;
};
// Returns {"rows","to","tokens"}; here and below with a "dtype" of the answer's hidden states
// unless f32.
std::string forward_json(const SequenceRows& rows, DType wire = DType::kF32);
std::string forward_query(const SequenceRows& rows, DType wire = DType::kF32);  // "from=3&rows=all"
// Returns {"to","tokens":[[...]]}; with `pool` {"normalize":false,"to":"pool","tokens"}.
std::string forward_json(const TextRows& texts, bool pool, DType wire = DType::kF32);
inline constexpr std::string_view kPool = "pool";
// Returns a prompt's ids. `special`: special tokens are read as such, else as text.
using Encode = std::function<std::vector<int32_t>(const std::string& prompt, bool special)>;
ForwardRequest parse_forward(std::string_view json, const ModelConfig& config, const Encode& encode,
                             MemoryShare* memory = nullptr);
ForwardRequest parse_forward(Query query, Bytes body, const ModelConfig& config);

// Reads a query's "from" and "to", by default from tokens and to the last point. With `pools`,
// "pool" is the point of pooling.
StageRange parse_range(Query query, const ModelConfig& config, bool pools = false);
std::string hidden_frame(const SequenceRows& rows, DType wire = DType::kF32);
// The tensor of a step's result: "logits" at the head, else "hidden".
std::string_view result_name(Point to);
inline constexpr std::string_view kEmbedding = "embedding";  // a pooled text's

}  // namespace split::wire
