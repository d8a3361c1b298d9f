#include "edge_client/measure/forecasts.h"

#include <algorithm>

#include "edge_client/measure/plan.h"

namespace split::edge {
namespace {

constexpr size_t kPlannedPrompt = 32;           // tokens
constexpr std::chrono::seconds kKeepAfter{10};  // between two writes of what answers taught

// Averages repeated measurements: one is short, and may have been disturbed.
Speed between(Speed before, const Speed& now) {
  constexpr double kNow = 0.3;
  for (double Speed::*one : {&Speed::block_ms, &Speed::block_row_ms, &Speed::head_ms,
                             &Speed::head_row_ms, &Speed::prompt_row_ms}) {
    before.*one += kNow * (now.*one - before.*one);
  }
  return before;
}

}  // namespace

Forecasts::Forecasts(PlanMemory memory, PlanInput shape, Choice choice, Missing missing)
    : memory_(std::move(memory)),
      shape_(std::move(shape)),
      choice_(choice),
      missing_(std::move(missing)),
      facts_(memory_.recall()) {}

Forecasts::~Forecasts() { keep(true); }

PlanFacts Forecasts::facts() const {
  const std::lock_guard lock(mutex_);
  return facts_;
}

void Forecasts::measured(const std::optional<Network>& network, const std::optional<Speed>& edge,
                         const std::optional<CloudLoad>& cloud) {
  const std::lock_guard lock(mutex_);
  if (network) {
    const Network before = facts_.network.value_or(Network{});
    facts_.network = network;
    // A rate that was not measured this time stays.
    if (facts_.network->down_mbit == 0) facts_.network->down_mbit = before.down_mbit;
    if (facts_.network->up_mbit == 0) facts_.network->up_mbit = before.up_mbit;
  }
  if (edge) facts_.edge = facts_.edge ? between(*facts_.edge, *edge) : *edge;
  if (cloud) {
    if (cloud->speed) facts_.cloud = cloud->speed;
    facts_.prices = cloud->prices;
  }
  changed_ = true;
  keep(true);
}

// Call with the lock held.
void Forecasts::keep(bool now) {
  if (!changed_ || (!now && Clock::now() - kept_ < kKeepAfter)) return;
  memory_.remember(facts_);
  changed_ = false;
  kept_ = Clock::now();
}

PlanInput Forecasts::input(size_t prompt_tokens, bool drafts) const {
  PlanInput input = shape_;
  input.prompt_tokens = static_cast<uint32_t>(std::max<size_t>(1, prompt_tokens));
  input.head_on_cloud = head_on_cloud_;
  input.know(facts_, drafts);
  return input;
}

std::optional<FastestCut::Now> Forecasts::choose(int lowest, bool head_on_cloud) {
  const std::lock_guard lock(mutex_);
  if (choice_.goal != Goal::kFast) return std::nullopt;
  lowest_ = lowest;
  head_on_cloud_ = head_on_cloud;
  const auto now = fast_.at(input(kPlannedPrompt, true), lowest, Clock::now());
  begins_.reset();
  if (now && !now->without_cloud) begins_ = now->begin;
  return now;
}

void Forecasts::describe(Receipt& receipt, const AnswerWatch& watch, bool drafts) const {
  const std::lock_guard lock(mutex_);
  const Cut cut = receipt.cut;
  if (cut > shape_.layers && !cut.is_cloud()) return;
  const PlanInput planned = input(receipt.new_prompt_tokens(), drafts);
  if (facts_.cloud || facts_.edge) {
    receipt.forecast = forecast_of(planned, cut, watch);
    receipt.forecast->goal = choice_.goal;
    EndedInput text{.chosen = choice_.chosen, .cut = cut, .lowest = lowest_, .begins = begins_};
    const auto& moves = receipt.counts.moves;
    if (!moves.empty()) text.moved = moves.back().why;
    if (watch.tokens() > 0) text.token_ms = watch.token_ms();
    receipt.forecast->why = why_there(text, planned, choice_.goal, choice_.pace);
    const bool fastest = receipt.forecast->why == Why::kFastest;
    if (fastest && lowest_ == 0 && cut != 0) {
      receipt.forecast->here_ms = price_places(planned)[1].token_ms;
    }
  }
  if (!facts_.prices) return;
  const uint64_t fetched = receipt.fetched.downloaded;
  receipt.cost = cost_of(planned, cut, receipt.counts, fetched - std::min(fetched, charged_),
                         receipt.new_prompt_tokens(), receipt.tokens);
}

std::optional<double> Forecasts::learn(const Receipt& receipt, const AnswerWatch& watch,
                                       bool drafts) {
  Receipt foreseen = receipt;
  describe(foreseen, watch, drafts);
  const std::lock_guard lock(mutex_);
  charged_ = std::max(charged_, receipt.fetched.downloaded);
  const auto& moves = receipt.counts.moves;
  fast_.ended(!moves.empty() && moves.back().why == Why::kCloudLost, receipt.cut.is_cloud(),
              Clock::now());
  if (!foreseen.forecast) return std::nullopt;
  edge::learn(facts_, input(receipt.new_prompt_tokens(), drafts), foreseen.forecast->cut, watch);
  changed_ = true;
  keep(false);
  return foreseen.forecast->error();
}

PlanReport Forecasts::plan(const std::string& model, std::optional<bool> exact,
                           std::optional<int> here) const {
  std::vector<uint64_t> missing = missing_ ? missing_() : shape_.missing_bytes;
  if (here) std::fill(missing.begin() + *here, missing.end(), 0);
  const std::lock_guard lock(mutex_);
  PlanInput next = input(kPlannedPrompt, true);
  next.missing_bytes = missing;
  return {model, choice_.goal, choice_.pace, exact, std::move(next)};
}

std::unique_ptr<Forecasts> make_forecasts(TailBuilder& tails, const wire::ModelInfo& info) {
  const ModelChoice& choice = tails.choice();
  const EngineOptions& options = choice.options();
  const PlacementRequest& request = choice.request();
  const Model& model = choice.model();
  const ShardCache cache = choice.cache();
  const StageFormats formats = tails.weights().formats(info);
  const std::string here = cat(request.device.device, " ", request.device.threads, " ",
                               profile_name(request.profile), " ", request.formats.text());
  PlanInput shape = plan_shape(model);
  Forecasts::Missing missing;
  try {
    shape = plan_input(model, info, formats, cache);
    missing = [blobs = blobs_by_cut(model, info, formats), cache] {
      return missing_of(blobs, cache);
    };
  } catch (const Error&) {
    // The server has not made that format yet: its size is unknown.
  }
  shape.logits_bytes = sizeof(float) * static_cast<uint64_t>(model.config().vocab);
  shape.wire = tails.wire_of(info);
  shape.highest = choice.bounds().highest;
  return std::make_unique<Forecasts>(
      PlanMemory(cache, choice.remote().origin(), info.id, here), std::move(shape),
      Forecasts::Choice{options.goal, options.pace, request.auto_cut}, std::move(missing));
}

}  // namespace split::edge
