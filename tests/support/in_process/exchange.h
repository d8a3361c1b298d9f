// How an InProcess answers a request: the functions of in_process.h, which includes this.
#pragma once

#include "support/in_process/in_process.h"

namespace split::test {

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
    asked = nullptr;  // frees what its answer held
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
