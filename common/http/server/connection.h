// One accepted connection and the small socket operations on it. The loop owns every connection;
// while `state` is kBusy a worker alone uses all but `fd`, `state` and `deadline`, and the loop
// touches nothing but the socket's shutdown. In every other state no thread but the loop's does
// anything for it. Whether there is TLS between is known here alone.
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <memory>
#include <set>
#include <span>
#include <string>

#include "base/file.h"
#include "http/head.h"
#include "http/server/answer.h"
#include "http/tls.h"

namespace split::http {

// When a connection's deadline is, and its descriptor: what sets of them are sorted by.
using Due = std::pair<Clock::time_point, int>;

// The connections of one peer's address: those that drain are not in `count`.
struct Address {
  size_t count = 0;
  std::set<Due> idle, drains;
};

struct Connection {
  enum State {
    kHandshake,  // of TLS
    kHead,       // waiting for a request or collecting its head
    kBody,       // collecting its body
    kBusy,       // a worker makes its answer
    kWriting,    // its client takes what has been made
    kWaiting,    // for a worker, to make more of a stream
    kDrain,  // answered for the last time: waits for the client to close, so that the answer is not
             // reset away
  };

  Fd fd;
  TlsSession tls;
  short waits_for = POLLIN;  // the event before the last Io::kWait can turn into something else
  std::string peer;
  State state = kHead;
  Address* address = nullptr;  // that it counts for
  bool late = false;           // came when the server was stopping already
  // Has paid for the body so far; then it is the request's. Before what it pays for, so that it
  // ends last.
  std::shared_ptr<MemoryShare> memory;
  std::string in;      // received, not yet used: the next requests of a client that does not wait
  size_t scanned = 0;  // of `in`, while looking for the head's end
  RequestHead head;
  std::string body;
  size_t drained = 0;
  Clock::time_point answered;  // last time
  bool quick = false;          // came straight back then
  Clock::time_point deadline = Clock::time_point::max();
  // A worker's word when it lets go of the connection.
  enum Report {
    kKept,     // answered; it can take another request
    kEnded,    // answered for the last time
    kToWrite,  // there is more to be sent or made
  } report = kEnded;
  Connection* next_report = nullptr;
  std::unique_ptr<Answer> answer;  // last: its parts ask who is gone
};

// A body of more has a mapping of its own, and a worker frees it.
inline constexpr size_t kSmallBody = 512 << 10;
// Frees a body: a large one a piece at a time, as whoever needs a mapping meanwhile waits for it.
void release_body(std::string& body);

Io handshake(Connection& connection);
// Reads what is there, at most `most` bytes, and appends it. kWait: nothing there yet. kGone:
// closed or failed.
Io receive(Connection& connection, std::string& to, size_t most);
// Bytes for receive() that no event will tell of.
bool has_pending(const Connection& connection);
// The other side has said something that receive() has not had, or has closed.
bool has_input(const Connection& connection);
// Sends what fits without waiting; `sent` counts it.
Io send(Connection& connection, std::span<const iovec> pieces, size_t& sent);
// Nothing more will be sent: says so, and what still comes is no longer decrypted.
void end_sending(Connection& connection);
// The other side has closed (or reset) the connection.
bool is_gone(const Connection& connection);

// The bytes of an answer that closes the connection: for requests that the loop itself refuses.
std::string closing_answer(const Response& response, std::string_view request_id, bool with_body);

// A listening socket and its port. Throws as Server::bind() says.
Fd listen_on(const std::string& host, int port, int backlog, int& bound_port);

// Theirs when it is 1 to 64 of [A-Za-z0-9._-], else 16 random hex digits.
std::string request_id(const Headers& headers);

}  // namespace split::http
