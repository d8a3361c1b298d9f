// A cloud in this process with a gate before it where tests make things go wrong, and edge_client
// as a function of its arguments.
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
#include "edge_client/cli/process.h"
#include "edge_client/cli/run.h"
#include "edge_client/cloud/remote.h"
#include "golden_model.h"
#include "http/client.h"
#include "http/server/server.h"
#include "support/in_process/in_process.h"
#include "support/in_process/running.h"
#include "temporary_folder.h"

namespace split::test {

struct Outcome {
  int code = -1;
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

// The real routes, behind a gate for manifests, steps and blobs.
class GatedCloud {
 public:
  // Returns the answer to give in place of request number `n` (from 0); nothing to pass it on.
  using Gate = std::function<std::optional<http::Response>(const http::Request&, int n)>;

  explicit GatedCloud(const std::string& name, Profile profile = Profile::kF32,
                      std::unique_ptr<Device> device = {}) {
    cloud::ModelOptions options;
    options.id = std::filesystem::path(name).filename().string();
    options.path = name.starts_with('/') ? name : model_dir(name);
    options.device = "cpu";
    options.threads = 2;
    options.kv_budget = 256 << 20;
    options.profile = profile;
    options.formats = cloud::parse_formats("f32,f16,q8_0,q4_0");
    options.weights_patience = std::chrono::minutes(5);  // under sanitizers, on busy machines
    cloud.models.push_back(std::make_unique<cloud::ServedModel>(options, std::move(device)));
    cloud.ready = true;
    behind_.emplace([this](http::Server& server) { cloud::add_routes(server, cloud); });
    front_.emplace([this](http::Server& server) {
      server.route("GET", "/v1/models/{id}",
                   [this](const http::Request& r) { return pass(r, on_model, models); });
      server.route("GET", "/v1/models/{id}/load",
                   [this](const http::Request& request) { return load(request); });
      server.route("GET", "/v1/models/{id}/files/{file}",
                   [this](const http::Request& r) { return pass(r, on_file, files); });
      server.route("POST", "/v1/sessions/{id}/forward",
                   [this](const http::Request& r) { return pass(r, on_step, steps); });
      server.route("DELETE", "/v1/sessions/{id}",
                   [this](const http::Request& r) { return pass(r, on_goodbye, goodbyes); });
      server.route("GET", "/v1/blobs/sha256/{hex}",
                   [this](const http::Request& r) { return pass(r, on_blob, blobs); });
      cloud::add_routes(server, cloud);
    });
  }

  cloud::ServedModel& model() { return *cloud.models[0]; }
  // Answers the request by the real routes, or by those there; with the body in one piece.
  http::Response real(const http::Request& request, const std::string& url = {}) {
    if (url.empty()) {
      http::Response response = passed(request);
      if (!response.owner) return response;
      const InProcess::Body body = InProcess::body_of(request, response);
      response.status = body.status;
      for (const Bytes piece : body.pieces) response.body += as_text(piece);
      response.pieces.clear();
      response.owner = nullptr;
      return response;
    }
    Client client(url);
    http::Headers headers;
    for (const char* name : {"Accept", "Range"}) {
      if (const auto value = request.headers.get(name)) headers.add(name, std::string(*value));
    }
    const auto type = request.headers.get("Content-Type").value_or("");
    std::string path = request.path;
    for (const auto& [name, value] : request.query_params) {
      path += cat(path == request.path ? "?" : "&", name, "=", value);
    }
    http::Reply reply = client.request(request.method, path, request.body, type, headers);
    http::Response response;
    response.status = reply.status;
    response.content_type = reply.headers.get("Content-Type").value_or("");
    response.headers = told(reply.headers);
    response.body = std::move(reply.body);
    return response;
  }
  // New gates; the old ones are used no more, nor what they refer to.
  void reset(Gate step, Gate blob = {}, Gate model = {}) {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return inside_ == 0; });
    on_step = std::move(step);
    on_blob = std::move(blob);
    on_model = std::move(model);
    on_file = on_goodbye = {};
    steps = blobs = models = files = goodbyes = 0;
    said_ms = 0;
  }
  // Resets it, and says nothing of what it offers beyond a fixed cut.
  void reset_without_features() {
    reset({}, {}, [this](const http::Request& request, int) {
      http::Response response = real(request);
      nlohmann::json known = nlohmann::json::parse(response.body);
      known.erase("features");
      response.body = known.dump();
      return std::optional(response);
    });
  }
  const std::string& url() const { return front_->url(); }
  std::string http() { return front_->http(); }  // over a socket
  int port() { return front_->port(); }
  // Waits, after an edge that ran in this process, until the requests it gave up are answered.
  Outcome ended(Outcome outcome) {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return inside_ == 0; });
    return outcome;
  }

  cloud::Cloud cloud;
  Gate on_step, on_blob, on_model, on_file, on_goodbye;  // of files in no folder
  std::atomic<int> steps{0}, blobs{0}, models{0}, files{0}, goodbyes{0};
  // The cloud says that a block takes it so many ms, and its head too; 0: the truth.
  std::atomic<double> said_ms{0};

 private:
  http::Response load(const http::Request& request) {
    http::Response response = real(request);
    if (const double ms = said_ms; ms > 0) {
      nlohmann::json said = nlohmann::json::parse(response.body);
      said["block_ms"] = said["head_ms"] = ms;
      said["block_row_ms"] = said["head_row_ms"] = said["prompt_row_ms"] = said["busy"] = 0;
      response.body = said.dump();
    }
    return response;
  }
  http::Response pass(const http::Request& request, const Gate& gate, std::atomic<int>& count) {
    const int n = count++;
    {
      const std::lock_guard lock(mutex_);
      ++inside_;
    }
    const std::shared_ptr<GatedCloud> leave(this, [](GatedCloud* cloud) {
      const std::lock_guard lock(cloud->mutex_);
      --cloud->inside_;
      cloud->idle_.notify_all();
    });
    if (gate) {
      if (auto response = gate(request, n)) return std::move(*response);
    }
    return passed(request);
  }
  http::Response passed(const http::Request& request) {
    http::Response response = behind_->answer(request);
    response.headers = told(response.headers);
    return response;
  }
  // The headers that are handed on.
  static http::Headers told(const http::Headers& headers) {
    http::Headers some;
    for (const char* name : {"Server-Timing", "Split-Load"}) {
      if (const auto value = headers.get(name)) some.set(name, std::string(*value));
    }
    return some;
  }
  std::mutex mutex_;
  std::condition_variable idle_;
  int inside_ = 0;  // requests between the gates
  std::optional<Running> behind_, front_;
};

// Holds what asks for a manifest until it is let go. Made before the edge that asks, which may end
// while a request of it is on its way.
class HeldManifests {
 public:
  explicit HeldManifests(GatedCloud& cloud) : cloud_(cloud) {
    cloud.reset({}, {}, [this](const http::Request&, int) -> std::optional<http::Response> {
      while (!let_go_) std::this_thread::yield();
      return std::nullopt;
    });
  }
  ~HeldManifests() {
    let_go();
    cloud_.reset({});
  }
  HeldManifests(const HeldManifests&) = delete;
  HeldManifests& operator=(const HeldManifests&) = delete;
  void let_go() { let_go_ = true; }

 private:
  GatedCloud& cloud_;
  std::atomic<bool> let_go_{false};
};

// A connection that ends in the middle of an answer.
inline http::Response cut_short(std::string first = "x") {
  http::Response response;
  response.content_type = "application/octet-stream";
  response.stream = [first](http::Sink& sink) -> http::Streamed {
    sink.write(first);
    throw Error(ErrorKind::kIo, "the test cuts the connection");
  };
  return response;
}

struct EdgeOptions {
  std::string input;  // stdin
  std::map<std::string, std::string> environment;
  bool terminal = false;  // stderr
  bool out_is_terminal = false;
  bool one_place = false;  // `edge_client ... 2>&1`
  size_t columns = 0;
  edge::Program program = edge::edge_main;
  std::function<void()> on_out = {};  // each time that there is something of it
};

inline Outcome run_edge(const std::vector<std::string>& arguments,
                        const EdgeOptions& options = {}) {
  Outcome outcome;
  World world;
  world.console.out = [&](std::string_view text) {
    outcome.out += text;
    if (options.on_out) options.on_out();
    return true;
  };
  world.console.err = [&](std::string_view text) { outcome.err += text; };
  world.console.err_is_terminal = options.terminal;
  world.console.out_is_terminal = options.out_is_terminal;
  world.console.one_place = options.one_place;
  world.console.columns = options.columns;
  world.connector = InProcess::connect;
  world.environment = [&](const char* name) -> const char* {
    const auto at = options.environment.find(name);
    return at == options.environment.end() ? nullptr : at->second.c_str();
  };
  int ends[2];
  CHECK(::pipe(ends) == 0);
  const Fd read_end(ends[0]);
  {
    const Fd write_end(ends[1]);
    CHECK(::write(write_end.get(), options.input.data(), options.input.size()) ==
          static_cast<ssize_t>(options.input.size()));
  }
  world.input = read_end.get();
  Interrupt interrupt;
  outcome.code = options.program(arguments, world, interrupt);
  return outcome;
}

inline std::string joined(std::span<const int32_t> ids) {
  std::string out;
  for (const int32_t id : ids) out += cat(out.empty() ? "" : ",", id);
  return out;
}

}  // namespace split::test
