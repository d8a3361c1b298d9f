// The options of edge_client: every flag, with its default. options/command_line.h reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "edge_client/place/planner.h"
#include "models/formats.h"
#include "run/shard/shard.h"
#include "run/text/drafts.h"

namespace split::edge {

// With so many tokens out the cut is to be there.
struct ScheduledMove {
  uint32_t at = 0;
  int cut = 0;
};

struct Options {
  std::string server;
  std::string api_key, ca_cert;
  std::string model;  // empty: the server's first
  // Exactly one of these, or text on stdin.
  std::optional<std::string> prompt, prompt_file;
  std::optional<std::vector<int32_t>> prompt_ids;

  std::optional<int> cut;               // none: default_cut()
  bool all_on_cloud = false;            // --cut cloud; and auto, which begins so
  bool auto_cut = false;                // --cut auto: the text goes on here once all weights are
  std::optional<uint64_t> max_weights;  // bytes that come beside a text; none: the default
  bool head_on_cloud = false;           // --head cloud
  bool head_given = false;              // else a large one stays on the cloud
  std::string tail;                     // a file of a tail of one's own; empty: none
  std::optional<int> context;           // positions of a text
  std::vector<ScheduledMove> moves;     // of each text
  bool exact = false;                   // none that may change a bit
  bool stay = false;                    // nor where the cloud is lost
  DType wire = DType::kF32;             // of hidden states on their way
  StageFormats formats;                 // to download,
  bool own_blocks = false;  // but where the server's own weights are blocks, as they are
  Profile profile = Profile::kF32;
  DeviceOptions device;
  std::string cache;  // empty: the default place
  std::optional<uint64_t> cache_limit;

  // As a server.
  bool serve = false;
  std::string host = "127.0.0.1";
  int port = 8081;
  bool insecure = false;
  std::string chat_template;  // its text; empty: the model's own
  bool special_in_content = false;
  bool any_model = false;  // a request's model is this one, whatever it is called there
  uint64_t kv_budget = 0;  // bytes; 0: one whole context, of a server some
  std::string log_format = "text";
  std::vector<std::string> allowed_hosts, cors_origins;
  int stops_cloud = 0;         // the process that the page may end; 0: none
  uint64_t memory_budget = 0;  // bytes that requests may hold; 0: what the system grants

  int max_tokens = 64;
  float temperature = 0.8f, top_p = 0.95f, min_p = 0, repetition_penalty = 1;
  float presence_penalty = 0, frequency_penalty = 0;
  int top_k = 0;
  std::optional<uint64_t> seed;  // none: drawn
  std::vector<std::string> stop;
  bool ignore_eos = false, no_special = false;
  std::optional<int> logprobs;
  DraftOptions drafts = {.most = kMostDrafts};  // of texts that run here alone; without a memory

  bool jsonl = false;                      // with embed: of each line
  std::optional<std::string> rerank = {};  // what lines are ranked by; embed goes with it
  std::string out;                         // where these go; empty: stdout
  bool embed = false, plan = false, list_devices = false, json = false, quiet = false;
  bool measure = false;                   // for the plan
  Goal goal = Goal::kFast;                // of a cut that is chosen
  bool goal_given = false;                // then receipts say what was foreseen
  float pace = 10;                        // tokens/s that offloading keeps
  unsigned timeout = 60, retry_for = 30;  // seconds
  uint64_t min_rate = 100;                // bytes a second
};

}  // namespace split::edge
