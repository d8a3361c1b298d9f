#include "edge_client/split/split_text.h"

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

Generated generate_text(const SplitRun& run, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const OnText& on_text,
                        SplitCounts& counts) {
  const int layers = run.model.config().layers;
  const bool all_on_cloud = run.place.all_on_cloud;
  // The server's completions do not score a prompt: that goes there as hidden states.
  if (all_on_cloud && !options.score_prompt) {
    const Timed timed(counts.ms);
    Generated text = run.cloud.complete(run.tokenizer, prompt, options, on_text, counts);
    const size_t fed = prompt.size() + std::max<size_t>(1, text.tokens.size()) - 1;
    counts.cloud_layer_rows += fed * static_cast<size_t>(layers);
    return text;
  }
  SplitForward forward = forward_of(run, all_on_cloud ? layers : run.place.cut, counts);
  const Timed timed(counts.ms);
  return generate(forward, run.model.config(), run.tokenizer, prompt, options, on_text);
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
  for (;;) {
    try {
      std::vector<float> states = run.cloud.norms(tokens, counts.traffic);
      counts.cloud_layer_rows += tokens.size() * static_cast<size_t>(run.model.config().layers);
      return states;
    } catch (const RemoteError& error) {
      retry.failed(error);
    }
  }
}

}  // namespace split::edge
