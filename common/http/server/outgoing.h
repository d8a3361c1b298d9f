// The bytes of one answer that its client has not taken yet: text of its own, and behind it views
// of memory that an owner keeps alive, sent without a copy. Sends what the socket takes without
// ever waiting, and knows when a client is too slow. It knows nothing of HTTP.
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

// A client may take nothing for `patience`, and wait for it in all that long and as long as its
// bytes take at `min_rate` bytes a second.
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

  // Adds text; before, or in place of, any body.
  void add(std::string_view text);
  // Puts a body behind the text. Once.
  void add_body(std::string body);
  void add_pieces(const std::vector<Bytes>& pieces, std::shared_ptr<const void> owner,
                  uint64_t first, uint64_t length);

  // Sends what the socket takes, about `most` bytes at most. kWait: it takes no more now.
  Io send_some(Connection& connection, size_t most);
  bool empty() const { return text_.size() == text_sent_ && left_in_body_ == 0; }
  uint64_t sent() const { return sent_; }
  uint64_t unsent_text() const { return text_.size() - text_sent_; }
  // Freeing it may take the system a while.
  bool is_large() const;

  // While the socket takes nothing: when to ask is_stuck().
  Clock::time_point deadline() const;
  // The client has taken nothing, or too little, for too long.
  bool is_stuck(const Connection& connection);

 private:
  Clock::duration allowed() const;  // to wait in all

  const WritePace pace_;
  std::string text_;
  size_t text_sent_ = 0;
  std::string body_;
  std::shared_ptr<const void> owner_;
  std::vector<Bytes> pieces_;  // that are left; the first is in part
  size_t piece_ = 0;           // the first of them
  uint64_t left_in_body_ = 0;
  uint64_t sent_ = 0;
  Clock::duration waited_{};                  // before
  std::optional<Clock::time_point> stalled_;  // since when it waits
  Clock::time_point moved_;                   // when the client last took something, while it waits
  size_t queued_ = 0;                         // by the system, then
};

}  // namespace split::http
