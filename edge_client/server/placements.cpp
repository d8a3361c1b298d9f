#include "edge_client/server/placements.h"

#include <algorithm>
#include <thread>

#include "base/resources/threads.h"
#include "http/message.h"
#include "wire/codes.h"
#include "wire/fields.h"

namespace split::edge {
namespace {

// A word that is wrong is the caller's; a cloud or a device that fails is told in its own words.
[[noreturn]] void throw_as_answer(const Error& error) {
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

// A driver's compilers want more stack than a request's thread has.
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

}  // namespace

// The options outlive the service that reads them.
struct Placements::Placed {
  Placed(Options wanted, const Console& console, const Flags::Environment& environment,
         Interrupt& interrupt, EdgeMetrics& metrics)
      : options(std::move(wanted)), service(options, console, environment, interrupt, metrics) {}
  const Options options;
  Service service;
};

Placements::Placements(const Options& options, const Console& console,
                       const Flags::Environment& environment, Interrupt& interrupt)
    : console_(console),
      environment_(environment),
      interrupt_(interrupt),
      now_(make(options)),
      devices_{"auto", "cpu"} {
  observe();
}

std::shared_ptr<Placements::Placed> Placements::make(const Options& options) {
  return std::make_shared<Placed>(options, console_, environment_, interrupt_, metrics_);
}

// Sets the metrics that describe what answers begin with now.
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
  now_->service.stop();
}

std::shared_ptr<Service> Placements::present() const {
  const std::lock_guard lock(mutex_);
  return {now_, &now_->service};
}

// A text's own model outlives what it begins.
serve::TextModel Placements::find(const std::string& id) const {
  const std::shared_ptr<Service> service = present();
  serve::TextModel model = service->find(id);
  model.begin = [service, begin = std::move(model.begin)] { return begin(); };
  return model;
}

serve::TextModel Placements::unsplit(const std::string& id) const {
  const std::shared_ptr<Service> service = present();
  serve::TextModel model = service->unsplit(id);
  model.begin = [service, begin = std::move(model.begin)] { return begin(); };
  return model;
}

serve::TextModel Placements::find_writer(const std::string& id, const std::string& owner) const {
  const std::shared_ptr<Service> service = present();
  serve::TextModel model = service->find_writer(id, owner);
  model.begin = [service, begin = std::move(model.begin)] { return begin(); };
  return model;
}

Options Placements::options_of(const Wish& wish, const Placed& now) const {
  Options options = now.options;
  const std::optional<Placement> place = now.service.place();
  const bool other = wish.model && *wish.model != now.service.id();
  options.model = wish.model.value_or(now.service.id());
  if (wish.head) {
    if (*wish.head != "edge" && *wish.head != "cloud") {
      wire::Fields::refuse("head", "expected \"edge\" or \"cloud\"");
    }
    options.head_on_cloud = *wish.head == "cloud";
    options.head_given = true;
    if (options.head_on_cloud) options.moves.clear();  // which such a text cannot
  }
  if (wish.format) {
    options.formats = of_field("format", [&] { return StageFormats::parse(*wish.format); });
    options.own_blocks = false;
  }
  if (wish.device) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(devices_, *wish.device) == devices_.end()) {
      wire::Fields::refuse("device", "expected one of /split/status's devices");
    }
    options.device.device = *wish.device;
  }
  if (wish.chosen && options.head_on_cloud) {
    wire::Fields::refuse("head", "expected \"edge\" beside a cut of \"auto\"");
  }
  const bool follows = wish.chosen || (now.service.follows() && !wish.cut);
  options.auto_cut = follows && !options.head_on_cloud;
  options.all_on_cloud = options.auto_cut;
  options.cut.reset();  // where another model has its default
  std::optional<int> cut = wish.cut;
  if (!cut && !follows && !other && place) cut = place->all_on_cloud ? Move::kCloud : place->cut;
  if (cut == Move::kCloud) {
    options.all_on_cloud = true;
  } else {
    options.cut = cut;
  }
  return options;
}

void Placements::place(const Wish& wish) {
  const std::lock_guard placing(placing_);
  std::shared_ptr<Placed> now;
  {
    const std::lock_guard lock(mutex_);
    now = now_;
  }
  if (!now->service.ready()) now->service.find("");  // throws
  if (wish.moves_only()) {
    if (wish.chosen) now->service.choose_cut();
    if (wish.cut) now->service.move_cut(*wish.cut);
    return;
  }
  const std::shared_ptr<Placed> next = make(options_of(wish, *now));
  try {
    on_own_thread([&] { next->service.load(); });
  } catch (const Error& error) {
    throw_as_answer(error);
  }
  const std::lock_guard lock(mutex_);
  if (stopping_) next->service.stop();
  now_ = next;
}

std::string Placements::status() const {
  std::vector<std::string> devices;
  std::shared_ptr<Placed> now;
  {
    const std::lock_guard lock(mutex_);
    devices = devices_;
    now = now_;
  }
  return now->service.status(devices);
}

}  // namespace split::edge
