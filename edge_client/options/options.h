// The options of edge_client: every flag, with its default. command_line.h reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/split/engine_options.h"
#include "text/sampler.h"

namespace split::edge {

struct Options : EngineOptions {
  PlacementRequest placement;

  // Exactly one of these, or text on stdin.
  std::optional<std::string> prompt, prompt_file;
  std::optional<std::vector<int32_t>> prompt_ids;

  // As a server.
  bool serve = false;
  std::string host = "127.0.0.1";
  int port = 8081;
  bool insecure = false;
  bool special_in_content = false;
  std::string log_format = "text";
  std::vector<std::string> allowed_hosts, cors_origins;
  int stops_cloud = 0;         // process that the page may end; 0: none
  uint64_t memory_budget = 0;  // bytes that requests may hold; 0: what the system grants

  SamplingOptions sampling;
  std::optional<uint64_t> seed;  // its seed; nullopt: drawn
  std::vector<std::string> stop;
  bool ignore_eos = false, no_special = false;
  std::optional<int> logprobs;

  bool jsonl = false;                      // with embed: one embedding for each line
  std::optional<std::string> rerank = {};  // the query that lines are ranked by; goes with embed
  std::string out;                         // output file for these; empty: stdout
  bool plan = false, list_devices = false, json = false, quiet = false;
  bool measure = false;     // applies to plan
  bool goal_given = false;  // receipts then have the forecast
};

}  // namespace split::edge
