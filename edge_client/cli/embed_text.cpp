#include "edge_client/cli/embed_text.h"

#include <algorithm>

#include "run/sentences.h"
#include "wire/protocol.h"

namespace split::edge {

namespace {

std::string spaced(std::span<const float> values) {
  std::string out;
  wire::append_floats(out, values);
  out = out.substr(1, out.size() - 2) + "\n";
  std::ranges::replace(out, ',', ' ');
  return out;
}

}  // namespace

std::string states_text(std::span<const float> rows, size_t channels, bool json) {
  const std::span last = rows.last(channels);
  if (!json) return spaced(last);
  std::string out = "{\"mean\":";
  wire::append_floats(out, mean_row(rows, channels));
  out += ",\"last\":";
  wire::append_floats(out, last);
  return out + "}\n";
}

std::string embedding_text(std::vector<float> embedding, size_t tokens, bool normalizes,
                           bool json) {
  if (normalizes) to_unit_length(embedding);
  if (!json) return spaced(embedding);
  std::string out = cat("{\"tokens\":", tokens, ",\"embedding\":");
  wire::append_floats(out, embedding);
  return out + "}\n";
}

}  // namespace split::edge
