#include "bench/sessions_load.h"

#include <barrier>
#include <cstdio>
#include <thread>

#include "bench/bench.h"

namespace split::bench {
namespace {

using std::chrono::milliseconds;

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

  void open() { remote.open_session(session, {load.model, 0, load.cut}); }

  // The state of the last of the first `have` + `count` tokens, of which the cloud has `have`.
  const std::vector<float>& advance(size_t have, size_t count, bool prompt) {
    const auto from = script.begin() + static_cast<ptrdiff_t>(have);
    answer = remote.step(session,
                         {static_cast<uint32_t>(have),
                          {from, from + static_cast<ptrdiff_t>(count)},
                          prompt,
                          wire::Rows::kLast},
                         load.channels, traffic);
    return answer.values;
  }

  // The same, whatever becomes of the server in between.
  const std::vector<float>& advance_anyhow(size_t have, size_t count, bool prompt,
                                           size_t& replays) {
    const auto give_up = Clock::now() + load.retry_for;
    for (bool replay = false;; replay = true) {
      try {
        if (replay) {
          open();
          return advance(0, have + count, true);
        }
        return advance(have, count, prompt);
      } catch (const edge::RemoteError& error) {
        const bool again = error.transient() || error.code == "session_unknown";
        if (!again || Clock::now() >= give_up) throw;
        if (!replay) ++replays;
        std::this_thread::sleep_for(milliseconds(20));
      }
    }
  }

  const Load& load;
  const std::vector<int32_t>& script;
  const std::string session;
  edge::Remote remote;
  edge::Traffic traffic;
  wire::Matrix answer;
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
    edge.remote.close_session(edge.session);
  }
}

LoadResult SessionsLoad::run(size_t sessions) {
  finished_ = 0;
  LoadResult result;
  std::vector<std::vector<double>> step_us(sessions), wire_us(sessions);
  std::vector<size_t> replays(sessions);
  std::atomic<size_t> failed{0};
  Clock::time_point began;
  std::barrier prompted(static_cast<ptrdiff_t>(sessions), [&]() noexcept { began = Clock::now(); });
  const auto one = [&](size_t n) {
    const auto& alone = alone_[n % kScripts];
    Edge edge(load_, scripts_[n % kScripts], n);
    bool waited = false;
    try {
      edge.open();
      bool same = edge.advance_anyhow(0, load_.prompt, true, replays[n]) == alone[0];
      waited = true;
      prompted.arrive_and_wait();
      for (size_t t = 0; t < load_.steps; ++t) {
        const double before = edge.traffic.wire_ms;
        const auto start = Clock::now();
        same &= edge.advance_anyhow(load_.prompt + t, 1, false, replays[n]) == alone[t + 1];
        step_us[n].push_back(1e6 * seconds_since(start));
        wire_us[n].push_back(1e3 * (edge.traffic.wire_ms - before));
      }
      edge.remote.close_session(edge.session);
      if (!same) ++failed;
    } catch (const std::exception& error) {
      if (failed++ == 0) std::fprintf(stderr, "session %zu: %s\n", n, error.what());
      if (!waited) prompted.arrive_and_drop();
    }
    ++finished_;
  };
  std::vector<std::thread> threads;
  for (size_t n = 0; n < sessions; ++n) threads.emplace_back(one, n);
  for (std::thread& thread : threads) thread.join();
  result.seconds = seconds_since(began);
  result.failed = failed;
  for (size_t n = 0; n < sessions; ++n) {
    result.step_us.insert(result.step_us.end(), step_us[n].begin(), step_us[n].end());
    result.wire_us.insert(result.wire_us.end(), wire_us[n].begin(), wire_us[n].end());
    result.replays += replays[n];
  }
  return result;
}

}  // namespace split::bench
