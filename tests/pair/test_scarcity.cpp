// A machine with too little of something: threads for the edge, and descriptors for the cloud
// beside connections that ask nothing.
#include <sys/resource.h>

#include "pair_faults.h"
#include "support/http_peer.h"

namespace split::test {
namespace {

const Arguments kShortText = {"--prompt", "The king", "--temperature", "0", "--max-tokens", "12",
                              "--device", "cpu",      "--threads",     "4", "--quiet"};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which come first themselves
EdgeResult run_edge_with(int threads, const std::string& url, const Arguments& arguments) {
  const Folder home;
  Process process(edge_command(url, arguments + kShortText),
                  {cat("XDG_CACHE_HOME=", home.path.string()), "LD_PRELOAD=" SPLIT_FEW_THREADS,
                   cat("FEW_THREADS=", threads)});
  EdgeResult result;
  result.code = process.wait();
  result.out = process.out();
  result.err = process.err();
  return result;
}

// Five are enough, and where even fewer are not, one line says what is missing.
TEST(Scarcity, AnEdgeGoesOnWithTheThreadsThatItGets) {
  CloudProcess cloud({"--device", "cpu", "--threads", "1"});
  for (const Arguments& cut : {Arguments{"--cut", "4"}, {"--cut", "auto"}, {"--cut", "cloud"}}) {
    const Folder home;
    const EdgeResult calm = run_edge(cloud.url(), home, cut + kShortText);
    ASSERT_EQ(calm.code, 0) << calm.err;
    for (int threads = 1; threads <= 9; ++threads) {
      const EdgeResult result = run_edge_with(threads, cloud.url(), cut);
      SCOPED_TRACE(cat(cut[1], ", ", threads, " threads: ", result.err));
      if (threads >= 5 || result.code == 0) {
        EXPECT_EQ(result.code, 0);
        EXPECT_EQ(result.out, calm.out);
      } else {
        EXPECT_EQ(result.code, 1);
        EXPECT_NE(result.err.find("no more threads"), std::string::npos);
        EXPECT_EQ(std::ranges::count(result.err, '\n'), 1);
      }
    }
  }
}
#endif

// As many as it may have are offered to it: 16 stay free for handlers, which need some of them.
TEST(Scarcity, HandlersFindDescriptorsBesideAnyConnections) {
  constexpr rlim_t kMost = 64;
  CloudProcess cloud({"--device", "cpu", "--threads", "1"});
  const rlimit limit{kMost, kMost};
  ASSERT_EQ(::prlimit(cloud.process().pid(), RLIMIT_NOFILE, &limit, nullptr), 0);
  std::vector<http::Peer> silent;
  for (int i = 0; i < 200; ++i) silent.emplace_back(cloud.port());
  const Folder home;
  for (const char* cut : {"4", "cloud"}) {
    const EdgeResult result = run_edge(cloud.url(), home, Arguments{"--cut", cut} + kShortText);
    EXPECT_EQ(result.code, 0) << result.err;
  }
  rlim_t sockets = 0;
  const std::string folder = cat("/proc/", cloud.process().pid(), "/fd");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::error_code gone;
    const auto what = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!what.starts_with("socket:")) continue;
    ++sockets;
    EXPECT_LT(std::stoul(entry.path().filename().string()), kMost - 16);
  }
  EXPECT_GT(sockets, 20u);  // and the others are not
}

// It is told what is missing, and not to look for another disk.
TEST(Scarcity, AnEdgeWithTooFewDescriptorsIsToldSo) {
  CloudProcess cloud({"--device", "cpu", "--threads", "1"});
  int told = 0;
  for (int most = 8; most <= 24; ++most) {
    const Folder home;
    Arguments command = {"sh", "-c", "ulimit -n \"$0\" && exec \"$@\"", cat(most)};
    Process process(command + edge_command(cloud.url(), Arguments{"--cut", "4"} + kShortText),
                    {cat("XDG_CACHE_HOME=", home.path.string())});
    const int code = process.wait();
    if (code == 0) continue;
    ++told;
    EXPECT_GT(code, 0) << most;
    EXPECT_NE(process.err().find("too many open files"), std::string::npos) << process.err();
    EXPECT_EQ(process.err().find("--cache"), std::string::npos) << process.err();
  }
  EXPECT_GT(told, 0);
}

}  // namespace
}  // namespace split::test
