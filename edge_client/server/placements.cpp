#include "edge_client/server/placements.h"

#include <algorithm>

#include "edge_client/engine/large_stack.h"
#include "http/message.h"
#include "wire/codes.h"
#include "wire/fields.h"

namespace split::edge {
namespace {

// Reports a wrong value as the client's fault, and a failing cloud or device in its own words.
[[noreturn]] void throw_as_answer(const Error& error) {
  if (error.field() == "model")  // the cloud does not have it
    throw http::HttpError(404, "model_not_found", error.what(), error.field());
  if (error.kind() == ErrorKind::kRemote)
    throw http::HttpError(502, wire::codes::kCloudError, error.what());
  if (error.kind() == ErrorKind::kDevice) throw http::HttpError(409, "device_error", error.what());
  throw error;
}

template <typename Call>
auto of_field(const char* field, const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    wire::Fields::refuse(field, error.what());
  }
}

// Refuses a head or a cut on the cloud's side of a tail, which runs here alone.
void expect_tail_here(const PlacementChange& wanted) {
  if (wanted.head == Head::kCloud)
    wire::Fields::refuse("head", "expected \"edge\": a tail is used");
  if (wanted.cut == Cut::cloud()) {
    wire::Fields::refuse("cut", "expected a number or \"auto\": a tail's blocks run here alone");
  }
}

}  // namespace

Placements::Placements(const Options& options, const Console& console,
                       const Flags::Environment& environment, Interrupt& interrupt)
    : options_(options),
      console_(console),
      environment_(environment),
      interrupt_(interrupt),
      now_(make(options.placement)),
      devices_{"auto", "cpu"} {
  observe();
}

std::shared_ptr<Service> Placements::make(PlacementRequest request) {
  return std::make_shared<Service>(options_, std::move(request), console_, environment_, interrupt_,
                                   metrics_);
}

// Updates the metrics of the model that answers begin with.
void Placements::observe() {
  serve::observe_batcher(metrics_.metrics, [this] { return present()->batcher(); });
  metrics_.metrics.info("split_edge_placement_info",
                        "What runs where; always 1. cut: blocks on the cloud, or all of it.",
                        [this] { return present()->placed(); });
}

void Placements::load() {
  present()->load();
  std::vector<std::string> devices{"auto"};
  for (const ListedDevice& device : list_devices()) {
    if (device.usable) devices.push_back(device.name);
  }
  const std::lock_guard lock(mutex_);
  devices_ = std::move(devices);
}

void Placements::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  now_->stop();
}

std::shared_ptr<Service> Placements::present() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

PlacementRequest Placements::request_of(const PlacementChange& wanted, const Service& now) const {
  PlacementRequest request = now.request();
  if (!options_.tail.empty()) expect_tail_here(wanted);
  request.model = wanted.model.value_or(now.id());
  if (wanted.head) {
    request.head = wanted.head;
    if (*wanted.head == Head::kCloud) request.moves.clear();  // such a text cannot move
  }
  if (wanted.format) {
    request.formats = of_field("format", [&] { return StageFormats::parse(*wanted.format); });
    request.own_blocks = false;
    request.names_arithmetic = true;
  }
  if (wanted.device) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(devices_, *wanted.device) == devices_.end()) {
      wire::Fields::refuse("device", "expected one of /split/status's devices");
    }
    request.device.device = *wanted.device;
  }
  const bool head_on_cloud = request.head == Head::kCloud;
  if (wanted.chosen && head_on_cloud) {
    wire::Fields::refuse("head", "expected \"edge\" beside a cut of \"auto\"");
  }
  const bool chosen = wanted.chosen || (now.engine().follows() && !wanted.cut);
  request.auto_cut = chosen && !head_on_cloud && options_.tail.empty();
  std::optional<Cut> where;  // another model has its own default
  if (request.model == now.id()) where = now.engine().present()->place.cut;
  request.cut = changed_cut(wanted.cut, chosen, request.auto_cut, where);
  return request;
}

void Placements::place(const PlacementChange& wanted) {
  const std::lock_guard placing(placing_);
  const std::shared_ptr<Service> now = present();
  if (!now->ready()) now->find("");  // throws
  if (wanted.moves_only()) {
    if (wanted.chosen || wanted.cut) now->place(wanted.cut);
    return;
  }
  const std::shared_ptr<Service> next = make(request_of(wanted, *now));
  try {
    on_large_stack([&] { next->load(); });
  } catch (const Error& error) {
    throw_as_answer(error);
  }
  const std::lock_guard lock(mutex_);
  if (stopping_) next->stop();
  now_ = next;
}

std::string Placements::status() const {
  std::vector<std::string> devices;
  std::shared_ptr<Service> now;
  {
    const std::lock_guard lock(mutex_);
    devices = devices_;
    now = now_;
  }
  return now->status(devices);
}

}  // namespace split::edge
