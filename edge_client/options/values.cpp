#include "edge_client/options/values.h"

#include "base/bytes.h"
#include "base/json.h"
#include "http/server/local_guard.h"

namespace split::edge {

std::vector<int32_t> ids_of(std::string_view text) {
  std::vector<int32_t> ids;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const auto id = parse_u64(text.substr(0, comma), 0, INT32_MAX);
    const bool ends_in_comma = comma + 1 == text.size();
    if (!id || ends_in_comma)
      refuse(cat("--prompt-ids: expected token ids like 15496,11,995, got ", shown(text)));
    ids.push_back(static_cast<int32_t>(*id));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return ids;
}

void read_moves(std::string_view text, Options& options) {
  const auto expected = [&](const char* what) {
    refuse(cat("--moves: expected ", what, ", got ", shown(text)));
  };
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    const bool ends_in_comma = entry.size() + 1 == rest.size();
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    const size_t colon = std::min(entry.find(':'), entry.size());
    const auto at = parse_u64(entry.substr(0, colon), 0, 1 << 20);
    const std::string_view place = entry.substr(std::min(colon + 1, entry.size()));
    const bool cloud = place == "cloud";
    const auto cut = cloud ? 0 : parse_u64(place, 0, 1024);
    if (!at || !cut || ends_in_comma)
      expected("N:K,... like 0:6,12:2,20:cloud: with N tokens out, K blocks on the cloud, or all");
    const ScheduledMove move{static_cast<uint32_t>(*at),
                             cloud ? Cut::cloud() : Cut(static_cast<int>(*cut))};
    if (!options.placement.moves.empty() && move.at <= options.placement.moves.back().at)
      expected("rising N");
    options.placement.moves.push_back(move);
  }
  if (options.placement.moves.empty()) expected("N:K,... like 0:6,12:2");
  if (options.placement.moves[0].at > 0) return;
  if (options.placement.cut) expected("no 0: beside --cut");
  options.placement.cut = options.placement.moves[0].cut;
  options.placement.moves.erase(options.placement.moves.begin());
}

DraftOptions drafts_of(std::string_view text) {
  if (text == "off") return {};
  if (text == "auto") return {.most = kMostDrafts};
  const auto most = parse_u64(text, 1, kMostDrafts);
  if (!most) refuse(cat("--draft: expected auto, off or 1..", kMostDrafts, ", got ", shown(text)));
  return {.most = static_cast<size_t>(*most), .always = true};
}

void read_address(std::string_view text, Options& options) {
  const size_t colon = text.rfind(':');
  const bool host = colon != text.npos;
  std::string_view name = host ? text.substr(0, colon) : "127.0.0.1";
  const bool six = name.starts_with('[') && name.ends_with(']');
  if (six) name = name.substr(1, name.size() - 2);
  const auto port = parse_u64(host ? text.substr(colon + 1) : text, 0, 65535);
  if (!port || name.empty() || (!six && name.find(':') != name.npos))
    refuse(cat("--serve: expected HOST:PORT like ", kDefaultAddress, ", got ", shown(text)));
  options.host = name;
  options.port = static_cast<int>(*port);
  http::expect_only_local(options.host, options.insecure, cat("--serve ", shown(text)));
}

}  // namespace split::edge
