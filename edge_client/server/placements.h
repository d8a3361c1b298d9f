// The services of one server of the edge, one at a time: another model, device, weight format or
// place of the head needs another Service, which loads beside the present one; that answers until
// then, and its running answers end as they began. Knows no path of a URL.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/options/options.h"
#include "edge_client/server/service.h"
#include "edge_client/split/lock_order.h"

namespace split::edge {

// A requested placement; absent members keep their value.
struct PlacementChange {
  std::optional<std::string> model, format, device;
  std::optional<Head> head;
  std::optional<Cut> cut;
  bool chosen = false;  // the cut is chosen as weights come

  bool moves_only() const { return !model && !head && !format && !device; }
};

// Any thread, but load().
class Placements {
 public:
  // The arguments outlive it. Throws Error(kInput) for a bad URL.
  Placements(const Options& options, const Console& console, const Flags::Environment& environment,
             Interrupt& interrupt);

  void load();  // loads the first service; once
  bool ready() const { return present()->ready(); }
  void stop();  // ends ready()

  // The service that answers; callers may keep it.
  std::shared_ptr<Service> present() const;
  // Downloads what is missing; later answers begin there. Throws HttpError and Error.
  void place(const PlacementChange& wanted);

  EdgeMetrics& metrics() { return metrics_; }
  std::string status() const;

 private:
  std::shared_ptr<Service> make(PlacementRequest request);
  PlacementRequest request_of(const PlacementChange& wanted, const Service& now) const;
  void observe();

  const Options& options_;
  const Console& console_;
  const Flags::Environment& environment_;
  Interrupt& interrupt_;
  EdgeMetrics metrics_;
  Mutex placing_{LockOrder::kPlacing};  // one placement at a time

  mutable Mutex mutex_{LockOrder::kPlacements};  // guards the members below
  std::shared_ptr<Service> now_;
  std::vector<std::string> devices_;  // allowed in a request
  bool stopping_ = false;
};

}  // namespace split::edge
