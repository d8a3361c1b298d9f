// Input that is none, a cache that cannot be written or is damaged, an edge that is told to end.
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "pair_faults.h"
#include "support/golden_model.h"
#include "support/http_peer.h"
#include "text/tokenizer.h"

namespace split::test {
namespace {

// Passes connections on to a server and remembers what the clients said.
class Relay {
 public:
  explicit Relay(int to) : to_(to), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
    CHECK(::listen(listener_.get(), 16) == 0);
    CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    ::shutdown(listener_.get(), SHUT_RDWR);  // wakes the thread: its next accept fails
    thread_.join();
  }
  std::string url() const { return cat("http://127.0.0.1:", port_); }
  std::string said() const {
    const std::lock_guard lock(mutex_);
    return said_;
  }

 private:
  void run() {
    std::vector<std::pair<Fd, Fd>> pairs;  // client, server
    for (;;) {
      std::vector<pollfd> fds = {{listener_.get(), POLLIN, 0}};
      for (const auto& [client, server] : pairs) {
        fds.push_back({client.get(), POLLIN, 0});
        fds.push_back({server.get(), POLLIN, 0});
      }
      ::poll(fds.data(), fds.size(), -1);
      for (size_t i = pairs.size(); i-- > 0;) {
        auto& [client, server] = pairs[i];
        const bool open = (fds[2 * i + 1].revents == 0 || pass(client, server, true)) &&
                          (fds[2 * i + 2].revents == 0 || pass(server, client, false));
        if (!open) pairs.erase(pairs.begin() + static_cast<ptrdiff_t>(i));
      }
      if (fds[0].revents == 0) continue;
      Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) return;
      Fd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(static_cast<uint16_t>(to_));
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (::connect(server.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
        pairs.emplace_back(std::move(client), std::move(server));
      }
    }
  }
  bool pass(const Fd& from, const Fd& to, bool said) {
    char buffer[65536];
    const ssize_t n = ::recv(from.get(), buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    if (said) {
      const std::lock_guard lock(mutex_);
      said_.append(buffer, static_cast<size_t>(n));
    }
    for (ssize_t at = 0; at < n;) {
      const ssize_t sent = ::send(to.get(), buffer + at, static_cast<size_t>(n - at), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += sent;
    }
    return true;
  }
  const int to_;
  Fd listener_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::string said_;
  std::thread thread_;
};

TEST_F(Pair, TheSecondStartDownloadsNothing) {
  const Arguments arguments = {"--json", "--prompt", kPrompt, "--temperature", "0", "--max-tokens",
                               "4",      "--cut",    "5"};
  const EdgeResult first = run(arguments), second = run(arguments);
  ASSERT_EQ(first.code, 0) << first.err;
  ASSERT_EQ(second.code, 0) << second.err;
  uint64_t bytes = 0;
  for (const fs::path& blob : blobs()) bytes += fs::file_size(blob);
  EXPECT_GT(bytes, 0u);
  EXPECT_EQ(first.receipt("bytes_downloaded"), bytes);
  EXPECT_EQ(first.receipt("bytes_from_cache"), 0);
  EXPECT_EQ(second.receipt("bytes_downloaded"), 0);
  EXPECT_EQ(second.receipt("bytes_from_cache"), bytes);
  EXPECT_EQ(second.text(), first.text());
  EXPECT_EQ(second.err.find("download"), std::string::npos) << second.err;
}

TEST_F(Pair, FetchesOneChunkOfADamagedBlobAgain) {
  constexpr uint64_t kChunk = 1 << 20;
  const Arguments arguments = {"--json", "--quiet",      "--prompt", kPrompt, "--temperature",
                               "0",      "--max-tokens", "8",        "--cut", "5"};
  const EdgeResult whole = run(arguments);
  ASSERT_EQ(whole.code, 0) << whole.err;
  const std::vector<fs::path> files = blobs();
  ASSERT_GE(files.size(), 3u);
  const auto largest =
      *std::ranges::max_element(files, {}, [](auto& file) { return fs::file_size(file); });
  const uint64_t size = fs::file_size(largest), last = size % kChunk;
  ASSERT_GT(size, 2 * kChunk);
  const auto expect_again = [&](uint64_t bytes) {
    const EdgeResult got = run(arguments);
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_EQ(got.receipt("bytes_downloaded"), bytes);
    EXPECT_EQ(got.text(), whole.text());
    EXPECT_EQ(blobs(), files);
    EXPECT_EQ(Sha256::hex_of(MappedFile(largest).bytes()), largest.filename().string());
  };
  const std::pair<uint64_t, uint64_t> cuts[] = {
      {size - 1, last}, {kChunk, size - kChunk}, {kChunk - 1, size}, {0, size}};
  for (const auto& [left, missing] : cuts) {
    fs::resize_file(largest, left);
    expect_again(missing);
  }
  for (const uint64_t at : {uint64_t{0}, kChunk - 1, kChunk, size - 1}) {
    const Fd file(::open(largest.c_str(), O_RDWR | O_CLOEXEC));
    char byte = 0;
    ASSERT_EQ(::pread(file.get(), &byte, 1, static_cast<off_t>(at)), 1);
    byte = static_cast<char>(byte ^ 1);
    ASSERT_EQ(::pwrite(file.get(), &byte, 1, static_cast<off_t>(at)), 1);
    expect_again(at == size - 1 ? last : kChunk);
  }
}

TEST_F(Pair, ACacheThatCannotBeWrittenIsExitFour) {
  const Arguments arguments = {"--quiet", "--prompt", kPrompt, "--max-tokens", "2", "--cut", "6"};
  const std::string file = (home_.path / "file").string();
  write_file(file, {});
  expect_refusal(run(arguments + Arguments{"--cache", file + "/cache"}), 4, "--cache");
  expect_refusal(run(arguments + Arguments{"--cache", "/proc/no-such-place"}), 4, "--cache");
  if (::geteuid() != 0) {  // root may write anywhere
    const fs::path closed = home_.path / "closed";
    fs::create_directory(closed);
    fs::permissions(closed, fs::perms::owner_read | fs::perms::owner_exec);
    expect_refusal(run(arguments + Arguments{"--cache", closed.string()}), 4, "--cache");
  }
}

TEST_F(Pair, AFullDiskIsExitFourAndLeavesNothing) {
  const Arguments command =
      edge_command(cloud_.url(), kOnCpu + Arguments{"--quiet", "--prompt", kPrompt, "--cut", "6"});
  const auto expect_full = [&](std::string_view reason, const Arguments& prefix) {
    Process edge(prefix + command, {cat("XDG_CACHE_HOME=", home_.path.string())});
    EXPECT_EQ(edge.wait(), 4) << edge.err();
    EXPECT_EQ(edge.out(), "");
    EXPECT_EQ(lines_of(edge.err()), 1u) << edge.err();
    EXPECT_NE(edge.err().find(cat(reason, "; --cache DIR")), std::string::npos) << edge.err();
    EXPECT_EQ(blobs().size(), 0u);
  };
  // In the middle of a file, as when others fill the disk meanwhile; of any, so that none is whole
  // before another fails.
  expect_full("File too large", {"sh", "-c", "ulimit -f 1 && exec \"$@\"", "sh"});
  // A small disk, in a mount namespace that ends with the process.
  const std::string mount =
      cat("mount -t tmpfs -o size=1m none ", home_.path.string(), " && exec \"$@\"");
  if (exit_code({"unshare", "-m", "sh", "-c", mount, "sh", "true"}) == 0) {
    expect_full("has 1.0 MB free", {"unshare", "-m", "sh", "-c", mount, "sh"});
  } else {
    std::printf("no right to mount: a small disk is not tested\n");
  }
}

TEST_F(Pair, PromptsAtTheContextsEnd) {
  const Golden golden("demo");
  const auto window = golden.values<int32_t>("eval.ids");
  const int context = golden.model->config().context;
  const auto ids = [&](int n) { return list_of(std::span(window).first(static_cast<size_t>(n))); };
  for (const char* cut : {"0", "6", "8", "cloud"}) {
    SCOPED_TRACE(cut);
    const Arguments arguments = {"--cut", cut, "--json", "--quiet", "--ignore-eos", "--prompt-ids"};
    const EdgeResult full = run(arguments + Arguments{ids(context)});
    ASSERT_EQ(full.code, 0) << full.err;
    EXPECT_EQ(full.tokens().size(), 0u);
    EXPECT_EQ(full.text(), "");
    EXPECT_EQ(full.json["finish_reason"], "length");
    const EdgeResult last = run(arguments + Arguments{ids(context - 1)});
    ASSERT_EQ(last.code, 0) << last.err;
    EXPECT_EQ(last.tokens().size(), 1u);
    expect_refusal(run(arguments + Arguments{ids(context + 1)}), 2, cat(context));
  }
}

TEST_F(Pair, PromptsOfFewOrStrangeBytes) {
  const auto vocabulary = load_tokenizer(source("weights/demo"));
  ASSERT_TRUE(vocabulary);
  const std::string file = (home_.path / "prompt").string();
  const Arguments greedy = {"--json", "--quiet", "--temperature", "0", "--max-tokens", "6"};
  using namespace std::string_literals;
  for (const std::string& bytes :
       {"T"s, ""s, "\0"s, "a\0b\0\0"s, "caf\xc3\xa9 \xf0\x9f\x99\x82 \xe4\xbd\xa0\xe5\xa5\xbd"s,
        "\xff\xfe\xc3"s, "\n\n \t"s}) {
    SCOPED_TRACE(testing::PrintToString(bytes));
    write_file(file, as_bytes_of(bytes));
    std::vector<int32_t> ids = vocabulary->encode(bytes, true);
    if (ids.empty()) ids = {8191};  // <|endoftext|>
    EdgeResult whole;
    for (const char* cut : {"cloud", "6"}) {
      const Arguments arguments = greedy + Arguments{"--cut", cut};
      const EdgeResult of_file = run(arguments + Arguments{"--prompt-file", file});
      const EdgeResult of_stdin = run(arguments, file);
      ASSERT_EQ(of_file.code, 0) << of_file.err;
      ASSERT_EQ(of_stdin.code, 0) << of_stdin.err;
      EXPECT_EQ(of_file.json["prompt_tokens"].get<std::vector<int32_t>>(), ids);
      EXPECT_EQ(of_stdin.json["prompt_tokens"].get<std::vector<int32_t>>(), ids);
      EXPECT_EQ(of_stdin.tokens(), of_file.tokens());
      EXPECT_EQ(of_file.tokens().size(), 6u);
      if (whole.json.is_null()) whole = of_file;
      EXPECT_EQ(of_file.tokens(), whole.tokens());
      EXPECT_EQ(of_file.text(), whole.text());
    }
  }
  const EdgeResult empty = run(greedy + Arguments{"--prompt", ""});
  ASSERT_EQ(empty.code, 0) << empty.err;
  EXPECT_EQ(empty.json["prompt_tokens"], Json::parse("[8191]"));
}

TEST_F(Pair, NoTokensWhenNoneAreAskedFor) {
  for (const char* cut : {"0", "6", "cloud"}) {
    const EdgeResult got =
        run({"--json", "--quiet", "--cut", cut, "--prompt", kPrompt, "--max-tokens", "0"});
    ASSERT_EQ(got.code, 0) << got.err;
    EXPECT_EQ(got.tokens().size(), 0u);
    EXPECT_EQ(got.json["finish_reason"], "length");
  }
}

TEST_F(Pair, WrongServersModelsAndCutsAreOneLine) {
  const Arguments arguments = {"--prompt", kPrompt, "--max-tokens", "2"};
  expect_refusal(run_edge("http://127.0.0.1:1", home_, arguments), 3, "127.0.0.1:1");
  for (const char* url : {"ftp://127.0.0.1", "http://", "http://127.0.0.1:x"}) {
    SCOPED_TRACE(url);
    EXPECT_EQ(run_edge(url, home_, arguments).code, 2);
    EXPECT_EQ(lines_of(run_edge(url, home_, arguments).err), 1u);
  }
  expect_refusal(run(arguments + Arguments{"--model", "other"}), 3, "demo");
  expect_refusal(run(arguments + Arguments{"--cut", "9"}), 2, "0..8");
  expect_refusal(run({"--prompt-ids", "8192"}), 2, "8191");
  expect_refusal(run({"--prompt-file", "/no/such/file"}), 2, "/no/such/file");
}

TEST_F(Pair, AnEdgeThatIsToldToEndLeavesNoSession) {
  for (const auto& [number, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 0)}) {
    Relay relay(cloud_.port());
    std::string path;
    // On a busy machine a text may be over before: then another one is told to end.
    int ended = -1;
    for (int tries = 0; tries < 10 && ended != code; ++tries) {
      const size_t heard = relay.said().size();
      const auto edge = begin(relay.url(), long_text({"--cut", "4"}));
      ASSERT_TRUE(more(*edge, 1)) << edge->err();
      const std::string said = relay.said();
      const size_t at = said.find("PUT /v1/sessions/", heard);
      ASSERT_NE(at, std::string::npos);
      path = said.substr(at + 4, std::string_view("/v1/sessions/").size() + 32);
      edge->signal(number);
      ended = edge->wait();
      ASSERT_TRUE(ended == code || ended == 0) << ended << " " << edge->err();
    }
    EXPECT_EQ(ended, code);
    http::Client client(cloud_.url());
    EXPECT_EQ(client.request("GET", path).status, 404) << path;
    // The path was the session's: it can be made.
    EXPECT_EQ(client.request("PUT", path, R"({"model":"demo","cut":4})", "application/json").status,
              201)
        << path;
  }
}

TEST_F(Pair, AnEdgeThatWaitsForItsPromptCanBeToldToEnd) {
  const std::string pipe = (home_.path / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Fd writer(::open(pipe.c_str(), O_RDWR | O_CLOEXEC));  // says nothing, and does not end
  for (const bool from_stdin : {true, false}) {
    for (const auto& [number, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 0)}) {
      Arguments arguments = kOnCpu;
      if (!from_stdin) arguments = arguments + Arguments{"--prompt-file", pipe};
      Process edge(edge_command(cloud_.url(), arguments), {}, from_stdin ? pipe : "/dev/null");
      // It reads when it has taken what was written.
      ASSERT_EQ(::write(writer.get(), "text", 4), 4);
      int left = 4;
      ASSERT_TRUE(
          poll_for([&] { return ::ioctl(writer.get(), FIONREAD, &left) == 0 && left == 0; }));
      edge.signal(number);
      EXPECT_EQ(edge.wait(), code) << edge.err();
      EXPECT_EQ(edge.out() + edge.err(), "");
    }
  }
}

TEST_F(Pair, APromptCanComeFromAPipeOrAnEmptyFile) {
  const Arguments shell = {"sh", "-c", "printf The | \"$@\" --prompt-file /dev/stdin", "sh"};
  const Arguments json = kOnCpu + Arguments{"--json", "--quiet", "--max-tokens", "2"};
  Process piped(shell + edge_command(cloud_.url(), json),
                {cat("XDG_CACHE_HOME=", home_.path.string())});
  ASSERT_EQ(piped.wait(), 0) << piped.err();
  const EdgeResult plain = run({"--json", "--quiet", "--max-tokens", "2", "--prompt", "The"});
  EXPECT_EQ(Json::parse(piped.out())["prompt_tokens"], plain.json["prompt_tokens"]);
  const EdgeResult empty =
      run({"--json", "--quiet", "--max-tokens", "2", "--prompt-file", "/dev/null"});
  ASSERT_EQ(empty.code, 0) << empty.err;
  EXPECT_EQ(empty.json["prompt_tokens"], Json::parse("[8191]"));
  expect_refusal(run({"--prompt-file", home_.path.string()}), 2, home_.path.string());
}

// Without care the first file or socket that is opened stands where stdout was.
TEST_F(Pair, ClosedStandardStreamsAreErrorsAndNotOtherFiles) {
  const auto closed = [&](const std::string& how, const Arguments& arguments) {
    Process edge(Arguments{"sh", "-c", "exec \"$@\" " + how, "sh"} +
                     edge_command(cloud_.url(), kOnCpu + arguments),
                 {cat("XDG_CACHE_HOME=", home_.path.string())});
    EdgeResult result;
    result.code = edge.wait();
    result.out = edge.out();
    result.err = edge.err();
    return result;
  };
  const Arguments text = {"--quiet", "--prompt", kPrompt, "--temperature", "0"};
  expect_refusal(closed(">&-", text), 4, "stdout: Bad file descriptor");
  expect_refusal(closed(">/dev/full", text), 4, "stdout: No space left on device");
  expect_refusal(closed("<&-", {"--quiet"}), 2, "stdin: Bad file descriptor");
  const EdgeResult whole = run(text);
  for (const char* how : {"2>&-", "<&-", "<&- 2>&-"}) {
    EXPECT_EQ(closed(how, text).code, 0) << how;
    EXPECT_EQ(closed(how, text).out, whole.out) << how;
  }
}

TEST_F(Pair, AnEdgeWhoseReaderHasGoneEnds) {
  for (const char* cut : {"6", "cloud"}) {
    std::string said;
    // On a busy machine a text may be over before: then another one loses its reader.
    for (int tries = 0; tries < 10 && said.find("stopped early") == said.npos; ++tries) {
      const auto edge = begin(cloud_.url(), long_text({"--cut", cut}));
      ASSERT_TRUE(more(*edge, 10)) << edge->err();
      edge->close_out();
      EXPECT_EQ(edge->wait(), 0) << edge->err();
      said = edge->err();
    }
    EXPECT_NE(said.find("stopped early"), said.npos) << said;
  }
  const auto quoted = [](const std::string& text) { return "'" + text + "'"; };
  std::string line;
  for (const std::string& word : edge_command(cloud_.url(), long_text({"--cut", "6", "--quiet"}))) {
    line += quoted(word) + " ";
  }
  Process shell({"sh", "-c", line + "| head -c 10"}, {cat("XDG_CACHE_HOME=", home_.path.string())});
  EXPECT_EQ(shell.wait(), 0) << shell.err();
  EXPECT_EQ(shell.out().size(), 10u);
}

}  // namespace
}  // namespace split::test
