#include "edge_client/weights/arrival.h"

#include "edge_client/weights/exactness.h"

namespace split::edge {
namespace {

// Between two tries to compare bits with a cloud that does not answer.
constexpr std::chrono::seconds kLookAgain{1};

}  // namespace

Arrival::Arrival(Loader& loader, const wire::ModelInfo& info, ArrivalOptions options)
    : loader_(loader), info_(info), options_(std::move(options)) {
  begins_ = std::async(std::launch::async, [this] { return loader_.grow(info_, options_.grow); });
}

Arrival::~Arrival() {
  if (begins_.valid()) begins_.wait();
}

void Arrival::begun() {
  try {
    split_ = begins_.get();
    stays_ = split_->place.cut != 0 || !split_->growing;
    if (split_->growing) text_.emplace(*split_->growing);
  } catch (const Error& error) {
    stays_ = true;
    if (options_.tell) options_.tell(cat(error.what(), "; the text stays on the cloud"));
  }
}

Batcher* Arrival::here() {
  if (stays_) return nullptr;
  if (begins_.valid()) {
    if (begins_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return nullptr;
    begun();
    if (stays_) return nullptr;
  }
  if (!split_->tail->floor().is_tokens() || !may_move()) return nullptr;
  return split_->batcher();
}

bool Arrival::may_move() {
  if (exact_) return *exact_ || !options_.must_be_exact;
  const auto now = Clock::now();
  if (now < next_look_) return false;
  try {
    const std::unique_ptr<Remote> remote = loader_.connect(loader_.remote().patience().timeout);
    exact_ = is_exact(*remote, info_, *split_->batcher());
  } catch (const RemoteError&) {
    next_look_ = now + kLookAgain;
    return !options_.must_be_exact;
  }
  if (!*exact_ && options_.must_be_exact) {
    stays_ = true;
    if (options_.tell) {
      options_.tell(
          "this machine's bits are not the server's: a text with a seed or temperature 0 stays on "
          "the cloud");
    }
    return false;
  }
  return true;
}

}  // namespace split::edge
