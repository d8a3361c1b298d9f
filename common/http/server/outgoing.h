// The unsent bytes of one answer: text, followed by views of memory that an owner keeps alive, sent
// without a copy. Sends without ever blocking, and notices a client that is too slow. Knows nothing
// of HTTP.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/resources/clock.h"

namespace split::http {

struct Connection;

enum class Io { kDone, kWait, kGone };

// A client may take nothing for `patience`, and be waited for in all that long plus its bytes' time
// at `min_rate` bytes/s.
struct WritePace {
  std::chrono::milliseconds patience;
  uint64_t min_rate;
};

// One thread at a time.
class Outgoing {
 public:
  explicit Outgoing(WritePace pace) : pace_(pace) {}
  ~Outgoing();
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;

  // Adds text before a body, or instead of one.
  void add(std::string_view text);
  // Adds a body after the text. Once.
  void add_body(std::string body);
  void add_pieces(const std::vector<Bytes>& pieces, std::shared_ptr<const void> owner,
                  uint64_t first, uint64_t length);

  // Sends what the socket takes, at most about `most` bytes. kWait: it takes no more now.
  Io send_some(Connection& connection, size_t most);
  bool empty() const { return text_.size() == text_sent_ && left_in_body_ == 0; }
  uint64_t sent() const { return sent_; }
  uint64_t unsent_text() const { return text_.size() - text_sent_; }
  // Whether freeing it may take the system a while.
  bool is_large() const;

  // When to call is_stuck(), while the socket takes nothing.
  Clock::time_point deadline() const;
  // Whether the client has taken nothing, or too little, for too long.
  bool is_stuck(const Connection& connection);

 private:
  Clock::duration allowed() const;  // longest wait in total

  const WritePace pace_;
  std::string text_;
  size_t text_sent_ = 0;
  std::string body_;
  std::shared_ptr<const void> owner_;
  std::vector<Bytes> pieces_;  // unsent; the first is sent in part
  size_t piece_ = 0;           // first of pieces_
  uint64_t left_in_body_ = 0;
  uint64_t sent_ = 0;
  Clock::duration waited_{};                  // before the present wait
  std::optional<Clock::time_point> stalled_;  // start of the present wait
  Clock::time_point moved_;  // last time that the client took something, while it waits
  size_t queued_ = 0;        // bytes in the system's buffer at that time
};

}  // namespace split::http
