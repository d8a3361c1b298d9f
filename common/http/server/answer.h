// An answer from its handler's end to its last byte: what is being sent, what a stream has still to
// make, and what observers will be told. A worker has it while it makes something of it, else the
// loop.
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
  bool chunked = false;  // the stream is
  bool keep = true;      // the connection can take another request
  bool failed = false;   // the client is gone or too slow
};

}  // namespace split::http
