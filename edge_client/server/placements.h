// The services of one server of the edge, one at a time: another model, device, format of weights
// or place of the head is another Service, loaded beside the one that answers, which answers until
// then and whose running answers end as they began. Knows no path of a URL.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "edge_client/options/options.h"
#include "edge_client/server/service.h"

namespace split::edge {

// A wish for another placement; what is absent stays as it is.
struct PlacementChange {
  std::optional<std::string> model, head, format, device;
  std::optional<int> cut;  // blocks on the cloud, or Move::kCloud,
  bool chosen = false;     // or where the weights have come to

  bool moves_only() const { return !model && !head && !format && !device; }
};

// Any thread, but load().
class Placements {
 public:
  // All of these outlive it. Throws Error(kInput) for a bad URL.
  Placements(const Options& options, const Console& console, const Flags::Environment& environment,
             Interrupt& interrupt);

  void load();  // of the first service; once
  bool ready() const { return present()->ready(); }
  void stop();  // not ready any more

  // The one that answers. Whoever holds it may go on with it.
  std::shared_ptr<Service> present() const;
  // Downloads what is missing; answers begin there from then on. Throws HttpError and Error.
  void place(const PlacementChange& wanted);

  EdgeMetrics& metrics() { return metrics_; }
  std::string status() const;

 private:
  std::shared_ptr<Service> make(Options options);
  Options options_of(const PlacementChange& wanted, const Service& now) const;
  void observe();

  const Console& console_;
  const Flags::Environment& environment_;
  Interrupt& interrupt_;
  EdgeMetrics metrics_;
  std::mutex placing_;  // one after the other

  mutable std::mutex mutex_;  // of all below
  std::shared_ptr<Service> now_;
  std::vector<std::string> devices_;  // that a wish may name
  bool stopping_ = false;
};

}  // namespace split::edge
