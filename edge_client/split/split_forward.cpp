#include "edge_client/split/split_forward.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"

namespace split::edge {
namespace {

using Clock = std::chrono::steady_clock;

// Rows of one request: bounds the bodies (6 MB for 1,600 channels in 1,024 rows) and the time until
// an answer.
constexpr size_t kSliceRows = 256;

std::string random_session_id() {
  std::array<unsigned char, 16> bits{};
  CHECK(RAND_bytes(bits.data(), bits.size()) == 1);
  return to_hex(std::as_bytes(std::span(bits)));
}

}  // namespace

SplitForward::SplitForward(CloudLink& cloud, const Model& model, int cut, Batcher* tail,
                           const RetryOptions& retry, Waiter& waiter, SplitCounts& counts,
                           Requester requester)
    : cloud_(cloud),
      model_(model),
      cut_(cut),
      tail_(tail),
      retry_options_(retry),
      waiter_(waiter),
      requester_(std::move(requester)),
      session_(random_session_id()),
      counts_(counts) {
  CHECK(cut_ > 0 || tail_ != nullptr);
  if (tail_ != nullptr) sequence_ = tail_->shard().pages().open();
}

SplitForward::~SplitForward() {
  close();
  if (tail_ != nullptr) tail_->shard().pages().close(sequence_);
}

void SplitForward::close() noexcept {
  if (!open_ || !reachable_) return;
  open_ = false;
  cloud_.close(session_);
}

std::span<const float> SplitForward::run(uint32_t past, std::span<const int32_t> tokens,
                                         Phase phase, bool all) {
  if (head_here()) return run_tail_to(tail_->shard().head_point(), past, tokens, phase, all);
  const int layers = model_.config().layers;
  const size_t rows = all ? tokens.size() : 1;
  ++counts_.steps;
  std::vector<float> hidden(rows * static_cast<size_t>(model_.config().channels));
  advance(past, tokens, phase, layers, all, hidden.data());
  Retry retry(retry_options_, waiter_);
  for (;;) {
    try {
      logits_ = cloud_.head(hidden, counts_.traffic);
      return logits_;
    } catch (const RemoteError& error) {
      retry.failed(error);
    }
  }
}

std::span<const float> SplitForward::top(uint32_t past, std::span<const int32_t> tokens,
                                         Phase phase) {
  return run_tail_to(tail_->shard().top_point(), past, tokens, phase, false);
}

std::span<const float> SplitForward::run_tail_to(int point, uint32_t past,
                                                 std::span<const int32_t> tokens, Phase phase,
                                                 bool all) {
  ++counts_.steps;
  logits_.resize((all ? tokens.size() : 1) * tail_->shard().width(point));
  advance(past, tokens, phase, point, all, logits_.data());
  return logits_;
}

std::vector<float> SplitForward::norms(std::span<const int32_t> tokens) {
  const int norm = model_.config().layers + 1;
  ++counts_.steps;
  std::vector<float> out(tokens.size() * static_cast<size_t>(model_.config().channels));
  advance(0, tokens, Phase::kPrompt, norm, true, out.data());
  return out;
}

void SplitForward::advance(uint32_t past, std::span<const int32_t> tokens, Phase phase, int to,
                           bool all, float* out) {
  const int layers = model_.config().layers;
  CHECK(past <= rows_.size() && !tokens.empty());
  rows_.resize(past);
  cloud_rows_ = std::min(cloud_rows_, past);
  const bool local = tail_ != nullptr && to > cut_;
  const bool keeps_rows = local && cut_ < layers;  // the tail has a KV cache
  if (keeps_rows) tail_->shard().pages().cut_back(sequence_, past);
  const size_t width =
      local ? tail_->shard().width(to) : static_cast<size_t>(model_.config().channels);
  for (size_t at = 0; at < tokens.size(); at += kSliceRows) {
    if (waiter_.interrupted()) throw RemoteError("[edge] interrupted", 0, "");
    const auto slice = tokens.subspan(at, std::min(kSliceRows, tokens.size() - at));
    const bool last = at + slice.size() == tokens.size();
    Job job;
    job.phase = phase;
    job.from = cut_;
    job.to = to;
    job.sequence = sequence_;
    job.requester = requester_;
    job.past = keeps_rows ? past + static_cast<uint32_t>(at) : 0;
    job.rows = static_cast<uint32_t>(slice.size());
    job.wanted = all ? Wanted::kAll : last ? Wanted::kLast : Wanted::kNone;
    job.out = all ? out + at * width : out;
    std::vector<float> hidden;
    if (cut_ > 0) {
      // Without blocks of ours only the rows whose result is wanted need to travel.
      const bool every = keeps_rows || all;
      hidden = from_cloud(past + static_cast<uint32_t>(at), slice, phase, every);
      if (!every) job.rows = 1;
      job.hidden = hidden.data();
    } else {
      job.tokens = slice.data();
    }
    if (!local) {
      if (job.wanted != Wanted::kNone) std::ranges::copy(hidden, job.out);
    } else if (keeps_rows || job.wanted != Wanted::kNone) {
      if (!keeps_rows) tail_->shard().pages().cut_back(sequence_, 0);
      run_tail(job);
    }
    for (const int32_t token : slice) rows_.push_back({token, phase});
  }
}

void SplitForward::run_tail(Job& job) {
  for (bool done = false; !done;) {
    const auto start = Clock::now();
    try {
      tail_->run(job);
      done = true;
    } catch (const SequenceLost&) {
    }
    counts_.edge_ms += std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    if (!done) restore_tail(*job.past);
  }
}

// The tail has the first `until` rows again, whose hidden states the cloud computes once more.
void SplitForward::restore_tail(uint32_t until) {
  KvPages& pages = tail_->shard().pages();
  for (uint32_t at; (at = pages.length(sequence_)) < until;) {
    Job job;
    job.phase = rows_[at].phase;
    std::vector<int32_t> tokens;
    for (size_t i = at; i < until && rows_[i].phase == job.phase && tokens.size() < kSliceRows; ++i)
      tokens.push_back(rows_[i].token);
    std::vector<float> hidden;
    if (cut_ > 0) {
      hidden = from_cloud(at, tokens, job.phase, true);
      job.hidden = hidden.data();
    } else {
      job.tokens = tokens.data();
    }
    job.from = cut_;
    job.to = model_.config().layers;
    job.sequence = sequence_;
    job.requester = requester_;
    job.past = at;
    job.rows = static_cast<uint32_t>(tokens.size());
    job.wanted = Wanted::kNone;
    try {
      tail_->run(job);
    } catch (const SequenceLost&) {  // again: from what it has then
    }
  }
}

std::vector<float> SplitForward::from_cloud(uint32_t past, std::span<const int32_t> tokens,
                                            Phase phase, bool all) {
  Retry retry(retry_options_, waiter_);
  for (;;) {
    try {
      if (!open_) open();
      if (cloud_rows_ < past) replay(past);
      return step(past, tokens, phase, all);
    } catch (const RemoteError& error) {
      recover(error, retry);
    }
  }
}

std::vector<float> SplitForward::step(uint32_t past, std::span<const int32_t> tokens, Phase phase,
                                      bool all) {
  std::vector<float> hidden = cloud_.step(session_, past, tokens, phase, all, counts_.traffic);
  reachable_ = true;
  cloud_rows_ = past + static_cast<uint32_t>(tokens.size());
  counts_.cloud_layer_rows += uint64_t{tokens.size()} * static_cast<uint64_t>(cut_);
  return hidden;
}

void SplitForward::open() {
  cloud_rows_ = 0;
  cloud_.open(session_, cut_);
  open_ = true;
}

// The rows the session should have and does not, in pieces of one phase.
void SplitForward::replay(uint32_t until) {
  ++counts_.replays;
  while (cloud_rows_ < until) {
    const Phase phase = rows_[cloud_rows_].phase;
    std::vector<int32_t> tokens;
    for (size_t at = cloud_rows_;
         at < until && rows_[at].phase == phase && tokens.size() < kSliceRows; ++at) {
      tokens.push_back(rows_[at].token);
    }
    step(cloud_rows_, tokens, phase, false);
  }
}

// Prepares for another try and waits for it, or throws.
void SplitForward::recover(const RemoteError& error, Retry& retry) {
  reachable_ = error.status != 0 || waiter_.interrupted();
  bool passes = error.transient();
  if (error.code == "session_unknown") {
    open_ = false;
    passes = true;
  } else if (error.code == "position_mismatch") {
    cloud_rows_ = 0;
    passes = true;
  } else if (error.code == "session_conflict") {
    session_ = random_session_id();
    open_ = false;
    passes = true;
  }
  retry.failed(error, passes);
}

}  // namespace split::edge
