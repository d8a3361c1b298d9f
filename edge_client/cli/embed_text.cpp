#include "edge_client/cli/embed_text.h"

#include <algorithm>

#include "edge_client/drive/split_embed.h"
#include "wire/protocol.h"

namespace split::edge {

std::string states_text(std::span<const float> rows, size_t channels, bool json) {
  const std::span last = rows.last(channels);
  std::string out;
  if (json) {
    out = "{\"mean\":";
    wire::append_floats(out, mean_row(rows, channels));
    out += ",\"last\":";
    wire::append_floats(out, last);
    out += "}\n";
  } else {
    wire::append_floats(out, last);
    out = out.substr(1, out.size() - 2) + "\n";
    std::ranges::replace(out, ',', ' ');
  }
  return out;
}

std::string embedding_text(std::vector<float> embedding, size_t tokens, bool normalizes,
                           bool json) {
  if (normalizes) to_unit_length(embedding);
  std::string out;
  wire::append_floats(out, embedding);
  if (json) {
    out = cat("{\"tokens\":", tokens, ",\"embedding\":", out, "}\n");
  } else {
    out = out.substr(1, out.size() - 2) + "\n";
    std::ranges::replace(out, ',', ' ');
  }
  return out;
}

}  // namespace split::edge
