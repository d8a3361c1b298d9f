// A line before a server: so many bits a second (0: no limit), and so long each way.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "http/client.h"
#include "scripts/link/relay.h"

namespace split::test {

class SlowLine {
 public:
  SlowLine(const std::string& url, uint64_t bits, std::chrono::milliseconds each_way)
      : relay_({.to_port = http::parse_url(url).port,
                .up = {bits, each_way},
                .down = {bits, each_way},
                .rtt = 2 * each_way}),
        thread_([this] { relay_.run(); }) {}
  ~SlowLine() {
    relay_.stop();
    thread_.join();
  }
  std::string url() const { return cat("http://127.0.0.1:", relay_.port()); }

 private:
  link::Relay relay_;
  std::thread thread_;
};

}  // namespace split::test
