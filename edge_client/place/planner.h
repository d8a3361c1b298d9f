// Prices every place where an answer can run: all on the cloud, or a cut of 0..L blocks. Knows no
// server, device or clock: callers measure, and pass the figures.
//
// A token at a cut costs a round trip, the bytes of one hidden state, and the work of both sides. A
// streamed token costs the cloud's work alone, or the time to send its event if that is longer, for
// no token waits for a request. Work is linear in blocks; the final norm and the head count as the
// head. With steps that check guesses, a token costs its share of a step.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/resources/clock.h"
#include "edge_client/place/cut.h"
#include "edge_client/place/why.h"
#include "tensor/shape.h"

namespace split::edge {

// Milliseconds of work, measured on one side.
struct Speed {
  double block_ms = 0;       // per block, in a step of one row
  double block_row_ms = 0;   // per block, for each further row
  double head_ms = 0;        // the norm and the head of one row
  double head_row_ms = 0;    // for each further row
  double prompt_row_ms = 0;  // per block, for a row of a long prompt
  double step_ms = 0;  // overhead of a requested step, which waits for the step that runs; a stream
                       // is in every step, and does not wait
  double busy_step_ms = 0;  // interval of consecutive steps: the least time of a streamed token
};

struct Network {
  double rtt_ms = 0;                  // the shortest round trip
  double down_mbit = 0, up_mbit = 0;  // 0: not measured, and bytes take no time
  double step_ms = 0.1;  // a step's further overhead, until it is measured: requests read and
                         // written
};

// Prices of the cloud in dollars.
struct Prices {
  double hour = 0;       // an hour of its machine
  double egress_gb = 0;  // 10^9 bytes sent from it
};

// A cloud's report, as far as it measures speeds, has prices and asks for a cut.
struct CloudLoad {
  std::optional<Speed> speed;
  std::optional<Prices> prices;
  std::optional<int> want;
};

// Rows of a mean step that checks guesses, and the tokens that it yields.
struct Drafted {
  double rows = 1, tokens = 1;
};

// A correction learnt from answers: a factor on measured work, and a constant for each token.
struct Learnt {
  double factor = 1, extra_ms = 0;

  // Never below a tenth of what was measured; zero stays zero.
  double of(double measured_ms) const;
  // Moves towards the measured outcome: by most of the difference the first time, then by less, for
  // an answer may have been disturbed. Work of less than a millisecond corrects the constant, more
  // work the factor. A slowdown fades as a whole, whatever work shows that it is over.
  void learn(double measured_ms, double taken_ms);
  // Reduces a slowdown after an answer without this work: it may be over.
  void fade();
};
// One for each part of a token at a cut, and one for a whole streamed token. This machine is as
// slowed by a part of the model as by all of it.
struct Correction {
  Learnt edge, wire, cloud;
  Learnt stream;
};

// Facts of a server, a model there and this machine, for plans; absent: not measured.
struct PlanFacts {
  std::optional<Network> network;
  std::optional<Speed> edge, cloud;
  std::optional<Prices> prices;
  Correction correction;
  Drafted split, local;  // steps at a cut; a text that runs here alone
};

// The input of a plan: the model's shape, the text's request, and the facts.
struct PlanInput : PlanFacts {
  int layers = 0;
  int64_t channels = 0;
  std::vector<int64_t> row_widths;    // floats of a row at each cut; empty: its channels
  std::vector<uint64_t> state_bytes;  // bytes of a text's states here at each cut; empty: none
  double head_blocks = 0;             // the head's multiplications, as a multiple of a block's
  DType wire = DType::kF32;           // format of hidden states on the wire
  uint32_t prompt_tokens = 32;
  // Bytes of weights that each cut 0..layers needs here, and of those still missing.
  std::vector<uint64_t> download_bytes, missing_bytes;
  uint64_t most_bytes = UINT64_MAX;  // weights that fit this machine
  int lowest = 0;                    // lowest cut whose weights are here or may come
  Cut highest = Cut::cloud();        // highest cut allowed
  std::optional<int> want;           // the cloud asks for this cut or a lower one
  bool drafts = false;               // steps may check guesses
  bool head_on_cloud = false;        // for texts at a cut, which then take another trip
  uint64_t logits_bytes = 0;         // logits of a row from there

  // Sets the facts; without `drafts` no step checks guesses.
  void know(const PlanFacts& facts, bool drafts) {
    static_cast<PlanFacts&>(*this) = facts;
    this->drafts = drafts;
    if (!drafts) split = local = {};
  }
  uint64_t row_bytes(int cut) const {
    const int64_t width = row_widths.empty() ? channels : row_widths.at(static_cast<size_t>(cut));
    return tensor_bytes(wire, {1, width}).value_or(0);
  }
};

struct Place {
  Cut cut;
  bool fits = true;  // into this machine's memory
  // Costs of one token once the stages are here; none: something was not measured.
  std::optional<double> first_token_ms, token_ms, cloud_ms;
  std::optional<double> wire_ms, edge_ms;  // parts of token_ms at a cut, beside cloud_ms
  uint64_t download_bytes = 0, missing_bytes = 0;
  uint64_t bytes_per_token = 0;  // sent by the cloud
  std::optional<double> dollars_per_million;
};

// Whether the place has the figures that a pick compares.
bool can_be_picked(const Place& place);
// Whether a move for speed is worth it: tokens take a tenth less.
bool is_better(double ms, double than_ms);

// Returns the cloud, and then the cuts 0..layers.
std::vector<Place> price_places(const PlanInput& input);

enum class Goal : uint8_t { kFast, kOffload };

struct Pick {
  size_t place = 0;  // among price_places()
  Why why = Why::kFastest;
};

// fast: least time of a token, with the first one's spread over 64. offload: least work for the
// cloud at `pace` tokens/s or more, else as fast. Skips places that do not fit or have no price.
// Without any price, the cloud.
Pick pick_place(std::span<const Place> places, const PlanInput& input, Goal goal, double pace);

// Whether texts begin at this cut once its weights are here, where no plan says otherwise.
inline bool begins_there(Goal goal, int cut) { return cut == 0 || goal == Goal::kOffload; }

// The cloud's share of a token's work there, in percent.
std::optional<int> cloud_percent(const Place& place, const PlanInput& input);

// Milliseconds in a plan's table and words: "2.9 ms".
std::string plan_ms(double ms);
// "27.4 ms", "1.7 s"
std::string plan_time(double ms);
// The fastest cut between all on the cloud and all here; null: none has a price.
const Place* quickest_cut(std::span<const Place> places);
// Time of a text of 64 tokens, at a place that can be picked.
double text_ms(const Place& place);
// "all on the cloud: 1.9 ms a token; the quickest cut, 12: 32.1 ms; all here: 2.9 ms after 208 MB
// (33 s)"
std::string plan_words(std::span<const Place> places, const PlanInput& input);

// Tokens after which a cut's savings on the cloud have paid for its download; none: never at these
// prices.
std::optional<double> break_even_tokens(const Place& all_cloud, const Place& place,
                                        const Prices& prices);

// Changes the place only for one that is 10 % better, at most every 3 s.
class SteadyPick {
 public:
  // Returns the place to be at now.
  size_t update(std::span<const Place> places, const Pick& pick, Clock::time_point now);

 private:
  std::optional<size_t> at_;
  Clock::time_point changed_;
};

}  // namespace split::edge
