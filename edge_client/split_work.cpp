#include "edge_client/split_work.h"

#include <csignal>
#include <cstdio>

namespace split::edge {
namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - start).count();
}

// Its message is one tame line, and the reader is this machine's user.
[[noreturn]] void throw_as_answer(const RemoteError& error) {
  if (error.transient()) {
    throw http::HttpError(503, "cloud_unavailable", error.what(), {}, {{"Retry-After", "1"}});
  }
  throw http::HttpError(502, "cloud_error", error.what());
}

template <typename Call>
auto answered(const Call& call) {
  try {
    return call();
  } catch (const RemoteError& error) {
    throw_as_answer(error);
  }
}

// A Server-Timing metric's description: a quoted string of plain characters.
std::string described(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c >= ' ' && c < 0x7f && c != '"' && c != '\\') out += c;
  }
  return out + "\"";
}

}  // namespace

SplitWork::SplitWork(const Shared& shared, std::shared_ptr<Split> split)
    : shared_(shared), split_(std::move(split)), lease_(shared.pool.take()) {
  lease_->remote().want(split_->query);
}

SplitWork::~SplitWork() {
  if (counts_.steps > 0 && shared_.done) shared_.done(counted());
}

SplitRun SplitWork::run() {
  return {lease_->remote(),
          *split_,
          shared_.model,
          shared_.tokenizer,
          shared_.retry,
          interrupt_,
          [&pool = shared_.pool](const std::string& session) { pool.dismiss(session); }};
}

Generated SplitWork::generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                              const OnText& on_text) {
  prompt_tokens_ += prompt.size();
  const auto start = Clock::now();
  Clock::time_point last = start;
  SplitCounts before = counts_;
  bool first = true;
  const auto timed = [&](std::string_view text, const ScoredToken* token) {
    if (token != nullptr) {
      const Clock::time_point now = Clock::now();
      if (tokens_++ == 0) first_token_ms_ = ms_between(start, now);
      if (shared_.metrics != nullptr) {
        shared_.metrics->token(before, counts_, ms_between(last, now) / 1e3, first);
      }
      first = false;
      last = now;
      before = counts_;
    }
    return on_text(text, token) && interrupt_.signal() == 0;
  };
  return answered([&] { return generate_text(run(), prompt, options, timed, counts_); });
}

std::vector<float> SplitWork::states(std::span<const int32_t> tokens) {
  prompt_tokens_ += tokens.size();
  return answered([&] { return final_states(run(), tokens, counts_); });
}

void SplitWork::cancel() noexcept {
  interrupt_.raise(SIGTERM);
  lease_->cancel();
}

Receipt SplitWork::counted() const {
  Receipt receipt;
  receipt.describe(*split_, shared_.model.config(), shared_.pool.origin());
  receipt.counts = counts_;
  receipt.prompt_tokens = prompt_tokens_;
  receipt.tokens = tokens_;
  receipt.first_token_ms = first_token_ms_;
  return receipt;
}

std::string SplitWork::receipt() const { return cost_json(counted()); }

std::string SplitWork::server_timing() const {
  std::string text = cat("cut;desc=", described(split_->place.name()),
                         ", device;desc=", described(split_->device()));
  if (counts_.steps == 0) return text;  // the head of a stream
  const auto metric = [&](const char* name, double ms) {
    char number[64];
    std::snprintf(number, sizeof number, ", %s;dur=%.3f", name, ms);
    text += number;
  };
  metric("cloud", counts_.traffic.cloud_ms);
  metric("wire", counts_.traffic.wire_ms);
  metric("edge", counts_.edge_ms);
  if (tokens_ > 0) metric("first_token", first_token_ms_);
  metric("total", counts_.ms);
  return text;
}

}  // namespace split::edge
