// Servers that are objects of the test: what a program asks of their URLs is answered by their
// routes, called as functions, without a socket.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/bytes.h"
#include "http/pace.h"
#include "http/range.h"
#include "http/router.h"
#include "http/transport.h"

namespace split::test {

// Answers at url() while it lives. Any thread.
class InProcess {
 public:
  explicit InProcess(const http::Router& router, MemoryBudget* memory = nullptr)
      : router_(router), memory_(memory) {
    const std::lock_guard lock(all().mutex);
    url_ = cat("http://server-", ++all().made, ".test");
    all().servers[url_] = this;
  }
  // Waits for requests that are being answered, as a server does.
  ~InProcess() {
    {
      const std::lock_guard lock(all().mutex);
      all().servers.erase(url_);
    }
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return running_ == 0; });
  }
  InProcess(const InProcess&) = delete;
  InProcess& operator=(const InProcess&) = delete;

  const std::string& url() const { return url_; }
  // The way to such a server (http::Connector), also to one that is no more.
  static std::unique_ptr<http::Transport> connect(const std::string& url) {
    if (!http::parse_url(http::split_url(url).origin).host.ends_with(".test")) return nullptr;
    return std::make_unique<Way>(url);
  }

  // The bytes of a body in pieces that a request selects; else the size of the other one.
  struct Body {
    int status;
    uint64_t size;
    std::vector<Bytes> pieces = {};
  };
  static Body body_of(const http::Request& request, const http::Response& response) {
    Body body{response.status, response.body.size()};
    if (!response.owner) return body;
    for (const Bytes piece : response.pieces) body.size += piece.size();
    const http::Selection part =
        response.status == 200
            ? http::select_bytes(request.method, request.headers, response.etag, body.size)
            : http::Selection{response.status, 0, body.size};
    body.status = part.status;
    body.size = part.length;
    uint64_t skip = part.first, left = part.length;
    for (const Bytes piece : response.pieces) {
      const uint64_t from = std::min<uint64_t>(skip, piece.size());
      const Bytes wanted = piece.subspan(from).first(std::min<uint64_t>(left, piece.size() - from));
      skip -= from;
      left -= wanted.size();
      if (!wanted.empty()) body.pieces.push_back(wanted);
    }
    return body;
  }

  std::atomic<bool> lost{false};  // nobody answers
  std::atomic<int> asked{0};      // requests that were answered

 private:
  static constexpr size_t kStreamBytes = 256 << 10;  // made before they are read

  // The state that the two ends of a way share.
  struct Line {
    std::mutex mutex;
    std::condition_variable changed;
    bool cancelled = false;
  };

  // One request and its answer.
  struct Asked {
    explicit Asked(std::shared_ptr<Line> line) : line(std::move(line)) {}
    const std::shared_ptr<Line> line;
    http::Request request;
    std::vector<std::string> segments;
    std::atomic<bool> gone{false};  // nobody waits for the answer any more
    // Guarded by line->mutex.
    std::optional<http::ReplyHead> head;
    std::string body;           // not taken yet
    std::vector<Bytes> pieces;  // a body that `owner` keeps
    std::shared_ptr<const void> owner;
    bool ended = false, broken = false;

    // Changes what is guarded.
    template <typename Change>
    void tell(const Change& change) {
      const std::lock_guard lock(line->mutex);
      change();
      line->changed.notify_all();
    }
  };

  class Stream : public http::Sink {
   public:
    explicit Stream(Asked& asked) : asked_(asked) {}
    bool write(std::string_view bytes) override {
      if (!asked_.gone) asked_.tell([&] { asked_.body += bytes; });
      sent += bytes.size();
      return !asked_.gone;
    }
    bool full() const override {
      const std::lock_guard lock(asked_.line->mutex);
      return asked_.body.size() >= kStreamBytes;
    }
    bool client_gone() override { return asked_.gone; }
    void await_room() {
      std::unique_lock lock(asked_.line->mutex);
      asked_.line->changed.wait(
          lock, [&] { return asked_.gone || asked_.body.size() < kStreamBytes / 2; });
    }
    uint64_t sent = 0;

   private:
    Asked& asked_;
  };

  class Way : public http::Transport {
   public:
    explicit Way(const std::string& url)
        : Transport(url), parts_(http::split_url(url)), line_(std::make_shared<Line>()) {}
    bool send(http::ClientExchange& exchange) override;
    bool tell(std::string_view method, std::string_view path,
              const http::Headers& fields) override {
      return open_ && begin(make(method, path, fields, {}));
    }
    void close() override { open_ = false; }
    void cancel() override {
      const std::lock_guard lock(line_->mutex);
      line_->cancelled = true;
      line_->changed.notify_all();
    }
    uint64_t connections() const override { return made_; }

   private:
    std::shared_ptr<Asked> make(std::string_view method, std::string_view path,
                                const http::Headers& fields, std::string_view body) const;
    // Returns false if nobody is there.
    bool begin(const std::shared_ptr<Asked>& asked) const;
    // Hands on what comes. Returns as send() does.
    bool receive(http::ClientExchange& exchange, Asked& asked);

    const http::UrlParts parts_;
    const std::shared_ptr<Line> line_;
    bool open_ = false;
    uint64_t made_ = 0;
  };

  struct All {
    std::mutex mutex;
    std::map<std::string, InProcess*> servers;
    int made = 0;
  };
  static All& all() {
    static All servers;
    return servers;
  }

  void answer(Asked& asked);
  // Says what an answer's head would, and gives a whole body.
  static void begin_reply(Asked& asked, http::Response& response);

  const http::Router& router_;
  MemoryBudget* const memory_;
  std::string url_;
  std::mutex mutex_;
  std::condition_variable idle_;
  int running_ = 0;
};

}  // namespace split::test

#include "support/in_process/exchange.h"  // its functions
