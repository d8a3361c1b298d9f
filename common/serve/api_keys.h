// The clients of a server: named keys from a file, compared in constant time, with their limits. A
// limit on a rate lets a request begin while nothing is owed, and its use is then owed: so requests
// of any size pass, and the mean is kept. No message contains a key.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "http/server/server.h"

namespace split::serve {

// A budget that refills by `rate` a second, up to one second's worth. Knows no clock.
class RateLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit RateLimit(double rate) : rate_(rate), level_(rate) {}
  // Seconds until nothing is owed; 0: now.
  double wait(Time now);
  void take(Time now, double amount);

 private:
  void refill(Time now);
  double rate_, level_;
  Time last_{};
};

// A loaded server asks for the layers of low-priority sessions first.
enum class Priority : uint8_t { kLow, kNormal, kHigh };

struct KeyLimits {  // 0: none
  uint64_t sessions = 0;
  uint64_t rows_per_s = 0;   // tokens of prompts and answers, through the whole model
  uint64_t bytes_per_s = 0;  // both ways
  Priority priority = Priority::kNormal;
  bool operator==(const KeyLimits&) const = default;
};

// Any number of threads.
class ApiKeys {
 public:
  // A line for each key: "NAME:KEY [sessions=N] [rows_per_s=N] [bytes_per_s=N]
  // [priority=low|normal|high]"; '#' begins a comment. `what` names the text in errors. Throws
  // Error(kInput) with the line's number.
  static ApiKeys parse(std::string_view text, std::string_view what);
  static ApiKeys read(const std::string& file);

  ApiKeys();
  ~ApiKeys();
  ApiKeys(ApiKeys&&) noexcept;
  ApiKeys& operator=(ApiKeys&&) noexcept;

  bool empty() const;
  bool has(const std::string& name) const;
  // Replaces these keys for later requests; unchanged keys keep what they owe. Any thread.
  void renew(const ApiKeys& other) const;
  // Returns the name of the key in `Authorization: Bearer KEY`, or else in `x-api-key`. Throws
  // HttpError 401 `api_key_missing`, `invalid_api_key`, or 429 `rate_limited` while bytes are owed.
  std::string admit(const http::Headers& headers) const;
  // Call before and after rows are computed for this name; the first throws HttpError 429 while
  // rows are owed. Does nothing for names without a limit, and for "", which is no client.
  void expect_rows(const std::string& name) const;
  void took_rows(const std::string& name, double rows) const;
  void took_bytes(const std::string& name, uint64_t bytes) const;
  uint64_t most_sessions(const std::string& name) const;  // 0: no limit
  Priority priority(const std::string& name) const;

  // Guards the server's routes and counts bytes. The keys outlive it; without keys it does nothing.
  void guard(http::Server& server) const;

 private:
  struct Key;
  using Keys = std::vector<std::shared_ptr<Key>>;
  struct Now;  // the keys, and their lock
  std::shared_ptr<const Keys> now() const;
  std::shared_ptr<Key> find(const std::string& name) const;
  std::unique_ptr<Now> now_;
};

}  // namespace split::serve
