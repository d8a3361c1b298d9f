// Decides which layers a loaded cloud asks its sessions to take. The pressure sets a level: the
// share of what all edges could take. Sessions are asked, or released, until the requests add up to
// it; at the right pressure none moves. Sockets, clocks and threads are the caller's.
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
    double work = 0, kv = 0;  // fractions: of the time that rows cost, of the KV cache
    double p99_ms = 0;        // a token's wait for its step; 0: no token
  };
  struct Session {
    Priority priority = Priority::kNormal;
    int can = 0;  // lowest cut that its edge could take
  };
  // The requested cuts: all blocks, and quarters less, so that few depths share a step.
  static constexpr int kRungs = 4;
  // Time between two requests to a session, and after the step by which its edge followed one: no
  // edge moves twice in it, however late it hears of a request.
  static constexpr double kBetweenWishes = 10;  // seconds

  Shedding(int layers, double slo_ms) : layers_(layers), slo_ms_(slo_ms) {}

  // Runs a round. `now_s` never decreases; forgets sessions that are not in the map.
  void round(double now_s, const Measured& measured, const std::map<Id, Session>& sessions);
  // Notes that the session's steps end elsewhere from now on: if it had a request, it has followed
  // it.
  void moved(double now_s, Id session);
  // The cut that a session should have; nullopt: any.
  std::optional<int> want(Id session) const;
  // The cut of a new session whose edge could take everything; nullopt: any.
  std::optional<int> want_of_new() const;
  double pressure() const { return pressure_; }
  double level() const { return level_; }
  // From 0 to 1: the cost of a row beyond its work.
  double price() const;

 private:
  struct CutRequest {
    int cut = 0;
    std::optional<double> since = {};  // seconds; nullopt: it never had another
    bool followed = true;              // the edge has followed, or there is nothing to follow
  };
  // Layers of all sessions: in requests, and according to the level.
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
  std::map<Id, CutRequest> cut_requests_;      // layers_: any cut
  Id next_ = 0;                                // start of the next round, so that all have turns
};

}  // namespace split::cloud
