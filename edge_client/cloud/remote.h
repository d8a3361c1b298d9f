// The cloud as the edge sees it: one method for each route, typed. Every answer is checked here:
// what comes back has the rows, columns and finite values that were asked for, or is an error in
// one line. Retries are for others to make (retry.h).
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
#include "wire/load_note.h"
#include "wire/step.h"

namespace split::edge {

// Explains a reply whose status is an error, in one line.
RemoteError refusal(const std::string& origin, const http::Reply& reply, std::string_view path);

// The server has another model under this name than the one that was loaded here.
RemoteError model_changed(const std::string& origin, std::string_view id);

// The key that lets this program in at the server, and the certificates that it trusts.
struct Credentials {
  std::string api_key;                 // for the server's own origin alone; empty: none
  std::string ca_cert_file;            // empty: the system's
  http::Environment environment = {};  // whose variables name proxies; none: no proxy
};

// How long a server is waited for.
struct Patience {
  // NOLINTNEXTLINE(google-explicit-constructor): a timeout alone is one
  template <typename Rep, typename Period>
  Patience(std::chrono::duration<Rep, Period> timeout) : timeout(timeout) {}
  Patience(std::chrono::milliseconds timeout, uint64_t min_rate)
      : timeout(timeout), min_rate(min_rate) {}
  std::chrono::milliseconds timeout;                     // of silence
  uint64_t min_rate = http::Client::Options().min_rate;  // bytes a second; 0: none
};

// For both clients of this program.
http::Client::Options client_options(const std::string& url, const Patience& patience,
                                     const Credentials& credentials = {});
// The client's error in the edge's words; code "tls" where the server's certificate is not good.
RemoteError no_answer(const http::NoReply& error);

// A model whose rows are asked for.
struct AskedModel {
  std::string id = {};
  uint32_t channels = 0, vocab = 0;
  DType wire = DType::kF32;  // of hidden states on their way
  bool moves = false;        // a step says where it goes, and where its text could go on
  bool digests = false;      // and by which ids its session's rows are to be
  bool again = false;        // and which rows a session had that was lost
};

// One thread at a time, but for cancel().
class Remote {
 public:
  // The silence after which ending a session is given up.
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
  // The trace that requests from now on belong to (http/trace.h), as a traceparent; empty: none.
  void set_trace(std::string_view traceparent) { trace_ = traceparent; }
  // The owner whose rows the sessions that it opens share (wire::SessionRequest).
  void set_sharing(bool cache_prompt, std::string_view cache_salt) {
    cache_prompt_ = cache_prompt;
    cache_salt_ = cache_salt;
  }
  // As http::Client::on_silence.
  void on_silence(std::function<bool()> is_lost) { client_.on_silence(std::move(is_lost)); }

  std::vector<std::string> models();
  // Asks for a few bytes: a round trip.
  void ping() { get("/livez", 4096); }
  // "cloud_server 0.1.0", if it says so.
  std::optional<std::string> version();
  // Sets what model() asks for from now on (wire::model_query()): the server may still be making
  // others.
  void set_manifest_query(std::string query) { query_ = std::move(query); }
  wire::ModelInfo model(const std::string& id);
  // Whether the server has the model that model() described, here or to another Remote: asked once
  // on each connection, since a server that was started again may have other weights under the same
  // name.
  bool still_has(const wire::ModelInfo& info);
  // How busy the model is there and what its rows cost; nothing of a server that does not say.
  std::optional<CloudLoad> load(const std::string& id);
  // ms of each stage there, as far as they are known.
  std::map<std::string, double> stage_times(const std::string& id);
  std::string file(const std::string& id, const std::string& name);
  // Returns what CloudLink::ask() does, over this connection; kPing throws nothing, kClose does.
  std::vector<float> ask(const Send& send, const AskedModel& model);
  // Ends a session by the last word on the connection that is there, and waits for no answer. False
  // where there is none.
  bool leave(const std::string& session);
  // The note that the last answer to a step or a fill, the last completion or look had of the load
  // there.
  const std::optional<wire::LoadNote>& said_of_load() const { return load_note_; }
  // A completion as events, at most max_bytes of them; false from on_event ends it. Throws when it
  // ends before "[DONE]".
  void complete(const std::string& path, const std::string& body,
                const std::function<bool(std::string_view)>& on_event, uint64_t max_bytes,
                Traffic& traffic);

 private:
  http::Headers traced(const http::Headers& headers) const;
  http::Reply get(const std::string& path, uint64_t max_bytes);
  http::Reply ask(std::string_view method, const std::string& path, std::string body,
                  std::string_view type, uint64_t max_bytes, const http::Headers& headers = {},
                  Traffic* traffic = nullptr);
  http::Reply ask_rows(const Send& send, const AskedModel& model, uint64_t max_bytes);
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
  uint64_t described_ = 0;  // the connection on which model() was asked last
};

// queue and compute of a Server-Timing header, in ms; 0 when there is none that can be read.
double server_ms(std::optional<std::string_view> header);

// A path segment: everything but letters, digits and "-._~" as %XX.
std::string path_segment(std::string_view text);

}  // namespace split::edge
