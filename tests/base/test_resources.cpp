// base/: what the system grants, and the budget that requests share.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sched.h>

#include <condition_variable>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/resources/granted.h"
#include "base/resources/memory_budget.h"
#include "base/resources/ranked_mutex.h"

namespace split {
namespace {

namespace fs = std::filesystem;

// Copies of /proc and /sys/fs/cgroup that say what a test wants.
class FakeSystem {
 public:
  FakeSystem() {
    std::string name = (fs::temp_directory_path() / "split-system-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    root_ = name;
  }
  ~FakeSystem() { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  SystemFiles files() const { return {root_ / "proc", root_ / "cgroup"}; }

 private:
  fs::path root_;
};

unsigned processors_here() {
  cpu_set_t allowed;
  CHECK(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  return static_cast<unsigned>(CPU_COUNT(&allowed));
}

TEST(Granted, ProcessorsAreThoseOfTheAffinityWhereNoGroupHasAQuota) {
  const FakeSystem system;
  EXPECT_EQ(granted_processors(system.files()), processors_here());
  system.write("proc/self/cgroup", "0::/a\n");
  system.write("cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(granted_processors(system.files()), processors_here());
}

TEST(Granted, AQuotaOfHalfAProcessorIsOneThread) {
  const FakeSystem second;
  second.write("proc/self/cgroup", "0::/a/b\n");
  second.write("cgroup/a/cpu.max", "50000 100000\n");  // around the process's own group
  second.write("cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(granted_processors(second.files()), 1u);

  const FakeSystem first;
  first.write("proc/self/cgroup", "7:memory:/\n3:cpu,cpuacct:/pod\n");
  first.write("cgroup/cpu/pod/cpu.cfs_quota_us", "50000\n");
  first.write("cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(granted_processors(first.files()), 1u);
}

TEST(Granted, OneThreadByAffinity) {
  // In a thread of its own: the others keep their processors.
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(::sched_getcpu()), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(granted_processors(), 1u);
  }).join();
}

TEST(Granted, MemoryIsTheSmallestLimit) {
  const FakeSystem system;
  system.write("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");
  EXPECT_EQ(granted_memory(system.files()), 16384u << 10);
  system.write("proc/self/cgroup", "4:memory:/pod/container\n0::/elsewhere\n");
  system.write("cgroup/memory/pod/container/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(granted_memory(system.files()), 16384u << 10);
  system.write("cgroup/memory/pod/memory.limit_in_bytes", "4194304\n");
  EXPECT_EQ(granted_memory(system.files()), 4194304u);
}

TEST(Granted, HostsNamesOfGroupsInsideAContainerStillFindItsRoot) {
  const FakeSystem system;
  system.write("proc/meminfo", "MemTotal: 16384 kB\n");
  system.write("proc/self/cgroup", "0::/kubepods/pod1/container1\n");  // not there
  system.write("cgroup/memory.max", "2097152\n");
  EXPECT_EQ(granted_memory(system.files()), 2097152u);
}

TEST(Granted, NonsenseIsNoLimit) {
  const FakeSystem system;
  system.write("proc/meminfo", "MemTotal: 16384 kB\n");
  system.write("proc/self/cgroup", "0::/a\nnothing\n1:\n");
  system.write("cgroup/a/memory.max", "max\n");
  system.write("cgroup/a/cpu.max", "0 0\n");
  EXPECT_EQ(granted_memory(system.files()), 16384u << 10);
  EXPECT_EQ(granted_processors(system.files()), processors_here());
}

TEST(MemoryBudget, RefusesWhatIsNotLeftAndHasItAgainLater) {
  MemoryBudget budget(100);
  MemoryShare one(&budget);
  one.take(60);
  {
    MemoryShare other(&budget);
    other.take(40);
    EXPECT_THROW(other.take(1), Error);
    EXPECT_FALSE(other.try_take(UINT64_MAX));  // nothing wraps
    EXPECT_EQ(budget.used(), 100u);
    EXPECT_EQ(budget.refusals(), 2u);
  }
  EXPECT_EQ(budget.used(), 60u);
  MemoryShare moved = std::move(one);
  one.give_back();  // has nothing. NOLINT(bugprone-use-after-move)
  EXPECT_EQ(budget.used(), 60u);
  moved = MemoryShare();
  EXPECT_EQ(budget.used(), 0u);
}

TEST(MemoryBudget, AsksForATrimAtAStormsEndAndWhenNothingIsHeld) {
  constexpr uint64_t kMb = 1 << 20;
  MemoryBudget budget;
  ASSERT_TRUE(budget.take(128 * kMb));
  budget.give(64 * kMb);
  EXPECT_FALSE(budget.trim_is_due());  // the storm goes on
  budget.give(40 * kMb);
  EXPECT_TRUE(budget.trim_is_due());
  EXPECT_FALSE(budget.trim_is_due());
  budget.give(24 * kMb);  // held while the system got its part
  EXPECT_TRUE(budget.trim_is_due());
  ASSERT_TRUE(budget.take(kMb));
  budget.give(kMb);
  EXPECT_FALSE(budget.trim_is_due());  // too little
}

// The allocator keeps what lies below a piece that is in use.
TEST(MemoryBudget, ReturnsWhatWasFreedBeforeItGoesBeyondTheLimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator keeps what is freed";
#endif
  constexpr uint64_t kMb = 1 << 20;
  MemoryBudget budget(64 * kMb);
  MemoryShare one(&budget), other(&budget);
  keep_little_free_memory();
  one.take(40 * kMb);
  std::vector<std::unique_ptr<char[]>> pieces;
  for (uint64_t i = 0; i < 40 * kMb / 2048; ++i) {
    pieces.push_back(std::make_unique<char[]>(2000));
  }
  const uint64_t most = resident_memory();
  pieces.erase(pieces.begin(), pieces.end() - 1);
  one.give_back();
  other.take(24 * kMb);  // fits beside what may be kept
  EXPECT_GT(resident_memory(), most - 8 * kMb);
  other.take(24 * kMb);
  EXPECT_LT(resident_memory(), most - 32 * kMb);
}

TEST(MemoryBudget, ManyThreadsNeverHoldMoreThanThereIs) {
  MemoryBudget budget(1000);
  std::atomic<uint64_t> held{0};
  std::atomic<bool> exceeded{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        MemoryShare share(&budget);
        if (!share.try_take(300)) continue;
        if (held.fetch_add(300) + 300 > 1000) exceeded = true;
        held.fetch_sub(300);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(budget.used(), 0u);
}

// Bytes that malloc has given out.
size_t allocated() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

TEST(MemoryBudget, PaysForAllThatParsedJsonTakes) {
  const auto many = [](std::string_view piece) {
    std::string text = "[";
    while (text.size() < 1 << 18) text.append(piece).append(",");
    return text + "0]";
  };
  for (const std::string& text :
       {many("{}"), many("[]"), many("1"), many("\"\""), many("{\"a\":[{}]}"),
        many("\"a text that is longer than what a string holds within itself\""),
        many("{\"a name that is longer than what a string holds within itself\":null}")}) {
    MemoryBudget budget;
    MemoryShare share(&budget);
    const size_t before = allocated();
    const Json json = parse_json(text, 16, "the text", &share);
    EXPECT_LE(allocated() - before, share.bytes()) << text.substr(0, 40);
    MemoryBudget small(share.bytes() / 2);
    MemoryShare less(&small);
    EXPECT_THROW(parse_json(text, 16, "the text", &less), Error);
  }
}

TEST(Cat, PrintsAsStreamsDo) {
  std::ostringstream stream;
  const auto print = [&](const auto&... values) { (stream << ... << values); };
  const std::string_view view = "view";
  print("text", view, std::string("string"), 'c', -1, 7u, size_t{8}, int64_t{INT64_MIN}, true, 0.1,
        1e-9, 123456789.0, 2.0f, 1.0 / 3);
  EXPECT_EQ(cat("text", view, std::string("string"), 'c', -1, 7u, size_t{8}, int64_t{INT64_MIN},
                true, 0.1, 1e-9, 123456789.0, 2.0f, 1.0 / 3),
            stream.str());
  EXPECT_EQ(cat(Hex{0x4e2d}), "4E2D");
}

TEST(RankedMutexes, AreTakenByRisingRankAlone) {
  static_assert(sizeof(RankedMutex<false>) == sizeof(std::mutex));
  using Mutex = RankedMutex<true>;
  Mutex first(1), second(2), third(3);
  {
    const std::lock_guard a(first);
    const std::lock_guard b(second);
    const std::lock_guard c(third);
  }
  {
    const std::lock_guard b(second);
    EXPECT_THROW(first.lock(), std::logic_error);
    EXPECT_THROW(second.lock(), std::logic_error);  // this thread would wait for itself
    std::thread([&] { const std::lock_guard a(first); }).join();  // another thread holds nothing
    const std::lock_guard c(third);
  }
  Mutex::Lock a(first);
  Mutex::Lock b(second);
  a.unlock();  // in any order
  EXPECT_THROW(a.lock(), std::logic_error);
  b.unlock();
  a.lock();
  std::condition_variable changed;
  bool done = false;
  std::thread other([&] {
    const std::lock_guard lock(first);
    done = true;
    changed.notify_all();
  });
  changed.wait(a, [&] { return done; });
  other.join();
  const std::lock_guard c(second);
}

}  // namespace
}  // namespace split
