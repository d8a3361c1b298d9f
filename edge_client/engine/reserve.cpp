#include "edge_client/engine/reserve.h"

#include <csignal>
#include <utility>

#include "base/figures.h"
#include "base/plain_words.h"
#include "base/resources/granted.h"
#include "base/resources/threads.h"

namespace split::edge {

Reserve::Reserve(const ModelChoice& choice, RunningTexts& answers, EngineObserver& observer)
    : choice_(choice), answers_(answers), observer_(observer) {
  answers_.on_busy([this](bool busy) { text_runs(busy); });
  try_start(thread_, [this] { run(); });  // without a thread, texts wait for a lost cloud
}

Reserve::~Reserve() {
  answers_.on_busy({});
  ends_.raise(SIGTERM);
  text_runs(true);
  if (thread_.joinable()) thread_.join();
}

void Reserve::text_runs(bool runs) {
  const std::lock_guard lock(mutex_);
  text_runs_ = runs;
  if (runs && load_ != nullptr) load_->cancel();
  changed_.notify_all();
}

void Reserve::run() {
  // Delays until a burst of texts is over, and until a cloud that did not answer may do so again.
  constexpr std::chrono::milliseconds kIdle{1000}, kAgain{5000};
  auto pause = kIdle;
  Mutex::Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !text_runs_ || ends_.interrupted(); });
    if (ends_.interrupted()) return;
    if (changed_.wait_for(lock, pause, [this] { return text_runs_; })) continue;
    lock.unlock();
    try {
      return bring();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kRemote) {
        return observer_.said(cat(plain_words(error.what()), "; texts wait for a lost cloud"));
      }
    }
    lock.lock();
    pause = text_runs_ ? kIdle : kAgain;
    if (!text_runs_) whole_.reset();  // its model may change meanwhile
  }
}

// Says why the weights are not fetched; empty: they are.
std::string Reserve::over() const {
  const uint64_t all = bytes_of(weights_.blobs(*whole_, StageRange()));
  const uint64_t most = choice_.options().max_weights.value_or(kMaxWeights),
                 granted = granted_memory();
  std::string limit = weights_.over_cache_limit(all).empty() ? "" : "--cache-limit";
  if (all > most) limit = cat("--max-weights ", human_bytes(most));
  if (all > granted) limit = cat("this machine's memory, ", human_bytes(granted));
  return limit.empty() ? "" : cat("all weights are ", human_bytes(all), ", more than ", limit);
}

// Throws Error(kRemote) if the cloud is lost or a text begins.
void Reserve::bring() {
  if (!whole_) {
    const auto remote =
        ended_by(ends_, choice_.server().connect(std::chrono::seconds(choice_.options().timeout)));
    whole_ = choice_.whole_manifest(*remote, ends_, false);
  }
  if (const std::string why = over(); !why.empty()) {
    return observer_.said(cat(why, ": texts wait for a lost cloud"));
  }
  const std::unique_ptr<BlobLoad> load = weights_.begin_rest(*whole_);
  const uint64_t missing = load->missing();
  if (missing > 0 && !std::exchange(told_, true)) {
    observer_.said(cat(human_bytes(missing), " of weights come while no text runs, so that a lost ",
                       "cloud ends none (--max-weights 0: none come)"));
  }
  const auto holds = [this](BlobLoad* that) {
    const std::lock_guard lock(mutex_);
    load_ = that;
    if (that != nullptr && text_runs_) that->cancel();
  };
  holds(load.get());
  const std::shared_ptr<void> over(nullptr, [&](void*) {
    holds(nullptr);
    observer_.loaded(load->counts());
  });
  load->finish();
  choice_.remember(*whole_, choice_.whole_query());
  if (missing > 0) observer_.said("all weights are here: a text goes on if the cloud is lost");
}

}  // namespace split::edge
