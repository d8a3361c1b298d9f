// edge_client --serve in this process, and somebody to ask it.
#pragma once

#include <chrono>
#include <csignal>
#include <thread>

#include "edge_world.h"
#include "http/sse.h"

namespace split::test {

// Asks again until it is so, on a loaded machine for a minute at most. Returns whether it is.
template <typename IsSo>
bool soon(const IsSo& is_so) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// On its own thread, from the command line to the exit code.
class EdgeServer {
 public:
  explicit EdgeServer(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--serve=127.0.0.1:0", "--device=cpu", "--threads=1"});
    world_.connector = InProcess::connect;
    world_.environment = [](const char*) -> const char* { return nullptr; };
    world_.console.out = [](std::string_view) { return true; };
    world_.console.err = [this](std::string_view text) {
      const std::lock_guard lock(mutex_);
      err_ += text;
      said_.notify_all();
    };
    thread_ = std::thread([this, arguments] {
      const int code = edge::edge_main(arguments, world_, interrupt_);
      const std::lock_guard lock(mutex_);
      code_ = code;
      said_.notify_all();
    });
  }
  ~EdgeServer() { stop(); }

  // Returns its output once that holds `text` or the program has ended.
  std::string until(const std::string& text) {
    std::unique_lock lock(mutex_);
    said_.wait(lock, [&] { return code_ || err_.find(text) != std::string::npos; });
    return err_;
  }
  std::string url() {
    const std::string said = until(" (this machine only)\n");
    const size_t at = said.find("http://");
    CHECK(at != said.npos);
    return said.substr(at, said.find(' ', at) - at);
  }
  int port() {
    const std::string at = url();
    return std::stoi(at.substr(at.rfind(':') + 1));
  }
  EdgeServer& ready() {
    until("ready\n");
    return *this;
  }
  // The exit code.
  int stop(int signal = SIGTERM) {
    interrupt_.raise(signal);
    return ended();
  }
  int ended() {
    if (thread_.joinable()) thread_.join();
    return *code_;
  }

  http::Reply get(const std::string& path) { return http::Client(url()).request("GET", path); }
  http::Reply send(const char* method, const std::string& path, const nlohmann::json& body) {
    return http::Client(url()).request(method, path, body.dump(), "application/json");
  }
  http::Reply post(const std::string& path, const nlohmann::json& body) {
    return send("POST", path, body);
  }
  nlohmann::json ask(const std::string& path, const nlohmann::json& body) {
    const http::Reply reply = post(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return nlohmann::json::parse(reply.body, nullptr, false);
  }
  nlohmann::json status() { return nlohmann::json::parse(get("/split/status").body); }

 private:
  World world_;
  Interrupt interrupt_;
  std::mutex mutex_;
  std::condition_variable said_;
  std::string err_;
  std::optional<int> code_;
  std::thread thread_;
};

// A stream's events; the last one is "[DONE]" when it ended well.
inline std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  http::SseParser parser([&](std::string_view data) {
    events.emplace_back(data);
    return true;
  });
  parser.feed(body);
  return events;
}

}  // namespace split::test
