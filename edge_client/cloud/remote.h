// The cloud as the edge sees it: one typed method for each route. Checks every answer: it has the
// rows, columns and finite values of the request, or is an error in one line. Does not retry
// (retry.h).
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/place/planner.h"
#include "edge_client/split/cloud_link.h"
#include "http/client.h"
#include "wire/audit.h"
#include "wire/load_note.h"
#include "wire/step.h"

namespace split::edge {

// Explains a reply with an error status, in one line.
RemoteError refusal(const std::string& origin, const http::Reply& reply, std::string_view path);

// Error: the server has another model under this name than the one loaded here.
RemoteError model_changed(const std::string& origin, std::string_view id);

// The API key of this program, and the certificates that it trusts.
struct Credentials {
  std::string api_key;                 // for the server's own origin alone; empty: none
  std::string ca_cert_file;            // empty: the system's
  http::Environment environment = {};  // has the variables that name proxies; empty: no proxy
  http::Connector connector = {};      // empty: the system's way
};

// Timeouts of requests to a server.
struct Patience {
  // NOLINTNEXTLINE(google-explicit-constructor): a timeout alone is one
  template <typename Rep, typename Period>
  Patience(std::chrono::duration<Rep, Period> timeout) : timeout(timeout) {}
  Patience(std::chrono::milliseconds timeout, uint64_t min_rate)
      : timeout(timeout), min_rate(min_rate) {}
  std::chrono::milliseconds timeout;                     // longest silence
  uint64_t min_rate = http::Client::Options().min_rate;  // bytes/s; 0: no limit
};

// Options of both HTTP clients of this program.
http::Client::Options client_options(const std::string& url, const Patience& patience,
                                     const Credentials& credentials = {});
// The code of an error if the server does not prove to be the requested one.
inline constexpr char kTlsCode[] = "tls";
// The client's error in the edge's words.
RemoteError no_answer(const http::NoReply& error);

// The model that rows are requested from.
struct AskedModel {
  std::string id = {};
  uint32_t channels = 0, vocab = 0;
  std::span<const RowPart> row_parts = {};
  DType wire = DType::kF32;  // format of hidden states on the wire
  bool moves = false;        // a step names its cut, and where its text could go on
  bool digests = false;      // a step has the digest of its session's ids
  bool again = false;        // a step says which rows a lost session had

  // Columns of a row of states there.
  uint32_t width(Point point) const {
    int64_t all = channels;
    for (const RowPart& part : row_parts) all += point < Point::norm() ? part.at(point.block()) : 0;
    return static_cast<uint32_t>(all);
  }
};

// One thread at a time, except cancel().
class Remote {
 public:
  // Most bytes of an answer in JSON; a manifest has more: a hash for each MiB.
  static constexpr uint64_t kMostJson = 1 << 20;
  // Timeout of a request to end a session.
  static constexpr std::chrono::milliseconds kGoodbye{2000};

  // Throws Error(kInput) for a bad URL.
  Remote(const std::string& url, const Patience& patience, Credentials credentials = {});

  const std::string& origin() const { return client_.origin(); }
  const Patience& patience() const { return patience_; }
  const Credentials& credentials() const { return credentials_; }
  // Any thread; for good.
  void cancel() {
    cancelled_ = true;
    client_.cancel();
  }
  bool cancelled() const { return cancelled_; }
  // Sets the trace of later requests (http/trace.h), as a traceparent; empty: none.
  void set_trace(std::string_view traceparent) { trace_ = traceparent; }
  // Sets the scope in which sessions opened later share rows (wire::SessionRequest).
  void set_sharing(bool cache_prompt, std::string_view cache_salt) {
    cache_prompt_ = cache_prompt;
    cache_salt_ = cache_salt;
  }
  // Like http::Client::on_silence.
  void on_silence(std::function<bool()> is_lost) { client_.on_silence(std::move(is_lost)); }

  std::vector<wire::ListedModel> models();
  // Requests a few bytes: a round trip.
  void ping() { get("/livez", 4096); }
  // "cloud_server 0.1.0", if the server says so.
  std::optional<std::string> version();
  // Sets the query of later calls of model() (wire::model_query()): the server may still be making
  // other formats.
  void set_manifest_query(std::string query) { query_ = std::move(query); }
  wire::ModelInfo model(const std::string& id);
  // Whether the server still has the model that model() described, here or to another Remote, and
  // whether its rows have the same bits, by its last load note too. Asks once on each connection,
  // since a restarted server may have other weights under the same name.
  enum class Has : uint8_t { kAnother, kInOtherBits, kSame };
  Has still_has(const wire::ModelInfo& info);
  // The model's load and the cost of its rows there; nullopt if the server does not say.
  std::optional<CloudLoad> load(const std::string& id);
  // Times of the stages there in ms, as far as known.
  std::map<std::string, double> stage_times(const std::string& id);
  std::string file(const std::string& id, const std::string& name);
  // Rows of an answer that was given there, with a proof that is still to be checked.
  wire::AuditedRows audit(const Json& request, uint32_t rows, uint32_t width);
  // Implements CloudLink::ask() on this connection (model_link.cpp); kPing throws nothing, kClose
  // does.
  std::vector<float> ask(const Send& send, const AskedModel& model);
  // Ends a session by a last request on the open connection, without reading the answer. Returns
  // false without one.
  bool leave(const std::string& session);
  // The note of the load in the last answer to a step, fill, completion or look.
  const std::optional<wire::LoadNote>& said_of_load() const { return load_note_; }
  // Reads a completion's events, at most max_bytes, until on_event returns false. Throws if the
  // stream ends before "[DONE]".
  void complete(const std::string& path, const std::string& body,
                const std::function<bool(std::string_view)>& on_event, uint64_t max_bytes,
                Traffic& traffic);

 private:
  http::Headers traced(const http::Headers& headers) const;
  http::Reply get(const std::string& path, uint64_t max_bytes);
  http::Reply ask(std::string_view method, const std::string& path, std::string_view body,
                  std::string_view type, uint64_t max_bytes);
  // Throws refusal() for an error's status.
  void expect_ok(const http::Reply& reply, std::string_view path) const;
  std::vector<float> tensor(const http::Reply& reply, std::string_view name, size_t rows,
                            uint32_t columns) const;
  template <typename Read>
  auto read(std::string_view what, const Read& read) const;

  const Patience patience_;
  const Credentials credentials_;
  http::Client client_;
  std::optional<wire::LoadNote> load_note_;
  std::string query_, trace_, cache_salt_;
  bool cache_prompt_ = true;
  std::atomic<bool> cancelled_ = false;
  uint64_t described_ = 0;  // connection of the last model() call
};

// Sum of queue and compute in a Server-Timing header, in ms; 0 if there is none that can be read.
double server_ms(std::optional<std::string_view> header);

// A path segment: everything but letters, digits and "-._~" as %XX.
std::string path_segment(std::string_view text);

}  // namespace split::edge
