// The options of an engine: its server and what it may take, which stay, and the model and its
// place, which a server's client may change. A face makes them, of its flags or otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "edge_client/place/planner.h"
#include "models/formats.h"
#include "run/shard/shard.h"
#include "run/text/drafts.h"

namespace split::http {
class Transport;
}

namespace split::edge {

// A move of the cut once so many tokens are out.
struct ScheduledMove {
  uint32_t at = 0;
  Cut cut;
};

enum class Head : uint8_t { kEdge, kCloud };

// The model, and where its texts are to run: a server's clients may ask for another.
struct PlacementRequest {
  std::string model;                 // empty: the server's first
  std::optional<Cut> cut;            // nullopt: default_cut()
  bool auto_cut = false;             // --cut auto: the text moves from the cloud once weights come
  std::optional<Head> head;          // nullopt: a large one stays on the cloud
  std::vector<ScheduledMove> moves;  // each text's
  StageFormats formats;              // format of downloads
  Profile profile = Profile::kF32;
  bool names_arithmetic = false;  // the profile or the formats, so that the server's is not taken
  bool own_blocks = false;        // download the server's block formats as they are, if it has such
  DeviceOptions device;
  bool embed = false;  // only hidden states are needed
  // Texts come at any time, several at once: the KV cache has room for some contexts, chats and
  // embeddings are answered too, and missing weights download while no text runs.
  bool many_texts = false;

  // Takes a server's profile of int8, whose rows have the same bits on every device.
  void join(std::string_view server_profile);
  PlacementRequest at(Cut other) const {
    PlacementRequest request = *this;
    request.cut = other;
    return request;
  }
};

struct EngineOptions {
  std::string server;
  std::string api_key, ca_cert;
  // Makes the way to a server (http::Connector); empty: the system's.
  std::function<std::unique_ptr<http::Transport>(const std::string& url)> connector;
  bool any_model = false;  // every model name in a request means this one

  std::optional<uint64_t> max_weights;  // bytes downloaded beside a text; none: the default
  std::string tail;                     // file of a fine-tuned tail; empty: none
  std::optional<int> context;           // positions of a text; none: the model's
  bool exact = false;                   // no move may change a bit
  bool stay = false;                    // texts at a named cut wait for a lost cloud
  DType wire = DType::kF32;             // format of hidden states on the wire
  std::string cache;                    // empty: the default directory
  std::optional<uint64_t> cache_limit;
  DraftOptions drafts = {.most = kMostDrafts};  // for texts that run here alone; `memory` is unset
  Goal goal = Goal::kFast;                      // applies to automatic choices
  float pace = 10;                              // tokens/s that offloading keeps at least
  unsigned timeout = 60, retry_for = 30;        // seconds
  uint64_t min_rate = 100;                      // bytes/s

  bool waits_for_cloud = false;  // up to `retry_for` seconds at start, even if the server was never
                                 // reached before
  bool needs_cloud = false;      // no start from the cached description of a model
  bool keeps_turns = true;       // rows of a chat, for its next turn
  std::string chat_template;     // the template's text; empty: the model's own
  uint64_t kv_budget = 0;        // bytes; 0: one whole context, several with many_texts
  int max_tokens = 64;           // most tokens of a text
};

}  // namespace split::edge
