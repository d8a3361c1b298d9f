// Decides which layers a loaded cloud asks its sessions to take: a pressure becomes a level, and
// the level a wanted cut of each session. Sockets, clocks and threads are the caller's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace split::cloud {

enum class Priority : uint8_t { kLow, kNormal, kHigh };

class Shedding {
 public:
  using Id = uint64_t;
  struct Measured {
    double busy = 0, kv = 0;  // parts of 1
    double p99_ms = 0;        // of a step; 0: there was none
  };
  struct Session {
    Priority priority = Priority::kNormal;
    int can = 0;  // the lowest cut that its edge could take
  };

  Shedding(int layers, double slo_ms) : layers_(layers), slo_ms_(slo_ms) {}

  // A round. `now_s` does not go back; sessions that are not named are forgotten.
  void round(double now_s, const Measured& measured, const std::map<Id, Session>& sessions);
  // The cut that a session should have; nothing where it may choose its own.
  std::optional<int> want(Id session) const;
  double pressure() const { return pressure_; }
  double level() const { return level_; }
  // From 0 to 1: what a row costs beyond its work.
  double price() const;

 private:
  void set_level(double now_s);
  int wanted(const Session& session) const;

  int layers_;
  double slo_ms_;
  double pressure_ = 0, level_ = 0;
  std::optional<double> low_since_, lowered_;  // seconds
  std::map<Id, int> wants_;                    // layers_: it may choose its own
  Id next_ = 0;  // where the next round begins, so that all have turns
};

}  // namespace split::cloud
