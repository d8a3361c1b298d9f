// base/: bytes, files, the pool.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <latch>
#include <thread>
#include <tuple>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/resources/thread_pool.h"
#include "base/sort.h"
#include "program/lost_pages.h"

namespace split {
namespace {

struct TemporaryFolder {
  std::filesystem::path path;
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "split-base-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
};

TEST(Bytes, ArithmeticRefusesOverflow) {
  EXPECT_EQ(checked_mul(1ull << 32, 1ull << 31), 1ull << 63);
  EXPECT_EQ(checked_mul(1ull << 32, 1ull << 32), std::nullopt);
}

TEST(Bytes, Crc32cIsTheStandardOne) {  // RFC 3720, section B.4
  EXPECT_EQ(crc32c(as_bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(as_bytes_of(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(as_bytes_of(std::string(32, '\xff'))), 0x62a8ab43u);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  EXPECT_EQ(crc32c(as_bytes_of(ascending)), 0x46dd794eu);
  for (size_t cut = 0; cut <= ascending.size(); ++cut) {
    const Bytes all = as_bytes_of(ascending);
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), 0x46dd794eu) << cut;
  }
}

TEST(Bytes, ParsesWholeNumbersOnly) {
  EXPECT_EQ(parse_u64("0", 0, 9), 0u);
  EXPECT_EQ(parse_u64("18446744073709551615", 0, ~0ull), ~0ull);
  for (const char* bad : {"", "-1", "+1", " 1", "1 ", "1.0", "0x1", "18446744073709551616", "10"}) {
    EXPECT_EQ(parse_u64(bad, 0, std::string_view(bad).size() > 10 ? ~0ull : 9), std::nullopt)
        << bad;
  }
}

TEST(Bytes, ReadsTheNumberThatATextBeginsWith) {
  const auto read = [](std::string_view text) {
    double value = 7;
    const auto [end, error] = parse_real(text.data(), text.data() + text.size(), value);
    return std::tuple(value, end - text.data(), error);
  };
  EXPECT_EQ(read("1.5;x"), std::tuple(1.5, 3, std::errc()));
  EXPECT_EQ(read("-25e-1e"), std::tuple(-2.5, 6, std::errc()));
  EXPECT_EQ(read("0.1"), std::tuple(0.1, 3, std::errc()));
  EXPECT_EQ(read("0x1p3"), std::tuple(0.0, 1, std::errc()));
  EXPECT_EQ(read("1e999"), std::tuple(7.0, 5, std::errc::result_out_of_range));
  for (const std::string_view bad : {"", " 1", "+1", "-", "."}) {
    EXPECT_EQ(read(bad), std::tuple(7.0, 0, std::errc::invalid_argument)) << bad;
  }
  float value = 0;
  const std::string_view tenth = "0.1";
  parse_real(tenth.data(), tenth.data() + tenth.size(), value);
  EXPECT_EQ(value, 0.1f);
}

TEST(Bytes, DrawsEveryByteOfAnyNumber) {
  std::vector<std::byte> drawn(1000), again(1000);  // more than one call of the system gives
  for (size_t i = 0; i < 8; ++i) {  // what is left at 0 by chance: 1 byte of 256, each time
    random_bytes(again);
    std::ranges::transform(drawn, again, drawn.begin(), std::bit_or());
  }
  EXPECT_EQ(std::ranges::count(drawn, std::byte{0}), 0);
}

TEST(Bytes, Sha256OfTheStandardsExample) {  // FIPS 180-2, appendix B.1
  EXPECT_EQ(Sha256::hex_of(as_bytes_of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 sum;
  sum.update(as_bytes_of("a"));
  sum.update(as_bytes_of("bc"));
  EXPECT_EQ(sum.finish_hex(), Sha256::hex_of(as_bytes_of("abc")));
}

TEST(Bytes, HexIsLowerCaseOfTheRightLength) {
  EXPECT_TRUE(is_lower_hex("00ff", 4));
  EXPECT_FALSE(is_lower_hex("00fF", 4));
  EXPECT_FALSE(is_lower_hex("00ff", 5));
}

TEST(File, WritesWholeFilesOrNone) {
  const TemporaryFolder folder;
  const auto path = folder.path / "x";
  {
    AtomicFile file(path);
    file.append(as_bytes_of("half"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
  write_file(path, as_bytes_of("whole"));
  EXPECT_EQ(read_file(path, 5), "whole");
  EXPECT_EQ(as_text(MappedFile(path).bytes()), "whole");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 1);
}

// Pages that will be needed come into memory by themselves. Where files never leave it, there is
// nothing to wait for.
TEST(File, SaysWhatStandsInAFolder) {
  const TemporaryFolder folder;
  EXPECT_FALSE(file_status(folder.path / "a/b/c"));
  EXPECT_TRUE(make_folders(folder.path / "a/b") == std::error_code());
  write_file(folder.path / "a/b/c", as_bytes_of("four"));
  write_file(folder.path / "d", as_bytes_of("seven.."));
  std::filesystem::create_symlink(folder.path / "d", folder.path / "link");
  std::vector<FoundFile> found = files_below(folder.path);
  std::ranges::sort(found, {}, &FoundFile::path);
  ASSERT_EQ(found.size(), 2u);  // no folder, and no link
  EXPECT_EQ(found[0].path, folder.path / "a/b/c");
  EXPECT_EQ(found[0].status.bytes, 4u);
  EXPECT_EQ(found[1].status.bytes, 7u);
  EXPECT_EQ(found[1].status.written, std::filesystem::last_write_time(folder.path / "d"));
  const auto linked = file_status(folder.path / "link");
  ASSERT_TRUE(linked);
  EXPECT_EQ(linked->identity, found[1].status.identity);
  EXPECT_FALSE(file_status(folder.path)->regular);
  EXPECT_GT(*free_bytes(folder.path), 0u);
  EXPECT_FALSE(free_bytes(folder.path / "none"));
  EXPECT_TRUE(may_write_to(folder.path));
  EXPECT_FALSE(may_write_to(folder.path / "none"));
  const auto before = file_status(folder.path / "d")->written;
  std::filesystem::last_write_time(folder.path / "d", before - std::chrono::hours(1));
  touch_file(folder.path / "d");
  EXPECT_GE(file_status(folder.path / "d")->written, before);
  EXPECT_TRUE(remove_file(folder.path / "d"));
  EXPECT_FALSE(remove_file(folder.path / "d"));
  EXPECT_TRUE(make_folders(folder.path / "a/b/c/d"));  // a file is in the way
}

TEST(File, BringsWhatWillBeNeeded) {
  const TemporaryFolder folder;
  const std::string text(300000, 'x');
  write_file(folder.path / "x", as_bytes_of(text));
  const Fd fd(::open((folder.path / "x").c_str(), O_RDONLY));
  ASSERT_EQ(::fsync(fd.get()), 0);
  ASSERT_EQ(::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  const MappedFile file(fd, "x");
  const auto all_there = [&] {
    std::vector<unsigned char> pages(text.size());  // more than there are
    void* const at = const_cast<std::byte*>(file.bytes().data());
    EXPECT_EQ(::mincore(at, text.size(), pages.data()), 0);
    const size_t count = (text.size() - 1) / static_cast<size_t>(::sysconf(_SC_PAGESIZE)) + 1;
    return std::all_of(pages.begin(), pages.begin() + static_cast<ptrdiff_t>(count),
                       [](unsigned char page) { return (page & 1) != 0; });
  };
  const auto all_arrive = [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!all_there() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return all_there();
  };
  MappedFile::will_need({});
  MappedFile::will_need(file.bytes().subspan(9));  // no whole page
  if (!all_arrive()) {
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_WILLNEED);
    if (!all_arrive()) GTEST_SKIP() << "a file system that reads nothing ahead";
    FAIL() << "not what will_need() brought";
  }
}

TEST(File, HasWhatWasLetGo) {
  const TemporaryFolder folder;
  const std::string text(300000, 'x');
  write_file(folder.path / "x", as_bytes_of(text));
  const MappedFile file(folder.path / "x");
  EXPECT_EQ(as_text(file.bytes()), text);
  MappedFile::let_go({});
  MappedFile::let_go(file.bytes().subspan(9));
  EXPECT_EQ(as_text(file.bytes()), text);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return cat(error.kind() == ErrorKind::kIo ? "" : "(no kIo) ", error.what());
  }
  return "no error";
}

TEST(File, PartsOfAMapAreReadFromItsFile) {
  const TemporaryFolder folder;
  write_file(folder.path / "x", as_bytes_of(std::string_view("abcdefgh")));
  const MappedFile file(folder.path / "x");
  std::string out(3, ' ');
  const auto read = [&](Bytes part) {
    MappedFile::read(part, std::as_writable_bytes(std::span(out)));
    return out;
  };
  EXPECT_EQ(read(file.bytes().subspan(2, 3)), "cde");
  EXPECT_EQ(read(as_bytes_of(std::string_view("xyz"))), "xyz");  // no map
  std::filesystem::rename(folder.path / "x", folder.path / "y");
  EXPECT_EQ(read(file.bytes().subspan(5, 3)), "fgh");
  std::filesystem::resize_file(folder.path / "y", 6);
  EXPECT_EQ(
      message_of([&] { read(file.bytes().subspan(5, 3)); }),
      cat("[file] ", (folder.path / "x").string(), ": expected 8 bytes, the file is shorter now"));
}

TEST(File, WaitsForNoFifo) {
  const TemporaryFolder folder;
  const auto fifo = folder.path / "fifo";
  CHECK(::mkfifo(fifo.c_str(), 0600) == 0);
  const std::string expected = cat("[file] ", fifo.string(), ": not a regular file");
  EXPECT_EQ(message_of([&] { MappedFile{fifo}; }), expected);
  EXPECT_EQ(message_of([&] { read_file(fifo, 10); }), expected);
}

TEST(File, OpensNothingInAFilesPlace) {
  const TemporaryFolder folder;
  const auto victim = folder.path / "victim", link = folder.path / "link",
             nowhere = folder.path / "nowhere", fifo = folder.path / "fifo",
             good = folder.path / "good";
  write_file(victim, as_bytes_of("123456"));
  std::filesystem::create_symlink(victim, link);
  std::filesystem::create_symlink(folder.path / "not there", nowhere);
  CHECK(::mkfifo(fifo.c_str(), 0600) == 0);
  for (const auto& path : {link, nowhere, fifo, folder.path}) {
    for (const int flags : {O_RDONLY, O_RDWR | O_CREAT}) {
      EXPECT_EQ(message_of([&] { open_regular_only(path, flags); }),
                cat("[file] ", path.string(), ": not a regular file"));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path / "not there"));
  EXPECT_TRUE(open_regular_only(victim, O_RDONLY));
  EXPECT_FALSE(open_regular_only(good, O_RDONLY));
  EXPECT_EQ(errno, ENOENT);
  EXPECT_TRUE(open_regular_only(good, O_RDWR | O_CREAT));
}

TEST(File, WarnsOfASecretThatOthersRead) {
  const TemporaryFolder folder;
  const auto file = folder.path / "keys";
  write_file(file, as_bytes_of("x"));
  const auto said = [&](mode_t mode) {
    CHECK(::chmod(file.c_str(), mode) == 0);
    testing::internal::CaptureStderr();
    warn_if_others_read(file);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said(0600), "");
  EXPECT_EQ(said(0640), "");
  for (const mode_t mode : {0644, 0666}) {
    const std::string line = said(mode);
    EXPECT_TRUE(line.starts_with(cat("warning: ", file.string(), ": "))) << line;
    EXPECT_EQ(std::ranges::count(line, '\n'), 1) << line;
  }
}

// --- lost pages

char first_of(Bytes bytes) { return static_cast<const volatile char&>(as_text(bytes)[0]); }

TEST(LostPages, AMapIsFoundByItsAddress) {
  const TemporaryFolder folder;
  const auto name = [](const MappedFile& map, size_t at) {
    const char* const found = MappedFile::name_at(map.bytes().data() + at);
    return std::string(found == nullptr ? "nothing" : found);
  };
  std::vector<MappedFile> maps;
  for (int i = 0; i < 40; ++i) {
    const auto path = folder.path / cat("file ", i);
    write_file(path, as_bytes_of(std::string(5000, 'x')));
    maps.emplace_back(path);
  }
  const std::byte* const gone = maps[7].bytes().data();
  maps.erase(maps.begin() + 7);  // moves those behind it
  write_file(folder.path / "another", as_bytes_of("x"));
  maps.emplace_back(folder.path / "another");
  for (size_t i = 0; i < maps.size(); ++i) {
    const auto expected =
        folder.path / (i + 1 == maps.size() ? "another" : cat("file ", i < 7 ? i : i + 1));
    EXPECT_EQ(name(maps[i], 0), expected.string());
    EXPECT_EQ(name(maps[i], maps[i].bytes().size() - 1), expected.string());
  }
  const auto own = std::make_unique<char>();
  EXPECT_EQ(MappedFile::name_at(own.get()), nullptr);
  EXPECT_EQ(MappedFile::name_at(nullptr), nullptr);
  maps.clear();
  EXPECT_EQ(MappedFile::name_at(gone), nullptr);
}

TEST(LostPages, AFileThatWasCutShortIsALineAndExitFour) {
  const TemporaryFolder folder;
  const auto path = folder.path / "a \"model\"\x1b";
  write_file(path, as_bytes_of(std::string(3 << 12, 'x')));
  const MappedFile map(path);
  std::filesystem::resize_file(path, 1);
  const auto touch = [&](const char* before, const char* after) {
    end_on_lost_pages(before, after);
    std::fprintf(stderr, "%c", first_of(map.bytes().last(1)));
  };
  const std::string shown = folder.path.string() + "/a .model..: a part of it is lost: ";
  EXPECT_EXIT(touch("edge_client: ", ""), testing::ExitedWithCode(4),
              cat("^edge_client: .file. ", shown, "[^\n]*\n$"));
  EXPECT_EXIT(touch("{\"message\":\"", "\"}"), testing::ExitedWithCode(4),
              cat("^.\"message\":\".file. ", shown, "[^\n\"]*\".\n$"));
}

TEST(LostPages, AnotherBusErrorEndsAsEver) {
  const Fd fd(::memfd_create("test", MFD_CLOEXEC));
  void* const other = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), 0);
  CHECK(fd && other != MAP_FAILED);
  const auto installed = [](const std::function<void()>& call) {
    end_on_lost_pages("test: ");
    call();
  };
  EXPECT_EXIT(
      installed([&] { std::fprintf(stderr, "%c", *static_cast<const volatile char*>(other)); }),
      testing::KilledBySignal(SIGBUS), "^$");
  EXPECT_EXIT(installed([] { ::kill(::getpid(), SIGBUS); }), testing::KilledBySignal(SIGBUS), "^$");
  ::munmap(other, 4096);
}

TEST(File, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const auto kind_of = [](auto&& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.kind();
    }
    ADD_FAILURE() << "no error";
    return ErrorKind::kShape;
  };
  write_file(folder.path / "x", as_bytes_of("123456"));
  EXPECT_EQ(kind_of([&] { MappedFile(folder.path / "none"); }), ErrorKind::kNotFound);
  EXPECT_EQ(kind_of([&] { MappedFile{folder.path}; }), ErrorKind::kIo);
  EXPECT_EQ(kind_of([&] { read_file(folder.path / "x", 5); }), ErrorKind::kInput);
  EXPECT_EQ(kind_of([&] { write_file(folder.path / "none" / "x", {}); }), ErrorKind::kIo);
}

TEST(ThreadPool, ThrowsWhatATaskThrewWhenAllHaveEnded) {
  for (const unsigned threads : {1u, 3u}) {
    ThreadPool pool(threads);
    for (int again = 0; again < 50; ++again) {
      std::atomic<int> ended{0};
      const auto task = [&](size_t i) {
        ++ended;
        if (i % 7 == 3) throw Error(ErrorKind::kIo, "task");
      };
      EXPECT_THROW(pool.run(64, task), Error);
      EXPECT_EQ(ended, threads > 1 ? 64 : 4);
      ended = 0;
      pool.run(3, task);
      EXPECT_EQ(ended, 3);
    }
  }
}

TEST(ThreadPool, AThreadRunsItsShareInOrderAndThenWhatAnotherHasNotBegun) {
  ThreadPool pool(2);
  const auto caller = std::this_thread::get_id();
  std::vector<size_t> order;  // of the other thread's tasks
  std::latch caller_began(1), others_ended(99);
  pool.run(100, [&](size_t i) {
    if (std::this_thread::get_id() == caller) {
      EXPECT_EQ(i, 0u);
      caller_began.count_down();
      others_ended.wait();  // until then it is held up, as a preempted thread is
    } else {
      caller_began.wait();
      order.push_back(i);
      others_ended.count_down();
    }
  });
  std::vector<size_t> expected;
  for (size_t i = 50; i < 100; ++i) expected.push_back(i);
  for (size_t i = 49; i > 0; --i) expected.push_back(i);
  EXPECT_EQ(order, expected);
}

TEST(ThreadPool, RunsEachTaskOnce) {
  for (const unsigned threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads);
    for (const size_t count : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<std::atomic<int>> seen(count);
      pool.run(count, [&](size_t i) { ++seen[i]; });
      for (const auto& n : seen) ASSERT_EQ(n, 1);
    }
    const ThreadPool::Step step(pool);
    std::atomic<size_t> total{0};
    for (int round = 0; round < 2000; ++round) pool.run(3, [&](size_t i) { total += i; });
    EXPECT_EQ(total, 2000u * 3);
  }
}

TEST(Sort, SortsAsTheLibrarysStableSort) {
  for (const uint32_t size : {0u, 1u, 2u, 3u, 7u, 500u}) {
    std::vector<std::pair<std::string, uint32_t>> made;
    for (uint32_t i = 0; i < size; ++i) made.emplace_back(std::to_string(i * 7919 % 97), i);
    auto expected = made;
    std::ranges::stable_sort(expected, std::greater(), &std::pair<std::string, uint32_t>::first);
    sort_stably(made, std::greater(), &std::pair<std::string, uint32_t>::first);
    EXPECT_EQ(made, expected);
  }
}

}  // namespace
}  // namespace split
