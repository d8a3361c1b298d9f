// The cloud's routes over its models and sessions. main() makes one of these and a server; so do
// the tests.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "cloud_server/served_model.h"
#include "http/server.h"
#include "run/sessions.h"
#include "serve/api_keys.h"
#include "serve/metrics.h"
#include "serve/text_backend.h"

namespace split::cloud {

struct Cloud {
  std::vector<std::unique_ptr<ServedModel>> models;
  Sessions sessions{1 << 16};
  std::atomic<bool> ready{false};
  std::string version;
  bool legacy_routes = false;     // the original web page's are answered
  serve::SpareThreads spare{64};  // for several texts of an answer at once
  std::string blob_url;           // where edges get blobs (wire::ModelInfo); empty: here
  serve::ApiKeys keys;            // none: anybody may ask
  serve::Metrics metrics;
  enum class MetricsFor { kGuarded, kAnybody, kNobody } metrics_for = MetricsFor::kGuarded;

  // The model of this id; "" is the first. Throws HttpError 404 `model_not_found`.
  ServedModel& find(const std::string& id);
};

// Adds every route. The cloud outlives the server.
void add_routes(http::Server& server, Cloud& cloud);

// The parts, one file each.
using Routes = std::vector<http::Route>;
Routes description_routes(Cloud& cloud);  // /, /livez, /readyz
Routes model_routes(Cloud& cloud);        // /v1/models..., /v1/blobs...
Routes forward_routes(Cloud& cloud);      // stateless forward, completions
Routes session_routes(Cloud& cloud);      // /v1/sessions...
Routes legacy_routes(Cloud& cloud);       // the original web page's
Routes observed_routes(Cloud& cloud);     // /metrics
// What /metrics says. Before the server runs.
void observe(http::Server& server, Cloud& cloud);

// The routes whose answers are weights.
inline constexpr char kBlobRoute[] = "/v1/blobs/sha256/{hash}";
inline constexpr char kStageRoute[] = "/v1/models/{id}/stages/{stage}";

// "0".."L", "norm" or "head" as a point (run/shard.h). Throws Error(kInput) about `to`.
int point_named(const std::string& text, int layers);

// A sequence that ends with the request.
struct OneSequence {
  explicit OneSequence(KvPages& pages) : pages(pages), id(pages.open()) {}
  ~OneSequence() { pages.close(id); }
  OneSequence(const OneSequence&) = delete;
  OneSequence& operator=(const OneSequence&) = delete;
  KvPages& pages;
  SequenceId id;
};

// Runs the job for who asks: counted, and refused by 429 while their key owes rows.
void run_job(const Cloud& cloud, const http::Request& request, ServedModel& model, Job& job);
// For whom a request's jobs run. While the request is answered.
Asker asker_of(const http::Request& request);
// The headers of a computed answer: how long it waited and ran; not to be stored.
void describe_run(http::Response& response, const Job& job);
// True when the client wants safetensors rather than JSON.
bool wants_tensors(const http::Request& request);
// True when the body is safetensors.
bool sends_tensors(const http::Request& request);

bool all_finite(std::span<const float> values);
// What to say when a result is not: 400 when the client sent the hidden state, 500 otherwise.
[[noreturn]] void refuse_overflow(bool from_hidden);

}  // namespace split::cloud
