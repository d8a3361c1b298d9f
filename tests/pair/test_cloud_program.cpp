// cloud_server as a program over time: its log for machines, and its memory under a soak.
#include <sys/resource.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <random>
#include <regex>

#include "support/programs.h"

namespace split::test {
namespace {

const Arguments kServer = {"--model",   std::string(SPLIT_SOURCE_DIR) + "/weights/demo",
                           "--device",  "cpu",
                           "--threads", "1"};

TEST(CloudLog, IsOneJsonObjectAnEventAndNamesRequestsOnly) {
  Arguments arguments = kServer;
  arguments.insert(arguments.end(), {"--log-format", "json"});
  CloudProcess cloud(arguments);
  http::Client client(cloud.url());
  const std::string session = "00000000000000000000000000cafe01";
  const auto ask = [&](const char* method, const std::string& path, const std::string& body,
                       const char* id) {
    return client
        .request(method, path, body, "application/json",
                 {{"X-Request-Id", id},
                  {"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}})
        .status;
  };
  EXPECT_EQ(ask("GET", "/livez", "", "probe"), 200);
  EXPECT_EQ(ask("POST", "/v1/completions", R"({"prompt":"canary words","max_tokens":1})", "one"),
            200);
  EXPECT_EQ(ask("PUT", "/v1/sessions/" + session, R"({"cut":1})", "two"), 201);
  EXPECT_EQ(ask("GET", "/nowhere%0a%22", "", "three"), 404);
  cloud.process().signal(SIGTERM);
  EXPECT_EQ(cloud.process().wait(), 0);
  const std::string& log = cloud.process().err();
  std::map<std::string, Json> requests;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line, nullptr, false);
    ASSERT_TRUE(event.is_object()) << line;
    EXPECT_EQ(event["time"].get<std::string>().size(), 24u) << line;
    EXPECT_TRUE(event["level"].is_string()) << line;
    if (event.value("event", "") == "request") requests[event["request"]] = event;
  }
  ASSERT_EQ(requests.size(), 3u) << log;
  EXPECT_EQ(requests["one"]["route"], "/v1/completions");
  EXPECT_EQ(requests["one"]["method"], "POST");
  EXPECT_EQ(requests["one"]["status"], 200);
  EXPECT_GT(requests["one"]["ms"], 0);
  const double thousandths = requests["one"]["ms"].get<double>() * 1e3;
  EXPECT_NEAR(thousandths, std::round(thousandths), 1e-6);  // no digits that nobody reads
  EXPECT_EQ(requests["one"]["trace"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_GT(requests["one"]["bytes_out"], 100);
  EXPECT_EQ(requests["two"]["route"], "/v1/sessions/{id}");
  EXPECT_EQ(requests["three"]["route"], R"("/nowhere\u000a\"")");
  EXPECT_EQ(requests["three"]["status"], 404);
  for (const std::string& secret : {std::string("canary"), session}) {
    EXPECT_EQ(log.find(secret), std::string::npos) << secret;
  }
}

// Lines with their date: starts, is ready, each request but steps that went well and probes, stops.
TEST(CloudLog, IsLinesWithADateForPeople) {
  CloudProcess cloud(kServer);
  EXPECT_TRUE(cloud.process().until(
      [&] { return cloud.process().err().find("ready at ") != std::string::npos; }));
  http::Client client(cloud.url());
  const std::string session = "/v1/sessions/00000000000000000000000000cafe01";
  const auto ask = [&](const char* method, const std::string& path, const std::string& body) {
    return client.request(method, path, body, "application/json").status;
  };
  EXPECT_EQ(ask("GET", "/livez", ""), 200);
  EXPECT_EQ(ask("PUT", session, R"({"cut":1})"), 201);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ask("POST", session + "/forward", cat(R"({"past":)", i, R"(,"tokens":[1]})")), 200);
  }
  // A path that no route has is quoted and short, and names no session.
  EXPECT_EQ(ask("GET", "/a%1b%5b2J%22%0a%ff", ""), 404);
  EXPECT_EQ(ask("GET", "/" + std::string(100, 'b'), ""), 404);
  EXPECT_EQ(ask("GET", "/%01%01%01%01%01%01%01%01%01%01%01%01%01%01%01", ""), 404);
  EXPECT_EQ(ask("DELETE", session + "/forward", ""), 405);
  EXPECT_EQ(ask("POST", session + "/forward", "{}"), 400);
  cloud.process().signal(SIGTERM);
  EXPECT_EQ(cloud.process().wait(), 0);
  std::istringstream lines(cloud.process().err());
  std::string all;
  const std::regex dated("20\\d\\d-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d (.*)");
  for (std::string line; std::getline(lines, line);) {
    std::smatch parts;
    ASSERT_TRUE(std::regex_match(line, parts, dated)) << line;
    all += parts[1].str() + "\n";
  }
  // A line of a request is written behind its answer, so that the stop can be first.
  const std::string last = "127.0.0.1 POST /v1/sessions/\\{id\\}/forward 400 [^\n]*\n";
  const std::string stops = "stopping: [^\n]*\n";
  const std::regex expected(
      cat("cloud_server [^\n]* starts\nmodel demo: [^\n]*\nmemory: [^\n]*\nlistening on [^\n]*\n"
          "ready at http://127.0.0.1:[^\n]*\n"
          "127.0.0.1 PUT /v1/sessions/\\{id\\} 201 \\d+\\.\\d\\d\\d s, [^\n]*\n"
          "127.0.0.1 GET \"/a\\\\u001b\\[2J\\\\\"\\\\u000a\xef\xbf\xbd\" 404 [^\n]*\n"
          "127.0.0.1 GET \"/b{74}\\.\\.\\.\" 404 [^\n]*\n"
          "127.0.0.1 GET \"/(?:\\\\u0001){12}\\.\\.\\.\" 404 [^\n]*\n"
          "127.0.0.1 DELETE \"/v1/sessions/\\{id\\}/forward\" 405 [^\n]*\n"
          "(?:",
          last, stops, "|", stops, last, ")stopped\n"));
  EXPECT_TRUE(std::regex_match(all, expected)) << all;
}

// Nobody reads the log, which is a pipe of 64 KiB: requests are answered all the same.
TEST(CloudLog, HoldsNobodyUp) {
  CloudProcess cloud(kServer);
  http::Client client(cloud.url());
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(client.request("GET", "/v1/models").status, 200) << i;
  EXPECT_TRUE(cloud.process().until([&] {
    // A reader makes room again.
    client.request("GET", "/v1/models");
    return cloud.process().err().find(" lines of log were dropped\n") != std::string::npos;
  }));
  cloud.process().signal(SIGTERM);
  EXPECT_EQ(cloud.process().wait(), 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their memory is counted too

uint64_t resident_bytes(pid_t pid) {
  std::ifstream file(cat("/proc/", pid, "/statm"));
  uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * 4096;
}

// Does what edges, browsers and strangers do, over and over, on one connection.
void use_and_abuse(const std::string& url, unsigned seed, const std::atomic<bool>& done,
                   std::atomic<int>& wrong, std::atomic<int>& rounds) {
  std::mt19937 random(seed);
  while (!done) {
    http::Client client(url);
    for (int n = 0; n < 50 && !done; ++n, ++rounds) {
      std::string id = cat(seed, "000", random() % 40);
      id.insert(0, 32 - id.size(), '0');
      const std::string session = "/v1/sessions/" + id;
      std::string tokens = "1";
      for (unsigned i = random() % 100; i > 0; --i) tokens += cat(",", random() % 8000);
      const auto answer = [&](const char* method, const std::string& path, std::string body = {}) {
        return client.request(method, path, std::move(body), "application/json").status;
      };
      const int put = answer("PUT", session, R"({"cut":3})");
      const int step =
          answer("POST", session + "/forward", cat("{\"past\":0,\"tokens\":[", tokens, "]}"));
      // Others may have taken its place in between; nothing else goes wrong.
      if (put / 100 != 2 || (step != 200 && step != 404 && step != 503)) ++wrong;
      if (answer("POST", session + "/forward", "{\"past\":") / 100 != 4) ++wrong;
      if (random() % 4 == 0) answer("DELETE", session);
      if (answer("GET", "/v1/models/demo/stages/norm") != 200) ++wrong;
      if (answer("GET", cat("/", random())) != 404) ++wrong;
      if (answer("GET", "/metrics") != 200) ++wrong;
      if (random() % 8 == 0) {  // a stream that nobody reads to its end
        http::Client reader(url);
        reader.stream(
            "POST", "/v1/completions", R"({"prompt":"a","max_tokens":64,"stream":true})",
            "application/json", {}, [](Bytes) { return false; }, 1 << 20);
      }
    }
  }
}

// Twenty seconds in the background of the other tests; ten minutes with SPLIT_LONG.
TEST(CloudSoak, KeepsItsMemory) {
  const uint64_t budget = 64 << 20, slack = 128 << 20;
  const uint64_t weights =
      std::filesystem::file_size(std::string(SPLIT_SOURCE_DIR) + "/weights/demo/model.safetensors");
  Arguments arguments = kServer;
  arguments.insert(arguments.end(), {"--kv-budget", cat(budget)});
  CloudProcess cloud(arguments);
  const pid_t pid = cloud.process().pid();
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(pid), 19);
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0}, rounds{0};
  std::vector<std::thread> clients;
  for (unsigned i = 1; i <= 2; ++i) {
    clients.emplace_back([&, i] {
      ::setpriority(PRIO_PROCESS, 0, 19);  // of this thread
      use_and_abuse(cloud.url(), i, done, wrong, rounds);
    });
  }
  constexpr int kSamples = 60;
  const auto pause = std::chrono::milliseconds(std::getenv("SPLIT_LONG") != nullptr ? 10'000 : 333);
  // The other tests may leave it no processor for a while: each half has its share of the work.
  const int share = std::getenv("SPLIT_LONG") != nullptr ? 1000 : 300;
  const auto worst = [&](int until) {
    double most = 0;
    for (int n = 0; n < kSamples / 2 || rounds < until; ++n) {
      std::this_thread::sleep_for(pause);
      most = std::max(most, static_cast<double>(resident_bytes(pid)));
    }
    EXPECT_LE(most, static_cast<double>(weights + budget + slack));
    return most;
  };
  const double first = worst(share), second = worst(rounds + share);
  done = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  // The second half is where the first had come to, but for pages of keys and values that were
  // first used then.
  EXPECT_LE(second, first + (4 << 20));
  RecordProperty("rss_mib", static_cast<int>(second / (1 << 20)));
  RecordProperty("rounds", rounds);
}

#endif

}  // namespace
}  // namespace split::test
