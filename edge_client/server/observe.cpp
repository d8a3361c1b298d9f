#include "edge_client/server/observe.h"
#include "wire/codes.h"

namespace split::edge {
namespace {

constexpr const char* kCodes[] = {wire::codes::kSessionUnknown, wire::codes::kPositionMismatch,
                                  wire::codes::kSessionConflict};
constexpr const char* kNoAnswer = "no_answer";
constexpr const char* kError = "error";

// Returns one of a few fixed reasons, whatever a server says.
const char* reason_of(const RemoteError& error) {
  if (error.status == 0) return kNoAnswer;
  for (const char* code : kCodes) {
    if (error.code == code) return code;
  }
  return error.status == 429 || error.status == 503 ? wire::codes::kBusy : kError;
}

serve::Counter& retries(serve::Metrics& metrics, const char* reason) {
  return metrics.counter("split_edge_retries_total", "Requests that the cloud was asked again.",
                         {{"reason", reason}});
}

serve::Counter& moves(serve::Metrics& metrics, Cut to, Why why) {
  return metrics.counter("split_edge_moves_total", "Cuts that moved while a text ran.",
                         {{"to", to.name()}, {"why", std::string(name_of(why))}});
}

}  // namespace

EdgeMetrics::Parts EdgeMetrics::parts(Phase phase) {
  const auto part = [&](const char* where) -> serve::Histogram& {
    return metrics.histogram("split_edge_step_duration_seconds",
                             "A text's steps: at the cloud, on the wire, and here; and of streams "
                             "cloud_and_line, which cannot be told apart.",
                             {{"phase", std::string(metric_name(phase))}, {"where", where}});
  };
  return {part("cloud"), part("wire"), part("edge"), part("cloud_and_line")};
}

EdgeMetrics::EdgeMetrics()
    : prompt_parts_(parts(Phase::kPrompt)),
      generate_parts_(parts(Phase::kGenerate)),
      first_(metrics.histogram("split_edge_time_to_first_token_seconds",
                               "From a text's start to its first token.")),
      next_(metrics.histogram("split_edge_inter_token_seconds",
                              "From one token of a text to the next.")),
      pause_(metrics.histogram("split_edge_move_pause_seconds",
                               "Of a text, for the token behind a move of its cut.")),
      plan_error_(metrics.histogram("split_edge_plan_error_ratio",
                                    "|foreseen - taken| / taken of a token's time, by answers.", {},
                                    {0.02, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2, 5})),
      of_figures_{
          {"bytes_up",
           metrics.counter("split_edge_wire_bytes_total",
                           "Bodies between this machine and the cloud.", {{"direction", "up"}})},
          {"bytes_down",
           metrics.counter("split_edge_wire_bytes_total", "", {{"direction", "down"}})},
          {"cloud_layer_rows",
           metrics.counter("split_edge_cloud_layer_rows_total",
                           "Rows times layers that the cloud computed for texts here.")},
          {"replays",
           metrics.counter("split_edge_replays_total",
                           "Times that the cloud had lost a text's rows and got them again.")}},
      prompt_(metrics.counter("split_edge_tokens_total", "Tokens of texts here.",
                              {{"kind", "prompt"}})),
      generated_(metrics.counter("split_edge_tokens_total", "", {{"kind", "generated"}})),
      from_cache_(metrics.counter("split_edge_shard_bytes_total",
                                  "Weights loaded: from the cache here, or downloaded.",
                                  {{"source", "cache"}})),
      from_server_(metrics.counter("split_edge_shard_bytes_total", "", {{"source", "server"}})),
      catch_up_(metrics.counter("split_edge_catch_up_bytes_total",
                                "Bodies of what moves of cuts asked the cloud for.")) {
  // Present before the first retry, so that a rate has a beginning.
  for (const char* reason : kCodes) retries(metrics, reason);
  for (const char* reason : {kNoAnswer, wire::codes::kBusy, kError}) retries(metrics, reason);
  for (const Why why : {Why::kAsked, Why::kCloudLost, Why::kLanded}) moves(metrics, 0, why);
}

void EdgeMetrics::token(const SplitCounts& before, const SplitCounts& now, double seconds,
                        bool first) {
  (first ? first_ : next_).observe(seconds);
  const Parts& parts = first ? prompt_parts_ : generate_parts_;
  if (const double ms = now.traffic.stream_ms - before.traffic.stream_ms; ms > 0) {
    parts.stream.observe(ms / 1e3);
  } else {
    parts.cloud.observe((now.traffic.cloud_ms - before.traffic.cloud_ms) / 1e3);
    parts.wire.observe((now.traffic.wire_ms - before.traffic.wire_ms) / 1e3);
  }
  parts.edge.observe((now.edge_ms - before.edge_ms) / 1e3);
  for (const Move& move : std::span(now.moves).subspan(before.moves.size())) {
    moves(metrics, move.to, move.why).add();
    pause_.observe(move.pause_ms / 1e3);
    catch_up_.add(move.bytes);
  }
}

void EdgeMetrics::ended(const Receipt& receipt, std::optional<double> error) {
  if (error) plan_error_.observe(*error);
  for (const Figure& figure : figures(receipt)) {
    const auto counter = of_figures_.find(figure.name);
    if (counter != of_figures_.end() && figure.value)
      counter->second.add(static_cast<uint64_t>(*figure.value));
  }
  prompt_.add(receipt.prompt_tokens);
  generated_.add(receipt.tokens);
}

void EdgeMetrics::loaded(const FetchCounts& fetched) {
  from_cache_.add(fetched.from_cache);
  from_server_.add(fetched.downloaded);
}

void EdgeMetrics::retried(const RemoteError& error) { retries(metrics, reason_of(error)).add(); }

}  // namespace split::edge
