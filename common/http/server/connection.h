// One accepted connection and the small socket operations on it. The loop owns every connection;
// while `state` is kBusy a worker alone uses all but `fd`, `state` and `deadline`, and the loop
// only shuts the socket down. In every other state the loop's thread alone touches it. Whether it
// has TLS is known here alone.
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

// A connection's deadline and descriptor: the order of sets of them.
using Due = std::pair<Clock::time_point, int>;

// The connections of one peer's address; draining ones are not in `count`.
struct Address {
  size_t count = 0;
  std::set<Due> idle, drains;
};

struct Connection {
  enum State {
    kHandshake,  // TLS
    kHead,       // waits for a request or collects its head
    kBody,       // collects its body
    kBusy,       // a worker makes its answer
    kWriting,    // the client takes what was made
    kWaiting,    // waits for a worker to make more of a stream
    kDrain,      // last answer sent: waits for the client to close, lest a reset destroy it
  };

  Fd fd;
  TlsSession tls;
  short waits_for = POLLIN;  // the event that can end the last Io::kWait
  std::string peer;
  State state = kHead;
  Address* address = nullptr;  // counts this connection
  bool late = false;           // came after the stop had begun
  // Has paid for the body so far; then it is the request's. Declared before what it pays for, to be
  // destroyed last.
  std::shared_ptr<MemoryShare> memory;
  std::string in;      // received and unused: further requests of a pipelining client
  size_t scanned = 0;  // scanned for the head's end, in `in`
  RequestHead head;
  std::string body;
  size_t drained = 0;
  Clock::time_point answered;  // time of the last answer
  bool quick = false;          // the next request followed at once
  Clock::time_point deadline = Clock::time_point::max();
  // A worker's report when it releases the connection.
  enum Report {
    kKept,     // answered; can take another request
    kEnded,    // last answer sent
    kToWrite,  // has more to send or to make
  } report = kEnded;
  Connection* next_report = nullptr;
  std::unique_ptr<Answer> answer;  // destroyed first: its parts ask who is gone
};

// Larger bodies have a mapping of their own, and a worker frees them.
inline constexpr size_t kSmallBody = 512 << 10;
// Frees a body: a large one by pieces, as other threads wait for mappings meanwhile.
void release_body(std::string& body);

Io handshake(Connection& connection);
// Appends at most `most` available bytes. kWait: none. kGone: closed or failed.
Io receive(Connection& connection, std::string& to, size_t most);
// Whether receive() has bytes that no event announces.
bool has_pending(const Connection& connection);
// Whether the peer has sent unread bytes, or has closed.
bool has_input(const Connection& connection);
// Sends what fits without blocking; adds to `sent`.
Io send(Connection& connection, std::span<const iovec> pieces, size_t& sent);
// Ends sending, and tells the peer; later input is not decrypted.
void end_sending(Connection& connection);
// Whether the peer has closed or reset the connection.
bool is_gone(const Connection& connection);

// The bytes of an answer that closes the connection: for requests that the loop itself refuses.
std::string closing_answer(const Response& response, std::string_view request_id, bool with_body);

// Opens a listening socket, and returns its port. Throws as Server::bind().
Fd listen_on(const std::string& host, int port, int backlog, int& bound_port);

// Returns the client's id if it is 1 to 64 of [A-Za-z0-9._-], else 16 random hex digits.
std::string request_id(const Headers& headers);

}  // namespace split::http
