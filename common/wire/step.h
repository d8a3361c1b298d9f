// Steps on the wire: rows of a sequence (step/rows.h) as JSON with their tokens, or as a query
// beside a body of their hidden states. Written and read here alone. What comes from outside is
// checked, and a wrong field is Error(kInput) that names it.
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

// Rows that were read, with the memory that they lie in.
class ReceivedRows {
 public:
  ReceivedRows() = default;
  ReceivedRows(ReceivedRows&&) = default;  // vectors take their elements along; there is no copy
  ReceivedRows& operator=(ReceivedRows&&) = default;

  void own(std::vector<int32_t> tokens);
  void own(Matrix hidden);

  SequenceRows rows;

 private:
  std::vector<int32_t> tokens_;
  std::vector<float> hidden_;
};

// --- a session's step: past, phase and which rows; from where is the session's, and how far too
// unless it says so
struct StepRequest {
  ReceivedRows received;
  std::optional<Point> to;
  std::optional<int> can;  // the lowest cut that this edge could go on from
  // Rows that the session has, [past, past + count), are computed again in place, so that all
  // blocks before `to` have them: it knows their tokens, and none are sent.
  bool fill = false;
  uint32_t count = 0;
  // It names the ids that the sender has before these rows, in a fill's case in these too
  // (SequenceHistory::digest): the session's are to be the same.
  std::optional<uint64_t> digest;
  bool again = false;        // these rows were another session's, which was lost
  DType wire = DType::kF32;  // of the answer's hidden states (wire/row_format.h)
};
// {"past","phase","rows","tokens"}, "to" where that is not the session's, "can", "wire" where that
// is not f32, "digest" in 16 hex digits, and "again" where that is so.
std::string step_json(const SequenceRows& rows, std::optional<Point> to = {},
                      std::optional<int> can = {}, DType wire = DType::kF32,
                      std::optional<uint64_t> digest = {}, bool again = false);
// {"count","fill","past","rows","to"}, "wire" and "digest" likewise.
std::string fill_json(uint32_t past, uint32_t count, Point to, const Wanted& wanted,
                      DType wire = DType::kF32, std::optional<uint64_t> digest = {});
// `memory` pays for the parsed JSON.
StepRequest parse_step(std::string_view json, const ModelConfig& config,
                       MemoryShare* memory = nullptr);
// `body`: one frame "hidden", at most a context of rows.
StepRequest parse_step(Query query, Bytes body, const ModelConfig& config);
inline constexpr size_t kMaxStepTokens = 1 << 20;
// Stands among the features of a server that reads a digest.
inline constexpr std::string_view kDigestFeature = "digest";
// Stands there where "again" is read too, in a step and beside a session's text.
inline constexpr std::string_view kAgainFeature = "again";

// --- a step without a session: a range and which rows
struct ForwardRequest {
  ReceivedRows received;  // of one text, or those of several one after the other
  // Rows of each text of a list; empty where there is one text that is no list.
  std::vector<uint32_t> lengths;
  std::vector<uint32_t> seconds = {};  // the first rows of their second parts, of pairs
  int top = 0;                         // the likeliest tokens of each row of logits, if not 0
  bool pool =
      false;  // one embedding of each text (run/sentences.h); range.to is where its rows end
  std::optional<bool> normalize;  // of an embedding; else as the model has it
  DType format = DType::kF32;     // of the answer's tensor; q8_0 of hidden states alone

  // All of it as texts; `one` is where a text that is no list keeps its length.
  TextRows texts(uint32_t& one) const;
};
// {"rows","to","tokens"}; here and below, hidden states of the answer that are not to be f32 have
// their "dtype".
std::string forward_json(const SequenceRows& rows, DType wire = DType::kF32);
std::string forward_query(const SequenceRows& rows, DType wire = DType::kF32);  // "from=3&rows=all"
// {"to","tokens":[[...]]}; with `pool` {"normalize":false,"to":"pool","tokens"}
std::string forward_json(const TextRows& texts, bool pool, DType wire = DType::kF32);
inline constexpr std::string_view kPool = "pool";
// Ids of a prompt, whose special tokens are read as such or as text.
using Encode = std::function<std::vector<int32_t>(const std::string& prompt, bool special)>;
ForwardRequest parse_forward(std::string_view json, const ModelConfig& config, const Encode& encode,
                             MemoryShare* memory = nullptr);
ForwardRequest parse_forward(Query query, Bytes body, const ModelConfig& config);

// A query's "from" and "to": from tokens and to the last point without them.
// With `pools`, "pool" is where pooled rows end.
StageRange parse_range(Query query, const ModelConfig& config, bool pools = false);
std::string hidden_frame(const SequenceRows& rows, DType wire = DType::kF32);
// The tensor of a step's result: "logits" at the head, else "hidden".
std::string_view result_name(Point to);
inline constexpr std::string_view kEmbedding = "embedding";  // of a text that is pooled

}  // namespace split::wire
