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

  // What the two ends of a way share.
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

inline std::shared_ptr<InProcess::Asked> InProcess::Way::make(std::string_view method,
                                                              std::string_view path,
                                                              const http::Headers& fields,
                                                              std::string_view body) const {
  http::Headers all = {{"Host", http::parse_url(parts_.origin).host}};
  for (const auto& [name, value] : fields) all.set(name, value);
  if (method == "POST" || method == "PUT") all.add("Content-Length", cat(body.size()));
  auto read = http::parse_request_head(
      http::write_request_head(method, parts_.path + std::string(path), all), {});
  auto& head = std::get<http::RequestHead>(read);
  auto asked = std::make_shared<Asked>(line_);
  asked->segments = std::move(head.segments);
  http::Request& request = asked->request;
  request.method = std::move(head.method);
  request.path = std::move(head.path);
  request.peer = "127.0.0.1";
  request.id = "in-process";
  if (const auto trace = all.get(http::kTraceHeader)) request.trace = http::Trace::within(*trace);
  request.headers = std::move(head.headers);
  request.query_params = std::move(head.query);
  request.body = body;
  request.client_gone = [gone = std::weak_ptr<Asked>(asked)] {
    const auto asked = gone.lock();
    return asked == nullptr || asked->gone;
  };
  return asked;
}

inline bool InProcess::Way::begin(const std::shared_ptr<Asked>& asked) const {
  const std::lock_guard lock(all().mutex);
  const auto found = all().servers.find(parts_.origin);
  if (found == all().servers.end() || found->second->lost) return false;
  InProcess& server = *found->second;
  {
    const std::lock_guard inside(server.mutex_);
    ++server.running_;
  }
  std::thread([&server, asked = asked]() mutable {
    server.answer(*asked);
    asked = nullptr;  // and what its answer held
    const std::lock_guard inside(server.mutex_);
    --server.running_;
    server.idle_.notify_all();
  }).detach();
  return true;
}

inline bool InProcess::Way::send(http::ClientExchange& exchange) {
  {
    const std::lock_guard lock(line_->mutex);
    if (line_->cancelled) return exchange.fail("cancelled");
  }
  const auto asked = make(exchange.method, exchange.path, exchange.fields, exchange.body);
  if (!begin(asked)) {
    close();
    return exchange.fail("cannot connect: Connection refused");
  }
  if (!open_) ++made_;
  open_ = true;
  bool done = false;
  const auto leave = [&] {
    asked->tell([&] { asked->gone = true; });
    if (!done) close();
  };
  try {
    done = receive(exchange, *asked);
  } catch (...) {
    leave();
    throw;
  }
  leave();
  return done;
}

inline bool InProcess::Way::receive(http::ClientExchange& exchange, Asked& asked) {
  using Clock = http::ClientExchange::Clock;
  std::optional<http::Pace> pace;
  for (;;) {
    std::string bytes;
    std::vector<Bytes> pieces;
    std::optional<http::ReplyHead> head;
    bool ended = false;
    {
      std::unique_lock lock(line_->mutex);
      const auto something = [&] {
        return line_->cancelled || !asked.body.empty() || asked.ended ||
               (asked.head && !exchange.head);
      };
      const auto now = Clock::now(), due = pace ? pace->due() : Clock::time_point::max();
      const auto end = std::min({exchange.deadline, now + exchange.options.read_timeout, due});
      while (!line_->changed.wait_until(
          lock, exchange.is_lost ? std::min(end, Clock::now() + http::Client::kSilence) : end,
          something)) {
        if (Clock::now() >= end) {
          return exchange.fail(end == due ? pace->missed() : "timed out");
        }
        lock.unlock();
        if (exchange.is_lost()) return exchange.fail("it does not answer");
        lock.lock();
      }
      if (line_->cancelled) return exchange.fail("cancelled");
      if (!exchange.head) head = asked.head;
      bytes = std::exchange(asked.body, {});
      pieces = std::exchange(asked.pieces, {});
      ended = asked.ended;
      line_->changed.notify_all();  // there is room again
    }
    if (head) {
      exchange.head = std::move(head);
      const bool events =
          exchange.head->headers.get("Content-Type").value_or("").starts_with("text/event-stream");
      pace.emplace(exchange.options, events, Clock::now());
      const int status = exchange.head->status;
      if (status == 204 || status == 304 || exchange.method == "HEAD") return true;
      if (!exchange.on_head(*exchange.head)) return false;
    }
    if (!bytes.empty()) pieces.insert(pieces.begin(), as_bytes_of(bytes));
    for (const Bytes piece : pieces) {
      if (!pace->take(Clock::now(), as_text(piece))) return exchange.fail(pace->missed());
      if (!exchange.on_body(as_text(piece))) return false;
    }
    if (!ended) continue;
    return asked.broken ? exchange.fail("connection lost") : true;
  }
}

inline void InProcess::begin_reply(Asked& asked, http::Response& response) {
  Body body = body_of(asked.request, response);
  http::ReplyHead head;
  head.status = body.status;
  head.headers = response.headers;
  head.headers.set("X-Request-Id", asked.request.id);
  if (!response.content_type.empty()) head.headers.set("Content-Type", response.content_type);
  if (!response.etag.empty()) head.headers.set("ETag", response.etag);
  head.chunked = response.stream != nullptr;
  if (!head.chunked) head.content_length = body.size;
  asked.tell([&] {
    asked.head = std::move(head);
    asked.body = std::move(response.body);
    asked.pieces = std::move(body.pieces);
    asked.owner = std::move(response.owner);
  });
}

inline void InProcess::answer(Asked& asked) {
  const auto start = http::ClientExchange::Clock::now();
  http::Answered answered;
  answered.bytes_in = asked.request.body.size();
  http::Request& request = asked.request;
  request.memory = std::make_shared<MemoryShare>(memory_);
  http::Response response;
  try {
    request.memory->take(request.body.size());
    response = router_.answer(request, asked.segments, false, answered);
  } catch (...) {
    response = router_.render(http::current_exception_as_error(), asked.segments, request.id);
  }
  request.body.clear();
  begin_reply(asked, response);
  answered.status = asked.head->status;
  answered.bytes_out = asked.head->content_length.value_or(0);
  if (response.stream) {
    Stream stream(asked);
    bool broken = false;
    try {
      while (response.stream(stream) == http::Streamed::kMore && !asked.gone) stream.await_room();
    } catch (const std::exception&) {
      broken = true;
    }
    response.stream = nullptr;
    answered.bytes_out = stream.sent;
    if (broken) asked.tell([&] { asked.broken = true; });
  }
  ++this->asked;
  answered.took = http::ClientExchange::Clock::now() - start;
  router_.tell(request, answered);
  request.memory.reset();
  asked.tell([&] { asked.ended = true; });
}

}  // namespace split::test
