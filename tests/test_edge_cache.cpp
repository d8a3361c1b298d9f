// edge_client's cache: nothing is used that is not what its name says, whatever happened to the
// disk or the download.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "edge_client/shard_cache.h"
#include "edge_world.h"

namespace split::test {
namespace {

namespace fs = std::filesystem;

GatedCloud& the_cloud() {
  static ForAllTests<GatedCloud> cloud;
  return cloud.get("rand-a");
}

Outcome run_with(const fs::path& cache, std::vector<std::string> more = {},
                 const EdgeOptions& options = {}) {
  std::vector<std::string> arguments = {cat("--server=", the_cloud().url()),
                                        cat("--cache=", cache.string()),
                                        "--device=cpu",
                                        "--threads=1",
                                        "--prompt-ids=1,2,3",
                                        "--cut=1",
                                        "--seed=1",
                                        "--json",
                                        "--max-tokens=4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_edge(arguments, options);
}

class EdgeCache : public testing::Test {
 protected:
  void SetUp() override { the_cloud().reset({}); }
};

std::vector<fs::path> files_in(const fs::path& cache) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(cache)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

TEST_F(EdgeCache, DownloadsOnceAndNamesFilesByTheirHash) {
  const TemporaryFolder cache;
  const Outcome first = run_with(cache.path);
  ASSERT_EQ(first.code, 0) << first.err;
  uint64_t bytes = 0;
  for (const fs::path& file : files_in(cache.path)) {
    bytes += fs::file_size(file);
    const MappedFile map(file);
    EXPECT_EQ(Sha256::hex_of(map.bytes()), file.filename().string());
  }
  EXPECT_EQ(first.json()["receipt"]["bytes_downloaded"], bytes);
  the_cloud().reset({});
  const Outcome second = run_with(cache.path);
  EXPECT_EQ(second.json()["receipt"]["bytes_downloaded"], 0);
  EXPECT_EQ(second.json()["receipt"]["bytes_from_cache"], bytes);
  EXPECT_EQ(second.json()["tokens"], first.json()["tokens"]);
  EXPECT_EQ(the_cloud().blobs, 0);
}

TEST_F(EdgeCache, ReplacesFilesThatAreNotWhatTheirNameSays) {
  const TemporaryFolder cache;
  const Outcome first = run_with(cache.path);
  const auto files = files_in(cache.path);
  ASSERT_GE(files.size(), 3u);
  fs::resize_file(files[0], fs::file_size(files[0]) - 1);
  fs::resize_file(files[1], 0);
  {
    std::fstream file(files[2], std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const char last = static_cast<char>(file.get() ^ 1);
    file.seekp(-1, std::ios::end);
    file.put(last);
  }
  uint64_t expected = 0;
  const Outcome again = run_with(cache.path);
  ASSERT_EQ(again.code, 0) << again.err;
  for (int i = 0; i < 3; ++i) expected += fs::file_size(files[static_cast<size_t>(i)]);
  EXPECT_EQ(again.json()["receipt"]["bytes_downloaded"], expected);
  EXPECT_EQ(again.json()["tokens"], first.json()["tokens"]);
  for (const fs::path& file : files_in(cache.path)) {
    EXPECT_EQ(Sha256::hex_of(MappedFile(file).bytes()), file.filename().string());
  }
}

TEST_F(EdgeCache, WrongBytesFromTheServerAreExitFive) {
  for (const int wrong : {0, 1}) {
    const TemporaryFolder cache;
    the_cloud().reset({}, [&](const http::Request& request, int) -> std::optional<http::Response> {
      http::Response response = the_cloud().real(request);
      if (wrong == 0) response.body.back() = static_cast<char>(response.body.back() ^ 1);
      if (wrong == 1) response.body.pop_back();
      return response;
    });
    const Outcome got = run_with(cache.path, {"--quiet"});
    EXPECT_EQ(got.code, 5) << got.err;
    EXPECT_EQ(std::ranges::count(got.err, '\n'), 1) << got.err;
    EXPECT_TRUE(files_in(cache.path).empty());
  }
}

TEST_F(EdgeCache, IsOnlyReadWhenItIsComplete) {
  const TemporaryFolder cache;
  const Outcome first = run_with(cache.path);
  std::vector<fs::path> folders = {cache.path};
  for (const auto& entry : fs::recursive_directory_iterator(cache.path)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  std::map<fs::path, fs::file_time_type> written;
  for (const fs::path& folder : folders) {
    written[folder] = fs::last_write_time(folder);  // root may write anyway: so this is looked at
    fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  }
  const Outcome second = run_with(cache.path);
  for (const fs::path& folder : folders) {
    EXPECT_EQ(fs::last_write_time(folder), written[folder]);
    fs::permissions(folder, fs::perms::owner_all);
  }
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.json()["tokens"], first.json()["tokens"]);
}

TEST_F(EdgeCache, AFullDiskIsExitFourAndLeavesNothing) {
  const TemporaryFolder cache;
  struct FileLimit {
    explicit FileLimit(rlim_t bytes) : handler(std::signal(SIGXFSZ, SIG_IGN)) {
      ::getrlimit(RLIMIT_FSIZE, &before);
      rlimit now = before;
      now.rlim_cur = bytes;
      ::setrlimit(RLIMIT_FSIZE, &now);
    }
    ~FileLimit() {
      ::setrlimit(RLIMIT_FSIZE, &before);
      std::signal(SIGXFSZ, handler);
    }
    rlimit before{};
    void (*handler)(int);
  };
  Outcome got;
  {
    const FileLimit limit(10000);
    got = run_with(cache.path, {"--quiet"});
  }
  EXPECT_EQ(got.code, 4);
  EXPECT_NE(got.err.find("File too large; --cache DIR"), std::string::npos) << got.err;
  EXPECT_EQ(std::ranges::count(got.err, '\n'), 1) << got.err;
  EXPECT_TRUE(files_in(cache.path).empty());
}

TEST_F(EdgeCache, ProgressIsOneTotalThatNeverGoesBack) {
  const TemporaryFolder cache;
  const Outcome lines = run_with(cache.path);
  int last = 0;
  for (size_t at = lines.err.find("download: "); at != std::string::npos;
       at = lines.err.find("download: ", at + 1)) {
    const int percent = std::stoi(lines.err.substr(at + 10));
    EXPECT_GT(percent, last);
    last = percent;
  }
  EXPECT_EQ(last, 100) << lines.err;
  const TemporaryFolder other;
  const Outcome bar = run_with(other.path, {}, {.input = "", .environment = {}, .terminal = true});
  EXPECT_EQ(bar.err.find("\rdownload [........................] 0 B of "), 0u) << bar.err;
  EXPECT_NE(bar.err.find("\rdownload [########################] "), std::string::npos);
}

TEST_F(EdgeCache, HasADefaultPlace) {
  const auto root = [](std::map<std::string, std::string> environment) {
    return edge::cache_root("", [&](const char* name) -> const char* {
      const auto at = environment.find(name);
      return at == environment.end() ? nullptr : at->second.c_str();
    });
  };
  EXPECT_EQ(root({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}), "/x/splitcompute");
  EXPECT_EQ(root({{"XDG_CACHE_HOME", "x"}, {"HOME", "/h"}}), "/h/.cache/splitcompute");
  EXPECT_THROW(root({}), Error);
}

}  // namespace
}  // namespace split::test
