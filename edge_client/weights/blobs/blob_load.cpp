#include "edge_client/weights/blobs/blob_load.h"

#include <fcntl.h>

#include <algorithm>

#include "base/figures.h"
#include "base/json.h"
#include "base/log.h"
#include "base/resources/fibres.h"
#include "base/resources/threads.h"
#include "edge_client/weights/blobs/blob_worker.h"

namespace split::edge {

namespace fs = std::filesystem;

namespace {

// How often to look whether another process has finished a blob.
constexpr std::chrono::milliseconds kLook{20};

}  // namespace

struct BlobLoad::Task {
  enum class Step : uint8_t { kOpen, kChunk, kClose } step;
  Item* item;
  size_t chunk = 0;
};

BlobLoad::BlobLoad(const ShardCache& cache, BlobOrigin from,
                   const std::vector<wire::BlobInfo>& blobs, const LoadOptions& options,
                   Interrupt& interrupt)
    : cache_(cache),
      from_(std::move(from)),
      retry_(options.retry),
      on_bytes_(options.on_bytes),
      beside_texts_(options.beside_texts),
      interrupt_(interrupt),
      pace_(options.workers) {
  pace_.text_runs(options.text_runs);
  for (const wire::BlobInfo& blob : blobs) {
    if (by_hash_.contains(blob.sha256)) continue;
    Item& item = items_.emplace_back();
    item.info = blob;
    item.order = items_.size();
    item.path = cache_.path_of(blob.sha256);
    by_hash_[blob.sha256] = &item;
  }
  plan(options.cache_limit);
  for (Item& item : items_) {
    missing_ += item.expected ? item.info.bytes : 0;
    if (options.missing_alone && !item.expected) item.state = State::kKept;
  }
  progress_.emplace(options.progress, missing_);
  hook_.emplace(interrupt_, [this] { cancel(); });
  start_some(threads_, options.workers, [this](size_t) { work(); });
  if (!threads_.empty()) return;
  if (beside_texts_) no_more_threads();
  work();  // runs here, before anybody waits
}

BlobLoad::~BlobLoad() { end(); }

void BlobLoad::end() {
  hook_.reset();
  cancel();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  for (Item& item : items_) {
    if (!item.part) continue;
    const bool any = item.part->resumed() || std::ranges::count(item.chunks, Chunk::kDone) > 0;
    const bool lied = item.error != nullptr && !item.keep_part;
    if (!keep_parts_ || lied || !any) {
      item.part->discard();
    } else {
      item.part->release();
    }
    item.part.reset();
  }
}

// Counts what is missing, and checks that there is room for it.
void BlobLoad::plan(std::optional<uint64_t> limit) {
  uint64_t missing = 0, there = 0;
  std::set<std::string> needed;
  for (Item& item : items_) {
    needed.insert(item.info.sha256);
    item.expected = !file_status(item.path);
    if (!item.expected) continue;
    missing += item.info.bytes;
    const fs::path part = item.path.string() + std::string(kPartSuffix);
    if (const auto status = file_status(part)) there += status->on_disk;
  }
  const uint64_t room = missing - std::min(missing, there);
  if (limit) cache_.shrink(*limit, room, needed);
  if (missing == 0) return;
  const std::string root = cache_.root().string();
  cache_.make();
  const std::optional<uint64_t> free = free_bytes(cache_.root());
  if (free && *free < room) {
    throw disk_error(Error(ErrorKind::kIo, cat(root, ": needs ", human_bytes(room), ", has ",
                                               human_bytes(*free), " free")));
  }
}

void BlobLoad::stop() {
  stopped_ = true;
  for (BlobClient* client : clients_) client->cancel();
  changed_.notify_all();
}

void BlobLoad::fail(std::exception_ptr error, bool keep_parts) {
  const std::lock_guard lock(mutex_);
  if (error_ == nullptr && !stopped_) {
    error_ = std::move(error);
    keep_parts_ = keep_parts;
  }
  stop();
}

void BlobLoad::work() {
  try {
    Worker worker(*this);
    Mutex::Lock lock(mutex_);
    while (!stopped_) {
      Clock::time_point again = Clock::time_point::max();
      const std::optional<Task> task = next(again);
      if (task) {
        chunks_ += task->step == Task::Step::kChunk ? 1 : 0;
        lock.unlock();
        beside_texts_ ? run_alone(*task, worker) : run(*task, worker);
        fibres::yield();  // after a chunk was checked or read
        lock.lock();
        chunks_ -= task->step == Task::Step::kChunk ? 1 : 0;
        if (pace_.text_runs()) changed_.notify_all();  // another connection's turn
      } else if (std::ranges::all_of(items_, [](const Item& item) {
                   return item.state == State::kKept || item.state == State::kBroken;
                 })) {
        break;
      } else if (again == Clock::time_point::max()) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, again);
      }
    }
  } catch (const RemoteError&) {
    fail(std::current_exception(), true);
  } catch (const Error& error) {
    const bool disk = error.kind() == ErrorKind::kIo;
    fail(disk ? std::make_exception_ptr(disk_error(error)) : std::current_exception(),
         error.kind() == ErrorKind::kBusy);
  } catch (...) {
    fail(std::current_exception(), true);
  }
}

// Returns chunks in the order of the blobs, headers first unless beside a text; naming of complete
// blobs waits until nobody waits for bytes. `again`: when to call again, if there is nothing now.
std::optional<BlobLoad::Task> BlobLoad::next(Clock::time_point& again) {
  for (Item& item : items_) {
    if (item.state == State::kBusy && item.again <= Clock::now()) item.state = State::kNew;
    if (item.state == State::kBusy) again = std::min(again, item.again);
    if (item.state != State::kNew) continue;
    item.state = State::kOpening;
    return Task{Task::Step::kOpen, &item};
  }
  if (const auto chunk = next_chunk()) return chunk;
  for (Item& item : items_) {
    if (item.state != State::kFull) continue;
    item.state = State::kClosing;
    return Task{Task::Step::kClose, &item};
  }
  return std::nullopt;
}

std::optional<BlobLoad::Task> BlobLoad::next_chunk() {
  if (chunks_ >= pace_.connections()) return std::nullopt;
  for (const bool headers : {true, false}) {
    if (headers && beside_texts_) continue;
    for (Item& item : items_) {
      if (item.state != State::kOpen || item.streaming) continue;
      const auto end = headers ? item.chunks.begin() + 1 : item.chunks.end();
      const auto at = std::find(item.chunks.begin(), end, Chunk::kTodo);
      if (at == end) continue;
      *at = Chunk::kTaken;
      return Task{Task::Step::kChunk, &item, static_cast<size_t>(at - item.chunks.begin())};
    }
  }
  return std::nullopt;
}

// Makes any error the blob's own.
void BlobLoad::run_alone(const Task& task, Worker& worker) {
  try {
    run(task, worker);
  } catch (const Error& error) {
    Item& item = *task.item;
    const Error told = disk_error(error);
    const std::lock_guard lock(mutex_);
    if (stopped_) throw;
    if (item.state == State::kBroken) return;
    if (item.whole) {  // only storing it failed
      log_warning(told.what());
      item.state = State::kKept;
      return;
    }
    item.state = State::kBroken;
    item.error = std::make_exception_ptr(told);
    item.keep_part = error.kind() == ErrorKind::kRemote;
    changed_.notify_all();
  }
}

// Reports a chunk from the disk; a fetched one has reported all its bytes.
void BlobLoad::tell_chunk(const Item& item, size_t chunk) const {
  if (on_bytes_) {
    on_bytes_(item.info.sha256, chunk, wire::chunk_size(item.info.bytes, chunk), false);
  }
}

void BlobLoad::text_runs(bool runs) {
  const std::lock_guard lock(mutex_);
  pace_.text_runs(runs);
  changed_.notify_all();
}

// Whether a range requested before a text began is to be requested again in smaller ones.
bool BlobLoad::too_much(bool began_with_text) {
  if (!beside_texts_ || began_with_text) return false;
  const std::lock_guard lock(mutex_);
  return pace_.text_runs();
}

void BlobLoad::cancel() {
  fail(std::make_exception_ptr(Error(ErrorKind::kRemote, "[cache] interrupted")), true);
}

FetchCounts BlobLoad::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void BlobLoad::run(const Task& task, Worker& worker) {
  if (task.step == Task::Step::kOpen) {
    open(*task.item);
  } else if (task.step == Task::Step::kClose) {
    close(*task.item);
  } else if (task.item->part) {
    fill(*task.item, task.chunk, worker);
  } else {
    check(*task.item, task.chunk, worker);
  }
}

void BlobLoad::start_pass(Item& item) {
  const std::lock_guard lock(mutex_);
  item.chunks.assign(item.info.chunks.size(), Chunk::kTodo);
  item.left = item.chunks.size();
  item.state = State::kOpen;
  changed_.notify_all();
}

// Whether there is another file under the blob's name than was found before. Throws Error(kIo) for
// something that is no regular file.
bool BlobLoad::look(Item& item) {
  Fd fd = open_regular_only(item.path, O_RDONLY);
  const auto status = fd ? file_status(fd) : std::nullopt;
  if (!status) return false;
  if (item.found && status->identity == item.identity) return false;
  item.found = std::move(fd);
  item.identity = status->identity;
  item.good.assign(item.info.chunks.size(), false);
  item.damaged = status->bytes != item.info.bytes;
  if (!item.damaged) use(item, MappedFile(item.found, item.path.string()));
  return true;
}

// Maps it. Earlier maps stay, for somebody may be reading them.
void BlobLoad::use(Item& item, MappedFile map) {
  const std::lock_guard lock(mutex_);
  item.maps.push_back(std::move(map));
  item.begun = false;
}

void BlobLoad::open(Item& item) {
  if (!item.damaged && look(item)) return start_pass(item);
  if (const std::error_code error = make_folders(item.path.parent_path())) {
    throw Error(ErrorKind::kIo,
                cat("cannot write to ", cache_.root().string(), ": ", error.message()));
  }
  std::optional<PartFile> part = PartFile::take(item.path, item.info.bytes);
  if (!part) {
    const std::lock_guard lock(mutex_);
    item.state = State::kBusy;
    item.again = Clock::now() + kLook;
    changed_.notify_all();
    return;
  }
  if (look(item)) {  // another process was faster
    part->discard();
    const std::lock_guard lock(mutex_);
    counts_.from_cache -= std::exchange(item.cached, 0);
  } else {
    use(item, part->map());
    item.part = std::move(part);
  }
  start_pass(item);
}

void BlobLoad::check(Item& item, size_t chunk, Worker& worker) {
  const Bytes bytes = read_chunk(item.found, item, chunk, worker);
  checked(item, chunk, Sha256::hex_of(bytes) == item.info.chunks[chunk]);
}

// Returns less, or nothing, if the file is shorter or cannot be read.
Bytes BlobLoad::read_chunk(const Fd& file, const Item& item, size_t chunk, Worker& worker) {
  try {
    const uint64_t size = wire::chunk_size(item.info.bytes, chunk);
    return read_at(file, chunk * wire::kChunkBytes, std::span(worker.buffer).first(size),
                   item.path.string());
  } catch (const Error&) {
    return {};
  }
}

void BlobLoad::checked(Item& item, size_t chunk, bool good) {
  if (good) tell_chunk(item, chunk);
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    const uint64_t size = wire::chunk_size(item.info.bytes, chunk);
    item.chunks[chunk] = Chunk::kDone;
    item.good[chunk] = good;
    if (good) {
      counts_.from_cache += size;
      item.cached += size;
      if (item.expected) progress_->add(size);
      if (chunk == 0 && !item.damaged) item.begun = true;
    }
    if (--item.left == 0) {
      uint64_t bad = 0;
      for (size_t i = 0; i < item.good.size(); ++i) {
        if (!item.good[i]) bad += wire::chunk_size(item.info.bytes, i);
      }
      if (!item.expected && bad > 0) progress_->more(bad);
      item.damaged |= bad > 0;
      item.state = item.damaged ? State::kNew : State::kKept;
      done = item.whole = !item.damaged;
    }
    if (item.left == 0 || chunk == 0) changed_.notify_all();
  }
  if (!done) return;
  item.found.reset();
  cache_.touch(item.path);
}

void BlobLoad::fill(Item& item, size_t chunk, Worker& worker) {
  const uint64_t size = wire::chunk_size(item.info.bytes, chunk);
  if (item.found && item.good[chunk]) {
    const Bytes bytes = read_chunk(item.found, item, chunk, worker);
    if (bytes.size() == size) {
      item.part->write(chunk * wire::kChunkBytes, bytes);
      return filled(item, chunk);
    }
  }
  if (item.part->resumed()) {
    const Bytes bytes = read_chunk(item.part->fd(), item, chunk, worker);
    if (Sha256::hex_of(bytes) == item.info.chunks[chunk]) {
      {
        const std::lock_guard lock(mutex_);
        counts_.from_cache += size;
        progress_->add(size);
      }
      return filled(item, chunk);
    }
  }
  download(item, chunk, worker);
}

void BlobLoad::filled(Item& item, size_t chunk) {
  tell_chunk(item, chunk);
  const std::lock_guard lock(mutex_);
  item.chunks[chunk] = Chunk::kDone;
  item.begun |= chunk == 0;
  if (--item.left == 0) {
    item.begun = item.whole = true;
    item.state = State::kFull;
  }
  if (item.whole || chunk == 0) changed_.notify_all();
}

void BlobLoad::close(Item& item) {
  item.part->commit();
  const std::lock_guard lock(mutex_);
  item.part.reset();
  item.found.reset();
  item.state = State::kKept;
  changed_.notify_all();
}

Bytes BlobLoad::wait_for(const std::string& sha256, bool Item::*what) {
  Mutex::Lock lock(mutex_);
  Item& item = *by_hash_.at(sha256);
  const auto mapped = [&] {
    if (item.maps.empty()) {  // unmapped by let_go()
      item.maps.push_back(item.part ? item.part->map() : MappedFile(item.path));
    }
    return item.maps.back().bytes();
  };
  changed_.wait(lock, [&] { return item.*what || item.error != nullptr || error_ != nullptr; });
  if (beside_texts_ && item.*what) return mapped();
  if (item.error != nullptr) std::rethrow_exception(item.error);
  if (error_ != nullptr) std::rethrow_exception(error_);
  return mapped();
}

void BlobLoad::let_go(const std::string& sha256) {
  const std::lock_guard lock(mutex_);
  Item& item = *by_hash_.at(sha256);
  item.maps.clear();
  if (item.part) item.part->let_go();
}

bool BlobLoad::comes(const std::string& sha256) {
  Mutex::Lock lock(mutex_);
  const Item& item = *by_hash_.at(sha256);
  changed_.wait(lock, [&] { return item.whole || item.error != nullptr || error_ != nullptr; });
  if (!item.whole && item.error != nullptr) std::rethrow_exception(item.error);
  return item.whole;
}

Bytes BlobLoad::begun(const std::string& sha256) { return wait_for(sha256, &Item::begun); }
Bytes BlobLoad::whole(const std::string& sha256) { return wait_for(sha256, &Item::whole); }

FetchCounts BlobLoad::finish() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  hook_.reset();
  if (error_ != nullptr) std::rethrow_exception(error_);
  progress_->finish();
  return counts_;
}

}  // namespace split::edge
