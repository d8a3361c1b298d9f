// A TCP proxy on this machine's loopback whose two directions are Lines: each connection to it is
// one to the server, and its bytes take the time of a line. It can cut connections off, and it cuts
// all of them when paced events come from a server that has ended, since a slow server would not
// have sent what it had not made. Knows no HTTP but where events end.
#pragma once

#include <atomic>
#include <list>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "scripts/link/line.h"

namespace split::link {

// run() belongs to one thread, stop() to any.
class Relay {
 public:
  struct Options {
    std::string to_host = "127.0.0.1";
    int to_port = 0;
    int port = 0;  // where it listens; 0: any free one
    Line::Options up = {}, down = {};
    Clock::duration rtt{};    // before a connection's first byte
    double events_per_s = 0;  // 0: as they come
    uint64_t cut_after = 0;   // bytes both ways of each connection; 0: never
    std::optional<uint64_t> seed =
        {};  // draws from 1 .. cut_after instead, for each connection anew
  };
  struct Counts {
    uint64_t connections = 0, cut = 0, up = 0, down = 0;  // bytes that were delivered
  };

  // Listens. Throws Error(kInUse), Error(kRemote) for a host that has no address, Error(kIo).
  explicit Relay(const Options& options);
  ~Relay();

  int port() const { return port_; }
  void run();  // until stop()
  void stop();
  Counts counts() const { return counts_; }  // after run()

 private:
  struct End {
    Fd fd;
    bool takes = false;  // bytes, as far as is known
    bool told = false;   // that there will be no more
  };
  struct Pair;
  struct Address;
  using Pairs = std::list<Pair>;
  enum Way { kUp, kDown };

  void watch(int operation, int fd, uint32_t events);
  void wait(Time until);
  void on_event(int fd, uint32_t events);
  void accept_all(Time now);
  Fd begin_connect(size_t& address);
  void connected(Pair& pair);
  void open_watch();
  void on_watch();
  bool round(Time now);  // whether anything moved
  bool read(Pair& pair, Way way, Time now);
  bool write(Pair& pair, Way way, Time now);
  void end(Pairs::iterator pair);
  Time wake(Time now) const;

  const Options options_;
  std::vector<Address> addresses_;  // of the server
  Line up_, down_;
  std::mt19937_64 random_;
  Fd epoll_, listener_, stop_;
  int port_ = 0;
  Pairs pairs_;
  std::unordered_map<int, Pair*> by_fd_;
  bool accepts_ = true;  // there may be somebody
  Time accept_again_ = kNever;
  // A connection on which nothing is said: it ends when the server does.
  Fd server_watch_;
  bool watch_opened_ = false;
  std::vector<char> buffer_;
  Counts counts_;
  std::atomic<bool> stopped_{false};
};

}  // namespace split::link
