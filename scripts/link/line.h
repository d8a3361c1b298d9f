// The way of bytes over a line, as times on a clock that the caller passes in: it sends at a rate
// that all connections share, each byte arrives a delay later, and server-sent events come no
// faster than asked. Knows no socket and reads no clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace split::link {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
inline constexpr Time kNever = Time::max();

// One direction of the line. One thread at a time, with its flows.
class Line {
 public:
  struct Options {
    uint64_t bits_per_s = 0;  // 0: no limit
    Clock::duration delay{};  // of each byte, once it is sent
  };
  explicit Line(const Options& options) : options_(options) {}

  // When the next bytes can be sent.
  Time free_at() const { return free_; }
  // Bytes that are sent at once: 1 ms of the line, at least a packet.
  size_t piece() const;
  // Sends bytes that have been there since `since`. Returns when the last of them arrives.
  Time send(Time since, size_t bytes);

  // Bytes that its flows hold may grow: any flow's to 64 KiB, and all of them to 64 MiB.
  bool has_room(size_t of_flow) const;
  void hold(size_t bytes) { held_ += bytes; }
  void let_go(size_t bytes) { held_ -= bytes; }

 private:
  const Options options_;
  Time free_ = Time::min();
  size_t held_ = 0;
};

// Finds where the server-sent events in answers of HTTP/1.1 end, also in chunked ones.
class EventEnds {
 public:
  // The length of what ends with the first end of an event in `bytes`, or npos.
  size_t find(std::string_view bytes);

 private:
  bool end_line();  // whether the line was an event's last

  std::string line_;  // its beginning
  bool stream_ = false, data_ = false;
};

// The bytes of one connection in one direction: what its sender has offered, what is on its way,
// and what its receiver may have. It ends when its sender has ended and all has been taken.
class Flow {
 public:
  // Nothing enters before `opened`. `events_per_s`: 0 for as they come.
  Flow(Line& line, Time opened, double events_per_s = 0)
      : line_(line), since_(opened), events_per_s_(events_per_s) {}
  ~Flow() { line_.let_go(held_); }
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  // The sender's side: it has something to say, has said it all for now, or for good.
  void offer(Time now);
  void pause() { offered_ = false; }
  void end(Time now);
  // How many bytes are taken from the sender now; at most a piece.
  size_t room(Time now) const;
  void push(std::string_view bytes);

  // The receiver's side: bytes that have arrived, as many as are in one piece, and those that it
  // took.
  std::string_view arrived(Time now) const;
  void take(Time now, size_t bytes);
  bool over(Time now) const { return ended_ && pieces_.empty() && now >= last_; }

  // When to ask again as far as the clock is concerned; not after `now` where it is to be asked at
  // once.
  Time wake(Time now) const;

 private:
  struct Piece {
    std::string bytes;
    Time arrives;
  };
  void add(std::string_view bytes, Time arrives);

  Line& line_;
  Time since_;  // what is offered could be sent since then
  const double events_per_s_;
  bool offered_ = false, ended_ = false;
  std::deque<Piece> pieces_;
  size_t taken_ = 0;  // of the first
  size_t held_ = 0;
  Time last_ = Time::min();  // when the last piece, or the end, arrives
  EventEnds events_;
  Time next_event_ = Time::min();
};

}  // namespace split::link
