// The registry of counters, and the reader that the other tests check /metrics by.
#include "serve/metrics.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "support/prometheus_text.h"

namespace split::serve {
namespace {

using test::read_prometheus;

TEST(Metrics, AreWhatTheFormatAsksFor) {
  Metrics metrics;
  metrics.counter("split_requests_total", "Requests, \\ and\nmore.", {{"route", "/a/{b}"}}).add(3);
  metrics.counter("split_requests_total", "", {{"route", "a \"quoted\" \\ name\n"}}).add();
  metrics.gauge("split_open", "Open ones.", [] { return -1.5; });
  metrics.gauge("split_nothing", "No number.", [] { return NAN; });
  metrics.counted("split_seconds_total", "Seconds.", [] { return 1e20; });
  Histogram& histogram = metrics.histogram("split_wait_seconds", "Waits.", {{"phase", "x"}});
  for (const double seconds : {0.0001, 0.00011, 0.3, 99.0}) histogram.observe(seconds);
  add_process_metrics(metrics);
  const std::string text = metrics.text();
  const auto read = read_prometheus(text);
  EXPECT_EQ(read.problems, std::vector<std::string>()) << text;
  EXPECT_EQ(read.value("split_requests_total", {{"route", "/a/{b}"}}), 3);
  EXPECT_EQ(read.value("split_requests_total", {{"route", "a \"quoted\" \\ name\n"}}), 1);
  EXPECT_EQ(read.value("split_open"), -1.5);
  EXPECT_EQ(read.value("split_seconds_total"), 1e20);
  const auto bucket = [&](const char* bound) {
    return read.value("split_wait_seconds_bucket", {{"phase", "x"}, {"le", bound}});
  };
  EXPECT_EQ(bucket("1e-04"), 1);  // bounds belong to their bucket
  EXPECT_EQ(bucket("0.00025"), 2);
  EXPECT_EQ(bucket("0.5"), 3);
  EXPECT_EQ(bucket("10"), 3);
  EXPECT_EQ(bucket("+Inf"), 4);
  EXPECT_NEAR(read.value("split_wait_seconds_sum", {{"phase", "x"}}), 99.30021, 1e-9);
  EXPECT_GT(read.value("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(read.value("process_threads"), 1);
  EXPECT_GE(read.value("process_open_fds"), 3);
  EXPECT_GT(read.value("process_start_time_seconds"), 1.6e9);
}

TEST(Metrics, CountInManyThreads) {
  Metrics metrics;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 1000; ++n) {
        metrics.counter("a_total", "A.", {{"n", std::to_string(n % 7)}}).add();
        metrics.histogram("b_seconds", "B.").observe(n / 1000.0);
        if (n % 100 != 0) continue;
        EXPECT_EQ(read_prometheus(metrics.text()).problems.size(), 0u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto read = read_prometheus(metrics.text());
  double all = 0;
  for (const auto& [labels, value] : read.samples.at("a_total")) all += value;
  EXPECT_EQ(all, 4000);
  EXPECT_EQ(read.value("b_seconds_count"), 4000);
}

TEST(Metrics, OneNameIsOneKind) {
  Metrics metrics;
  metrics.counter("a_total", "A.");
  EXPECT_THROW(metrics.histogram("a_total", "A."), std::logic_error);
}

// The reader finds what is wrong, one thing at a time.
TEST(PrometheusReader, FindsEveryMistake) {
  const std::string good = "# HELP a_total A.\n# TYPE a_total counter\n";
  const std::string histogram = "# HELP h H.\n# TYPE h histogram\n";
  EXPECT_EQ(read_prometheus(good + "a_total 1\n").problems.size(), 0u);
  for (const std::string& bad :
       {good + "a_total 1",
        good + "a_total\n",
        good + "a_total x\n",
        good + "a_total 1\na_total 1\n",
        good + "b_total 1\n",
        good + "a_total{l=\"x} 1\n",
        good + "a_total{l=\"x\",l=\"y\"} 1\n",
        good + "a_total{l:m=\"x\"} 1\n",
        good + "a_total{l=\"\\x\"} 1\n",
        good + "\n",
        good + good,
        std::string("a_total 1\n"),
        std::string("# TYPE a_total counter\na_total 1\n"),
        std::string("# HELP a:b_total A.\n# TYPE a:b_total counter\na:b_total 1\n"),
        std::string("# HELP a A.\n# TYPE a counter\na 1\n"),
        std::string("# HELP a_total A.\n# TYPE a_total gauge\na_total 1\n"),
        std::string("# HELP a \n# TYPE a gauge\na 1\n"),
        histogram + "h_bucket{le=\"1\"} 2\nh_sum 1\nh_count 2\n",
        histogram + "h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
        histogram + "h_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n",
        histogram + "h_bucket{le=\"+Inf\"} 1\nh_count 1\n",
        histogram + "h 1\n"}) {
    EXPECT_GT(read_prometheus(bad).problems.size(), 0u) << bad;
  }
}

}  // namespace
}  // namespace split::serve
