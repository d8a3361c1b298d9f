#include "edge_client/split/receipt.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/figures.h"
#include "base/json.h"
#include "edge_client/place/plan_report.h"

namespace split::edge {
std::string Receipt::plan() const {
  return cat(model, ": ", cloud_stages, " on ", server, "; ", edge_stages,
             device.empty() ? " here" : cat(" on ", device));
}

double Receipt::after_first_ms() const {
  return counts.ms - first_token_ms - (waited_ms - first_waited_ms);
}

double Receipt::waiting_ms() const {
  const Traffic& traffic = counts.traffic;
  const double spent = traffic.cloud_ms + traffic.wire_ms + traffic.stream_ms + counts.edge_ms;
  return std::max(0.0, counts.ms - (spent - counts.beside_ms()));
}

double Receipt::tokens_per_second() const {
  const double after_first = after_first_ms();
  if (tokens > 1 && after_first > 0) return static_cast<double>(tokens - 1) / after_first * 1000;
  return tokens == 1 && counts.ms > 0 ? 1000 / counts.ms : 0;
}

namespace {

std::string number(float value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string list(std::span<const int32_t> ids) {
  std::string out = "[";
  for (const int32_t id : ids) out += cat(out.size() > 1 ? "," : "", id);
  return out + "]";
}

// Milliseconds that tokens waited for, by cause.
struct Spent {
  double cloud = 0, wire = 0, stream = 0, here = 0;
};

Spent spent(const SplitCounts& counts, const SplitCounts& before, double tokens) {
  const auto each = [&](double ms, double beside, double ms_before, double beside_before) {
    return std::max(0.0, ms - beside - (ms_before - beside_before)) / tokens;
  };
  const Traffic &now = counts.traffic, &then = before.traffic;
  return {each(now.cloud_ms, counts.beside_cloud_ms, then.cloud_ms, before.beside_cloud_ms),
          each(now.wire_ms, counts.beside_wire_ms, then.wire_ms, before.beside_wire_ms),
          each(now.stream_ms, 0, then.stream_ms, 0),
          each(counts.edge_ms, counts.beside_edge_ms, before.edge_ms, before.beside_edge_ms)};
}

// "310 ms: 120 ms cloud + 150 ms wire + 40 ms here", or for a stream "310 ms: 300 ms cloud and line
// + 10 ms waiting" (on anything else).
std::string parts(double all, const Spent& ms) {
  const int digits = all < 100 ? 1 : 0;
  // Rounded parts add up to the rounded sum.
  const double unit = digits == 1 ? 10 : 1;
  const auto rounded = [&](double value) { return std::floor(value * unit + 0.5) / unit; };
  double sum = 0;
  std::string words;
  const auto part = [&](double value, std::string_view where, bool always) {
    const double shown = std::max(0.0, rounded(value));
    if (shown == 0 && !always) return;
    sum += shown;
    words += cat(words.empty() ? "" : " + ", fixed(shown, digits), " ms ", where);
  };
  if (ms.stream > 0) {
    part(ms.stream + ms.cloud + ms.wire, "cloud and line", true);
    part(ms.here, "here", false);
  } else {
    part(ms.cloud, "cloud", true);
    part(ms.wire, "wire", true);
    part(ms.here, "here", true);
  }
  part(rounded(all) - sum, "waiting", false);
  return cat(fixed(sum, digits), " ms: ", words);
}

// "36 ms", "1.25 s", "31.4 s"
std::string time_words(double ms) {
  if (ms < 1000) return cat(fixed(ms, 0), " ms");
  return cat(fixed(ms / 1000, ms < 10000 ? 2 : 1), " s");
}

std::string spaced(std::string_view name) {
  std::string words(name);
  std::ranges::replace(words, '_', ' ');
  return words;
}

std::string ending(const Receipt& r) {
  if (r.finish_reason == FinishReason::kLength) {
    const bool asked = r.tokens == static_cast<size_t>(r.max_tokens);
    return asked ? ", stopped at --max-tokens" : ", stopped at the end of the context";
  }
  if (r.finish_reason == FinishReason::kCancelled) return ", stopped early";
  return r.finish_reason == FinishReason::kStop ? ", ended by itself" : "";
}

// Enough digits for the cents of a million tokens, and for one token's part of them.
std::string money(double dollars) {
  return cat("$", fixed(dollars, dollars >= 0.01 || dollars == 0 ? 2 : 7));
}

std::string cost_words(const AnswerCost& cost, Cut cut) {
  std::string words = cat(money(cost.cloud), " for the cloud's time, ", money(cost.egress),
                          " for what it sent, ", money(cost.weights), " for weights");
  if (cut.is_cloud()) return words;
  if (cost.all_cloud) words += cat("; all on the cloud: ", money(*cost.all_cloud));
  words += cost.break_even_tokens
               ? cat("; the weights have paid after ", fixed(*cost.break_even_tokens, 0), " tokens")
               : cat("; a split here never pays at $", fixed(cost.prices.egress_gb, 2), "/GB");
  return words;
}

// "1 loss survived, waited 1.71 s for the cloud; 1 replay"
std::string loss_words(const Receipt& r) {
  const SplitCounts& counts = r.counts;
  std::string words;
  if (counts.losses > 0) {
    words = cat(counts.losses, counts.losses == 1 ? " loss" : " losses");
    words += counts.survived == counts.losses ? " survived"
             : counts.survived == 0           ? ", not survived"
                                              : cat(", ", counts.survived, " survived");
  }
  if (r.waited_ms > 0) {
    words += cat(words.empty() ? "" : ", ", "waited ", time_words(r.waited_ms), " for the cloud");
  }
  if (counts.replays > 0) {
    words += cat("; ", counts.replays, counts.replays == 1 ? " replay" : " replays");
  }
  return words;
}

}  // namespace

std::string forecast_words(const Forecast& forecast) {
  const auto ms = [](double value) { return cat(fixed(value, value < 10 ? 2 : 1), " ms"); };
  const TokenCosts &predicted = forecast.predicted, &actual = forecast.actual;
  std::string words = forecast.cut.words();
  const bool alone = forecast.why == Why::kOnlyFit;
  words += cat(" (", alone ? "nothing else is here" : spaced(name_of(forecast.why)), ")");
  if (!predicted.token_ms) return words + ": not foreseen, for not all of it was measured";
  words += cat(": ", ms(*predicted.token_ms), " a token foreseen");
  if (!actual.token_ms) return words;
  words += cat(", ", ms(*actual.token_ms), " taken");
  if (const std::optional<double> error = forecast.error()) {
    words += cat(" (", fixed(*error * 100, 0), " % off)");
  }
  if (predicted.first_token_ms && actual.first_token_ms) {
    words += cat("; the first after ", ms(*predicted.first_token_ms), " and ",
                 ms(*actual.first_token_ms));
  }
  if (forecast.here_ms) words += cat("; all here would take ", ms(*forecast.here_ms));
  return words;
}

std::string to_text(const Receipt& r) {
  std::string out;
  const auto line = [&](std::string_view left, const std::string& text) {
    std::string padded(left);
    padded.resize(10, ' ');
    out += cat("  ", padded, text, "\n");
  };
  const double fed =
      static_cast<double>(std::max<size_t>(1, r.prompt_tokens + r.tokens) - (r.tokens > 0 ? 1 : 0));
  const Traffic& traffic = r.counts.traffic;
  const auto per_token = [&](uint64_t bytes) {
    return human_bytes(static_cast<uint64_t>(static_cast<double>(bytes) / fed));
  };
  const std::string kept =
      r.counts.kept_rows > 0 ? cat(r.counts.kept_rows, " of them kept from before, ") : "";
  line("text", cat(r.tokens, r.tokens == 1 ? " token in " : " tokens in ", time_words(r.counts.ms),
                   " (first after ", time_words(r.first_token_ms), ", then ",
                   fixed(r.tokens_per_second(), 1), " tokens/s)", ending(r), ", seed ", r.seed));
  line("prompt", cat(r.prompt_tokens, r.prompt_tokens == 1 ? " token, " : " tokens, ", kept,
                     parts(r.first_token_ms - r.first_waited_ms, spent(r.first, {}, 1))));
  if (r.tokens > 1) {
    const double more = static_cast<double>(r.tokens - 1);
    line("tokens",
         cat(r.tokens - 1, " more, each ",
             parts(std::max(0.0, r.after_first_ms()) / more, spent(r.counts, r.first, more))));
  }
  if (const std::string words = loss_words(r); !words.empty()) line("lost", words);
  line("wire",
       cat(per_token(traffic.bytes_up), " up and ", per_token(traffic.bytes_down),
           " down per token, ", human_bytes(traffic.bytes_up), " and ",
           human_bytes(traffic.bytes_down), " in all",
           traffic.rows == DType::kF32 ? "" : cat("; rows as ", format_name(traffic.rows))));
  line("weights",
       cat(human_bytes(r.fetched.downloaded), " downloaded, ", human_bytes(r.fetched.from_cache),
           " from the cache; ready after ", fixed(r.load_ms / 1000, 2), " s"));
  for (const Move& move : r.counts.moves) {
    const auto place = [](Cut cut) {
      return cut.is_cloud() ? "the cloud" : cat("cut ", cut.name());
    };
    line("move",
         cat("at ", move.at, " tokens from ", place(move.from), " to ", place(move.to), " (",
             move_words(move.why, move.token_ms, move.there_ms), "): ", move.rows, " rows, ",
             human_bytes(move.bytes), ", the next after ", fixed(move.pause_ms, 0), " ms",
             r.is_exact().value_or(true) ? "" : "; may differ at near-ties"));
  }
  if (r.forecast) line("plan", forecast_words(*r.forecast));
  if (r.cost) line("cost", cost_words(*r.cost, r.cut));
  if (const std::optional<int> percent = r.cloud_percent()) {
    line("verdict", cat("the cloud did ", *percent, " % of the work",
                        !r.is_exact().value_or(false) ? ""
                        : r.personal ? "; the text is the same at every cut below the tail"
                                     : "; the text is the cloud's own, bit for bit"));
  }
  return out;
}

namespace {

// "cut":2,"device":"cpu (1 thread, avx2)"
std::string split_members(const Receipt& r) {
  return cat("\"cut\":", r.cut.json(), ",\"device\":", json_quote(r.device_word()));
}

std::string moves_json(std::span<const Move> moves) {
  std::string out = "[";
  for (const Move& move : moves) {
    out += cat(out.size() > 1 ? "," : "", "{\"at\":", move.at, ",\"from\":", move.from.json(),
               ",\"to\":", move.to.json(), ",\"why\":", json_quote(name_of(move.why)),
               ",\"reason\":", json_quote(move_words(move.why, move.token_ms, move.there_ms)),
               ",\"rows\":", move.rows, ",\"bytes\":", move.bytes,
               ",\"pause_ms\":", fixed(move.pause_ms, 3),
               ",\"cloud_layer_rows_cost\":", move.cloud_layer_rows_cost,
               ",\"cloud_layer_rows_saved\":", move.cloud_layer_rows_saved, "}");
  }
  return out + "]";
}

std::string costs_json(const TokenCosts& costs) {
  return cat("{\"first_token_ms\":", or_null(costs.first_token_ms),
             ",\"token_ms\":", or_null(costs.token_ms), ",\"cloud_ms\":", or_null(costs.cloud_ms),
             ",\"bytes_per_token\":", or_null(costs.bytes, 0),
             ",\"dollars_per_million\":", or_null(costs.dollars_per_million, 4), "}");
}

std::string plan_json(const std::optional<Forecast>& forecast) {
  if (!forecast) return "null";
  return cat("{\"cut\":", forecast->cut.json(), ",\"goal\":\"", goal_name(forecast->goal),
             "\",\"why\":", json_quote(name_of(forecast->why)),
             ",\"predicted\":", costs_json(forecast->predicted),
             ",\"actual\":", costs_json(forecast->actual), "}");
}

std::string money_json(const std::optional<AnswerCost>& cost) {
  if (!cost) return "null";
  constexpr int kDigits = 10;  // decimals of a dollar: a token costs some 10^-7
  return cat("{\"cloud\":", fixed(cost->cloud, kDigits),
             ",\"egress\":", fixed(cost->egress, kDigits),
             ",\"weights\":", fixed(cost->weights, kDigits),
             ",\"all_cloud\":", or_null(cost->all_cloud, kDigits),
             ",\"break_even_tokens\":", or_null(cost->break_even_tokens, 0), "}");
}

std::string figure_json(const Figure& figure) {
  using Unit = Figure::Unit;
  const bool whole = figure.unit != Unit::kMs && figure.unit != Unit::kTokensPerSecond;
  return cat("\"", figure.name, "\":", or_null(figure.value, whole ? 0 : 3), ",");
}

std::string cost_members(const Receipt& r) {
  std::string out;
  for (const Figure& figure : figures(r)) out += figure_json(figure);
  const std::optional<bool> exact = r.is_exact();
  return cat(out, "\"exact\":",
             !exact   ? "null"
             : *exact ? "true"
                      : "false",
             ",\"moves\":", moves_json(r.counts.moves), ",\"plan\":", plan_json(r.forecast),
             ",\"cost\":", money_json(r.cost));
}

}  // namespace

std::vector<Figure> figures(const Receipt& r) {
  using enum Figure::Unit;
  const SplitCounts& counts = r.counts;
  const Traffic& traffic = counts.traffic;
  const auto some = [](auto count) { return static_cast<double>(count); };
  // A stream does not tell the cloud's share of its time.
  const bool told = traffic.stream_ms == 0;
  const double both = traffic.stream_ms + traffic.cloud_ms + traffic.wire_ms;
  const auto of = [](bool known, double ms) { return known ? std::optional(ms) : std::nullopt; };
  return {{"bytes_downloaded", kBytes, some(r.fetched.downloaded)},
          {"bytes_from_cache", kBytes, some(r.fetched.from_cache)},
          {"bytes_up", kBytes, some(traffic.bytes_up)},
          {"bytes_down", kBytes, some(traffic.bytes_down)},
          {"steps", kCount, some(counts.steps)},
          {"trips", kCount, some(counts.trips)},
          {"cloud_ms", kMs, of(told, traffic.cloud_ms), "cloud"},
          {"wire_ms", kMs, traffic.wire_ms, told ? "wire" : ""},
          {"cloud_and_line_ms", kMs, of(!told, both), "cloud_and_line"},
          {"edge_ms", kMs, counts.edge_ms, "edge"},
          {"beside_ms", kMs, counts.beside_ms()},
          {"waiting_ms", kMs, r.waiting_ms()},
          {"ms", kMs, counts.ms, "total"},
          {"time_to_first_token_ms", kMs, r.first_token_ms, r.tokens > 0 ? "first_token" : ""},
          {"tokens_per_second", kTokensPerSecond, r.tokens_per_second()},
          {"cloud_percent", kPercent, r.cloud_percent()},
          {"cloud_layer_rows", kCount, some(counts.cloud_layer_rows)},
          {"cloud_layer_rows_again", kCount, some(counts.cloud_layer_rows_again())},
          {"losses", kCount, some(counts.losses)},
          {"replays", kCount, some(counts.replays)},
          {"kept_rows", kCount, some(counts.kept_rows)},
          {"cached_rows", kCount, some(counts.cached_rows)},
          {"drafted", kCount, some(counts.drafted)},
          {"accepted", kCount, some(counts.accepted)}};
}

std::string cost_json(const Receipt& receipt) {
  return cat("{", split_members(receipt), ",", cost_members(receipt), "}");
}

std::string to_json(const Receipt& r, std::span<const int32_t> prompt, const Generated& generated,
                    bool logprobs) {
  std::string out = cat("{\"model\":", json_quote(r.model), ",", split_members(r));
  out += cat(",\"prompt_tokens\":", list(prompt), ",\"tokens\":", list(generated.tokens),
             ",\"text\":", json_quote(generated.text),
             ",\"finish_reason\":", json_quote(name_of(generated.finish_reason)));
  if (logprobs) {
    out += ",\"logprobs\":[";
    for (const ScoredToken& token : generated.scored) {
      if (out.back() == '}') out += ',';
      out += cat("{\"id\":", token.id, ",\"logprob\":", number(token.logprob), ",\"top\":[");
      for (const TokenLogprob& top : token.top) {
        if (out.back() == ']') out += ',';
        out += cat("[", top.id, ",", number(top.logprob), "]");
      }
      out += "]}";
    }
    out += "]";
  }
  out += cat(",\"receipt\":{", cost_members(r), ",\"load_ms\":", fixed(r.load_ms, 3),
             ",\"load_peak_bytes\":", r.load_peak_bytes, ",\"seed\":", r.seed, "}}\n");
  return out;
}

}  // namespace split::edge
