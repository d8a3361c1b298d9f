// Decides which layers a loaded cloud asks its sessions to take: a pressure becomes a level, the
// part of what all edges could take that they are asked for. Sessions are asked, or let go home,
// until their wishes come to that; while the pressure is right none moves. Sockets, clocks and
// threads are the caller's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "serve/api_keys.h"

namespace split::cloud {

using serve::Priority;

class Shedding {
 public:
  using Id = uint64_t;
  struct Measured {
    double work = 0, kv = 0;  // parts of 1: of the time that rows cost, of the KV cache
    double p99_ms = 0;        // that a token waited for its step; 0: there was none
  };
  struct Session {
    Priority priority = Priority::kNormal;
    int can = 0;  // the lowest cut that its edge could take
  };
  // The cuts that are wished for: all blocks, and quarters less. So few depths share a step.
  static constexpr int kRungs = 4;
  // Between two wishes of a session, and behind the step by which its edge followed one: so that no
  // edge moves twice in this time, however late it hears of a wish.
  static constexpr double kBetweenWishes = 10;  // seconds

  Shedding(int layers, double slo_ms) : layers_(layers), slo_ms_(slo_ms) {}

  // A round. `now_s` does not go back; sessions that are not named are forgotten.
  void round(double now_s, const Measured& measured, const std::map<Id, Session>& sessions);
  // The session's steps go elsewhere from now on: where it has a wish it follows that.
  void moved(double now_s, Id session);
  // The cut that a session should have; nothing where it may choose its own.
  std::optional<int> want(Id session) const;
  // The same of one that begins, and whose edge could take all.
  std::optional<int> want_of_new() const;
  double pressure() const { return pressure_; }
  double level() const { return level_; }
  // From 0 to 1: what a row costs beyond its work.
  double price() const;

 private:
  struct CutRequest {
    int cut = 0;
    std::optional<double> since = {};  // seconds; none: it never had another
    bool followed = true;              // by the edge, or there is nothing to follow
  };
  // Layers of all sessions: that wishes come to, and that the level asks for.
  struct Taken {
    double layers = 0, asked = 0;
  };
  void set_level(double now_s);
  std::vector<Id> in_turn(const std::map<Id, Session>& sessions) const;
  Taken count(const std::map<Id, Session>& sessions);
  static double part(const Session& session, double level);
  int rung(double cut, int can) const;
  int wanted(const Session& session) const;
  int next_cut(const Session& session, int have, const Taken& taken) const;

  int layers_;
  double slo_ms_;
  double pressure_ = 0, level_ = 0;
  // The level rises or falls in this round; has stopped rising; and rose while a tenth of the
  // sessions in a round could not follow.
  bool rises_ = false, falls_ = false, stopped_ = false, ahead_ = false;
  std::optional<double> low_since_, lowered_;  // seconds
  std::map<Id, CutRequest> cut_requests_;      // a cut of layers_: it may choose its own
  Id next_ = 0;  // where the next round begins, so that all have turns
};

}  // namespace split::cloud
