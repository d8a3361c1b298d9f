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
  std::string model, server, profile;  // profile: the server's
  Cut cut;                             // after moves, the last
  std::optional<bool> exact;           // moves change no bit; none: not checked
  // Whether the whole text is exact: its rows may have been rounded on the wire, too.
  std::optional<bool> is_exact() const {
    return counts.traffic.rows == DType::kF32 ? exact : false;
  }
  std::string device;                     // this machine's; empty: it computes nothing
  std::string edge_profile;               // this machine's, if it computes
  std::string cloud_stages, edge_stages;  // "embed, blocks 0-1"
  FetchCounts fetched;
  uint64_t load_peak_bytes = 0;  // peak of this process's memory until everything was loaded
  SplitCounts counts;
  SplitCounts first;       // the prompt's share: until the first token
  bool personal = false;   // the tail is fine-tuned here: no cloud has that text
  int layers = 0;          // the model's
  double head_blocks = 0;  // the head's multiplications, as a multiple of a block's
  double load_ms = 0, first_token_ms = 0;
  double waited_ms = 0;        // part of counts.ms spent waiting for a lost cloud
  double first_waited_ms = 0;  // part of that before the first token
  int max_tokens = 0;
  size_t prompt_tokens = 0, tokens = 0;
  // Prompt tokens that were computed; the others' rows came from an earlier text.
  size_t new_prompt_tokens() const {
    return prompt_tokens - std::min<size_t>(prompt_tokens, counts.kept_rows);
  }
  FinishReason finish_reason = FinishReason::kNone;
  uint64_t seed = 0;
  std::optional<Forecast> forecast;  // nullopt: too little was measured to plan
  std::optional<AnswerCost> cost;    // nullopt: the cloud names no prices

  // Sets the cut to where the last move led.
  void end_at_last_move() {
    if (!counts.moves.empty()) cut = counts.moves.back().to;
  }
  std::string_view device_word() const {
    return device.empty() ? std::string_view("none") : device;
  }
  std::string plan() const;       // one line: what runs where
  double after_first_ms() const;  // time of the tokens after the first, without waits for a lost
                                  // cloud
  // Milliseconds of the text's time that are neither the cloud's, the line's nor this machine's.
  double waiting_ms() const;
  // Tokens per second after the first token, which the prompt pays for; with one token, that one's
  // rate.
  double tokens_per_second() const;
  // The cloud's share of the text's work; none if unknown.
  std::optional<int> cloud_percent() const {
    return edge::cloud_percent(counts.work, layers, head_blocks);
  }
};

// A number of a receipt, told under its names.
struct Figure {
  std::string_view name;  // in JSON
  enum class Unit : uint8_t { kCount, kBytes, kMs, kTokensPerSecond, kPercent } unit;
  std::optional<double> value;   // nullopt: unknown
  std::string_view timing = {};  // in a Server-Timing header; empty: not there
};
// Returns all, in the order of JSON.
std::vector<Figure> figures(const Receipt& receipt);

// A few lines for a person, whose parts add up to their sums.
std::string to_text(const Receipt& receipt);
// Returns the text's own costs, for usage: {"cut","device","bytes_up" ...}.
std::string cost_json(const Receipt& receipt);

// Compares the forecast with the outcome: "cut 6 (asked): 31.2 ms a token foreseen, ...".
std::string forecast_words(const Forecast& forecast);

// {"model","cut","device","prompt_tokens","tokens","text","finish_reason","logprobs"?,"receipt"}
std::string to_json(const Receipt& receipt, std::span<const int32_t> prompt,
                    const Generated& generated, bool logprobs);

}  // namespace split::edge
