#include "edge_client/drive/split_text.h"

#include "edge_client/split/retry.h"

namespace split::edge {
namespace {

using Clock = std::chrono::steady_clock;

// Adds the time of a call.
class Timed {
 public:
  explicit Timed(double& ms) : ms_(ms) {}
  ~Timed() { ms_ += std::chrono::duration<double, std::milli>(Clock::now() - start_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& ms_;
  const Clock::time_point start_ = Clock::now();
};

SplitForward forward_of(const SplitRun& run, int cut, SplitCounts& counts) {
  return {run.cloud, run.model, cut, run.tail, run.retry, run.waiter, counts, run.requester};
}

}  // namespace

SplitText::SplitText(const SplitRun& run, std::span<const int32_t> prompt,
                     const GenerateOptions& options, SplitCounts& counts)
    : run_(run), prompt_(prompt.begin(), prompt.end()), options_(options), counts_(counts) {
  if (run.here != nullptr) {
    hand_off_.emplace(run.cloud, run.model, run.tokenizer, prompt, options, run.retry, run.waiter,
                      counts, run.requester, *run.here);
    return;
  }
  // The server's completions do not score a prompt: that goes there as hidden states.
  if (run.place.all_on_cloud && !options.score_prompt) return;
  const int cut = run.place.all_on_cloud ? run.model.config().layers : run.place.cut;
  forward_.emplace(run.cloud, run.model, cut, run.tail, run.retry, run.waiter, counts,
                   run.requester, run.moving);
  text_.emplace(*forward_, run.model.config(), run.tokenizer, prompt, options);
}

bool SplitText::next(const OnText& on_text) {
  const Timed timed(counts_.ms);
  if (hand_off_) return hand_off_->next(on_text);
  if (text_) {
    const bool more = text_->next(on_text);
    counts_.drafted = text_->rows().drafted();
    counts_.accepted = text_->rows().accepted();
    return more;
  }
  whole_ = run_.cloud.complete(run_.tokenizer, prompt_, options_, on_text, counts_);
  const size_t fed = prompt_.size() + std::max<size_t>(1, whole_.tokens.size()) - 1;
  counts_.cloud_layer_rows += fed * static_cast<size_t>(run_.model.config().layers);
  return false;
}

Generated SplitText::take() {
  if (hand_off_) return hand_off_->take();
  return text_ ? text_->take() : std::move(whole_);
}

Generated generate_text(const SplitRun& run, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const OnText& on_text,
                        SplitCounts& counts) {
  SplitText text(run, prompt, options, counts);
  while (text.next(on_text)) continue;
  return text.take();
}

std::vector<float> final_states(const SplitRun& run, std::span<const int32_t> tokens,
                                SplitCounts& counts) {
  if (!run.place.all_on_cloud) {
    SplitForward forward = forward_of(run, run.place.cut, counts);
    const Timed timed(counts.ms);
    return forward.norms(tokens);
  }
  const Timed timed(counts.ms);
  Retry retry(run.retry, run.waiter);
  ++counts.steps;
  const SequenceRows rows{.range = {.to = Point::norm()}, .tokens = tokens, .wanted = Wanted::kAll};
  for (;;) {
    try {
      std::vector<float> states = run.cloud.forward(rows, counts.traffic);
      counts.cloud_layer_rows += tokens.size() * static_cast<size_t>(run.model.config().layers);
      return states;
    } catch (const RemoteError& error) {
      retry.failed(error);
    }
  }
}

}  // namespace split::edge
