#include "edge_client/shard_cache.h"

#include <chrono>
#include <memory>

namespace split::edge {
namespace {

namespace fs = std::filesystem;

// What killed processes left of this blob. A download that is an hour old is not running any more.
void remove_leftovers(const fs::path& path) {
  std::error_code error;
  const std::string prefix = path.filename().string() + ".";
  for (fs::directory_iterator at(path.parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    if (!at->path().filename().string().starts_with(prefix)) continue;
    std::error_code ignored;
    const auto written = fs::last_write_time(at->path(), ignored);
    if (!ignored && fs::file_time_type::clock::now() - written > std::chrono::hours(1)) {
      fs::remove(at->path(), ignored);
    }
  }
}

Error disk_error(const Error& error) {
  return {ErrorKind::kIo, cat("[cache] ", error.what(), "; --cache DIR names another place")};
}

// A file being filled with a blob's bytes and hashed on the way.
struct Writing {
  explicit Writing(const fs::path& path) : file(path) {}
  AtomicFile file;
  Sha256 sum;
  uint64_t bytes = 0;
};

}  // namespace

fs::path default_cache_root(const std::function<const char*(const char*)>& environment) {
  const char* const xdg = environment("XDG_CACHE_HOME");
  // The XDG specification: a path that is not absolute is to be ignored.
  if (xdg != nullptr && fs::path(xdg).is_absolute()) return fs::path(xdg) / "splitcompute";
  const char* const home = environment("HOME");
  if (home != nullptr && *home != '\0') return fs::path(home) / ".cache" / "splitcompute";
  throw Error(ErrorKind::kIo, "[cache] neither XDG_CACHE_HOME nor HOME is set: give --cache DIR");
}

fs::path ShardCache::path_of(std::string_view sha256) const {
  return root_ / "sha256" / sha256.substr(0, 2) / sha256;
}

std::optional<MappedFile> ShardCache::find(const wire::BlobInfo& blob) const {
  const fs::path path = path_of(blob.sha256);
  MappedFile file;
  try {
    file = MappedFile(path);
  } catch (const Error&) {  // not there, or not readable: writing it will tell why
    return std::nullopt;
  }
  if (file.bytes().size() == blob.bytes && Sha256::hex_of(file.bytes()) == blob.sha256) return file;
  std::error_code ignored;
  fs::remove(path, ignored);
  return std::nullopt;
}

std::vector<MappedFile> ShardCache::fetch(Remote& remote, std::span<const wire::BlobInfo> blobs,
                                          const RetryOptions& retry_options, Interrupt& interrupt,
                                          const ProgressTo& progress_to,
                                          FetchCounts& counts) const {
  std::vector<std::optional<MappedFile>> found;
  uint64_t missing = 0;
  for (const wire::BlobInfo& blob : blobs) {
    found.push_back(find(blob));
    (found.back() ? counts.from_cache : missing) += blob.bytes;
  }
  if (missing > 0) {
    std::error_code error;
    fs::create_directories(root_, error);
    if (error) {
      throw disk_error(
          Error(ErrorKind::kIo, cat(root_.string(), ": cannot be made: ", error.message())));
    }
    const fs::space_info space = fs::space(root_, error);
    if (!error && space.available < missing) {
      throw disk_error(Error(ErrorKind::kIo, cat(root_.string(), ": needs ", human_bytes(missing),
                                                 ", has ", human_bytes(space.available), " free")));
    }
  }
  std::vector<MappedFile> files;
  Progress progress(progress_to, missing);
  Retry retry(retry_options, interrupt);
  for (size_t i = 0; i < blobs.size(); ++i) {
    if (!found[i]) found[i] = download(remote, blobs[i], retry, progress, counts);
    files.push_back(std::move(*found[i]));
  }
  if (missing > 0) progress.finish();
  return files;
}

MappedFile ShardCache::download(Remote& remote, const wire::BlobInfo& blob, Retry& retry,
                                Progress& progress, FetchCounts& counts) const {
  const fs::path path = path_of(blob.sha256);
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) {
    throw disk_error(Error(
        ErrorKind::kIo, cat(path.parent_path().string(), ": cannot be made: ", error.message())));
  }
  remove_leftovers(path);
  const auto begin = [&] {
    try {
      return std::make_unique<Writing>(path);
    } catch (const Error& failure) {
      throw disk_error(failure);
    }
  };
  std::unique_ptr<Writing> writing = begin();
  bool resumed = false;
  for (;;) {
    bool too_long = false;
    try {
      remote.blob(blob.sha256, writing->bytes, [&](Bytes bytes) {
        counts.downloaded += bytes.size();
        too_long = bytes.size() > blob.bytes - writing->bytes;
        if (too_long) return false;
        try {
          writing->file.append(bytes);
        } catch (const Error& failure) {
          throw disk_error(failure);
        }
        writing->sum.update(bytes);
        writing->bytes += bytes.size();
        retry.succeeded();  // bytes came: the budget is for silence
        progress.add(bytes.size());
        return true;
      });
    } catch (const RemoteError& failure) {
      retry.failed(failure);  // throws unless it may pass
      resumed = writing->bytes > 0;
      continue;
    }
    const uint64_t length = writing->bytes;
    const bool good = !too_long && length == blob.bytes && writing->sum.finish_hex() == blob.sha256;
    if (good) break;
    if (!resumed) {
      throw Error(
          ErrorKind::kIntegrity,
          cat("[cache] blob '", blob.name, "' from ", remote.origin(), ": ",
              too_long || length != blob.bytes
                  ? cat("expected ", blob.bytes, " bytes, got ", too_long ? "more" : cat(length))
                  : cat("its sha256 is not ", blob.sha256)));
    }
    // The rest came from a server without ranges, or from another file: once more as a whole.
    progress.again(length);
    writing = begin();
    resumed = false;
  }
  retry.succeeded();
  try {
    writing->file.commit();
    writing.reset();
    return MappedFile(path);
  } catch (const Error& failure) {
    throw disk_error(failure);
  }
}

}  // namespace split::edge
