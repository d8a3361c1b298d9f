#include "edge_client/place/forecast.h"

#include <algorithm>
#include <cmath>

namespace split::edge {
namespace {

constexpr uint64_t kLeastTokens = 8;  // fewer teach nothing
constexpr double kMsOfHour = 3.6e6, kGigabyte = 1e9;
constexpr double kLearningRate = 0.3;

size_t index_of(Cut cut) { return cut.is_cloud() ? 0 : 1 + static_cast<size_t>(cut.blocks()); }

double dollars(const Prices& prices, double cloud_ms, double bytes) {
  return cloud_ms * prices.hour / kMsOfHour + bytes * prices.egress_gb / kGigabyte;
}

void learn(Drafted& habit, const Drafted& seen) {
  const bool first = habit.rows == 1 && habit.tokens == 1;
  const double rate = first ? 1 : kLearningRate;  // replaces the default of no guesses
  habit.rows += rate * (seen.rows - habit.rows);
  habit.tokens += rate * (seen.tokens - habit.tokens);
}

}  // namespace

std::optional<double> Forecast::error() const {
  if (!predicted.token_ms || !actual.token_ms || !(*actual.token_ms > 0)) return std::nullopt;
  return std::abs(*predicted.token_ms - *actual.token_ms) / *actual.token_ms;
}

void AnswerWatch::token(const SplitCounts& counts, double ms) {
  last_ = {ms,
           counts.traffic.cloud_ms,
           counts.traffic.wire_ms,
           static_cast<double>(counts.traffic.bytes_down),
           static_cast<double>(counts.steps),
           static_cast<double>(counts.drafted),
           counts.moves.size()};
  if (begun_ && last_.moves == from_.moves) {
    ++tokens_;
    return;
  }
  if (!begun_) first_ms_ = ms;
  begun_ = true;
  tokens_ = 0;
  from_ = last_;
}

double AnswerWatch::each(double Mark::*figure) const {
  return tokens_ > 0 ? (last_.*figure - from_.*figure) / static_cast<double>(tokens_) : 0;
}

Drafted AnswerWatch::drafted() const {
  const double steps = last_.steps - from_.steps;
  if (!(steps > 0)) return {};
  return {1 + (last_.drafted - from_.drafted) / steps,
          std::max(1.0, static_cast<double>(tokens_) / steps)};
}

Why why_there(const EndedInput& text, PlanInput input, Goal goal, double pace) {
  if (text.moved) return *text.moved;
  if (!text.chosen && !text.lowest) return Why::kAsked;
  input.lowest = text.lowest.value_or(0);
  const std::vector<Place> places = price_places(input);
  const Pick pick = pick_place(places, input, goal, pace);
  const Place& picked = places[pick.place];
  if (picked.cut == text.cut) return pick.why;
  // The plan prefers another place, but its weights are missing, the last change was too recent, or
  // the gain is too small for a move.
  const auto gains_little = [&](const std::optional<double>& token_ms) {
    return token_ms && !is_better(*picked.token_ms, *token_ms);
  };
  const bool stayed =
      text.lowest && picked.token_ms &&
      ((text.begins && *text.begins == text.cut) ||
       gains_little(places[index_of(text.cut)].token_ms) || gains_little(text.token_ms));
  return stayed ? Why::kFastest : Why::kOnlyFit;
}

Forecast forecast_of(const PlanInput& input, Cut cut, const AnswerWatch& watch) {
  Forecast forecast;
  forecast.cut = cut;
  const Place place = price_places(input).at(index_of(cut));
  forecast.predicted = {place.first_token_ms, place.token_ms, place.cloud_ms,
                        static_cast<double>(place.bytes_per_token), place.dollars_per_million};
  TokenCosts& actual = forecast.actual;
  actual.first_token_ms = watch.first_token_ms();
  if (watch.tokens() == 0) return forecast;
  actual.token_ms = watch.token_ms();
  actual.cloud_ms = cut.is_cloud() ? watch.token_ms() : watch.cloud_ms();
  actual.bytes = watch.bytes_down();
  if (input.prices) {
    actual.dollars_per_million = 1e6 * dollars(*input.prices, *actual.cloud_ms, *actual.bytes);
  }
  return forecast;
}

void learn(PlanFacts& facts, const PlanInput& input, Cut cut, const AnswerWatch& watch) {
  if (watch.tokens() < kLeastTokens) return;
  PlanInput at = input;
  at.correction = {};
  const Drafted seen = watch.drafted();
  // Prices the steps with the guesses that they had, which are learnt apart.
  at.split = at.local = seen;
  const Place measured = price_places(at).at(index_of(cut));
  Correction& learnt = facts.correction;
  const auto towards = [](Learnt& part, const std::optional<double>& ms, double taken_ms) {
    if (ms) part.learn(*ms, taken_ms);
  };
  if (cut.is_cloud()) {
    learnt.edge.fade();
    return towards(learnt.stream, measured.token_ms, watch.token_ms());
  }
  towards(learnt.edge, measured.edge_ms, watch.edge_ms());
  if (cut > 0) {
    // The wait for others' steps is measured anew each time, and not learnt.
    const double wait = at.cloud ? at.cloud->step_ms / seen.tokens : 0;
    const auto work = [&](double ms) { return std::max(0.0, ms - wait); };
    if (measured.cloud_ms) learnt.cloud.learn(work(*measured.cloud_ms), work(watch.cloud_ms()));
    towards(learnt.wire, measured.wire_ms, watch.wire_ms());
  }
  if (seen.rows > 1 || input.drafts) learn(cut == 0 ? facts.local : facts.split, seen);
}

AnswerCost cost_of(const PlanInput& input, Cut cut, const SplitCounts& counts, uint64_t weights,
                   size_t prompt_tokens, size_t tokens) {
  AnswerCost cost;
  cost.prices = input.prices.value_or(Prices{});
  cost.cloud = dollars(cost.prices, counts.traffic.cloud_ms + counts.traffic.stream_ms, 0);
  cost.egress = dollars(cost.prices, 0, static_cast<double>(counts.traffic.bytes_down));
  cost.weights = dollars(cost.prices, 0, static_cast<double>(weights));
  const std::vector<Place> places = price_places(input);
  if (input.cloud && places[0].cloud_ms) {
    const double prompt =
        static_cast<double>(prompt_tokens) * input.layers * input.cloud->prompt_row_ms;
    const auto all = static_cast<double>(tokens);
    cost.all_cloud = dollars(cost.prices, prompt + all * *places[0].cloud_ms,
                             all * static_cast<double>(places[0].bytes_per_token));
  }
  if (!cut.is_cloud())
    cost.break_even_tokens = break_even_tokens(places[0], places.at(index_of(cut)), cost.prices);
  return cost;
}

}  // namespace split::edge
