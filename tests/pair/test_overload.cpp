// The worst hour: a server within the limits of the Kubernetes manifest, under a storm of requests
// that are small to send and large to answer, beside edges that write their texts.
#include <atomic>
#include <fstream>

#include "pair/memory_group.h"
#include "support/http_peer.h"

namespace split::test {
namespace {

constexpr uint64_t kLimit = 2ull << 30;  // scripts/cluster/kubernetes.yaml

// Bytes of a process's own memory.
uint64_t own_memory(pid_t pid) {
  std::ifstream status(cat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) << 10;
  }
  return 0;
}

// Bytes of the server's memory budget.
double held_by_requests(int port) {
  http::Peer peer(port);
  peer.say("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  const std::string metrics = peer.to_end(), name = "\nsplit_memory_used_bytes ";
  const size_t at = metrics.find(name);
  return at == std::string::npos ? 1 : std::atof(metrics.c_str() + at + name.size());
}

std::string post(const std::string& path, std::string_view body) {
  return cat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
             "Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
}

int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::atoi(answer.c_str() + 9) : 0;
}

// One logit of each of many rows, or of the last of them.
std::string rows_of_logits(const char* rows = "all") {
  std::string tokens;
  for (int i = 0; i < 512; ++i) tokens += cat(i > 0 ? "," : "", i);
  return post("/v1/models/demo/forward",
              cat("{\"tokens\":[", tokens, "],\"rows\":\"", rows, "\",\"top\":1}"));
}

// Requests of which each costs much more memory than its bytes.
std::vector<std::string> storm() {
  std::string objects = "{\"tokens\":[{}", keys = "{\"k\":1";
  while (objects.size() < (8 << 20) - 16) objects += ",{}";
  for (int i = 0; keys.size() < (8 << 20) - 32; ++i) keys += cat(",\"", i, "\":1");
  std::vector<std::string> all(24, rows_of_logits());
  for (int i = 0; i < 8; ++i) {
    all.push_back(post("/v1/models/demo/forward", objects + "]}"));
    all.push_back(post("/v1/completions", keys + "}"));
    all.push_back(post("/v1/models/demo/forward", std::string(32 << 20, '0')));
  }
  return all;
}

struct Answers {
  int answered = 0, refused = 0, other = 0;
};

// All at once.
Answers send_all(int port, const std::vector<std::string>& requests) {
  std::atomic<int> answered{0}, refused{0}, other{0};
  std::vector<std::thread> clients;
  for (const std::string& request : requests) {
    clients.emplace_back([&] {
      http::Peer peer(port);
      peer.say(request);
      const int status = status_of(peer.to_end());
      const bool is_refusal = status == 400 || status == 413 || status == 503;
      // Others are cut off while their body came.
      ++(status == 200 ? answered : is_refusal ? refused : other);
    });
  }
  for (std::thread& client : clients) client.join();
  return {answered, refused, other};
}

TEST(Overload, AServerWithinTheManifestsLimitsOutlivesAStormBesideEdges) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is not bounded by a budget";
#endif
  const MemoryGroup group(kLimit);
  Process server(
      group.around({program_path("cloud_server"), "--port", "0", "--device", "cpu", "--kv-budget",
                    "1G", "--blob-cache", program_path("../test-blobs")}));
  const std::string mark = "listening on http://127.0.0.1:";
  ASSERT_TRUE(server.until([&] {
    const size_t at = server.err().find(mark);
    return at != std::string::npos && server.err().find('\n', at) != std::string::npos;
  })) << server.err();
  EXPECT_NE(server.err().find("memory: "), std::string::npos) << server.err();
  const int port = std::atoi(server.err().c_str() + server.err().find(mark) + mark.size());
  const std::string url = cat("http://127.0.0.1:", port);

  const Folder home;
  const Arguments text = {"--prompt", "The king", "--temperature", "0",      "--max-tokens",
                          "60",       "--device", "cpu",           "--json", "--retry-for",
                          "100"};
  const std::string alone = run_edge(url, home, text).text();
  // The KV cache has its own budget and keeps its pages: they are there before. Of the last rows
  // alone, so that a busy machine answers them all before a client's patience ends.
  EXPECT_EQ(send_all(port, std::vector<std::string>(32, rows_of_logits("last"))).answered, 32);
  const uint64_t before = own_memory(server.pid());
  ASSERT_GT(before, 0u);

  std::atomic<bool> over{false};
  std::atomic<int> well{0}, unwell{0};
  std::thread prober([&] {
    while (!over) {
      http::Peer peer(port);
      peer.say("GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
      ++(status_of(peer.to_end()) == 200 ? well : unwell);
    }
  });
  std::vector<std::thread> edges;
  std::vector<std::string> texts(3);
  for (std::string& mine : texts) {
    edges.emplace_back([&] {
      const EdgeResult result = run_edge(url, home, text);
      mine = result.code == 0 ? result.text() : result.err;
    });
  }
  // Clients that ask for much and read nothing.
  std::vector<http::Peer> absent;
  for (int i = 0; i < 34; ++i) {
    absent.emplace_back(port);
    absent.back().say(
        "GET /v1/models/demo/stages/head?format=f32 HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  const Answers storm_ended = send_all(port, storm());
  for (std::thread& edge : edges) edge.join();
  absent.clear();
  over = true;
  prober.join();

  EXPECT_GT(storm_ended.answered, 0);
  EXPECT_GT(storm_ended.refused, 0);
  EXPECT_GT(well, 0);
  EXPECT_EQ(unwell, 0);
  for (const std::string& mine : texts) EXPECT_EQ(mine, alone);
  EXPECT_EQ(run_edge(url, home, text).text(), alone);
  // The storm's last requests may still be in work.
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (held_by_requests(port) > 0 && std::chrono::steady_clock::now() < end) continue;
  // It goes back to the system just behind the last one's end.
  uint64_t after = own_memory(server.pid());
  while (after > before + before / 5 && std::chrono::steady_clock::now() < end) {
    after = own_memory(server.pid());
  }
  std::printf("%d answered, %d refused, %d cut off; memory %llu MB before, %llu MB after\n",
              storm_ended.answered, storm_ended.refused, storm_ended.other,
              static_cast<unsigned long long>(before >> 20),
              static_cast<unsigned long long>(after >> 20));
  EXPECT_LE(after, before + before / 5);
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0) << server.err();
}

}  // namespace
}  // namespace split::test
