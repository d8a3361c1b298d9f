// The HTTP server of both programs. One loop thread accepts, parks idle connections, and collects
// and checks each request whole (head.h) under caps and deadlines; only then does a worker thread
// run its handler. The loop writes later what the client does not take at once, so that slow or
// hostile clients cost a file descriptor and memory, never a thread. Handlers see http/message.h;
// what they throw becomes an error in one JSON shape. Knows routes as patterns and nothing of
// models.
//
// Deadlines: `idle_timeout` between requests, `head_timeout` for the TLS handshake and again from a
// head's first byte to its last, `body_timeout` from there to the body's last byte. A client may
// take nothing of its answer for `write_timeout`, and be waited for in all that long and as long as
// its bytes take at `min_write_rate`.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/router.h"

namespace split::http {

// A request refused before any route saw it.
struct Refused {
  std::string_view id, peer;
  int status = 0;
  std::string_view code;
};
// Called on the loop's thread; must not throw or block.
using RefusalObserver = std::function<void(const Refused&)>;

class Server {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 0;  // 0: any free port
    // PEM files, for TLS on every connection: the chain of certificates and the private key.
    std::string tls_cert_file = {}, tls_key_file = {};
    size_t max_head_bytes = 16 << 10;
    size_t max_headers = 64;
    uint64_t max_body_bytes = 64ull << 20;  // one request
    // Pays for bodies, for what handlers charge (Request::memory), and for streams' unsent bytes,
    // from a request's first byte to its answer's last; beyond it 503. Outlives the server.
    // Null: no limit.
    MemoryBudget* memory = nullptr;
    // Beyond nine tenths of them a new connection replaces the one that is idle longest.
    size_t max_connections = 8192;
    size_t max_per_address = 1024;  // at this number, too
    // "10.0.0.0/8": peers without that limit, whose X-Forwarded-For names the client.
    std::vector<std::string> trusted_proxies = {};
    size_t max_handshakes = 1024;  // TLS handshakes, 30 KiB each; beyond it the oldest is ended
    size_t max_inflight = 256;     // handlers at once, each on its own thread, beside the loop's
    size_t idle_workers = 8;       // idle threads to keep
    size_t queue = 64;             // checked requests waiting beyond max_inflight; more get 503
    size_t worker_stack_bytes = 256 << 10;
    uint64_t min_write_rate = 64 << 10;  // bytes/s that a reader must take
    std::chrono::milliseconds idle_timeout{75000};
    std::chrono::milliseconds least_idle{100};  // before another connection may replace it
    std::chrono::milliseconds head_timeout{10000};
    std::chrono::milliseconds body_timeout{30000};
    std::chrono::milliseconds write_timeout{10000};
    std::chrono::milliseconds shutdown_timeout{10000};
    int listen_backlog = 4096;
    bool begin_traces = false;  // for requests that come without one
    // Origins ("http://host:port", or "*") whose pages may read answers and send any request.
    std::vector<std::string> cors_origins = {};
  };
  struct Stats {
    size_t connections, workers, inflight;
    // Longest time between two waits of the loop, in which no other connection is served, and the
    // most processor time of the loop's thread in one turn.
    std::chrono::steady_clock::duration longest_turn, longest_turn_work;
  };

  // Throws Error(kInput, kNotFound, kIo) for unusable certificates, or for an invalid proxy
  // address.
  explicit Server(Options options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The router of all requests. Set its routes, guard and observers before run(). Handlers run on
  // worker threads, several at once; observers are called by a worker or the loop.
  Router& router();
  void route(Route route) { router().add(std::move(route)); }
  // Adds a route without a description.
  void route(std::string method, std::string path, Handler handler,
             Access access = Access::kGuarded);
  void on_refused(RefusalObserver observer);

  // Listens, so that connections queue up, and returns the port. Throws Error(kInUse),
  // Error(kInput) for a host that is not an address of this machine, Error(kIo).
  int bind();
  // Serves on this thread and the workers until stop(); once. Returns when every request in flight
  // has been answered or shutdown_timeout has passed; then it cuts off the clients, and waits for
  // the handlers. Until then new connections get 503, except on open routes.
  void run();
  // Stops run(). Any thread, at any time, but not from a signal handler.
  void stop();
  // Reads the certificates and the key again, for new connections. Throws as the constructor,
  // without a change. Any thread.
  void renew_tls();

  // Any thread.
  Stats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace split::http
