// cloud_server as a program: its flags, its exit codes, its one-line errors, its end.
#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "http/client.h"
#include "support/http_peer.h"
#include "support/temporary_folder.h"

namespace split {
namespace {

using Json = nlohmann::json;

std::string source(const std::string& path) { return std::string(SPLIT_SOURCE_DIR) + "/" + path; }

// The program with its own environment; both outputs in one pipe. Ended by its pid at the latest
// when the test ends.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
    int ends[2];
    CHECK(::pipe2(ends, O_CLOEXEC) == 0);
    out_ = Fd(ends[0]);
    const Fd in(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, in.get(), STDERR_FILENO);
    arguments.insert(arguments.begin(), SPLIT_CLOUD_SERVER);
    environment.push_back("PATH=/usr/bin:/bin");
    const char* const options = std::getenv("ASAN_OPTIONS");
    if (options != nullptr) environment.push_back(std::string("ASAN_OPTIONS=") + options);
    std::vector<char*> argv, envp;
    for (std::string& text : arguments) argv.push_back(text.data());
    for (std::string& text : environment) envp.push_back(text.data());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    const int error =
        ::posix_spawn(&pid_, SPLIT_CLOUD_SERVER, &actions, nullptr, argv.data(), envp.data());
    ::posix_spawn_file_actions_destroy(&actions);
    CHECK(error == 0);
  }
  ~Program() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      int status = 0;
      ::waitpid(pid_, &status, 0);
    }
  }

  // The port of "listening on http://ADDRESS:PORT", or 0 when it ended first.
  int port() {
    const std::string mark = "listening on http://";
    while (true) {
      const size_t at = text_.find(mark);
      if (at != std::string::npos && text_.find('\n', at) != std::string::npos) {
        return std::atoi(text_.c_str() + text_.find(':', at + mark.size()) + 1);
      }
      if (!more()) return 0;
    }
  }
  std::string url() { return cat("http://127.0.0.1:", port()); }
  pid_t pid() const { return pid_; }
  void signal(int number) {
    ASSERT_GT(pid_, 0);  // kill(-1) would be everybody's end
    ::kill(pid_, number);
  }
  // Its exit code, or minus the signal that ended it.
  int wait() {
    while (more()) continue;
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  const std::string& text() const { return text_; }  // both outputs so far; whole after wait()

 private:
  bool more() {
    char buffer[4096];
    const ssize_t n = ::read(out_.get(), buffer, sizeof buffer);
    if (n > 0) text_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }
  pid_t pid_ = -1;
  Fd out_;
  std::string text_;
};

void expect_usage_error(const std::vector<std::string>& arguments, const std::string& part,
                        const std::vector<std::string>& environment = {}, int code = 2) {
  Program program(arguments, environment);
  EXPECT_EQ(program.wait(), code) << part;
  EXPECT_NE(program.text().find(part), std::string::npos) << program.text();
  EXPECT_EQ(std::count(program.text().begin(), program.text().end(), '\n'), 1) << program.text();
}

const std::string kRandA = source("tests/golden/rand-a");

TEST(CloudServer, HelpsAndTellsItsVersion) {
  Program help({"--help"});
  EXPECT_EQ(help.wait(), 0);
  for (const char* flag : {"--model", "--host", "--port", "--device", "--profile", "--kv",
                           "--threads", "--kv-budget", "--insecure", "--version", "--legacy-routes",
                           "--cors-origin", "cloud_server doctor", "Exit codes: 0 all is well"}) {
    EXPECT_NE(help.text().find(flag), std::string::npos) << flag;
  }
  Program version({"--version"});
  EXPECT_EQ(version.wait(), 0);
  EXPECT_TRUE(version.text().starts_with("cloud_server ")) << version.text();
}

TEST(CloudServer, UsageErrorsAreOneLineThatNamesTheFlag) {
  expect_usage_error({"--prot", "1"}, "--prot");
  expect_usage_error({"--port", "65536"}, "--port");
  expect_usage_error({"--port", "-1"}, "--port");
  expect_usage_error({"--port", "x"}, "--port");
  expect_usage_error({"--port"}, "--port");
  expect_usage_error({"--threads", "1025"}, "--threads");
  expect_usage_error({"--profile", "f64"}, "--profile");
  expect_usage_error({"--kv-budget", "1Q"}, "--kv-budget");
  expect_usage_error({"--kv-budget", "0"}, "--kv-budget");
  expect_usage_error({"extra"}, "extra");
  expect_usage_error({"--model", "a/../b=c=d e"}, "--model", {});
  expect_usage_error({"--host", "0.0.0.0"}, "--insecure");
  expect_usage_error({"--host", "::"}, "--insecure");
  for (const char* origin :
       {"page.example", "http://", "http://a/", "ftp://a", "http://A", "null", "http://a b"}) {
    expect_usage_error({"--cors-origin", origin}, "--cors-origin: expected http(s)://host");
  }
  expect_usage_error({"--blob-url", "cdn.example/x"}, "--blob-url");
  expect_usage_error({"--blob-url", "http://cdn.example/x?y"}, "--blob-url");
  expect_usage_error({}, "SPLIT_PORT", {"SPLIT_PORT=x"});
}

TEST(CloudServer, AModelThatIsNotThereIsOneLine) {
  expect_usage_error({"--port", "0", "--model", "/nonexistent/model"}, "/nonexistent/model");
  expect_usage_error({"--port", "0", "--model", "qwen2.5-0.5b"},
                     "scripts/fetch_model.sh qwen2.5-0.5b fetches it into weights/qwen2.5-0.5b");
  expect_usage_error({"--port", "0", "--model", "weights/qwen2.5-0.5b"},
                     "scripts/fetch_model.sh qwen2.5-0.5b fetches it into weights/qwen2.5-0.5b");
  Program twice({"--port", "0", "--model", kRandA, "--model", kRandA});
  EXPECT_EQ(twice.wait(), 2);
  EXPECT_NE(twice.text().find("two models have the id 'rand-a'"), std::string::npos)
      << twice.text();
  Program device({"--port", "0", "--model", kRandA, "--device", "tpu"});
  EXPECT_EQ(device.wait(), 2);
  EXPECT_NE(device.text().find("tpu"), std::string::npos) << device.text();
  Program budget({"--port", "0", "--model", kRandA, "--kv-budget", "1"});
  EXPECT_EQ(budget.wait(), 2);
  EXPECT_NE(budget.text().find("KV budget"), std::string::npos) << budget.text();
}

// A file that is cut off or was never one is no wrong usage.
TEST(CloudServer, ADamagedCheckpointIs5) {
  const test::TemporaryFolder folder;
  const auto code_of = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder.path / name, std::ios::binary) << bytes;
    const std::string model =
        (name.ends_with("safetensors") ? folder.path / "rand" : folder.path / name).string();
    Program program({"--port", "0", "--model", model});
    const int code = program.wait();
    EXPECT_NE(program.text().find(cat(folder.path.string(), "/", name)), std::string::npos)
        << program.text();
    return code;
  };
  const std::string whole = read_file(source("tests/attacks/good.gguf"), 1 << 20);
  for (const std::string& bytes : {whole.substr(0, whole.size() / 2), std::string("GGUF"),
                                   std::string("no model"), std::string()}) {
    EXPECT_EQ(code_of("model.gguf", bytes), 5) << bytes.size();
  }
  std::filesystem::copy(kRandA, folder.path / "rand");
  EXPECT_EQ(code_of("rand/model.safetensors", "no model, but more than eight bytes"), 5);
  EXPECT_EQ(code_of("model.bin", "a pickle"), 2);
}

TEST(CloudServer, ATakenPortIs98) {
  Program first({"--port", "0", "--model", kRandA});
  const int port = first.port();
  ASSERT_GT(port, 0) << first.text();
  Program second({"--port", cat(port), "--model", kRandA});
  EXPECT_EQ(second.wait(), 98);
  EXPECT_NE(second.text().find(cat(port)), std::string::npos) << second.text();
  EXPECT_EQ(std::count(second.text().begin(), second.text().end(), '\n'), 1) << second.text();
  first.signal(SIGTERM);
  EXPECT_EQ(first.wait(), 0);
}

// Said as edge_client does it: its name, and no name of a layer.
TEST(CloudServer, SaysWhyItEndsInTheEdgesStyle) {
  Program first({"--port", "0", "--model", kRandA});
  Program port({"--port", cat(first.port()), "--model", kRandA});
  EXPECT_EQ(port.wait(), 98);
  EXPECT_EQ(port.text(), cat("cloud_server: cannot listen on 127.0.0.1:", first.port(),
                             ": Address already in use\n"));
  Program flag({"--prot", "1"});
  EXPECT_EQ(flag.wait(), 2);
  EXPECT_EQ(flag.text(), "cloud_server: no flag --prot; did you mean --port?\n");
  Program device({"--port", "0", "--model", kRandA, "--device", "vulkan:99"});
  EXPECT_EQ(device.wait(), 6);
  EXPECT_TRUE(device.text().find("\ncloud_server: ") != std::string::npos ||
              device.text().starts_with("cloud_server: "))
      << device.text();
  EXPECT_EQ(device.text().find("[vulkan]"), std::string::npos) << device.text();
}

TEST(CloudServer, ListsItsDevices) {
  Program program({"--list-devices"});
  EXPECT_EQ(program.wait(), 0);
  EXPECT_TRUE(program.text().starts_with("cpu (")) << program.text();
}

TEST(CloudServer, ListensAtAnAddressOfSixInBrackets) {
  Program program({"--host", "::1", "--port", "0", "--model", kRandA});
  if (program.port() < 0) GTEST_SKIP() << program.text();
  if (program.text().find("Cannot assign") != std::string::npos) GTEST_SKIP() << "no IPv6 here";
  EXPECT_NE(program.text().find("listening on http://[::1]:"), std::string::npos) << program.text();
}

TEST(CloudServer, DoctorFindsAllWell) {
  Program program({"doctor", "--model", kRandA, "--port", "0"}, {"HOME=/tmp"});
  EXPECT_EQ(program.wait(), 0) << program.text();
  EXPECT_NE(program.text().find("model      ok   rand-a ("), std::string::npos) << program.text();
  EXPECT_NE(program.text().find("3 blocks of 96"), std::string::npos) << program.text();
  EXPECT_NE(program.text().find("address    ok   http://127.0.0.1:"), std::string::npos)
      << program.text();
  EXPECT_TRUE(program.text().ends_with("All is well.\n")) << program.text();
}

TEST(CloudServer, DoctorNamesWhatIsBadAndEndsWithItsCode) {
  Program first({"--port", "0", "--model", kRandA});
  const auto bad = [&](std::vector<std::string> flags, int code, const std::string& part) {
    flags.insert(flags.begin(), "doctor");
    Program program(flags);
    EXPECT_EQ(program.wait(), code) << program.text();
    EXPECT_NE(program.text().find(part), std::string::npos) << program.text();
    EXPECT_TRUE(program.text().ends_with("see BAD.\n")) << program.text();
  };
  const std::string port = cat(first.port());
  bad({"--model", kRandA, "--port", port}, 98,
      cat("address    BAD  cannot listen on 127.0.0.1:", port));
  bad({"--model", "/nonexistent/model", "--port", "0"}, 2, "model      BAD  ");
  bad({"--model", kRandA, "--port", "0", "--api-key-file", "/nonexistent/keys"}, 2,
      "keys       BAD  ");
  bad({"--model", kRandA, "--port", "0", "--device", "vulkan:99"}, 6, "device     BAD  ");
  bad({"--model", kRandA, "--port", "0", "--kv-budget", "4000T"}, 2, "memory     BAD  ");
  bad({"--model", kRandA, "--port", "0", "--blob-cache", kRandA + "/config.json/blobs"}, 4,
      "blobs      BAD  ");
  bad({"--model", kRandA, "--port", "0", "--tls-cert", "/nonexistent/a", "--tls-key",
       "/nonexistent/b"},
      2, "address    BAD  ");
}

TEST(CloudServer, ReadsTheEnvironmentAndServesSeveralModels) {
  Program program({"--model", kRandA, "--model", "other=" + source("tests/golden/rand-b")},
                  {"SPLIT_PORT=0", "SPLIT_THREADS=1"});
  http::Client client(program.url());
  const Json list = Json::parse(client.request("GET", "/v1/models").body);
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["id"], "rand-a");
  EXPECT_EQ(list["data"][1]["id"], "other");
  while (client.request("GET", "/readyz").status == 503) continue;
  EXPECT_EQ(client.request("GET", "/readyz").status, 200);
  for (const char* id : {"rand-a", "other"}) {
    EXPECT_EQ(
        client.request("POST", cat("/v1/models/", id, "/forward"), R"({"tokens":[1]})").status,
        200);
  }
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0) << program.text();
}

TEST(CloudServer, SaysHowItGenerates) {
  for (const char* phase : {"narrow", "wide"}) {
    std::vector<std::string> arguments = {"--port", "0", "--model", kRandA};
    if (phase == std::string("wide")) arguments.push_back("--wide");
    Program program(arguments);
    http::Client client(program.url());
    const Json info = Json::parse(client.request("GET", "/v1/models/rand-a").body);
    EXPECT_EQ(info["phases"]["generate"], phase);
    program.signal(SIGTERM);
    EXPECT_EQ(program.wait(), 0) << program.text();
  }
}

TEST(CloudServer, EndsWithAStreamInFlight) {
  Program program({"--model", source("weights/demo"), "--port", "0", "--shutdown-timeout", "0"});
  const int port = program.port();
  ASSERT_GT(port, 0) << program.text();
  http::Peer peer(port);
  const std::string body =
      R"({"prompt":"a","max_tokens":500,"n":16,"ignore_eos":true,"stream":true})";
  peer.say(cat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", body.size(),
               "\r\n\r\n", body));
  ASSERT_NE(peer.until("data: {").find("data: {"), std::string::npos);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0) << program.text();
  EXPECT_EQ(peer.to_end().find("[DONE]"), std::string::npos);
}

// The first signal lets answers end, however long that takes; the second one waits for nobody.
TEST(CloudServer, EndsAtOnceOnASecondSignal) {
  Program program({"--model", source("weights/demo"), "--port", "0", "--shutdown-timeout", "600"});
  const int port = program.port();
  ASSERT_GT(port, 0) << program.text();
  http::Client client(program.url());
  while (client.request("GET", "/readyz").status == 503) continue;
  http::Peer peer(port);
  const std::string body =
      R"({"prompt":"a","max_tokens":500,"n":16,"ignore_eos":true,"stream":true})";
  peer.say(cat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", body.size(),
               "\r\n\r\n", body));
  ASSERT_NE(peer.until("data: {").find("data: {"), std::string::npos);
  const auto stopping = [&] {
    try {
      return http::Client(program.url()).request("GET", "/readyz").status == 503;
    } catch (const Error&) {  // an idle connection is closed as the stop begins
      return false;
    }
  };
  program.signal(SIGTERM);
  while (!stopping()) continue;
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 130) << program.text();
}

// A session and its server, which drains by SIGTERM.
struct Drained {
  explicit Drained(const std::string& seconds)
      : program({"--model", kRandA, "--port", "0", "--drain-timeout", seconds}) {
    while (ask("GET", "/readyz") != 200) continue;
    EXPECT_EQ(ask("PUT", path, R"({"cut":2})"), 201);
    EXPECT_EQ(ask("POST", path + "/forward", R"({"past":0,"tokens":[1,2,3]})"), 200);
    program.signal(SIGTERM);
    while (ask("GET", "/readyz") == 200) continue;
  }
  // 0 where nobody answers.
  int ask(const std::string& method, const std::string& at, const std::string& body = {}) {
    try {
      return http::Client(program.url()).request(method, at, body, "application/json").status;
    } catch (const Error&) {
      return 0;
    }
  }
  const std::string path = "/v1/sessions/" + std::string(32, 'a');
  Program program;
};

// The first SIGTERM keeps it at work for those that it has; the second one is the first of a server
// that does not drain.
TEST(CloudServer, DrainsUntilASecondSignal) {
  Drained drained("600");
  EXPECT_EQ(drained.ask("GET", "/readyz"), 404);
  EXPECT_EQ(drained.ask("POST", drained.path + "/forward", R"({"past":3,"tokens":[4]})"), 200);
  EXPECT_EQ(drained.ask("PUT", "/v1/sessions/" + std::string(32, 'b'), R"({"cut":2})"), 503);
  EXPECT_EQ(drained.ask("POST", "/v1/completions", R"({"prompt":[1]})"), 503);
  EXPECT_EQ(drained.ask("GET", "/v1/models/rand-a"), 200);
  drained.program.signal(SIGTERM);
  EXPECT_EQ(drained.program.wait(), 0) << drained.program.text();
  EXPECT_NE(drained.program.text().find("draining: 1 sessions have 600 s to end"),
            std::string::npos)
      << drained.program.text();
  // The last answer may be there before its request is counted out.
  const std::string said = drained.program.text();
  EXPECT_TRUE(said.find("stopping: 0 requests") != said.npos ||
              said.find("stopping: 1 requests") != said.npos)
      << said;
}

TEST(CloudServer, DrainsNotForWhoIsAtTheTerminal) {
  Program program({"--model", kRandA, "--port", "0", "--drain-timeout", "600"});
  http::Client client(program.url());
  while (client.request("GET", "/readyz").status == 503) continue;
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 130) << program.text();
}

TEST(CloudServer, DrainsNoLongerThanItsTime) {
  Drained drained("1");
  // Its session steps all the time.
  const std::string step = R"({"past":3,"tokens":[4]})";
  while (drained.ask("POST", drained.path + "/forward", step) != 0) continue;
  EXPECT_EQ(drained.program.wait(), 0) << drained.program.text();
  EXPECT_NE(drained.program.text().find("the time to drain is over: 1 sessions are left"),
            std::string::npos)
      << drained.program.text();
}

TEST(CloudServer, EndsByItselfOnceNobodyStepsAnyMore) {
  Drained drained("600");
  EXPECT_EQ(drained.program.wait(), 0) << drained.program.text();
  EXPECT_NE(drained.program.text().find("drained: 1 sessions are left"), std::string::npos)
      << drained.program.text();
}

TEST(CloudServer, AGgufFileIsServedUnderItsName) {
  char folder[] = "/tmp/split-programs-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string file = cat(folder, "/small.F16.gguf");
  ASSERT_EQ(std::system(cat("/usr/bin/python3 '", source("tests/support/make_gguf.py"), "' '",
                            kRandA, "' '", file, "' --type F16")
                            .c_str()),
            0);
  Program program({"--model", file, "--model", "again=" + file, "--port", "0"});
  http::Client client(program.url());
  const Json list = Json::parse(client.request("GET", "/v1/models").body);
  EXPECT_EQ(list["data"][0]["id"], "small.F16");
  EXPECT_EQ(list["data"][1]["id"], "again");
  EXPECT_EQ(client.request("POST", "/v1/models/again/forward", R"({"tokens":[1],"to":1})").status,
            200);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0) << program.text();
  std::filesystem::remove_all(folder);
  expect_usage_error({"--port", "0", "--model", source("tests/attacks/overlap.gguf")},
                     "overlap.gguf: tensor 'blk.0.ffn_up.weight': begins at 32 and overlaps", {},
                     5);
}

// The server as its page would find it: the flag, the origin, the model.
TEST(CloudServer, AnswersTheOriginalPage) {
  Program program({"--model", kRandA, "--port", "0", "--legacy-routes", "--cors-origin",
                   "http://localhost:8000", "--cors-origin", "http://page.example"});
  http::Client client(program.url());
  const http::Reply reply =
      client.request("GET", "/get_model_config", {}, {}, {{"Origin", "http://page.example"}});
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(Json::parse(reply.body)["block_size"], 64);
  EXPECT_EQ(reply.headers.get("Access-Control-Allow-Origin"), "http://page.example");
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0);
}

uint64_t anonymous_kb(pid_t pid) {
  std::ifstream status(cat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8));
  }
  return 0;
}

// The whole model in both formats, 40 MB, several times over.
TEST(CloudServer, SendsWeightsWithoutTakingThemIntoMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is counted too";
#endif
  std::string folder = (std::filesystem::temp_directory_path() / "split-blobs-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  Program program({"--model", source("weights/demo"), "--port", "0", "--threads", "1", "--device",
                   "cpu", "--blob-cache", folder});
  http::Client client(program.url());
  http::Reply described;  // when every format is made
  do described = client.request("GET", "/v1/models/demo");
  while (described.status == 503);
  ASSERT_EQ(described.status, 200);
  // Its own speed is measured behind that, in pages that nobody touched before.
  while (Json::parse(client.request("GET", "/v1/models/demo/load").body)["block_ms"].is_null()) {
    std::this_thread::yield();
  }
  const Json model = Json::parse(described.body);
  uint64_t sent = 0;
  const auto get_all = [&] {
    for (const Json& stage : model["stages"]) {
      for (const Json& blob : stage["blobs"]) {
        const std::string path = cat("/v1/blobs/sha256/", blob["sha256"].get<std::string>());
        client.get_stream(
            path, {},
            [&](Bytes bytes) {
              sent += bytes.size();
              return true;
            },
            1 << 30);
      }
      for (const char* format : {"f16", "f32"}) {
        const std::string path = cat("/v1/models/demo/stages/", stage["name"].get<std::string>());
        client.get_stream(
            cat(path, "?format=", format), {}, [](Bytes) { return true; }, 1 << 30);
      }
    }
  };
  const std::string all = client.request("GET", "/v1/models/demo").body;  // its text was once there
  const uint64_t before = anonymous_kb(program.pid());
  get_all();
  EXPECT_GT(sent, 30u << 20);
  EXPECT_LT(anonymous_kb(program.pid()), before + 1024);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0) << program.text();
  std::filesystem::remove_all(folder);
}

// --- what goes wrong below a server

TEST(CloudServer, AModelFileThatIsCutShortIsALineAndExitFour) {
  for (const char* format : {"text", "json"}) {
    const std::filesystem::path model = std::filesystem::path(testing::TempDir()) /
                                        cat("split-cut-short-", ::getpid(), "-", format);
    const std::shared_ptr<void> gone(nullptr, [&](void*) { std::filesystem::remove_all(model); });
    std::filesystem::create_directory(model);
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(std::filesystem::path(kRandA) / name, model / name);
    }
    Program program({"--model", model.string(), "--port", "0", "--log-format", format});
    http::Client client(program.url());
    std::filesystem::resize_file(model / "model.safetensors", 4096);
    EXPECT_THROW(client.request("POST", "/v1/completions", R"({"prompt":[1,2,3],"max_tokens":1})"),
                 Error);
    EXPECT_EQ(program.wait(), 4) << program.text();
    const std::string last =
        program.text().substr(program.text().rfind('\n', program.text().size() - 2) + 1);
    const std::string message = cat("[file] ", (model / "model.safetensors").string(),
                                    ": a part of it is lost: the file was cut short, or its disk "
                                    "fails");
    if (*format == 't') {
      EXPECT_EQ(last, cat("error: ", message, "\n"));
    } else {
      EXPECT_EQ(Json::parse(last)["message"], message);
    }
  }
}

TEST(CloudServer, WarnsOfKeysThatOthersRead) {
  const std::filesystem::path keys =
      std::filesystem::path(testing::TempDir()) / cat("split-keys-", ::getpid());
  std::ofstream(keys) << "ann:0123456789abcdef0123\n";
  for (const mode_t mode : {0644, 0600}) {
    CHECK(::chmod(keys.c_str(), mode) == 0);
    Program program({"--model", kRandA, "--port", "0", "--api-key-file", keys.string()});
    EXPECT_NE(program.port(), 0);
    const std::string warning = cat("warning: ", keys.string(), ": ");
    EXPECT_EQ(program.text().find(warning) != std::string::npos, mode == 0644) << program.text();
  }
  std::filesystem::remove(keys);
}

// --- what the linker was told

// The ELF segments of a type.
std::vector<Bytes> segments(Bytes file, uint32_t type) {
  ElfW(Ehdr) head{};
  CHECK(file.size() >= sizeof head);
  std::memcpy(&head, file.data(), sizeof head);
  std::vector<Bytes> found;
  for (size_t i = 0; i < head.e_phnum; ++i) {
    ElfW(Phdr) segment{};
    std::memcpy(&segment, file.subspan(head.e_phoff + i * head.e_phentsize).data(), sizeof segment);
    if (segment.p_type == type) found.push_back(file.subspan(segment.p_offset, segment.p_filesz));
  }
  return found;
}

bool binds_now(Bytes file) {
  for (Bytes entries : segments(file, PT_DYNAMIC)) {
    for (ElfW(Dyn) entry{}; entries.size() >= sizeof entry;
         entries = entries.subspan(sizeof entry)) {
      std::memcpy(&entry, entries.data(), sizeof entry);
      if (entry.d_tag == DT_FLAGS && (entry.d_un.d_val & DF_BIND_NOW) != 0) return true;
    }
  }
  return false;
}

// The note's bits of features that every part of the program has: 1 branch targets, 2 shadow stack.
[[maybe_unused]] uint32_t x86_features(Bytes file) {
  constexpr uint32_t kFeatures = 0xc0000002;  // GNU_PROPERTY_X86_FEATURE_1_AND
  for (const Bytes note : segments(file, PT_GNU_PROPERTY)) {
    // Name, then properties: type, size and the bits, of 8 bytes.
    for (size_t at = sizeof(ElfW(Nhdr)) + 4; at + 12 <= note.size(); at += 8) {
      std::array<uint32_t, 3> property{};
      std::memcpy(property.data(), note.data() + at, sizeof property);
      if (property[0] == kFeatures) return property[2];
      at += (property[1] + 7) / 8 * 8;
    }
  }
  return 0;
}

TEST(Programs, AreHardened) {
  for (const char* path : {SPLIT_CLOUD_SERVER, SPLIT_EDGE_CLIENT}) {
    const MappedFile file{std::filesystem::path(path)};
    EXPECT_TRUE(binds_now(file.bytes())) << path;
    EXPECT_EQ(segments(file.bytes(), PT_GNU_RELRO).size(), 1u) << path;
#if defined(__x86_64__)
    EXPECT_TRUE(x86_features(file.bytes()) & 2) << path;
#endif
  }
#if defined(__x86_64__) && !defined(__CET__)
  ADD_FAILURE() << "compiled without -fcf-protection";
#endif
}

// The answer does not depend on the instruction set that computed it.
TEST(CloudServer, EveryInstructionSetServesTheSameBits) {
  const std::string ids = "[1,299,17,17,5,99,256,0,31,8,2,7]";
  std::vector<std::string> answers;
  for (const char* isa : {"", "avx2", "scalar"}) {
    std::vector<std::string> environment;
    if (*isa != 0) environment.push_back(cat("SPLIT_CPU_ISA=", isa));
    Program program({"--model", kRandA, "--model", source("tests/golden/rand-c"), "--port", "0"},
                    environment);
    http::Client client(program.url());
    std::string& answer = answers.emplace_back();
    for (const char* id : {"rand-a", "rand-c"}) {
      for (const char* to : {"0", "1", "2", "\"norm\"", "\"head\""}) {
        const http::Reply reply =
            client.request("POST", cat("/v1/models/", id, "/forward"),
                           cat("{\"tokens\":", ids, ",\"to\":", to, ",\"rows\":\"all\"}"));
        ASSERT_EQ(reply.status, 200) << reply.body;
        answer += reply.body;
      }
    }
    program.signal(SIGTERM);
    EXPECT_EQ(program.wait(), 0);
  }
  EXPECT_TRUE(answers[0] == answers[1]) << "avx2";
  EXPECT_TRUE(answers[0] == answers[2]) << "scalar";
}

}  // namespace
}  // namespace split
