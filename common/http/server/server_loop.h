// The server's loop thread: what it keeps and does. Private to common/http.
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

// The sockets that new connections come from.
struct Door {
  Fd listener;
  Clock::time_point again = Clock::time_point::max();  // when it is to be looked at, while shut
  bool all_in = true;  // else the log has been told that somebody waits
};

// The certificates of new connections, which any thread may renew.
class Certificates {
 public:
  explicit Certificates(const Server::Options& options) : options_(options) { renew(); }
  void renew();
  // The newest, for the loop; none: plain connections.
  const TlsContext& newest();

 private:
  const Server::Options& options_;
  TlsContext used_;
  std::mutex mutex_;
  TlsContext next_;  // under it: takes the place of the one that is used
};

// Connections by their deadlines, and those that shake hands, ask nothing or drain by them as well,
// so that the first of a kind is at hand.
struct Deadlines {
  void set(Connection& c, Clock::time_point deadline);

  std::set<Due> all, handshakes;
  Address everybody;
  std::map<std::string, Address> addresses;
};

// Connections that need something else than their next event.
struct Ready {
  std::vector<int> pending;  // have bytes that epoll does not know of
  std::vector<int> asked;    // have the next request's in `in`
  // Are to be read from or written to, in their order: some of them in each round, behind all that
  // asks, so that those who send or take much keep nobody waiting.
  std::deque<int> turns;
  uint64_t moved = 0;        // bytes in these
  std::vector<int> waiting;  // in kWaiting, in their order
};

// Connections that workers have let go of.
class Reports {
 public:
  void add(Connection& c);
  Connection* take();  // a list by next_report

 private:
  std::mutex mutex_;
  Connection* first_ = nullptr;
};

struct Counts {
  std::atomic<size_t> open{0};
  std::atomic<size_t> inflight{0};
  std::atomic<size_t> staying{0};  // workers that wait for their client's next request
  std::atomic<Clock::duration> turn{}, turn_work{};  // the longest ones
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
  bool end_longest_idle(const std::set<Due>& of);  // false: none is
  bool end_oldest(const std::set<Due>& of);        // likewise
  void read_more(Connection& c);
  void advance(Connection& c);
  bool charge(Connection& c);  // for its body; false: refused
  void hand_over(Connection& c);
  void answer_here(Connection& c);
  void take_turns();
  void write_more(Connection& c);
  void cut_off(Connection& c);
  void make_more(Connection& c);  // of a stream, by a worker
  bool give_to_worker(Connection& c);
  void finish(Connection& c);
  void next(Connection& c, bool keep);  // request, or the connection's end
  // On a worker's thread:
  void work(Connection& c) noexcept;
  Connection::Report answer_all(Connection& c);
  bool make_and_send(Connection& c);  // false: there is more to do
  bool next_at_once(Connection& c);   // its head and body; false: the loop's to wait for
  bool take_whole(Connection& c);
  void refuse(Connection& c, const HttpError& error, bool with_body = true);
  void drain(Connection& c);
  void uncount(Connection& c);  // it drains or ends
  void destroy(Connection& c);
  // The memory that a connection held. Members end from the last to the first.
  struct Waste {
    std::shared_ptr<MemoryShare> memory = {};
    std::string in = {}, body = {};
    std::unique_ptr<Answer> answer = {};
  };
  void dispose(Waste waste) noexcept;
  void trim();
  void take_reports();
  void take_report(Connection& c);
  // Calls `step` for the connection with this descriptor, which a failure of it ends: want of
  // memory is that connection's, and the next may find some.
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
  void arm(Connection& c);  // its next event, or what is already there
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
  Workers workers;  // last: its threads use what is above
};

}  // namespace split::http
