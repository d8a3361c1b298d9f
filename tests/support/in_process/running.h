// Makes once what several tests share, waits for it, and starts the servers that their edges ask.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>
#include "cloud_server/routes/routes.h"
#include "edge_client/cli/run.h"
#include "edge_client/cloud/remote.h"
#include "http/client.h"
#include "http/server/server.h"
#include "support/golden_model.h"
#include "support/in_process/in_process.h"
#include "support/temporary_folder.h"

namespace split::test {

// Waits until an edge that has ended said its last words, for which it waits itself no more: until
// `condition` holds. Returns false after a minute.
inline bool comes_true(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

// Made when first used, ended after the last test: a server that outlives main() runs into the
// libraries' ends.
template <typename T>
class ForAllTests {
 public:
  template <typename... Arguments>
  T& get(Arguments&&... arguments) {
    if (value_ == nullptr) {
      value_ = std::make_unique<T>(std::forward<Arguments>(arguments)...);
      testing::AddGlobalTestEnvironment(new End{*this});  // GoogleTest's
    }
    return *value_;
  }

 private:
  struct End : testing::Environment {
    explicit End(ForAllTests& all) : all(all) {}
    void TearDown() override { all.value_.reset(); }
    ForAllTests& all;
  };
  std::unique_ptr<T> value_;
};

// Asks servers of this process, and any others.
struct Client : http::Client {
  explicit Client(const std::string& url) : http::Client(url, options()) {}
  static http::Client::Options options() {
    http::Client::Options options;
    options.connector = InProcess::connect;
    return options;
  }
};
inline edge::Credentials in_process() {
  edge::Credentials credentials;
  credentials.connector = InProcess::connect;
  return credentials;
}

// Routes of the test's: as functions, and as a server from when its port is asked for.
class Running {
 public:
  explicit Running(const std::function<void(http::Server&)>& routes)
      : here_((routes(server_), server_.router())) {}
  ~Running() {
    if (!thread_.joinable()) return;
    server_.stop();
    thread_.join();
  }
  const std::string& url() const { return here_.url(); }
  int port() {
    const std::lock_guard lock(mutex_);
    if (port_ == 0) {
      port_ = server_.bind();
      thread_ = std::thread([this] { server_.run(); });
    }
    return port_;
  }
  std::string http() { return cat("http://127.0.0.1:", port()); }
  // Answers a request that another server got.
  http::Response answer(http::Request request) {
    const http::Router& router = server_.router();
    const std::vector<std::string> segments = http::split_pattern(request.path);
    http::Answered answered;
    http::Response response;
    try {
      response = router.answer(request, segments, false, answered);
    } catch (...) {
      response = router.render(http::current_exception_as_error(), segments, request.id);
    }
    answered.status = response.status;
    router.tell(request, answered);
    return response;
  }

 private:
  http::Server server_{http::Server::Options{}};
  InProcess here_;
  std::mutex mutex_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace split::test
