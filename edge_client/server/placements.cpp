#include "edge_client/server/placements.h"

#include <algorithm>
#include <thread>

#include "base/resources/threads.h"
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

// A driver's compilers need a larger stack than a request's thread has.
void on_own_thread(const std::function<void()>& call) {
  std::exception_ptr error;
  std::thread thread = started([&] {
    try {
      call();
    } catch (...) {
      error = std::current_exception();
    }
  });
  thread.join();
  if (error) std::rethrow_exception(error);
}

// Refuses a head or a cut on the cloud's side of a tail, which runs here alone.
void expect_tail_here(const PlacementChange& wanted) {
  if (wanted.head == "cloud") wire::Fields::refuse("head", "expected \"edge\": a tail is used");
  if (wanted.cut == Cut::cloud()) {
    wire::Fields::refuse("cut", "expected a number or \"auto\": a tail's blocks run here alone");
  }
}

}  // namespace

Placements::Placements(const Options& options, const Console& console,
                       const Flags::Environment& environment, Interrupt& interrupt)
    : console_(console),
      environment_(environment),
      interrupt_(interrupt),
      now_(make(options)),
      devices_{"auto", "cpu"} {
  observe();
}

std::shared_ptr<Service> Placements::make(Options options) {
  return std::make_shared<Service>(std::move(options), console_, environment_, interrupt_,
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

Options Placements::options_of(const PlacementChange& wanted, const Service& now) const {
  Options options = now.options();
  if (!options.tail.empty()) expect_tail_here(wanted);
  options.model = wanted.model.value_or(now.id());
  if (wanted.head) {
    if (*wanted.head != "edge" && *wanted.head != "cloud") {
      wire::Fields::refuse("head", "expected \"edge\" or \"cloud\"");
    }
    options.head_on_cloud = *wanted.head == "cloud";
    options.head_given = true;
    if (options.head_on_cloud) options.moves.clear();  // such a text cannot move
  }
  if (wanted.format) {
    options.formats = of_field("format", [&] { return StageFormats::parse(*wanted.format); });
    options.own_blocks = false;
  }
  if (wanted.device) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(devices_, *wanted.device) == devices_.end()) {
      wire::Fields::refuse("device", "expected one of /split/status's devices");
    }
    options.device.device = *wanted.device;
  }
  if (wanted.chosen && options.head_on_cloud) {
    wire::Fields::refuse("head", "expected \"edge\" beside a cut of \"auto\"");
  }
  const bool chosen = wanted.chosen || (now.engine().follows() && !wanted.cut);
  options.auto_cut = chosen && !options.head_on_cloud && options.tail.empty();
  std::optional<Cut> where;  // another model has its own default
  if (options.model == now.id()) where = now.engine().present()->place.cut;
  options.cut = changed_cut(wanted.cut, chosen, options.auto_cut, where);
  return options;
}

void Placements::place(const PlacementChange& wanted) {
  const std::lock_guard placing(placing_);
  const std::shared_ptr<Service> now = present();
  if (!now->ready()) now->find("");  // throws
  if (wanted.moves_only()) {
    if (wanted.chosen) now->choose_cut();
    if (wanted.cut) now->move_cut(*wanted.cut);
    return;
  }
  const std::shared_ptr<Service> next = make(options_of(wanted, *now));
  try {
    on_own_thread([&] { next->load(); });
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
