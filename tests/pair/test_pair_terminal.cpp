// The built programs at terminals of 80 and 200 columns: nothing that they print, but for a text's
// own words, is wider; colours are there unless NO_COLOR says otherwise, and in no pipe.
#include <pty.h>
#include <sys/ioctl.h>

#include <regex>

#include "support/programs.h"

namespace split::test {
namespace {

// A program at a terminal of so many columns, as its only input and output.
class AtPty {
 public:
  AtPty(Arguments argv, int columns, Arguments environment) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 40;
    int ours = -1;
    for (char** one = environ; *one != nullptr; ++one) {
      const std::string_view text = *one;
      if (!text.starts_with("SPLIT_") && !text.starts_with("NO_COLOR=") &&
          !text.starts_with("XDG_")) {
        environment.emplace_back(text);
      }
    }
    std::vector<char*> arguments, variables;
    for (std::string& text : argv) arguments.push_back(text.data());
    for (std::string& text : environment) variables.push_back(text.data());
    arguments.push_back(nullptr);
    variables.push_back(nullptr);
    pid_ = ::forkpty(&ours, nullptr, nullptr, &size);
    CHECK(pid_ >= 0);
    if (pid_ == 0) {
      ::execve(arguments[0], arguments.data(), variables.data());
      ::_exit(127);
    }
    ours_ = Fd(ours);
  }
  ~AtPty() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    reap();
  }
  void type(std::string_view keys) {
    CHECK(::write(ours_.get(), keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
  }
  // Reads until what came since the last call holds `mark`; all of it where it is empty.
  bool until(std::string_view mark) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (mark.empty() || text.find(mark, seen_) == text.npos) {
      pollfd fd{ours_.get(), POLLIN, 0};
      ::poll(&fd, 1, 1000);
      if (std::chrono::steady_clock::now() > end) {
        ADD_FAILURE() << "'" << mark << "' does not come: " << text;
        return false;
      }
      char buffer[4096];
      const ssize_t n = fd.revents == 0 ? 0 : ::read(ours_.get(), buffer, sizeof buffer);
      if (fd.revents != 0 && n <= 0) return mark.empty();
      if (n > 0) text.append(buffer, static_cast<size_t>(n));
    }
    seen_ = text.find(mark, seen_) + mark.size();
    return true;
  }
  void signal(int number) {
    ASSERT_GT(pid_, 0);  // kill(-1) would be everybody's end
    ::kill(pid_, number);
  }
  int wait() {
    until("");
    return reap();
  }

  std::string text;

 private:
  int reap() {
    int status = 0;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  pid_t pid_ = -1;
  Fd ours_;
  size_t seen_ = 0;
};

// Rows as they were on the screen, without sequences: a carriage return begins one anew.
std::vector<std::string> rows_of(const std::string& text) {
  std::vector<std::string> rows(1);
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\x1b') {
      at = text.find_first_not_of("[0123456789;", at + 1);
    } else if (text[at] == '\n' || text[at] == '\r') {
      rows.emplace_back();
    } else if ((text[at] & 0xc0) != 0x80) {
      rows.back() += text[at];
    }
  }
  return rows;
}

void expect_within(const AtPty& program, size_t columns) {
  for (const std::string& row : rows_of(program.text)) EXPECT_LE(row.size(), columns) << row;
}

struct TerminalPair {
  CloudProcess cloud{{"--device", "cpu", "--threads", "1"}};
  Folder home;
  Arguments environment(Arguments more = {}) const {
    more.push_back(cat("XDG_CACHE_HOME=", home.path.string()));
    more.push_back(cat("XDG_STATE_HOME=", home.path.string()));
    return more;
  }
  Arguments edge(Arguments more) const {
    more.insert(more.end(), {"--device", "cpu", "--threads", "1"});
    return edge_command(cloud.url(), more);
  }
};

TEST(PairTerminal, NothingIsWiderThanTheTerminal) {
  const TerminalPair pair;
  const Arguments asks[] = {
      pair.edge({"--prompt", "Once", "--max-tokens", "6", "--seed", "1", "--cut", "4"}),
      pair.edge({"--prompt", "Once", "--max-tokens", "6", "--seed", "1"}),
      pair.edge({"--prompt", "Once", "--max-tokens", "6", "--moves", "0:6,3:2", "--seed", "1"}),
      pair.edge({"--plan"}),
      pair.edge({"--plan", "--measure"}),
      pair.edge({"--list-devices"}),
      pair.edge({"--cut", "77", "--prompt", "a"}),
      pair.edge({"--cache-limit", "1K", "--cut", "4", "--prompt", "a", "--max-tokens", "2"}),
      {program_path("edge_client"), "doctor", "--server", pair.cloud.url(), "--device", "cpu"},
      {program_path("edge_client"), "cache", "ls"},
      {program_path("edge_client"), "--help"},
      {program_path("edge_client"), "cache", "--help"},
      {program_path("edge_client"), "--server", "http://127.0.0.1:1", "--prompt", "a"},
      {program_path("cloud_server"), "--help"},
      {program_path("cloud_server"), "doctor", "--device", "cpu", "--port", "0"}};
  for (const int columns : {80, 200}) {
    for (const Arguments& argv : asks) {
      AtPty program(argv, columns, pair.environment());
      program.wait();
      EXPECT_GT(program.text.size(), 10u) << argv[1];
      expect_within(program, static_cast<size_t>(columns));
    }
  }
}

TEST(PairTerminal, APromptsAnswersAndServersFit) {
  const TerminalPair pair;
  for (const int columns : {80, 200}) {
    AtPty prompt(pair.edge({"--max-tokens", "6", "--seed", "1"}), columns, pair.environment());
    ASSERT_TRUE(prompt.until("> "));
    prompt.type("Once\r");
    ASSERT_TRUE(prompt.until("seed 1"));
    ASSERT_TRUE(prompt.until("> "));
    prompt.type(":help\r");
    ASSERT_TRUE(prompt.until(":quit "));
    ASSERT_TRUE(prompt.until("> "));
    prompt.type(":cut 99\r");
    ASSERT_TRUE(prompt.until("got '99'"));
    ASSERT_TRUE(prompt.until("> "));  // Ctrl-D ends where a line is read
    prompt.type("\x04");
    EXPECT_EQ(prompt.wait(), 0);
    expect_within(prompt, static_cast<size_t>(columns));
    AtPty server(pair.edge({"--serve", "127.0.0.1:0", "--cache-limit", "1K"}), columns,
                 pair.environment());
    ASSERT_TRUE(server.until("8/8 layers here"));
    ASSERT_TRUE(server.until("\n"));
    server.signal(SIGTERM);
    EXPECT_EQ(server.wait(), 0);
    expect_within(server, static_cast<size_t>(columns));
    // Its page and its routes are named, and lines of what comes have their time, once each.
    EXPECT_NE(server.text.find("the page is http://127.0.0.1:"), std::string::npos);
    EXPECT_NE(server.text.find("/v1"), std::string::npos);
    EXPECT_NE(server.text.find("--cache-limit: expected room"), std::string::npos);
    std::string last;
    for (const std::string& row : rows_of(server.text)) {
      if (row.find("layers here") == row.npos) continue;
      EXPECT_TRUE(row.starts_with("20")) << row;
      EXPECT_NE(row.substr(19), last);
      last = row.substr(19);
    }
  }
}

TEST(PairTerminal, ColoursAreWhereTheyAreWanted) {
  const TerminalPair pair;
  const Arguments good = pair.edge(
                      {"--prompt", "a", "--max-tokens", "2", "--seed", "1", "--cut", "4"}),
                  bad = pair.edge({"--cut", "77", "--prompt", "a"}),
                  doctor = {program_path("edge_client"), "doctor", "--server",
                            "http://127.0.0.1:1"};
  for (const auto& [argv, mark] : {std::pair(good, "\x1b[2m  text      \x1b[0m"),
                                   {bad, "\x1b[31medge_client:\x1b[0m "},
                                   {doctor, "\x1b[31mBAD\x1b[0m"}}) {
    AtPty colored(argv, 80, pair.environment());
    colored.wait();
    EXPECT_NE(colored.text.find(mark), std::string::npos) << colored.text;
    AtPty plain(argv, 80, pair.environment({"NO_COLOR=1"}));
    plain.wait();
    EXPECT_FALSE(std::regex_search(plain.text, std::regex("\x1b\\[[0-9;]*m"))) << plain.text;
    Process piped(argv, {cat("XDG_CACHE_HOME=", pair.home.path.string())});
    piped.wait();
    EXPECT_EQ((piped.out() + piped.err()).find('\x1b'), std::string::npos) << piped.err();
  }
}

// Keys typed while an answer is written are not seen in it, and are the next line.
TEST(PairTerminal, KeysTypedAheadDoNotMixIntoAnAnswer) {
  const TerminalPair pair;
  AtPty prompt(pair.edge({"--max-tokens", "300", "--seed", "1", "--cut", "cloud"}), 80,
               pair.environment({"NO_COLOR=1"}));
  ASSERT_TRUE(prompt.until("> "));
  prompt.type("Once upon\r");
  ASSERT_TRUE(prompt.until("Once upon\x1b[K"));
  ASSERT_TRUE(prompt.until("\n"));
  prompt.type("QQQQ");  // while it writes
  ASSERT_TRUE(prompt.until("seed 1"));
  const std::string answer = prompt.text.substr(0, prompt.text.find("seed 1"));
  EXPECT_EQ(answer.find("QQQQ"), std::string::npos) << answer;
  ASSERT_TRUE(prompt.until("> QQQQ"));
  prompt.type("\x15\x04");
  EXPECT_EQ(prompt.wait(), 0);
}

}  // namespace
}  // namespace split::test
