#include "http/server/outgoing.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>

#include "base/release.h"
#include "http/server/connection.h"

namespace split::http {
namespace {

// Bodies up to this size are copied behind their head rather than sent separately.
constexpr size_t kGather = 16 << 10;
constexpr size_t kMostPieces = 16;  // in one call

iovec piece_of(const char* from, size_t size) { return {const_cast<char*>(from), size}; }

// Returns the bytes that the system keeps until the client has acknowledged them.
size_t queued_by_system(const Connection& connection) {
  int bytes = 0;
  return ::ioctl(connection.fd.get(), SIOCOUTQ, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
}

}  // namespace

Outgoing::~Outgoing() { release_body(body_); }

void Outgoing::add(std::string_view text) {
  // Frees sent bytes before it adds more.
  if (text_sent_ > 0 && text_sent_ >= text_.size() / 2) {
    text_.erase(0, text_sent_);
    text_sent_ = 0;
  }
  text_ += text;
}

void Outgoing::add_body(std::string body) {
  if (body.size() <= kGather) return add(body);
  body_ = std::move(body);
  left_in_body_ = body_.size();
  pieces_.push_back(as_bytes_of(body_));
}

void Outgoing::add_pieces(const std::vector<Bytes>& pieces, std::shared_ptr<const void> owner,
                          uint64_t first, uint64_t length) {
  owner_ = std::move(owner);
  pieces_.reserve(pieces.size());
  for (Bytes piece : pieces) {
    const uint64_t skip = std::min<uint64_t>(first, piece.size());
    first -= skip;
    piece = piece.subspan(skip, std::min<uint64_t>(length, piece.size() - skip));
    length -= piece.size();
    left_in_body_ += piece.size();
    if (!piece.empty()) pieces_.push_back(piece);
  }
}

bool Outgoing::is_large() const { return owner_ != nullptr || body_.size() > kSmallBody; }

Io Outgoing::send_some(Connection& connection, size_t most) {
  size_t done = 0;
  Io io = Io::kDone;
  while (io == Io::kDone && done < most && !empty()) {
    std::array<iovec, kMostPieces> pieces;
    size_t count = 0, room = most - done;
    const auto put = [&](const char* from, size_t size) {
      pieces[count] = piece_of(from, std::min(size, room));
      room -= pieces[count++].iov_len;
    };
    if (text_sent_ < text_.size()) put(text_.data() + text_sent_, text_.size() - text_sent_);
    for (size_t i = piece_; i < pieces_.size() && count < kMostPieces && room > 0; ++i) {
      put(as_text(pieces_[i]).data(), pieces_[i].size());
    }
    size_t sent = 0;
    io = send(connection, std::span(pieces).first(count), sent);
    done += sent;
    const size_t of_text = std::min(sent, text_.size() - text_sent_);
    text_sent_ += of_text;
    sent -= of_text;
    left_in_body_ -= sent;
    while (sent > 0) {
      Bytes& piece = pieces_[piece_];
      const size_t taken = std::min(sent, piece.size());
      piece = piece.subspan(taken);
      sent -= taken;
      if (piece.empty()) ++piece_;
    }
  }
  sent_ += done;
  if (io != Io::kWait || done > 0) {
    if (stalled_) waited_ += Clock::now() - *stalled_;
    stalled_.reset();
  }
  if (io == Io::kWait && !stalled_) {
    stalled_ = moved_ = Clock::now();
    queued_ = queued_by_system(connection);
  }
  if (text_sent_ == text_.size() && text_.size() > kGather) {
    release(text_);  // a stream that waits for its next event keeps no buffer
    text_sent_ = 0;
  }
  return io;
}

Clock::duration Outgoing::allowed() const {
  return pace_.patience + std::chrono::milliseconds(sent_ * 1000 / pace_.min_rate);
}

Clock::time_point Outgoing::deadline() const {
  if (!stalled_) return Clock::time_point::max();
  return std::min(moved_ + pace_.patience, *stalled_ + (allowed() - waited_));
}

bool Outgoing::is_stuck(const Connection& connection) {
  const auto now = Clock::now();
  if (!stalled_ || now < deadline()) return false;
  if (now - *stalled_ >= allowed() - waited_) return true;
  // The client may have taken less than what makes the socket writable.
  const size_t queued = queued_by_system(connection);
  if (queued >= queued_) return true;
  queued_ = queued;
  moved_ = now;
  return false;
}

}  // namespace split::http
