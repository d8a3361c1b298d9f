#include "edge_client/api/edge.h"

#include <csignal>
#include <cstdlib>
#include <deque>
#include <variant>

#include "base/log.h"
#include "base/release.h"
#include "base/resources/granted.h"
#include "base/resources/threads.h"
#include "edge_client/server/routes.h"
#include "serve/observe.h"
#include "wire/codes.h"

namespace split::edge {
namespace {

constexpr size_t kStreamBytes = 256 << 10;  // bytes of a stream that are made before they are read
constexpr std::chrono::milliseconds kLook{20};

// Parses the head that this request would have over a connection, so that one place reads both.
std::variant<http::RequestHead, http::HttpError> read_head(const std::string& method,
                                                           const std::string& path, size_t body) {
  http::Headers fields = {{"Host", "localhost"}};
  if (body > 0) {
    fields.add("Content-Type", "application/json");
    fields.add("Content-Length", std::to_string(body));
  }
  return http::parse_request_head(http::write_request_head(method, path, fields), {});
}

void (*heard)(std::string_view) = nullptr;  // set by hear_log()
void hear(std::string_view line) {
  if (heard != nullptr) heard(line);
}

Options as_heard(Options options) {
  options.quiet = heard == nullptr;
  return options;
}

// This process's environment, for the default cache and for proxies: options are given, not
// inherited.
const char* environment(const char* name) {
  return std::string_view(name).starts_with("SPLIT_") ? nullptr : std::getenv(name);
}

// Answers with the loader's own error: the client is this process.
[[noreturn]] void throw_as_answer(const Error& error) {
  const bool remote = error.kind() == ErrorKind::kRemote;
  throw http::HttpError(remote ? 502 : 500, remote ? wire::codes::kCloudError : "load_failed",
                        error.what());
}

}  // namespace

void hear_log(void (*line)(std::string_view)) { heard = line; }

Edge::Edge(Options options)
    : options_(as_heard(std::move(options))),
      world_{{[](std::string_view) { return true; }, hear}, environment},
      placements_(options_, world_.console, world_.environment, interrupt_) {
  add_routes(router_, placements_);
  serve::observe_memory(placements_.metrics().metrics, memory_);
  loading_ = started([this] { load(); });
}

Edge::~Edge() {
  if (loading_.joinable()) close();
}

// Requests that wait for the model get the error too (Engine::await_loaded).
void Edge::load() {
  try {
    placements_.load();
    memory_.set_limit(options_.memory_budget > 0 ? options_.memory_budget
                                                 : memory_left_for_requests(options_.kv_budget));
  } catch (const std::exception& error) {
    log_error(cat("[edge] ", error.what()));
  }
}

void Edge::close() {
  std::vector<std::shared_ptr<ApiAnswer>> asked;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : asked_) {
      if (auto running = one.lock()) asked.push_back(std::move(running));
    }
  }
  // Each answer gets its reason first, then the failure.
  for (const auto& one : asked) one->cancel();
  placements_.stop();
  interrupt_.raise(SIGTERM);
  for (const auto& one : asked) one->edge_closes();
  loading_.join();
}

std::shared_ptr<ApiAnswer> Edge::ask(std::string method, std::string path, std::string body) {
  auto asked =
      std::make_shared<ApiAnswer>(*this, std::move(method), std::move(path), std::move(body));
  const std::lock_guard lock(mutex_);
  std::erase_if(asked_, [](const auto& one) { return one.expired(); });
  asked_.push_back(asked);
  return asked;
}

// Repeats a request that needs the model: once texts may begin by their words alone, and once the
// model is here.
http::Response Edge::answer(http::Request& request, const std::vector<std::string>& segments,
                            Waiter& waiter, http::Answered& answered) {
  constexpr std::chrono::milliseconds kLook{5};
  const auto answer_now = [&]() -> std::optional<http::Response> {
    try {
      return router_.answer(request, segments, false, answered);
    } catch (const http::HttpError& error) {
      if (error.code == wire::codes::kLoading) return std::nullopt;
      throw;
    }
  };
  if (auto response = answer_now()) return std::move(*response);
  const std::shared_ptr<Service> service = placements_.present();
  const Engine& engine = service->engine();
  try {
    while (engine.opens().empty() && !engine.settled() && waiter.wait(kLook)) continue;
    if (!engine.settled()) {
      if (auto response = answer_now()) return std::move(*response);
    }
    engine.await_loaded(waiter);
  } catch (const Error& error) {
    throw_as_answer(error);
  }
  return router_.answer(request, segments, false, answered);
}

// Waits for a model until the answer is cancelled.
class ApiAnswer::Waits : public Waiter {
 public:
  explicit Waits(const ApiAnswer& asked) : asked_(asked) {}
  bool interrupted() const override { return asked_.cancelled_; }
  bool wait(std::chrono::milliseconds time) override {
    if (!interrupted()) std::this_thread::sleep_for(time);
    return !interrupted();
  }

 private:
  const ApiAnswer& asked_;
};

// A stream's events, kept until they are read. Made on a thread of its own, as a
// server's is, since the cloud's stream drives it.
class ApiAnswer::Events : public http::Sink {
 public:
  Events(const ApiAnswer& asked, http::Producer stream)
      : asked_(asked), stream_(std::move(stream)), thread_(started([this] { make(); })) {}
  ~Events() override { thread_.join(); }

  bool tell(const http::Events& events, std::string_view) override {
    if (asked_.cancelled_) return false;
    for (const http::Event& event : events) add(event.json);
    return true;
  }
  bool done() override { return !asked_.cancelled_; }
  bool write(std::string_view bytes) override { return tell({{std::string(bytes)}}, {}); }
  bool full() const override {
    const std::lock_guard lock(mutex_);
    return kept_ >= kStreamBytes;
  }
  bool client_gone() override { return asked_.cancelled_; }

  // Waits for the next event; nullopt at the end.
  std::optional<std::string> take() {
    Mutex::Lock lock(mutex_);
    changed_.wait(lock, [&] { return !ready_.empty() || ended_; });
    if (ready_.empty()) return std::nullopt;
    std::string text = std::move(ready_.front());
    ready_.pop_front();
    kept_ -= text.size();
    changed_.notify_all();
    return text;
  }

 private:
  void make() {
    try {
      while (stream_(*this) == http::Streamed::kMore && !asked_.cancelled_) await_room();
      if (asked_.cancelled_) throw asked_.error_now();
    } catch (...) {
      add(asked_.edge_->router_.render(asked_.error_now(), asked_.segments_, "").body);
    }
    stream_ = nullptr;
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  void await_room() {
    Mutex::Lock lock(mutex_);
    while (kept_ >= kStreamBytes / 2 && !asked_.cancelled_) changed_.wait_for(lock, kLook);
  }
  void add(std::string text) {
    const std::lock_guard lock(mutex_);
    kept_ += text.size();
    ready_.push_back(std::move(text));
    changed_.notify_all();
  }

  const ApiAnswer& asked_;
  http::Producer stream_;
  mutable Mutex mutex_{LockOrder::kEvents};  // guards the members below
  std::condition_variable changed_;
  std::deque<std::string> ready_;
  size_t kept_ = 0;
  bool ended_ = false;
  std::thread thread_;  // destroyed first
};

ApiAnswer::ApiAnswer(Edge& edge, std::string method, std::string path, std::string body)
    : edge_(&edge), method_(std::move(method)), path_(std::move(path)) {
  request_.body = std::move(body);
}

ApiAnswer::~ApiAnswer() = default;

void ApiAnswer::edge_closes() {
  cancel();
  const std::lock_guard lock(working_);  // the thread that works here notices it soon
  if (!begun_ && edge_ != nullptr) begin();
  if (events_ != nullptr && edge_ != nullptr) {
    while (auto event = events_->take()) left_.push_back(std::move(*event));
  }
  end();
}

void ApiAnswer::drop() {
  cancel();
  const std::lock_guard lock(working_);
  end();
}

// Releases the edge.
void ApiAnswer::end() {
  events_.reset();
  request_.memory.reset();
  if (edge_ == nullptr) return;
  answered_.took = Clock::now() - start_;
  edge_->router_.tell(request_, answered_);
  edge_ = nullptr;
}

http::HttpError ApiAnswer::error_now() const {
  if (cancelled_) return {499, "cancelled", "this answer was cancelled"};
  return http::current_exception_as_error();
}

void ApiAnswer::begin() {
  begun_ = true;
  start_ = Clock::now();
  try {
    auto head = read_head(method_, path_, request_.body.size());
    if (auto* const error = std::get_if<http::HttpError>(&head)) throw *error;
    auto& read = std::get<http::RequestHead>(head);
    segments_ = read.segments;
    request_.method = std::move(read.method);
    request_.path = std::move(read.path);
    request_.peer = "here";
    request_.trace = http::Trace::begun();
    request_.query_params = std::move(read.query);
    request_.headers = std::move(read.headers);
    request_.memory = std::make_shared<MemoryShare>(&edge_->memory_);
    request_.memory->take(request_.body.size());
    request_.client_gone = [this] { return cancelled_.load(); };
    answered_.bytes_in = request_.body.size();
    if (cancelled_) throw error_now();
    Waits waits(*this);
    response_ = edge_->answer(request_, read.segments, waits, answered_);
  } catch (...) {
    response_ = edge_->router_.render(error_now(), segments_, "");
  }
  release(request_.body);
  answered_.status = response_.status;
  if (response_.stream) {
    events_ = std::make_unique<Events>(*this, std::exchange(response_.stream, nullptr));
    return;
  }
  for (const Bytes piece : response_.pieces) response_.body += as_text(piece);
  response_.owner = nullptr;
  left_.push_back(std::move(response_.body));
}

int ApiAnswer::status() {
  const std::lock_guard lock(working_);
  if (!begun_) begin();
  return response_.status;
}

const std::string* ApiAnswer::next() {
  const std::lock_guard lock(working_);
  if (!begun_) begin();
  if (events_ != nullptr) {
    if (auto event = events_->take()) {
      text_ = std::move(*event);
      return &text_;
    }
  }
  end();
  if (left_.empty()) return nullptr;
  text_ = std::move(left_.front());
  left_.pop_front();
  return &text_;
}

}  // namespace split::edge
