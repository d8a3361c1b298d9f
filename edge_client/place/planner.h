// The planner prices every place that an answer can run at: all on the cloud, or a cut of 0..L
// blocks. It knows no server, device or clock: callers measure, and hand over what they measured.
//
// A token at a cut costs a round trip, the bytes of one hidden state, and the work of both sides. A
// stream from the cloud costs the cloud's work alone, or its events' way where that is slower, for
// its tokens follow each other without being asked for. Work is linear in blocks; the final norm
// and the head count as the head. Where steps check guesses, a token costs its share of a step.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/resources/clock.h"
#include "edge_client/place/why.h"
#include "tensor/shape.h"

namespace split::edge {

// Milliseconds of one side's work, measured there.
struct Speed {
  double block_ms = 0;       // a step of one row, each block
  double block_row_ms = 0;   // each further row of that step
  double head_ms = 0;        // the norm and the head of one row
  double head_row_ms = 0;    // each further row of that step
  double prompt_row_ms = 0;  // a row of a long prompt, each block
  double step_ms = 0;  // beside the blocks and head of a step that somebody asked for: it waits
                       // for the step that runs. A stream is in each step, and does not.
  double busy_step_ms = 0;  // of steps that follow each other: a stream's token takes no less
};

struct Network {
  double rtt_ms = 0;                  // the shortest round trip
  double down_mbit = 0, up_mbit = 0;  // 0: not measured; no time is counted for bytes then
  double step_ms = 0.1;  // of a step beside that, until it is measured: requests read and written
};

// Dollars that the cloud's time and bytes cost.
struct Prices {
  double hour = 0;       // of the cloud's machine
  double egress_gb = 0;  // per 10^9 bytes that leave it
};

// A cloud's own word: as far as it has measured, and as far as it names prices and a wish.
struct CloudLoad {
  std::optional<Speed> speed;
  std::optional<Prices> prices;
  std::optional<int> want;
};

// The rows of a step that checks guesses, and the tokens that it gives.
struct Drafted {
  double rows = 1, tokens = 1;
};

// A correction that answers taught: a factor, and what comes to each token whatever its work is.
struct Learnt {
  double factor = 1, extra_ms = 0;

  // Never below a tenth of what was measured; no work stays none.
  double of(double measured_ms) const;
  // Moves towards what was taken where so much had been measured: by most of it the first time,
  // then by less, for an answer may have been disturbed. Work of less than a millisecond teaches
  // what is extra, more work the factor. What made work slower goes as a whole, whatever work says
  // that it is gone.
  void learn(double measured_ms, double taken_ms);
  // An answer had nothing to say of it: what made work slower may be gone.
  void fade();
};
// The parts of a token at a cut have one each; a stream's token is seen whole. This machine is as
// busy with a part of the model as with all of it.
struct Correction {
  Learnt edge, wire, cloud;
  Learnt stream;
};

// All that is known of a server, a model there and this machine, for plans. What nobody has
// measured is absent.
struct PlanFacts {
  std::optional<Network> network;
  std::optional<Speed> edge, cloud;
  std::optional<Prices> prices;
  Correction correction;
  Drafted split, local;  // steps at a cut, and of a text that runs here alone
};

// The input of a plan: the model's shape, the text's wishes, and the facts.
struct PlanInput : PlanFacts {
  int layers = 0;
  int64_t channels = 0;
  double head_blocks = 0;    // the head's multiplications, in those of a block
  DType wire = DType::kF32;  // of hidden states on their way
  uint32_t prompt_tokens = 32;
  // Bytes of the weights that each cut 0..layers needs here, and of those that are not here yet.
  std::vector<uint64_t> download_bytes, missing_bytes;
  uint64_t most_bytes = UINT64_MAX;  // that this machine holds
  int lowest = 0;                    // cut that it has, or may have, the weights for
  std::optional<int> highest;        // cut that a text may have; none: any, and the cloud
  std::optional<int> want;           // the cloud asks for this cut or a lower one
  bool drafts = false;               // steps may check guesses
  bool head_on_cloud = false;        // of a text at a cut, which then takes another trip
  uint64_t logits_bytes = 0;         // of a row that comes from there

  // Takes the facts; without `drafts` no step checks guesses.
  void know(const PlanFacts& facts, bool drafts) {
    static_cast<PlanFacts&>(*this) = facts;
    this->drafts = drafts;
    if (!drafts) split = local = {};
  }
  uint64_t row_bytes() const { return tensor_bytes(wire, {1, channels}).value_or(0); }
};

struct Place {
  std::optional<int> cut;  // none: all on the cloud
  bool fits = true;        // in this machine
  // Costs of one token, once the stages are there; none where that needs what was not measured.
  std::optional<double> first_token_ms, token_ms, cloud_ms;
  std::optional<double> wire_ms, edge_ms;  // of a token at a cut, beside the cloud's
  uint64_t download_bytes = 0, missing_bytes = 0;
  uint64_t bytes_per_token = 0;  // that leave the cloud
  std::optional<double> dollars_per_million;

  std::string name() const { return cut ? std::to_string(*cut) : "cloud"; }
};

// Whether the place has what a pick compares.
bool can_be_picked(const Place& place);
// A text changes its place for the sake of speed only where its tokens take a tenth less there.
bool is_better(double ms, double than_ms);

// The cloud first, and then the cuts 0..layers.
std::vector<Place> price_places(const PlanInput& input);

enum class Goal : uint8_t { kFast, kOffload };

struct Pick {
  size_t place = 0;  // among price_places()
  Why why = Why::kFastest;
};

// fast: the least time of a token, with the first one's spread over 64. offload: the least work for
// the cloud at `pace` tokens/s or more, else as fast. Places that do not fit, or that nobody could
// price, are out. Where nothing was priced it is the cloud.
Pick pick_place(std::span<const Place> places, const PlanInput& input, Goal goal, double pace);

// Whether texts begin at this cut once its weights are here, where no plan says otherwise.
inline bool begins_there(Goal goal, int cut) { return cut == 0 || goal == Goal::kOffload; }

// The part of a token's work that the cloud does there.
std::optional<int> cloud_percent(const Place& place, const PlanInput& input);

// Milliseconds as a plan's table and words have them: "2.9 ms".
std::string plan_ms(double ms);
// "27.4 ms", "1.7 s"
std::string plan_time(double ms);
// The quickest of the cuts between all on the cloud and all here; null: none was priced.
const Place* quickest_cut(std::span<const Place> places);
// Milliseconds until a text of 64 tokens is done, at a place that can be picked.
double text_ms(const Place& place);
// "all on the cloud: 1.9 ms a token; the quickest cut, 12: 32.1 ms; all here: 2.9 ms after 208 MB
// (33 s)"
std::string plan_words(std::span<const Place> places, const PlanInput& input);

// Tokens after which the work that a cut takes off the cloud has paid for its download; none: never
// at these prices.
std::optional<double> break_even_tokens(const Place& all_cloud, const Place& place,
                                        const Prices& prices);

// Keeps to a place until another one is 10 % better and 3 s have passed since the last change.
class SteadyPick {
 public:
  // The place to be at now.
  size_t update(std::span<const Place> places, const Pick& pick, Clock::time_point now);

 private:
  std::optional<size_t> at_;
  Clock::time_point changed_;
};

}  // namespace split::edge
