// The area store: what an edge's first and second start cost. Per format, the whole model (cut 0)
// from a cloud in this process over loopback: cold into an empty cache, and warm from that cache;
// fetching alone, and up to a loaded Shard. Beside them what this machine hashes on one core and
// what curl gets from the same server.
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

#include "bench/support/loopback.h"
#include "edge_client/weights/local_tail.h"

namespace split::bench {
namespace {

namespace fs = std::filesystem;

constexpr double kGoal = 0.6;          // of one core's SHA-256, for a cold fetch
constexpr double kReadySeconds = 0.5;  // for a warm start

// Bytes a second of one core.
double sha256_rate() {
  const std::vector<std::byte> bytes(64 << 20, std::byte{7});
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    seconds.push_back(timed([&] {
      for (size_t at = 0; at < bytes.size(); at += wire::kChunkBytes) {
        CHECK(Sha256::hex_of(std::span(bytes).subspan(at, wire::kChunkBytes)).size() == 64);
      }
    }));
  }
  return static_cast<double>(bytes.size()) / minimum(seconds);
}

// Bytes a second of curl for these blobs one after the other on one connection; nothing without it.
std::optional<double> curl_rate(const std::string& url, std::span<const wire::BlobInfo> blobs) {
  std::string command = "exec curl -sSf";
  double bytes = 0;
  for (const wire::BlobInfo& blob : blobs) {
    command += cat(" -o /dev/null ", url, wire::blob_path(blob.sha256));
    bytes += static_cast<double>(blob.bytes);
  }
  int status = 0;
  const double seconds = timed([&] { status = std::system(command.c_str()); });
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return bytes / seconds;
}

// Memory where there is some to be had as files: else a disk's fsync is all that is measured.
fs::path cache_place(const std::string& scratch) {
  struct statfs info {};
  const fs::path memory = "/dev/shm";
  std::error_code error;
  const bool roomy = ::statfs(memory.c_str(), &info) == 0 &&
                     info.f_bavail * static_cast<uint64_t>(info.f_bsize) > (uint64_t{4} << 30);
  if (!roomy) return fs::path(scratch) / "cache";
  fs::path place = memory / fs::path(scratch).filename();
  fs::create_directory(place, error);
  return error ? fs::path(scratch) / "cache" : place;
}

struct Start {
  double seconds = 0;
  edge::FetchCounts counts;
};

class Store {
 public:
  Store(const Options& options, const RandomModel& model)
      : options_(options),
        model_(model),
        loopback_(model, options, cloud::parse_formats("f32,f16,q8_0,q4_0")),
        remote_(loopback_.url(), std::chrono::milliseconds(60000)),
        info_(remote_.model(options.size)) {}

  void measure(const std::string& format, Report& report) {
    formats_ = StageFormats::parse(format);
    const auto blobs = edge::blobs_of(model_.model(), info_, range_, formats_);
    double bytes = 0;
    for (const wire::BlobInfo& blob : blobs) bytes += static_cast<double>(blob.bytes);
    std::vector<double> cold, kept, warm, cold_start, warm_start, curl, sha, disk, disk_kept;
    std::vector<double> unused;
    for (unsigned i = 0; i < options_.runs; ++i) {
      sha.push_back(sha256_rate());
      if (const auto rate = curl_rate(loopback_.url(), blobs)) curl.push_back(*rate);
      const fs::path place = cache_place(scratch_.path());
      expect(fetch(place, blobs, cold, kept), bytes, 0);
      expect(fetch(place, blobs, warm, unused), 0, bytes);
      fs::remove_all(place);
      expect(start(place, blobs, cold_start), bytes, 0);
      expect(start(place, blobs, warm_start), 0, bytes);
      fs::remove_all(place);
      const fs::path slow = fs::path(scratch_.path()) / "disk";
      expect(fetch(slow, blobs, disk, disk_kept), bytes, 0);
      fs::remove_all(slow);
    }
    const double hash = median(sha);
    const auto rate = [&](const std::vector<double>& seconds) { return bytes / median(seconds); };
    report.add(format + "_bytes", bytes, "bytes");
    report.add(format + "_sha256_one_core", hash / 1e6, "MB/s");
    if (!curl.empty()) report.add(format + "_curl", median(curl) / 1e6, "MB/s");
    report.add(format + "_cold_fetch", median(cold), "s");
    report.add(format + "_cold_fetch_rate", rate(cold) / 1e6, "MB/s", kGoal * hash / 1e6);
    report.add(format + "_cold_kept", median(kept), "s");
    report.add(format + "_cold_fetch_on_disk", median(disk), "s");
    report.add(format + "_cold_kept_on_disk", median(disk_kept), "s");
    report.add(format + "_warm_check", median(warm), "s");
    report.add(format + "_warm_check_rate", rate(warm) / 1e6, "MB/s");
    report.add(format + "_cold_start", median(cold_start), "s");
    report.add(format + "_warm_start", median(warm_start), "s", kReadySeconds);
  }

 private:
  static void expect(const edge::FetchCounts& counts, double downloaded, double cached) {
    if (static_cast<double>(counts.downloaded) != downloaded ||
        static_cast<double>(counts.from_cache) != cached) {
      throw Error(ErrorKind::kIntegrity,
                  cat("[bench] downloaded ", counts.downloaded, " and found ", counts.from_cache,
                      " bytes, expected ", downloaded, " and ", cached));
    }
  }
  std::unique_ptr<edge::BlobLoad> begin(const fs::path& place,
                                        const std::vector<wire::BlobInfo>& blobs) {
    return std::make_unique<edge::BlobLoad>(
        edge::ShardCache(place), edge::blob_origin(info_, remote_.origin(), remote_.patience()),
        blobs, edge::LoadOptions{}, interrupt_);
  }
  // Until every byte is there and checked, and until every file is also durable under its name.
  edge::FetchCounts fetch(const fs::path& place, const std::vector<wire::BlobInfo>& blobs,
                          std::vector<double>& there, std::vector<double>& kept) {
    edge::FetchCounts counts;
    const auto begun = Clock::now();
    const auto load = begin(place, blobs);
    for (const wire::BlobInfo& blob : blobs) load->whole(blob.sha256);
    there.push_back(seconds_since(begun));
    counts = load->finish();
    kept.push_back(seconds_since(begun));
    return counts;
  }
  // From the manifest to a Shard that could compute.
  edge::FetchCounts start(const fs::path& place, const std::vector<wire::BlobInfo>& blobs,
                          std::vector<double>& seconds) {
    auto device = make_device({options_.device, options_.threads});
    edge::FetchCounts counts;
    std::optional<edge::LocalTail> tail;
    seconds.push_back(timed([&] {
      info_ = remote_.model(options_.size);
      tail.emplace(std::move(device), model_.model(), range_, formats_, Profile::kF32, blobs,
                   begin(place, blobs));
      counts = tail->finish();
    }));
    return counts;
  }

  const Options& options_;
  const RandomModel& model_;
  Loopback loopback_;
  edge::Remote remote_;
  wire::ModelInfo info_;
  const StageRange range_;  // everything
  StageFormats formats_;    // that are measured
  Interrupt interrupt_;
  ScratchDir scratch_;
};

int run(int argc, char** argv) {
  const auto options = parse_options(
      argc, argv, "bench_store: bytes and seconds of an edge's cold and warm start per format\n",
      "cpu");
  if (!options) return 0;
  const RandomModel model(options->size, DType::kF16);
  Store store(*options, model);
  Report report(*options, "store, cut 0", options->device);
  for (const char* format : {"f16", "f32", "q8_0", "q4_0"}) store.measure(format, report);
  report.finish();
  return 0;
}

}  // namespace
}  // namespace split::bench

int main(int argc, char** argv) { return split::bench::run_main(split::bench::run, argc, argv); }
