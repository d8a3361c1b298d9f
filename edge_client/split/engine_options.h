// The options of an engine: which server and model, where a text may run, and what it may take. A
// face makes them, of its flags or otherwise.
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

// Where texts are to run.
struct PlacementRequest {
  std::optional<int> cut;            // none: default_cut()
  bool all_on_cloud = false;         // --cut cloud; and auto, which begins so
  bool auto_cut = false;             // --cut auto: the text goes on here once all weights are
  bool head_on_cloud = false;        // --head cloud
  bool head_given = false;           // else a large one stays on the cloud
  std::vector<ScheduledMove> moves;  // of each text
  bool embed = false;                // hidden states alone are asked for
  // Texts come at any time, several at once: the KV cache has room for some contexts, chats and
  // embeddings are answered too, and weights that are missing come while no text runs.
  bool many_texts = false;
};

struct EngineOptions : PlacementRequest {
  std::string server;
  std::string api_key, ca_cert;
  std::string model;       // empty: the server's first
  bool any_model = false;  // a request's model is this one, whatever it is called there

  std::optional<uint64_t> max_weights;  // bytes that come beside a text; none: the default
  std::string tail;                     // a file of a tail of one's own; empty: none
  std::optional<int> context;           // positions of a text
  bool exact = false;                   // none that may change a bit
  bool stay = false;                    // nor where the cloud is lost
  DType wire = DType::kF32;             // of hidden states on their way
  StageFormats formats;                 // to download,
  bool own_blocks = false;  // but where the server's own weights are blocks, as they are
  Profile profile = Profile::kF32;
  DeviceOptions device;
  std::string cache;  // empty: the default place
  std::optional<uint64_t> cache_limit;
  DraftOptions drafts = {.most = kMostDrafts};  // of texts that run here alone; without a memory
  Goal goal = Goal::kFast;                      // of a cut that is chosen
  float pace = 10;                              // tokens/s that offloading keeps
  unsigned timeout = 60, retry_for = 30;        // seconds
  uint64_t min_rate = 100;                      // bytes a second

  bool waits_for_cloud = false;  // for `retry_for` at the start too, where it was never heard of
  bool needs_cloud = false;      // what was last seen of a model does not do in its place
  bool keeps_turns = true;       // of a chat, for its next one
  std::string chat_template;     // its text; empty: the model's own
  uint64_t kv_budget = 0;        // bytes; 0: one whole context, of many texts some
  int max_tokens = 64;           // that a text has at most
};

}  // namespace split::edge
