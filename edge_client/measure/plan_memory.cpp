#include "edge_client/measure/plan_memory.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/bytes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sort.h"
#include "edge_client/weights/blobs/kept_file.h"
#include "wire/load.h"

namespace split::edge {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMostPlans = 16 << 10;
constexpr double kMostFigure = 1e9;

// Every figure of a record by name: one list for reading and writing.
constexpr auto kSpeed = [](auto& speed, const auto& visit) {
  wire::visit_costs(speed, visit);
  visit("step_ms", speed.step_ms);
  visit("busy_step_ms", speed.busy_step_ms);
};
constexpr auto kNetwork = [](auto& network, const auto& visit) {
  visit("rtt_ms", network.rtt_ms);
  visit("down_mbit", network.down_mbit);
  visit("up_mbit", network.up_mbit);
  visit("step_ms", network.step_ms);
};
constexpr auto kPrices = [](auto& prices, const auto& visit) {
  visit("hour", prices.hour);
  visit("egress_gb", prices.egress_gb);
};
constexpr auto kLearnt = [](auto& facts, const auto& visit) {
  const auto part = [&](const char* factor, const char* extra, auto& learnt) {
    visit(factor, learnt.factor);
    visit(extra, learnt.extra_ms);
  };
  part("edge", "edge_extra_ms", facts.correction.edge);
  part("wire", "wire_extra_ms", facts.correction.wire);
  part("cloud", "cloud_extra_ms", facts.correction.cloud);
  part("stream", "stream_extra_ms", facts.correction.stream);
  visit("split_rows", facts.split.rows);
  visit("split_tokens", facts.split.tokens);
  visit("local_rows", facts.local.rows);
  visit("local_tokens", facts.local.tokens);
};

template <typename Facts, typename Walk>
Json written(Facts& facts, const Walk& walk) {
  Json json = Json::object();
  walk(facts, [&](const char* name, const double& value) { json[name] = value; });
  return json;
}

template <typename Facts, typename Walk>
Facts read(const Json& json, const Walk& walk) {
  Facts facts;
  walk(facts, [&](const char* name, double& value) {
    value = json.at(name).get<double>();
    const bool below = value < 0 && !std::string_view(name).ends_with("extra_ms");
    if (below || !(std::abs(value) <= kMostFigure)) {
      throw Error(ErrorKind::kInput, cat(name, ": no figure of a plan"));
    }
  });
  return facts;
}

template <typename Part, typename Walk>
Json written_if(const std::optional<Part>& part, const Walk& walk) {
  return part ? written(*part, walk) : Json();
}
template <typename Part, typename Walk>
std::optional<Part> read_if(const Json& json, const Walk& walk) {
  if (json.is_null()) return std::nullopt;
  return read<Part>(json, walk);
}

}  // namespace

fs::path PlanMemory::path() const {
  return folder_ / Sha256::hex_of(as_bytes_of(cat(server_, "\n", model_, "\n", here_)));
}

PlanFacts PlanMemory::recall() const {
  try {
    const std::optional<std::string> text = read_kept(path(), kMostPlans);
    if (!text) return {};
    const Json json = parse_json(*text, 4, "the record of a plan");
    if (json.at("server").text() != server_ || json.at("model").text() != model_ ||
        json.at("here").text() != here_) {
      return {};
    }
    PlanFacts facts = read<PlanFacts>(json.at("learnt"), kLearnt);
    facts.network = read_if<Network>(json.at("network"), kNetwork);
    facts.edge = read_if<Speed>(json.at("edge"), kSpeed);
    facts.cloud = read_if<Speed>(json.at("cloud"), kSpeed);
    facts.prices = read_if<Prices>(json.at("prices"), kPrices);
    return facts;
  } catch (const Error&) {
    return {};
  }
}

void PlanMemory::remember(const PlanFacts& facts) const {
  Json json = {{"server", server_}, {"model", model_}, {"here", here_}};
  json["network"] = written_if(facts.network, kNetwork);
  json["edge"] = written_if(facts.edge, kSpeed);
  json["cloud"] = written_if(facts.cloud, kSpeed);
  json["prices"] = written_if(facts.prices, kPrices);
  json["learnt"] = written(facts, kLearnt);
  try {
    write_kept(path(), json.dump());
    make_room();
  } catch (const Error&) {  // a plan is no reason to fail
  }
}

void PlanMemory::make_room() const {
  std::vector<FoundFile> all = files_below(folder_);
  if (all.size() <= kMost) return;
  sort_stably(all, [](const FoundFile& a, const FoundFile& b) {
    return std::tie(a.status.written, a.path) < std::tie(b.status.written, b.path);
  });
  for (size_t i = 0; i + kMost < all.size(); ++i) remove_file(all[i].path);
}

}  // namespace split::edge
