// The state and work of the server's loop thread. Private to common/http.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "http/network.h"
#include "http/server/connection.h"
#include "http/server/exchange.h"
#include "http/server/server.h"
#include "http/server/workers.h"

namespace split::http {

// The listening sockets.
struct Door {
  Fd listener;
  Clock::time_point again = Clock::time_point::max();  // when to look again, while shut
  bool all_in = true;                                  // false: the log says that connections wait
};

// The certificates of new connections, renewed by any thread.
class Certificates {
 public:
  explicit Certificates(const Server::Options& options) : options_(options) { renew(); }
  void renew();
  // The newest certificates, for the loop; null: plain connections.
  const TlsContext& newest();

 private:
  const Server::Options& options_;
  TlsContext used_;
  std::mutex mutex_;
  TlsContext next_;  // guarded by it: the next current one
};

// Connections by deadline, and again those that shake hands, ask nothing or drain, to find the
// first of a kind.
struct Deadlines {
  void set(Connection& c, Clock::time_point deadline);

  std::set<Due> all, handshakes;
  Address everybody;
  std::map<std::string, Address> addresses;
};

// Connections with work that is not an event.
struct Ready {
  std::vector<int> pending;  // have bytes that epoll does not know of
  std::vector<int> asked;    // have the next request's bytes in `in`
  // to be read from or written to, in their order: some in each round, after all requests, so that
  // large transfers delay nobody
  std::deque<int> turns;
  uint64_t moved = 0;        // bytes moved in these turns
  std::vector<int> waiting;  // in kWaiting, in their order
};

// Connections released by workers.
class Reports {
 public:
  void add(Connection& c);
  Connection* take();  // a list linked by next_report

 private:
  std::mutex mutex_;
  Connection* first_ = nullptr;
};

struct Counts {
  std::atomic<size_t> open{0};
  std::atomic<size_t> inflight{0};
  std::atomic<size_t> staying{0};  // workers that wait for their client's next request
  std::atomic<Clock::duration> turn{}, turn_work{};  // the longest so far
};

// Everything but the certificates, the reports and the atomics belongs to the loop thread.
struct Server::Impl {
  explicit Impl(Options given);

  void watch(int operation, int fd, uint32_t events);

  void run();
  void on_event(int fd);
  void on_event(Connection& c);
  void on_time(Clock::time_point now);
  void shake_hands(Connection& c);
  void accept_all();
  bool has_descriptor();
  void accept_later(int error);
  void admit(Fd fd, const sockaddr_storage& address);
  void welcome(Connection& c);
  bool end_longest_idle(const std::set<Due>& of);  // false: none is idle
  bool end_oldest(const std::set<Due>& of);        // false: there is none
  void read_more(Connection& c);
  void advance(Connection& c);
  bool charge(Connection& c);  // charges its body; false: refused
  void hand_over(Connection& c);
  void answer_here(Connection& c);
  void take_turns();
  void write_more(Connection& c);
  void cut_off(Connection& c);
  void make_more(Connection& c);  // hands a stream to a worker
  bool give_to_worker(Connection& c);
  void finish(Connection& c);
  void next(Connection& c, bool keep);  // begins the next request, or ends the connection
  // Called on a worker's thread:
  void work(Connection& c) noexcept;
  Connection::Report answer_all(Connection& c);
  bool make_and_send(Connection& c);  // false: there is more to do
  bool next_at_once(Connection& c);   // gets the next head and body; false: left to the loop
  bool take_whole(Connection& c);
  void refuse(Connection& c, const HttpError& error, bool with_body = true);
  void drain(Connection& c);
  void uncount(Connection& c);  // when it drains or ends
  void destroy(Connection& c);
  // The memory of a connection. Members are destroyed from the last to the first.
  struct Waste {
    std::shared_ptr<MemoryShare> memory = {};
    std::string in = {}, body = {};
    std::unique_ptr<Answer> answer = {};
  };
  void dispose(Waste waste) noexcept;
  void trim();
  void take_reports();
  void take_report(Connection& c);
  // Calls `step` for the connection of this descriptor. A failure ends that connection alone: when
  // memory is short, the next one may find some.
  template <typename Step>
  void guarded(int fd, const Step& step) {
    try {
      step();
    } catch (const std::bad_alloc&) {
      lose(fd, "out of memory");
    } catch (const Error& error) {
      lose(fd, error.what());
    }
  }
  void lose(int fd, const char* why);
  void on_timeout(Connection& c);
  void begin_stop();
  bool stop_begun() const { return stop_deadline != Clock::time_point::max(); }
  bool has_work() const;
  void arm(Connection& c);  // waits for its next event, or takes what is already there
  void set_deadline(Connection& c, Clock::time_point deadline) { deadlines.set(c, deadline); }

  const Options options;
  const std::vector<Network> proxies;
  std::atomic<bool> stopping{false};
  Exchange exchange;
  Certificates certificates;
  Door door;
  Fd epoll;
  Fd wake;
  std::unordered_map<int, std::unique_ptr<Connection>> connections;
  Deadlines deadlines;
  Ready ready;
  Clock::time_point stop_deadline = Clock::time_point::max();  // set once the stop has begun
  Counts counts;
  Reports reports;
  Workers workers;  // destroyed first: its threads use the other members
};

}  // namespace split::http
