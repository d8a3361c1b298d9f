// An answer from its handler's end to its last byte: what is being sent, what a stream has yet to
// make, and what observers get. Owned by a worker that makes some of it, else by the loop.
#pragma once

#include "http/message.h"
#include "http/server/outgoing.h"
#include "http/server/server.h"

namespace split::http {

struct Answer {
  Answer(WritePace pace) : out(pace) {}

  Request request;
  Answered answered;
  Clock::time_point start = Clock::now();
  Outgoing out;
  Producer stream;       // while there is more to make
  bool chunked = false;  // a chunked stream
  bool keep = true;      // the connection can take another request
  bool failed = false;   // the client is gone or too slow
};

}  // namespace split::http
