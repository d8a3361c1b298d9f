#include "edge_client/weights/blobs/blob_worker.h"

#include <algorithm>
#include <iterator>

#include "base/json.h"

namespace split::edge {
namespace {

constexpr int kTries = 2;  // for a chunk that comes whole and wrong
// Bytes of one answer after which a server counts as working: fewer may come again and again from
// one that only trickles.
constexpr uint64_t kSends = 64 << 10;

}  // namespace

// A chunk's claim to a connection while it is fetched: with too few connections, chunks of the
// first blobs come first.
class BlobLoad::Turn {
 public:
  Turn(BlobLoad& load, const Item& item, size_t chunk) : load_(load) {
    const std::lock_guard lock(load_.mutex_);
    at_ = load_.asking_.emplace(item.order, chunk);
  }
  ~Turn() {
    const std::lock_guard lock(load_.mutex_);
    load_.asking_.erase(at_);
    load_.changed_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Waits until it has a connection.
  void wait() {
    Mutex::Lock lock(load_.mutex_);
    load_.changed_.wait(lock, [&] {
      const auto before = std::distance(load_.asking_.begin(), at_);
      return load_.stopped_ || before < static_cast<std::ptrdiff_t>(load_.pace_.connections());
    });
  }

 private:
  BlobLoad& load_;
  std::multiset<std::pair<size_t, size_t>>::iterator at_;
};

// Fetches one chunk, or every missing chunk if the server has no ranges.
class BlobLoad::Download {
 public:
  Download(BlobLoad& load, Item& item, size_t chunk, Worker& worker)
      : load_(load), item_(item), wanted_(chunk), worker_(worker) {}
  ~Download();
  // Returns when the chunk is good and written, or left to another worker.
  void run();

 private:
  // Bytes of the next request, of those left of a chunk.
  uint64_t range(uint64_t left);
  bool take(uint64_t at, Bytes bytes, bool ranges);
  void measure();
  // Whether to collect the chunk of the byte at `at`.
  bool begin(uint64_t at, size_t chunk);
  // Returns false if the wanted chunk is wrong, or nothing else is missing.
  bool complete();
  bool any_left();
  // Drops the collected bytes of a chunk. Call with the lock held.
  void drop();

  BlobLoad& load_;
  Item& item_;
  const size_t wanted_;
  Worker& worker_;
  std::optional<size_t> collecting_;
  uint64_t have_ = 0, came_ = 0;  // bytes: of the collected chunk; over the wire
  struct {
    uint64_t bytes = 0, first_bytes = 0;
    Clock::time_point first_came, last_came;
  } answer_;  // the present one
  bool done_ = false, streams_ = false;
  bool with_text_ = false;  // a text ran when the range was requested
  bool cut_short_ = false;  // the rest of the range is requested again
  std::string wrong_;
};

BlobLoad::Download::~Download() {
  const std::lock_guard lock(load_.mutex_);
  drop();
  load_.counts_.downloaded += came_;
  if (!streams_) return;
  item_.streaming = false;
  load_.changed_.notify_all();
}

void BlobLoad::Download::run() {
  int tries = 0;
  Turn turn(load_, item_, wanted_);
  while (!done_) {
    BlobClient& client = worker_.connection();
    const uint64_t size = wire::chunk_size(item_.info.bytes, wanted_), before = have_;
    wrong_.clear();
    answer_ = {};
    turn.wait();
    const uint64_t count = range(size - before);
    try {
      client.get(item_.info.sha256, wanted_ * wire::kChunkBytes + before, count,
                 [&](uint64_t at, Bytes bytes) { return take(at, bytes, client.has_ranges()); });
    } catch (const RemoteError& error) {
      {
        const std::lock_guard lock(load_.mutex_);
        drop();
        if (load_.stopped_) throw;  // cancelled
      }
      worker_.retry.failed(error);  // throws unless the error is transient
      continue;
    }
    measure();
    if (done_) return;
    if (wrong_.empty() && have_ > before && (have_ == before + count || cut_short_)) continue;
    if (wrong_.empty()) wrong_ = cat("expected ", size, " bytes, got ", have_);
    {
      const std::lock_guard lock(load_.mutex_);
      drop();
    }
    if (++tries == kTries) {
      throw Error(ErrorKind::kIntegrity,
                  cat("[cache] blob ", shown(item_.info.name), " from ", client.from().origin,
                      ": chunk ", wanted_, " of ", item_.info.chunks.size(), ": ", wrong_));
    }
  }
}

uint64_t BlobLoad::Download::range(uint64_t left) {
  const std::lock_guard lock(load_.mutex_);
  with_text_ = load_.pace_.text_runs();
  cut_short_ = false;
  return load_.pace_.range(left);
}

bool BlobLoad::Download::take(uint64_t at, Bytes bytes, bool ranges) {
  answer_.last_came = Clock::now();
  if (answer_.bytes == 0) {
    answer_.first_came = answer_.last_came;
    answer_.first_bytes = bytes.size();
  }
  came_ += bytes.size();
  answer_.bytes += bytes.size();
  if (answer_.bytes >= kSends) worker_.retry.succeeded();  // the budget is for silence
  if (!ranges && !streams_ && item_.chunks.size() > 1) {
    const std::lock_guard lock(load_.mutex_);
    if (item_.streaming) {  // another worker streams the whole blob
      item_.chunks[wanted_] = Chunk::kTodo;
      done_ = true;
      return false;
    }
    streams_ = item_.streaming = true;
  }
  while (!bytes.empty()) {
    if (at >= item_.info.bytes) return false;  // more than requested
    const size_t chunk = at / wire::kChunkBytes;
    const uint64_t end = chunk * wire::kChunkBytes + wire::chunk_size(item_.info.bytes, chunk);
    const Bytes piece = bytes.first(std::min<uint64_t>(bytes.size(), end - at));
    if (begin(at, chunk)) {
      std::ranges::copy(piece, worker_.buffer.begin() + static_cast<ptrdiff_t>(have_));
      have_ += piece.size();
      if (load_.on_bytes_) load_.on_bytes_(item_.info.sha256, chunk, have_, true);
      if (at + piece.size() == end && !complete()) return false;
    }
    at += piece.size();
    bytes = bytes.subspan(piece.size());
  }
  cut_short_ = ranges && !done_ && load_.too_much(with_text_);
  return !cut_short_;
}

// Measures how fast an answer's bytes came after the first ones.
void BlobLoad::Download::measure() {
  const std::lock_guard lock(load_.mutex_);
  if (answer_.bytes == 0) return;
  load_.pace_.came(answer_.bytes - answer_.first_bytes, answer_.last_came - answer_.first_came);
}

bool BlobLoad::Download::begin(uint64_t at, size_t chunk) {
  if (at % wire::kChunkBytes == 0) {
    const std::lock_guard lock(load_.mutex_);
    drop();
    const bool ours = chunk == wanted_ && !done_;
    if (ours || item_.chunks[chunk] == Chunk::kTodo) {
      item_.chunks[chunk] = Chunk::kTaken;
      collecting_ = chunk;
    }
  }
  return collecting_ == chunk;
}

bool BlobLoad::Download::complete() {
  const size_t chunk = *collecting_;
  const Bytes bytes = std::span(worker_.buffer).first(have_);
  const bool good = Sha256::hex_of(bytes) == item_.info.chunks[chunk];
  if (!good) {
    if (chunk == wanted_) wrong_ = cat("its sha256 is not ", item_.info.chunks[chunk]);
    return chunk != wanted_;  // begin() gives any other chunk back
  }
  worker_.retry.succeeded();
  item_.part->write(chunk * wire::kChunkBytes, bytes);
  {
    const std::lock_guard lock(load_.mutex_);
    load_.progress_->add(have_);
  }
  collecting_.reset();
  have_ = 0;
  done_ |= chunk == wanted_;
  load_.filled(item_, chunk);
  return !streams_ || !done_ || any_left();
}

bool BlobLoad::Download::any_left() {
  const std::lock_guard lock(load_.mutex_);
  return std::ranges::find(item_.chunks, Chunk::kTodo) != item_.chunks.end();
}

void BlobLoad::Download::drop() {
  if (collecting_ && *collecting_ != wanted_) item_.chunks[*collecting_] = Chunk::kTodo;
  collecting_.reset();
  have_ = 0;
}

void BlobLoad::download(Item& item, size_t chunk, Worker& worker) {
  Download(*this, item, chunk, worker).run();
}

}  // namespace split::edge
