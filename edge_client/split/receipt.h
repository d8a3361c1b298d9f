// A receipt: what a run did and what it cost, in words for a person and as one JSON object for a
// program.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/place/counts.h"
#include "edge_client/place/forecast.h"
#include "run/text/generate.h"

namespace split::edge {

struct Receipt {
  std::string model, server, profile;  // of the server
  std::string cut;                     // "2" or "cloud"; where it moved, the last
  std::optional<bool> exact;           // moves change no bit; none: nobody looked
  // The same of the whole text, whose rows may have been rounded on their way.
  std::optional<bool> is_exact() const {
    return counts.traffic.rows == DType::kF32 ? exact : false;
  }
  std::string device = "none";            // of this machine, when it computes
  std::string edge_profile;               // likewise
  std::string cloud_stages, edge_stages;  // "embed, blocks 0-1"
  FetchCounts fetched;
  uint64_t load_peak_bytes = 0;  // of this process's memory, until everything was loaded
  SplitCounts counts;
  SplitCounts first;       // until the first token: what the prompt took
  bool personal = false;   // of a tail of one's own: no cloud has that text
  int layers = 0;          // of the model
  double head_blocks = 0;  // as much as so many blocks its head multiplies
  double load_ms = 0, first_token_ms = 0;
  double waited_ms = 0;        // for a cloud that was lost, of counts.ms
  double first_waited_ms = 0;  // of that before the first token
  int max_tokens = 0;
  size_t prompt_tokens = 0, tokens = 0;
  // Those of the prompt that were computed; the others' rows were there from an earlier text.
  size_t new_prompt_tokens() const {
    return prompt_tokens - std::min<size_t>(prompt_tokens, counts.kept_rows);
  }
  std::string finish_reason;
  uint64_t seed = 0;
  std::optional<Forecast> forecast;  // none: nothing is known to plan with
  std::optional<AnswerCost> cost;    // none: the cloud names no prices

  // The text has ended where its moves led.
  void end_at_last_move() {
    if (counts.moves.empty()) return;
    const int last = counts.moves.back().to;
    cut = last == Move::kCloud ? "cloud" : std::to_string(last);
  }
  std::string plan() const;       // what runs where, in one line
  double after_first_ms() const;  // what the tokens after the first took, but for a lost cloud
  // Milliseconds of the text's time that are neither the cloud's, the line's nor this machine's.
  double waiting_ms() const;
  // The rate of the tokens after the first, which the prompt pays for; of the first, when there is
  // one.
  double tokens_per_second() const;
  // The cloud's part of the text's work; none where it is not known.
  std::optional<int> cloud_percent() const {
    return edge::cloud_percent(counts.work, layers, head_blocks);
  }
};

// A few lines for a person, whose parts add up to their sums.
std::string to_text(const Receipt& receipt);
// Returns what the text itself cost, for usage: {"cut","device","bytes_up" ...}.
std::string cost_json(const Receipt& receipt);

// Says what was foreseen and what came of it: "cut 6 (asked): 31.2 ms a token foreseen, ...".
std::string forecast_words(const Forecast& forecast);

// {"model","cut","device","prompt_tokens","tokens","text","finish_reason","logprobs"?,"receipt"}
std::string to_json(const Receipt& receipt, std::span<const int32_t> prompt,
                    const Generated& generated, bool logprobs);

}  // namespace split::edge
