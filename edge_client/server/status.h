// Describes the server on GET /split/status.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "edge_client/engine/answers.h"
#include "edge_client/server/probe.h"
#include "edge_client/weights/loader.h"
#include "edge_client/weights/stage_progress.h"

namespace split::edge {

struct ServiceState {
  bool stopping = false;
  std::string origin;  // of the cloud
  Probe::Seen cloud;
  std::shared_ptr<PlacedModel> split;        // that answers begin with; null until it is loaded
  std::optional<Placement> coming;           // that is being loaded
  std::shared_ptr<const PlacedModel> grown;  // beside answers; null: none is
  bool follows = false;                      // where answers begin is chosen as the weights come
  wire::ModelInfo info;                      // of either
  const ModelConfig* config = nullptr;       // likewise
  FetchCounts fetched;                       // of the split, and beside its answers
  std::map<std::string, StageProgress::Count> progress;
  std::string last_receipt;  // JSON; empty: none yet
  std::string plan;          // JSON of the next answer's plan (place/plan_report.h)
  std::vector<Answers::Answer> answers;
  std::optional<bool> exact;  // moves change no bit; none: nobody looked
  Goal goal = Goal::kFast;    // of a cut that is chosen
  StageFormats formats;       // of downloads,
  std::string device_asked;
  std::vector<std::string> devices;  // and which there are
};

// {"model","cut","server","device","stages" ...}
std::string status_json(const ServiceState& now);

}  // namespace split::edge
