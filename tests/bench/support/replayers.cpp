#include "bench/support/replayers.h"

#include <algorithm>
#include <cstdio>
#include <future>

#include "bench/support/bench.h"
#include "edge_client/split/sides.h"
#include "http/client.h"
#include "wire/load_note.h"
#include "wire/protocol.h"
#include "wire/step.h"

namespace split::bench {
namespace {

constexpr uint32_t kMostLag = edge::SplitState::kMostLag;  // rows

std::string session_name(size_t n) {
  char text[33];
  std::snprintf(text, sizeof text, "%032zx", n + 1);
  return text;
}

}  // namespace

// One session's way. Its own thread's, but the figures.
struct Replayers::Edge {
  Edge(const Replay& replay, size_t number)
      : number(number),
        session(session_name(number)),
        client(replay.url),
        beside(replay.url),
        layers(replay.layers) {}

  http::Reply post(http::Client& by, const std::string& body) {
    http::Reply reply = by.request("POST", wire::session_forward_path(session), body,
                                   wire::kJsonType, {{"Accept", std::string(wire::kTensorType)}});
    if (reply.status >= 300) {
      throw Error(ErrorKind::kRemote, cat("[bench] ", reply.status, ": ", reply.body));
    }
    return reply;
  }
  void open(const Replay& replay, std::span<const int32_t> prompt) {
    const std::string body =
        wire::to_json(wire::SessionRequest{replay.model, {.to = replay.layers}});
    client.request("PUT", wire::session_path(session), body, wire::kJsonType);
    post(client, wire::step_json({.range = {}, .tokens = prompt, .wanted = Wanted::kNone},
                                 {.to = replay.layers}));
    filled.step(0, static_cast<uint32_t>(prompt.size()), layers);
  }
  // A row at the cut. A deeper one is gone to when its blocks have all rows but a few, which come
  // with the row: the others are brought beside the steps, as an edge's lane does.
  void step(std::span<const int32_t> ids, size_t past, std::optional<int> can, Point wanted) {
    const auto end = static_cast<uint32_t>(past);
    if (brought.valid() && end < filled.below(1)) brought.wait();  // the text begins again
    if (const auto have = rows_of(wanted, end); have + kMostLag < end) {
      bring(have, end, wanted);
    } else {
      cut = wanted;
    }
    const uint32_t from = rows_of(cut, end);
    const SequenceRows rows{.past = from,
                            .tokens = ids.subspan(from, end + 1 - from),
                            .phase = Phase::kGenerate,
                            .wanted = Wanted::kLast};
    const http::Reply reply = post(client, wire::step_json(rows, {.to = cut, .can = can}));
    filled.step(rows.past, end + 1, blocks_of(cut));
    note = wire::parse_load_note(reply.headers.get(wire::kLoadHeader).value_or("")).value_or(note);
  }

  int blocks_of(Point to) const { return std::min(to, Point(layers)).block(); }
  // Rows before `end` that the blocks before this point have.
  uint32_t rows_of(Point to, uint32_t end) {
    if (brought.valid() && brought.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
      const Rows rows = brought.get();
      filled.fill(rows.from, rows.end, rows.blocks);
    }
    return std::min(filled.below(blocks_of(to)), end);
  }
  void bring(uint32_t from, uint32_t end, Point to) {
    if (brought.valid()) return;
    brought = std::async(std::launch::async, [this, rows = Rows{from, end, blocks_of(to)}] {
      post(beside,
           wire::step_json({.past = rows.from, .wanted = Wanted::kNone},
                           {.to = rows.blocks, .fill = true, .count = rows.end - rows.from}));
      return rows;
    });
  }

  // Rows that came to be in the first blocks.
  struct Rows {
    uint32_t from, end;
    int blocks;
  };
  const size_t number;
  const std::string session;
  http::Client client, beside;
  wire::LoadNote note;
  Point cut = Point::head();
  const int layers;
  edge::FilledRows filled{layers};
  std::vector<Clock::time_point> moves;  // when the first row beyond each was asked for
  std::atomic<bool> away{false}, failed{false};
  std::thread thread;
  std::future<Rows> brought;
};

double Measured::p99() const { return ms.empty() ? 0 : quantile(ms, 0.99); }

Replayers::Replayers(const RandomModel& model, Replay replay)
    : replay_(std::move(replay)),
      ids_(random_tokens(model.config(), replay_.prompt + replay_.steps)) {}

Replayers::~Replayers() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  for (auto& edge : edges_) edge->thread.join();
}

void Replayers::run(size_t sessions, std::vector<Point> cuts, std::optional<int> can) {
  // One after the other, so that their prompts are no load of the others'.
  while (edges_.size() < sessions) {
    auto edge = std::make_unique<Edge>(replay_, edges_.size());
    edge->open(replay_, std::span(ids_).first(replay_.prompt));
    edges_.push_back(std::move(edge));
    Edge& made = *edges_.back();
    made.thread = std::thread([this, &made] { work(made); });
  }
  const std::lock_guard lock(mutex_);
  running_ = sessions;
  cuts_ = std::move(cuts);
  can_ = can;
  changed_.notify_all();
}

Measured Replayers::measure(double seconds) {
  size_t sessions = 0;
  {
    const std::lock_guard lock(mutex_);
    ms_.clear();
    sessions = running_;
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  Measured measured;
  const std::lock_guard lock(mutex_);
  measured.ms = std::exchange(ms_, {});
  for (size_t n = 0; n < sessions; ++n) measured.failed += edges_[n]->failed;
  const double due = static_cast<double>(sessions) * replay_.rate * seconds;
  measured.rate = due > 0 ? static_cast<double>(measured.ms.size()) / due : 1;
  return measured;
}

size_t Replayers::most_moves(std::chrono::seconds within) const {
  size_t most = 0;
  const std::lock_guard lock(mutex_);
  for (const auto& edge : edges_) {
    for (auto first = edge->moves.begin(); first != edge->moves.end(); ++first) {
      const auto end = std::lower_bound(first, edge->moves.end(), *first + within);
      most = std::max(most, static_cast<size_t>(end - first));
    }
  }
  return most;
}

size_t Replayers::moved() const {
  size_t count = 0;
  for (size_t n = 0; n < running_; ++n) count += edges_[n]->away;
  return count;
}

void Replayers::work(Edge& edge) {
  const auto period =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1 / replay_.rate));
  // Spread over the period.
  Clock::time_point due = Clock::now() + period * static_cast<int>(edge.number * 37 % 101) / 101;
  std::unique_lock lock(mutex_);
  for (size_t at = 0; !ends_; at = (at + 1) % replay_.steps) {
    if (edge.number >= running_) {
      changed_.wait(lock, [&] { return ends_ || edge.number < running_; });
      due = Clock::now() + period * static_cast<int>(edge.number * 37 % 101) / 101;
    }
    changed_.wait_until(lock, due, [this] { return ends_; });
    if (ends_) return;
    const Point own = cuts_[edge.number % cuts_.size()];
    const std::optional<int> can = can_;
    const Point cut = can && edge.note.want ? Point(std::max(*edge.note.want, *can)) : own;
    const Point before = edge.cut, wanted = std::min(cut, own);
    lock.unlock();
    const auto start = Clock::now();
    try {
      edge.step(ids_, replay_.prompt + at, can, wanted);
    } catch (const std::exception& error) {
      if (!edge.failed.exchange(true))
        std::fprintf(stderr, "session %zu: %s\n", edge.number, error.what());
      lock.lock();
      changed_.wait(lock, [this] { return ends_; });
      return;
    }
    edge.away = edge.cut != own;
    const auto ended = Clock::now();
    due = std::max(due + period, ended);  // what it is late is not made up for
    lock.lock();
    if (can && before != edge.cut) edge.moves.push_back(start);
    ms_.push_back(1e3 * std::chrono::duration<double>(ended - start).count());
  }
}

}  // namespace split::bench
