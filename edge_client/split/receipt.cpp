#include "edge_client/split/receipt.h"

#include <algorithm>
#include <charconv>

#include "base/figures.h"
#include "base/json.h"

namespace split::edge {
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

}  // namespace

std::string Receipt::plan() const {
  return cat(model, ": ", cloud_stages, " on ", server, "; ", edge_stages,
             device == "none" ? " here" : cat(" on ", device));
}

double Receipt::tokens_per_second() const {
  const double after_first = counts.ms - first_token_ms;
  if (tokens > 1 && after_first > 0) return static_cast<double>(tokens - 1) / after_first * 1000;
  return tokens == 1 && counts.ms > 0 ? 1000 / counts.ms : 0;
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
  const double steps = static_cast<double>(std::max<uint64_t>(1, r.counts.steps));
  const Traffic& traffic = r.counts.traffic;
  const auto per_token = [&](uint64_t bytes) {
    return human_bytes(static_cast<uint64_t>(static_cast<double>(bytes) / fed));
  };
  line("model", cat(r.model, ", cut ", r.cut));
  line("cloud", cat(r.cloud_stages, " on ", r.server, " (", r.profile, ")"));
  line("edge", cat(r.edge_stages,
                   r.device == "none" ? "" : cat(" on ", r.device, " (", r.edge_profile, ")")));
  line("weights",
       cat(human_bytes(r.fetched.downloaded), " downloaded, ", human_bytes(r.fetched.from_cache),
           " from the cache; ready after ", fixed(r.load_ms / 1000, 2), " s"));
  line("wire", cat(per_token(traffic.bytes_up), " up and ", per_token(traffic.bytes_down),
                   " down per token, ", human_bytes(traffic.bytes_up), " and ",
                   human_bytes(traffic.bytes_down), " in all",
                   r.counts.replays > 0 ? cat("; ", r.counts.replays, " replays") : ""));
  line("step",
       cat(fixed(traffic.cloud_ms / steps, 2), " ms cloud + ", fixed(traffic.wire_ms / steps, 2),
           " ms wire + ", fixed(r.counts.edge_ms / steps, 2), " ms edge, on average"));
  for (const Move& move : r.counts.moves) {
    const auto place = [](int cut) { return cut == Move::kCloud ? "the cloud" : cat("cut ", cut); };
    line("move", cat("at ", move.at, " tokens from ", place(move.from), " to ", place(move.to),
                     " (", move.why, "): ", move.rows, " rows, ", human_bytes(move.bytes),
                     ", the next after ", fixed(move.pause_ms, 0), " ms",
                     r.exact.value_or(true) ? "" : "; may differ at near-ties"));
  }
  line("tokens", cat(r.prompt_tokens, " in, ", r.tokens, " out (", r.finish_reason,
                     "), first after ", fixed(r.first_token_ms, 0), " ms, ",
                     fixed(r.tokens_per_second(), 1), " tokens/s, seed ", r.seed));
  return out;
}

namespace {

// "cut":2,"device":"cpu (1 thread, avx2)"
std::string split_members(const Receipt& r) {
  return cat("\"cut\":", r.cut == "cloud" ? "\"cloud\"" : r.cut,
             ",\"device\":", json_quote(r.device));
}

std::string place_json(int cut) { return cut == Move::kCloud ? "\"cloud\"" : std::to_string(cut); }

std::string moves_json(std::span<const Move> moves) {
  std::string out = "[";
  for (const Move& move : moves) {
    out += cat(out.size() > 1 ? "," : "", "{\"at\":", move.at, ",\"from\":", place_json(move.from),
               ",\"to\":", place_json(move.to), ",\"why\":", json_quote(move.why),
               ",\"rows\":", move.rows, ",\"bytes\":", move.bytes,
               ",\"pause_ms\":", fixed(move.pause_ms, 3), "}");
  }
  return out + "]";
}

std::string cost_members(const Receipt& r) {
  const Traffic& traffic = r.counts.traffic;
  return cat("\"bytes_downloaded\":", r.fetched.downloaded,
             ",\"bytes_from_cache\":", r.fetched.from_cache, ",\"bytes_up\":", traffic.bytes_up,
             ",\"bytes_down\":", traffic.bytes_down, ",\"steps\":", r.counts.steps,
             ",\"trips\":", r.counts.trips, ",\"cloud_ms\":", fixed(traffic.cloud_ms, 3),
             ",\"wire_ms\":", fixed(traffic.wire_ms, 3),
             ",\"edge_ms\":", fixed(r.counts.edge_ms, 3),
             ",\"time_to_first_token_ms\":", fixed(r.first_token_ms, 3),
             ",\"tokens_per_second\":", fixed(r.tokens_per_second(), 3),
             ",\"cloud_layer_rows\":", r.counts.cloud_layer_rows, ",\"replays\":", r.counts.replays,
             ",\"drafted\":", r.counts.drafted, ",\"accepted\":", r.counts.accepted, ",\"exact\":",
             !r.exact   ? "null"
             : *r.exact ? "true"
                        : "false",
             ",\"moves\":", moves_json(r.counts.moves));
}

}  // namespace

std::string cost_json(const Receipt& receipt) {
  return cat("{", split_members(receipt), ",", cost_members(receipt), "}");
}

std::string to_json(const Receipt& r, std::span<const int32_t> prompt, const Generated& generated,
                    bool logprobs) {
  std::string out = cat("{\"model\":", json_quote(r.model), ",", split_members(r));
  out += cat(",\"prompt_tokens\":", list(prompt), ",\"tokens\":", list(generated.tokens),
             ",\"text\":", json_quote(generated.text),
             ",\"finish_reason\":", json_quote(generated.finish_reason));
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
