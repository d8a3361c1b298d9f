// Tests of a tab's threads: each is an export that begins a fibre and tells the page how it went.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/resources/fibres.h"
#include "base/resources/turns.h"
#include "bits.h"

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

extern "C" __attribute__((import_module("page"), import_name("told"))) void page_told(
    const char* words, size_t size);

namespace {

void expect(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

// Throws at the bottom of a stack, and waits while its handler runs.
int fail_below(int depth, int who) {
  volatile char room[256];
  room[0] = static_cast<char>(depth);
  if (depth > 0) return fail_below(depth - 1, who) + room[0];
  try {
    throw std::runtime_error(std::to_string(who));
  } catch (const std::exception& error) {
    const std::string before = error.what();
    std::this_thread::sleep_for(std::chrono::milliseconds(who * 3 % 7));
    expect(before == error.what() && std::uncaught_exceptions() == 0, "another's exception");
    throw;
  }
}

void holds_exceptions() {
  int right = 0;
  std::vector<std::thread> threads;
  for (int who = 0; who < 20; ++who) {
    threads.emplace_back([who, &right] {
      for (int round = 0; round < 50; ++round) {
        try {
          fail_below(20, who);
        } catch (const std::runtime_error& error) {
          right += error.what() == std::to_string(who) ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect(right == 1000, "exceptions were mixed up");
}

// One exception, in the handlers of several fibres at once, and within another handler.
void throws_again() {
  std::exception_ptr kept;
  try {
    throw std::runtime_error("kept");
  } catch (...) {
    kept = std::current_exception();
    try {
      std::rethrow_exception(kept);
    } catch (const std::exception& inner) {
      expect(std::string(inner.what()) == "kept", "not the one that was kept");
    }
    expect(std::current_exception() != nullptr, "the outer handler's is gone");
  }
  int right = 0;
  std::vector<std::thread> threads;
  for (int who = 0; who < 5; ++who) {
    threads.emplace_back([&, who] {
      try {
        std::rethrow_exception(kept);
      } catch (const std::runtime_error& error) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5 - who));
        right += std::string(error.what()) == "kept" ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect(right == 5 && std::current_exception() == nullptr, "a handler lost its exception");
}

void excludes() {
  std::mutex mutex;
  split::Turns turns;
  int inside = 0, most = 0, count = 0;
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int who = 0; who < 10; ++who) {
    threads.emplace_back([&, who] {
      for (int round = 0; round < 20; ++round) {
        const std::lock_guard lock(mutex);
        most = std::max(most, ++inside);
        if (round % 7 == 0) std::this_thread::sleep_for(1ms);
        --inside;
        ++count;
      }
      const std::lock_guard turn(turns);
      order.push_back(who);
      std::this_thread::sleep_for(1ms);
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect(most == 1 && count == 200, "two were inside at once");
  expect(order.size() == 10, "a turn was lost");
}

void waits_in_turn() {
  std::mutex mutex;
  std::condition_variable changed;
  int turn = 0, rounds = 0;
  const auto play = [&](int mine) {
    for (int i = 0; i < 1000; ++i) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return turn == mine; });
      turn = 1 - mine;
      ++rounds;
      changed.notify_all();
    }
  };
  std::thread a([&] { play(0); }), b([&] { play(1); });
  a.join();
  b.join();
  expect(rounds == 2000, "a turn was missed");
}

void waits_for_a_time() {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock(mutex);
  const auto begun = Clock::now();
  expect(changed.wait_for(lock, 30ms) == std::cv_status::timeout, "woken by nobody");
  expect(Clock::now() - begun >= 29ms, "a wait ended too soon");
  bool done = false;
  std::thread other([&] {
    const std::lock_guard mine(mutex);
    done = true;
    changed.notify_one();
  });
  expect(changed.wait_until(lock, Clock::time_point::max(), [&] { return done; }), "not woken");
  expect(changed.wait_for(lock, 10s, [&] { return done; }), "waited for what is there");
  lock.unlock();
  other.join();
  expect(Clock::now() - begun < 5s, "a wake-up was lost");
}

void waits_on_a_word() {
  std::atomic<int> word{0};
  int woken = 0;
  std::vector<std::thread> threads;
  for (int who = 0; who < 3; ++who) {
    threads.emplace_back([&] {
      split::fibres::wait(word, 0);
      ++woken;
    });
  }
  std::this_thread::sleep_for(2ms);
  expect(woken == 0, "it did not wait");
  word = 1;
  split::fibres::wake_all(word);
  for (std::thread& thread : threads) thread.join();
  expect(woken == 3, "one still waits");
}

void gives_way() {
  std::atomic<bool> stop{false};
  std::atomic<int> looks{0};
  std::thread other([&] {
    while (!stop) {
      std::this_thread::sleep_for(1ms);
      ++looks;
    }
  });
  const auto end = Clock::now() + 10s;
  while (looks < 5 && Clock::now() < end) split::fibres::yield();
  stop = true;
  other.join();
  expect(looks >= 5, "a computing fibre kept the others waiting");
}

void reads_numbers() {
  for (const auto& [text, want, used] : {std::tuple{"1.5;x", 1.5, 3},
                                         {"-25e-1e", -2.5, 6},
                                         {"0.1", 0.1, 3},
                                         {"0x1p3", 0.0, 1},
                                         {"5e-324", 5e-324, 6},
                                         {".5.", .5, 2},
                                         {"3.", 3.0, 2},
                                         {"7e", 7.0, 1}}) {
    const std::string_view all = text;
    double value = -1;
    const auto read = split::parse_real(all.data(), all.data() + all.size(), value);
    expect(value == want && read.ptr == all.data() + used, text);
  }
  for (const std::string_view bad : {"", " 1", "+1", "-", ".", "e5"}) {
    double value = 7;
    const auto read = split::parse_real(bad.data(), bad.data() + bad.size(), value);
    expect(read.ec == std::errc::invalid_argument && value == 7, "took what is no number");
  }
}

void writes_numbers() {
  const auto text = [](auto value) {
    char room[64];
    return std::string(room, std::to_chars(room, room + sizeof room, value).ptr);
  };
  for (const auto& [value, want] : {std::pair{0.1, "0.1"},
                                    {1e22, "1e+22"},
                                    {123456789012345680.0, "123456789012345680"},
                                    {5e-324, "5e-324"},
                                    {1.0 / 3, "0.3333333333333333"},
                                    {-0.0, "-0"},
                                    {100.0, "100"},
                                    {1e-5, "1e-05"},
                                    {0.0001, "1e-04"},
                                    {0.00012, "0.00012"},
                                    {1e5, "1e+05"},
                                    {123456.0, "123456"},
                                    {1.7976931348623157e308, "1.7976931348623157e+308"},
                                    {9007199254740993.0, "9007199254740992"},
                                    {2.5, "2.5"}}) {
    expect(text(value) == want, want);
  }
  expect(text(0.1f) == "0.1" && text(16777216.0f) == "16777216", "a float");
  expect(text(1.17549435e-38f) == "1.1754944e-38" && text(3e-7f) == "3e-07", "a small float");
  char room[64];
  const auto fixed = std::to_chars(room, room + sizeof room, 1e-5, std::chars_format::fixed);
  expect(std::string(room, fixed.ptr) == "0.00001", "fixed");
  expect(std::to_chars(room, room + 2, 0.25).ec == std::errc::value_too_large, "no room");
}

void hashes() {
  expect(split::Sha256::hex_of(split::as_bytes_of("abc")) ==
             "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
         "SHA-256 of abc");
  const std::string many(1000000, 'a');
  split::Sha256 sum;
  for (size_t at = 0, n = 1; at < many.size(); at += n, n = n * 3 % 257) {
    sum.update(split::as_bytes_of(std::string_view(many).substr(at, n)));
  }
  expect(sum.finish_hex() == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
         "SHA-256 of a million, in pieces");
}

volatile int depth_wanted = 1 << 20;
int overrun(int depth) {
  volatile char room[512];
  room[depth % 512] = 1;
  if (depth >= depth_wanted) return 0;
  if (depth % 16 == 15) std::this_thread::sleep_for(0ms);
  return overrun(depth + 1) + room[0];
}

void locks_for_ever() {
  std::mutex a, b;
  std::thread one([&] {
    const std::lock_guard first(a);
    std::this_thread::sleep_for(1ms);
    const std::lock_guard second(b);
  });
  const std::lock_guard first(b);
  std::this_thread::sleep_for(1ms);
  const std::lock_guard second(a);
  one.join();
}

using Test = void (*)();
constexpr std::array<Test, 10> kTests = {
    holds_exceptions, throws_again, excludes,      waits_in_turn,  waits_for_a_time,
    waits_on_a_word,  gives_way,    reads_numbers, writes_numbers, hashes};

}  // namespace

extern "C" {
__attribute__((export_name("tests"))) int tests() { return kTests.size(); }
__attribute__((export_name("test"))) void test(int which) {
  std::thread([which] {
    std::string words = "good";
    try {
      kTests.at(static_cast<size_t>(which))();
    } catch (const std::exception& error) {
      words = error.what();
    }
    page_told(words.data(), words.size());
  }).detach();
}
__attribute__((export_name("bits"))) void bits() {
  std::thread([] {
    const std::string lines = split::test::bits_of_all_formats();
    page_told(lines.data(), lines.size());
  }).detach();
}
__attribute__((export_name("overrun"))) void begin_overrun() {
  std::thread([] { overrun(0); }).detach();
}
__attribute__((export_name("deadlock"))) void begin_deadlock() {
  std::thread(locks_for_ever).detach();
}
}
