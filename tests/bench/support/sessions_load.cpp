#include "bench/support/sessions_load.h"

#include <barrier>
#include <cstdio>
#include <functional>
#include <thread>

#include "bench/support/bench.h"
#include "wire/codes.h"

namespace split::bench {
namespace {

using std::chrono::milliseconds;

// An edge waits a second when it is told so; these press on.
constexpr milliseconds kAgain{20};

std::string session_name(size_t n) {
  char text[33];
  std::snprintf(text, sizeof text, "%032zx", n + 1);
  return text;
}

}  // namespace

// One session's way. One thread at a time.
struct SessionsLoad::Edge {
  Edge(const Load& load, const std::vector<int32_t>& script, size_t number)
      : load(load),
        script(script),
        session(session_name(number)),
        remote(load.url, milliseconds(60000)) {}

  std::vector<float> ask(const edge::Send& send) {
    return remote.ask(send, {.id = load.model, .channels = load.channels});
  }
  void open() { ask({edge::Send::kOpen, session, {.range = {.to = load.cut}}, &traffic}); }
  void close() { ask({edge::Send::kClose, session}); }

  // The state of the last of the first `have` + `count` tokens, of which the cloud has `have`.
  const std::vector<float>& advance(size_t have, size_t count, bool prompt) {
    const auto start = Clock::now();
    const SequenceRows rows{.past = static_cast<uint32_t>(have),
                            .tokens = std::span(script).subspan(have, count),
                            .phase = prompt ? Phase::kPrompt : Phase::kGenerate};
    answer = ask({edge::Send::kStep, session, rows, &traffic});
    took_us = 1e6 * seconds_since(start);
    return answer;
  }

  // Does `work` again while the server is full or lost; whether it was lost is what it is told.
  void anyhow(const std::function<void(bool)>& work) {
    const auto give_up = Clock::now() + load.retry_for;
    for (bool replay = false;;) {
      try {
        return work(replay);
      } catch (const edge::RemoteError& error) {
        const bool full = error.status == 429 || error.status == 503;
        const bool again = error.transient() || error.code == wire::codes::kSessionUnknown;
        if (!again || Clock::now() >= give_up) throw;
        if (full) ++refused;
        if (!full && !replay) ++replays;
        replay = replay || !full;
        std::this_thread::sleep_for(kAgain);
      }
    }
  }
  // advance(), whatever becomes of the server in between.
  const std::vector<float>& advance_anyhow(size_t have, size_t count, bool prompt) {
    anyhow([&](bool replay) {
      if (!replay) return void(advance(have, count, prompt));
      open();
      advance(0, have + count, true);
    });
    return answer;
  }

  const Load& load;
  const std::vector<int32_t>& script;
  const std::string session;
  edge::Remote remote;
  edge::Traffic traffic;
  std::vector<float> answer;
  double took_us = 0;
  size_t replays = 0, refused = 0;
};

SessionsLoad::SessionsLoad(const RandomModel& model, Load load) : load_(std::move(load)) {
  const size_t length = load_.prompt + load_.steps;
  const std::vector<int32_t> tokens = random_tokens(model.config(), kScripts * length);
  for (size_t i = 0; i < kScripts; ++i) {
    const auto from = tokens.begin() + static_cast<ptrdiff_t>(i * length);
    scripts_.emplace_back(from, from + static_cast<ptrdiff_t>(length));
    Edge edge(load_, scripts_[i], i);
    edge.open();
    auto& states = alone_.emplace_back();
    states.push_back(edge.advance(0, load_.prompt, true));
    for (size_t t = 0; t < load_.steps; ++t) {
      states.push_back(edge.advance(load_.prompt + t, 1, false));
    }
    edge.close();
  }
}

LoadResult SessionsLoad::run(size_t sessions) {
  stepped_ = 0;
  stopped_ = false;
  LoadResult result;
  std::vector<std::vector<double>> step_us(sessions), wire_us(sessions);
  std::atomic<size_t> failed{0}, replays{0}, refused{0};
  Clock::time_point began;
  std::barrier prompted(static_cast<ptrdiff_t>(sessions), [&]() noexcept { began = Clock::now(); });
  const auto one = [&](size_t n) {
    const auto& alone = alone_[n % kScripts];
    Edge edge(load_, scripts_[n % kScripts], n);
    bool waited = false;
    try {
      edge.anyhow([&](bool) { edge.open(); });
      bool same = edge.advance_anyhow(0, load_.prompt, true) == alone[0];
      waited = true;
      prompted.arrive_and_wait();
      for (size_t t = 0; t < load_.steps && !stopped_; ++t, ++stepped_) {
        const double before = edge.traffic.wire_ms;
        same &= edge.advance_anyhow(load_.prompt + t, 1, false) == alone[t + 1];
        step_us[n].push_back(edge.took_us);
        wire_us[n].push_back(1e3 * (edge.traffic.wire_ms - before));
      }
      edge.anyhow([&](bool lost) {
        if (!lost) edge.close();
      });
      if (!same) ++failed;
    } catch (const std::exception& error) {
      if (failed++ == 0) std::fprintf(stderr, "session %zu: %s\n", n, error.what());
      if (!waited) prompted.arrive_and_drop();
    }
    replays += edge.replays;
    refused += edge.refused;
  };
  std::vector<std::thread> threads;
  for (size_t n = 0; n < sessions; ++n) threads.emplace_back(one, n);
  for (std::thread& thread : threads) thread.join();
  result.seconds = seconds_since(began);
  result.failed = failed;
  for (size_t n = 0; n < sessions; ++n) {
    result.step_us.insert(result.step_us.end(), step_us[n].begin(), step_us[n].end());
    result.wire_us.insert(result.wire_us.end(), wire_us[n].begin(), wire_us[n].end());
  }
  result.replays = replays;
  result.refused = refused;
  return result;
}

double SessionsLoad::seconds_until_quick(double most_us) {
  const auto start = Clock::now();
  Edge edge(load_, scripts_[0], 1u << 20);
  edge.anyhow([&](bool) { edge.open(); });
  edge.advance_anyhow(0, load_.prompt, true);
  double since = 0;
  for (int quick = 0; quick < 10;) {
    edge.advance_anyhow(load_.prompt, 1, false);
    quick = edge.took_us <= most_us ? quick + 1 : 0;
    if (quick == 1) since = seconds_since(start);
  }
  edge.close();
  return since;
}

}  // namespace split::bench
