// edge_client at a terminal: lines that are edited, answers that can be stopped, and what it says
// about a machine.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <termios.h>

#include <cstdlib>

#include "edge_client/cli/line_editor.h"
#include "edge_client/server/cloud_notice.h"
#include "support/edge_server.h"

namespace split::test {
namespace {

using Key = edge::Line::Key;

// Returns the line after these keys.
std::string typed(std::string_view keys, const std::vector<std::string>& history = {}) {
  edge::Line line;
  for (const char key : keys) EXPECT_EQ(line.type(key, history), Key::kMore) << keys;
  return line.text();
}

TEST(Line, IsEditedByTheUsualKeys) {
  EXPECT_EQ(typed("abc"), "abc");
  EXPECT_EQ(typed("abc\x7f"), "ab");
  EXPECT_EQ(typed("\x7f"), "");
  EXPECT_EQ(typed("bc\x01"
                  "a"),
            "abc");
  EXPECT_EQ(typed("ac\x1b[Db\x05"
                  "d"),
            "abcd");
  EXPECT_EQ(typed("ac\x1bOD\x1b[3~"), "a");
  EXPECT_EQ(typed("xyz\x1b[H\x1b[C\x0b"), "x");
  EXPECT_EQ(typed("one two  \x17"
                  "3"),
            "one 3");
  EXPECT_EQ(typed("one\x17\x17"
                  "2"),
            "2");
  EXPECT_EQ(typed("abc\x02\x15"), "c");
  EXPECT_EQ(typed("a\xc3\xa9\x7f\x7f"), "");
  EXPECT_EQ(typed("\xe2\x82\xac"
                  "b\x1b[D\x1b[D"
                  "a"),
            "a\xe2\x82\xac"
            "b");
  EXPECT_EQ(typed("a\x1b[1;5Cb\x1b[9999999999999999b"), "ab");
  EXPECT_EQ(typed("ab\x02\x04"), "a");
  edge::Line line;
  EXPECT_EQ(line.type('\x04', {}), Key::kEnd);
  EXPECT_EQ(line.type('\x03', {}), Key::kCancel);
  EXPECT_EQ(line.type('\r', {}), Key::kEnter);
}

TEST(Line, RemembersTheLinesBefore) {
  const std::vector<std::string> history = {"first", "second"};
  EXPECT_EQ(typed("new\x1b[A", history), "second");
  EXPECT_EQ(typed("new\x1b[A\x1b[A\x1b[A", history), "first");
  EXPECT_EQ(typed("new\x1b[A\x1b[A\x1b[B\x1b[B\x1b[B", history), "new");
  EXPECT_EQ(typed("\x10!", history), "second!");
}

TEST(Line, ShowsTheCursorOfALongLine) {
  edge::Line line;
  for (const char key : std::string("0123456789")) line.type(key, {});
  EXPECT_EQ(line.drawn("> ", 2, 80), "\r> 0123456789\x1b[K");
  EXPECT_EQ(line.drawn("> ", 2, 8), "\r> 56789\x1b[K");
  line.type('\x01', {});
  EXPECT_EQ(line.drawn("> ", 2, 8), "\r> 01234\x1b[K\x1b[5D");
}

// A terminal with somebody at it.
struct Terminal {
  Terminal() : ours(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    CHECK(ours && ::grantpt(ours.get()) == 0 && ::unlockpt(ours.get()) == 0);
    theirs = Fd(::open(::ptsname(ours.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    CHECK(theirs);
  }
  void type(std::string_view keys) {
    CHECK(::write(ours.get(), keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
  }
  Fd ours, theirs;
};

// Types all of it at once; returns the lines that were read until no more came.
std::vector<std::string> lines_of(std::string_view keys,
                                  const std::filesystem::path& history = {}) {
  Terminal terminal;
  termios raw{};  // from the start: the keys are there before anybody reads
  CHECK(::tcgetattr(terminal.theirs.get(), &raw) == 0);
  ::cfmakeraw(&raw);
  CHECK(::tcsetattr(terminal.theirs.get(), TCSANOW, &raw) == 0);
  Interrupt interrupt;
  edge::LineEditor editor(
      terminal.theirs.get(), [](std::string_view) {}, interrupt, history);
  terminal.type(keys);
  std::vector<std::string> lines;
  std::string line;
  while (editor.read("> ", 2, line) == edge::LineEditor::Outcome::kLine) lines.push_back(line);
  return lines;
}

TEST(LineEditor, ReadsPastedLinesOneAfterTheOther) {
  EXPECT_EQ(lines_of("one\rtwo\rthree\r\x04"), (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(lines_of("one\rtwo\x03three\r"), std::vector<std::string>{"one"});
}

TEST(LineEditor, KeepsItsHistoryBetweenRuns) {
  const TemporaryFolder folder;
  const auto file = folder.path / "state/history";
  lines_of("one\rtwo\r\x04", file);
  EXPECT_EQ(read_file(file, 100), "one\ntwo\n");
  EXPECT_EQ(lines_of("\x1b[A\x1b[A\r\x04", file), std::vector<std::string>{"one"});
  EXPECT_EQ(std::filesystem::status(file).permissions() & std::filesystem::perms::mask,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST(CloudNotice, TellsALongWaitAndItsEnd) {
  std::mutex mutex;
  std::condition_variable said;
  std::string err;
  Console console;
  console.err = [&](std::string_view text) {
    const std::lock_guard lock(mutex);
    err += text;
    said.notify_all();
  };
  const edge::RemoteError gone("gone", 0, "");
  const auto is_quiet = [&] {
    edge::CloudNotice quick(console, "http://cloud:1", false);
    quick.lost(gone);
    quick.found(true);
    const std::lock_guard lock(mutex);
    return quick.waited_ms() == 0 && err.empty();
  };
  // Nobody had time to wonder, unless the machine was busy.
  for (int tries = 1; !is_quiet(); ++tries) {
    ASSERT_LT(tries, 10) << err;
    err.clear();
  }
  edge::CloudNotice notice(console, "http://cloud:1", false);
  notice.lost(gone);
  notice.lost(gone);
  {
    std::unique_lock lock(mutex);
    said.wait(lock, [&] { return !err.empty(); });
    EXPECT_EQ(err, "waiting for the cloud at http://cloud:1 (Ctrl-C stops)\n");
    err.clear();
  }
  notice.found(true);
  EXPECT_EQ(err, "");  // the other one still waits
  notice.found(true);
  EXPECT_TRUE(err.starts_with("the cloud answers, after ")) << err;
  EXPECT_GE(notice.waited_ms(), 300);
}

TEST(CloudNotice, TakesItsLineBackAtTheEnd) {
  std::mutex mutex;
  std::condition_variable said;
  std::string err;
  Console console;
  console.err_is_terminal = true;
  console.err = [&](std::string_view text) {
    const std::lock_guard lock(mutex);
    err += text;
    said.notify_all();
  };
  edge::CloudNotice notice(console, "http://cloud:1", false);
  notice.lost(edge::RemoteError("gone", 0, ""));
  {
    std::unique_lock lock(mutex);
    said.wait(lock, [&] { return !err.empty(); });
    err.clear();
  }
  notice.end();
  EXPECT_EQ(err, "\r\x1b[K");
  notice.found(true);
  EXPECT_EQ(err, "\r\x1b[K");
}

// Lines that are told while a text is written come behind it, and not into its own.
TEST(EdgeTerminal, TellsNothingIntoAText) {
  GatedCloud cloud("demo");
  const TemporaryFolder cache;
  EdgeOptions terminal, pipe;
  terminal.terminal = terminal.out_is_terminal = terminal.one_place = true;
  pipe.one_place = true;
  for (const EdgeOptions& where : {terminal, pipe}) {
    const Outcome got =
        run_edge({cat("--server=", cloud.url()), cat("--cache=", cache.path.string()),
                  "--device=cpu", "--threads=1", "--cut=auto", "--max-weights=0", "--seed=3",
                  "--max-tokens=8", "--prompt=Once upon a time"},
                 where);
    EXPECT_EQ(got.code, 0) << got.err;
    EXPECT_TRUE(got.err.starts_with("\ndemo: embed, blocks 0-7")) << got.err;
    EXPECT_TRUE(got.err.ends_with("% of the work\n")) << got.err;
    EXPECT_NE(got.err.find("\n\n  text      8 tokens in "), std::string::npos) << got.err;
    EXPECT_NE(got.err.find("  verdict   the cloud did 100 % of the work"), std::string::npos)
        << got.err;
  }
}

// A text on the cloud keeps nothing here.
TEST(EdgeTerminal, NeedsNoCacheForATextOnTheCloud) {
  GatedCloud cloud("demo");
  const std::vector<std::string> arguments = {cat("--server=", cloud.url()), "--device=cpu",
                                              "--max-tokens=2", "--prompt=Once"};
  auto there = arguments;
  there.push_back("--cut=cloud");
  const Outcome got = run_edge(there);
  EXPECT_EQ(got.code, 0) << got.err;
  auto in_part = arguments;
  in_part.push_back("--cut=6");
  const Outcome here = run_edge(in_part);
  EXPECT_EQ(here.code, 4) << here.err;
  EXPECT_NE(here.err.find("neither XDG_CACHE_HOME nor HOME is set"), std::string::npos) << here.err;
}

// edge_client at a terminal, on a thread of its own.
class AtTerminal {
 public:
  explicit AtTerminal(const std::vector<std::string>& arguments) {
    world_.input = terminal_.theirs.get();
    world_.console.err_is_terminal = world_.console.out_is_terminal = world_.console.one_place =
        true;
    world_.connector = InProcess::connect;
    world_.environment = [](const char* name) {
      return name == std::string("NO_COLOR") ? "1" : nullptr;
    };
    world_.console.out = [this](std::string_view text) {
      add(out, text);
      return true;
    };
    world_.console.err = [this](std::string_view text) { add(err, text); };
    program_ =
        std::thread([this, arguments] { code_ = edge::edge_main(arguments, world_, interrupt); });
  }
  ~AtTerminal() {
    if (program_.joinable()) end();
  }
  void type(std::string_view keys) { terminal_.type(keys); }
  // Returns the part of `text` since the last call, up to `mark`.
  std::string until(std::string& text, std::string_view mark) {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return text.find(mark) != text.npos; };
    if (!said_.wait_for(lock, std::chrono::seconds(120), there)) {
      ADD_FAILURE() << "'" << mark << "' does not come; there is: " << text;
      std::abort();  // the program waits for keys
    }
    const std::string taken = text.substr(0, text.find(mark) + mark.size());
    text.erase(0, taken.size());
    return taken;
  }
  // Skips what was drawn while keys came, up to the next prompt.
  void next_prompt(std::string_view behind) {
    until(err, behind);
    until(err, "\r> \x1b[K");
  }
  // Returns the exit code.
  int end() {
    type("\x04");
    program_.join();
    return code_;
  }

  Interrupt interrupt;
  std::string out, err;

 private:
  void add(std::string& to, std::string_view text) {
    const std::lock_guard lock(mutex_);
    to += text;
    said_.notify_all();
  }

  Terminal terminal_;
  World world_;
  std::mutex mutex_;
  std::condition_variable said_;
  int code_ = -1;
  std::thread program_;
};

TEST(EdgeTerminal, AsksForPromptsAndStopsAnAnswer) {
  GatedCloud cloud("demo");
  const TemporaryFolder cache;
  const std::vector<std::string> arguments = {cat("--server=", cloud.url()),
                                              cat("--cache=", cache.path.string()),
                                              "--cut=1",
                                              "--device=cpu",
                                              "--threads=1",
                                              "--seed=3",
                                              "--draft=off",
                                              "--max-tokens=8"};
  AtTerminal program(arguments);

  program.until(program.err, "\r> \x1b[K");
  program.type(
      "Once upon a timr\x7f"
      "e\r");
  const std::string text = program.until(program.out, "\n");
  EXPECT_NE(program.until(program.err, "seed 3\n").find("8 out"), std::string::npos);
  auto again = arguments;
  again.insert(again.end(), {"--prompt=Once upon a time", "--quiet"});
  EXPECT_EQ(run_edge(again).out + "\n", text);

  // The answer waits for the cloud when the user has had enough; the next one is whole.
  cloud.reset([&](const http::Request&, int n) -> std::optional<http::Response> {
    if (n == 2) program.interrupt.raise(SIGINT);
    return std::nullopt;
  });
  program.until(program.err, "\r> \x1b[K");
  program.type("\x1b[A\r");
  const std::string part = program.until(program.out, "\n");
  EXPECT_LT(part.size(), text.size());
  EXPECT_TRUE(text.starts_with(part.substr(0, part.size() - 1))) << part;
  cloud.reset({});
  program.next_prompt("seed 3\n");
  program.type("never mind\x03");
  program.next_prompt("^C\r\n");
  program.type("\x1b[A\r");
  EXPECT_EQ(program.until(program.out, "\n"), text);
  program.next_prompt("seed 3\n");
  EXPECT_EQ(program.end(), 0);
}

// Lines of what comes beside come above the line that is typed, and only where something comes.
TEST(EdgeTerminal, TellsAboveTheLineThatIsTyped) {
  GatedCloud cloud("demo");
  const TemporaryFolder cache;
  const std::vector<std::string> arguments = {cat("--server=", cloud.url()),
                                              cat("--cache=", cache.path.string()),
                                              "--device=cpu",
                                              "--threads=1",
                                              "--seed=3",
                                              "--max-tokens=2"};
  {
    AtTerminal program(arguments);
    const std::string said = program.until(program.err, " of weights come beside the text");
    EXPECT_TRUE(said.find("\r> \x1b[K") == said.npos ||
                said.find("\r\x1b[K--cut auto: ") != said.npos)
        << said;
    program.until(program.err, "\r> \x1b[K");
    program.type("ab\x0c");
    program.until(program.err, "\x1b[H\x1b[2J");
    program.until(program.err, "\r> ab\x1b[K");
    program.type("\x15:cut\r");
    program.until(program.err, ":cut: expected 0..8, cloud or auto, got nothing\n");
    program.until(program.err, "\r> \x1b[K");
    EXPECT_EQ(program.end(), 0);
  }
  ASSERT_EQ(run_edge({arguments[0], arguments[1], "--device=cpu", "--cut=0", "--prompt=a",
                      "--max-tokens=1"})
                .code,
            0);
  AtTerminal program(arguments);
  std::string said = program.until(program.err, "\r> \x1b[K");
  program.type("Once\r");
  said += program.until(program.err, "seed 3\n");
  said += program.until(program.err, "\r> \x1b[K");  // what is typed before it may be thrown away
  EXPECT_EQ(said.find("come beside the text"), said.npos) << said;
  EXPECT_EQ(program.end(), 0);
}

// A flag that cannot work ends it before anything is asked for.
TEST(EdgeTerminal, RefusesADeviceThatIsNotThere) {
  GatedCloud cloud("demo");
  const TemporaryFolder cache;
  AtTerminal program(
      {cat("--server=", cloud.url()), cat("--cache=", cache.path.string()), "--device=vulkan:99"});
  program.until(program.err, "vulkan:99: this machine has");
  EXPECT_EQ(program.end(), 6);
  EXPECT_EQ(program.err.find("> "), std::string::npos) << program.err;
}

// A cut that moves by itself can be held, and let go.
TEST(EdgeTerminal, TheCutIsChosenAtThePrompt) {
  GatedCloud cloud("demo");
  const TemporaryFolder cache;
  AtTerminal program({cat("--server=", cloud.url()), cat("--cache=", cache.path.string()),
                      "--device=cpu", "--threads=1", "--seed=3", "--max-tokens=8"});
  program.until(program.err, "\r> \x1b[K");
  program.type("Once upon a time\r");
  const std::string text = program.until(program.out, "\n");
  program.next_prompt("seed 3\n");
  program.type(":cut 5\r");
  program.next_prompt("texts run at cut 5 from now on\n");
  program.type("Once upon a time\r");
  EXPECT_EQ(program.until(program.out, "\n"), text);
  EXPECT_NE(program.until(program.err, "seed 3\n").find("cut 5, "), std::string::npos);
  program.until(program.err, "\r> \x1b[K");
  program.type(":cut 9\r");
  program.next_prompt(":cut: expected 0..8, cloud or auto, got '9'\n");
  program.type(":cut auto\r");
  program.next_prompt("the cut moves by itself from now on\n");
  program.type("Once upon a time\r");
  EXPECT_EQ(program.until(program.out, "\n"), text);
  program.next_prompt("seed 3\n");
  EXPECT_EQ(program.end(), 0);
}

TEST(EdgeTerminal, ATextWhoseCloudIsLostGoesOnHere) {
  GatedCloud cloud("demo");
  std::optional<Running> front;
  front.emplace([&](http::Server& server) { cloud::add_routes(server, cloud.cloud); });
  const TemporaryFolder cache;
  std::vector<std::string> arguments = {cat("--server=", front->url()),
                                        cat("--cache=", cache.path.string()),
                                        "--device=cpu",
                                        "--threads=1",
                                        "--seed=3",
                                        "--max-tokens=8",
                                        "--cut=0"};
  auto all = arguments;
  all.insert(all.end(), {"--prompt=Once upon a time", "--quiet"});
  const Outcome alone = run_edge(all);
  ASSERT_EQ(alone.code, 0) << alone.err;
  arguments.back() = "--cut=4";
  AtTerminal program(arguments);
  program.until(program.err, "\r> \x1b[K");
  program.type("Once upon a time\r");
  EXPECT_EQ(program.until(program.out, "\n"), alone.out + "\n");
  program.next_prompt("seed 3\n");
  front.reset();
  program.type("Once upon a time\r");
  EXPECT_EQ(program.until(program.out, "\n"), alone.out + "\n");
  program.next_prompt("the cloud does not answer: the text goes on here alone\n");
  EXPECT_EQ(program.end(), 0);
}

// A terminal has nothing else to show what a text goes on from; a pipe gets the text alone.
TEST(EdgeTerminal, APromptStandsBeforeItsText) {
  GatedCloud cloud("demo");
  const std::vector<std::string> arguments = {cat("--server=", cloud.url()), "--cut=cloud",
                                              "--seed=3", "--max-tokens=8",
                                              "--prompt=Once upon a time"};
  EdgeOptions terminal;
  terminal.out_is_terminal = true;
  const std::string text = run_edge(arguments).out;
  EXPECT_TRUE(text.starts_with(" ")) << text;
  EXPECT_EQ(run_edge(arguments, terminal).out, cat("Once upon a time", text, "\n"));
  auto quiet = arguments;
  quiet.push_back("--quiet");
  EXPECT_EQ(run_edge(quiet, terminal).out, text + "\n");
}

// A text that is asked to be longer than the context is told so before it begins.
TEST(EdgeTerminal, SaysBeforehandWhatTheContextAllows) {
  GatedCloud cloud("demo");
  const TemporaryFolder cache;
  const auto err_of = [&](const char* most, const char* kind = "--draft=off") {
    return run_edge({cat("--server=", cloud.url()), cat("--cache=", cache.path.string()),
                     "--device=cpu", "--cut=8", "--seed=7", "--max-tokens", most, kind,
                     "--prompt=The king"})
        .err;
  };
  EXPECT_TRUE(
      err_of("600").starts_with("--max-tokens 600: the context of 512 tokens, the prompt's "
                                "among them, ends a text before that\n"))
      << err_of("600");
  EXPECT_EQ(err_of("600", "--quiet").find("--max-tokens"), std::string::npos);
  EXPECT_EQ(err_of("8").find("--max-tokens 8:"), std::string::npos);
}

// A terminal's edge breaks no word, where the text has the terminal for itself.
TEST(EdgeTerminal, WritesTextInWholeWords) {
  GatedCloud cloud("demo");
  const std::vector<std::string> arguments = {cat("--server=", cloud.url()), "--cut=cloud",
                                              "--seed=3", "--max-tokens=40",
                                              "--prompt=Once upon a time"};
  EdgeOptions terminal;
  terminal.out_is_terminal = terminal.one_place = true;
  terminal.columns = 24;
  const std::string plain = cat("Once upon a time", run_edge(arguments).out, "\n");
  EXPECT_NE(run_edge(arguments, terminal).out, plain);
  terminal.one_place = false;  // somebody else may write between
  EXPECT_EQ(run_edge(arguments, terminal).out, plain);
}

TEST(EdgeTerminal, TheDoctorSaysWhatWorksLineByLine) {
  GatedCloud cloud("rand-a");
  cloud.model().measure();
  const TemporaryFolder cache;
  const std::vector<std::string> arguments = {"doctor", cat("--cache=", cache.path.string()),
                                              "--device=cpu", "--threads=1"};
  const auto doctor = [&](const std::string& server) {
    auto all = arguments;
    all.push_back("--server=" + server);
    return run_edge(all);
  };
  const Outcome well = doctor(cloud.url());
  EXPECT_EQ(well.code, 0) << well.out << well.err;
  EXPECT_EQ(std::ranges::count(well.out, '\n'), 16) << well.out;
  for (const char* part :
       {"server     ok", "edge_client 0.", "rand-a: 3 blocks", "cpu (", "kernels    ok",
        "training   ok", "cache      ok", "weights    ok", "one token  ok", "link       ok",
        " Mbit/s from the server", "speed      ok   here a block ",
        "plan       ok   all on the cloud: ", "; best for --goal fast: ", "All is well.\n",
        "text       ok   at cut 1: ", "; the cloud's own text, bit for bit"}) {
    EXPECT_NE(well.out.find(part), std::string::npos) << part << "\n" << well.out;
  }
  EXPECT_EQ(well.out.find("the next after 0 ms"), std::string::npos) << well.out;
  EXPECT_EQ(well.out.find("give, after 0.0"), std::string::npos) << well.out;
  const Outcome ill = doctor("http://127.0.0.1:1");
  EXPECT_EQ(ill.code, 3) << ill.out;
  EXPECT_EQ(std::ranges::count(ill.out, '\n'), 16) << ill.out;
  EXPECT_NE(ill.out.find("server     BAD"), std::string::npos) << ill.out;
  EXPECT_NE(ill.out.find("kernels    ok"), std::string::npos) << ill.out;
  EXPECT_NE(ill.out.find("weights         not tried without a server"), std::string::npos)
      << ill.out;
  EXPECT_TRUE(ill.out.ends_with("Not all is well: see BAD.\n")) << ill.out;
}

TEST(EdgeTerminal, TheDoctorTellsACauseOnce) {
  GatedCloud cloud("rand-a");
  cloud.model().measure();
  const TemporaryFolder cache;
  const auto doctor = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> all = {"doctor", "--threads=1", "--server=" + cloud.url()};
    all.insert(all.end(), flags.begin(), flags.end());
    Outcome got = run_edge(all);
    EXPECT_EQ(std::ranges::count(got.out, '\n'), 16) << got.out;
    EXPECT_EQ(got.out.find("BAD  "), got.out.rfind("BAD  ")) << got.out;
    EXPECT_TRUE(got.out.ends_with("Not all is well: see BAD.\n")) << got.out;
    return got;
  };
  const std::string here = cat("--cache=", cache.path.string());
  const auto not_tried = [](const Outcome& got, const std::vector<std::string>& names,
                            const char* without) {
    for (std::string name : names) {
      name.resize(11, ' ');
      EXPECT_NE(got.out.find(cat("\n", name, "     not tried without ", without, "\n")),
                std::string::npos)
          << name << "\n"
          << got.out;
    }
  };
  const std::vector<std::string> after = {"weights", "one token", "link", "speed", "plan", "text"};
  const Outcome no_cache = doctor({"--device=cpu"});
  EXPECT_EQ(no_cache.code, 4) << no_cache.out;
  not_tried(no_cache, after, "a cache");
  // A folder that cannot be written keeps a text from this machine, and nothing else.
  const Outcome away = doctor({"--device=cpu", "--cache=/proc/nowhere", "--cut=cloud"}),
                kept = doctor({"--device=cpu", "--cache=/proc/nowhere"});
  for (const Outcome& got : {away, kept}) {
    EXPECT_EQ(got.code, 4) << got.out;
    EXPECT_NE(got.out.find("\ncache      BAD  "), std::string::npos) << got.out;
    EXPECT_NE(got.out.find("\ntext       ok   "), std::string::npos) << got.out;
  }
  EXPECT_NE(away.out.find("\none token  ok   "), std::string::npos) << away.out;
  not_tried(kept, {"one token"}, "a cache");

  const Outcome no_model = doctor({"--device=cpu", here, "--cut=9"});
  EXPECT_EQ(no_model.code, 2) << no_model.out;
  not_tried(no_model, after, "a model");

  const Outcome no_device = doctor({"--device=vulkan:99", here});
  EXPECT_NE(no_device.out.find("\ndevice     BAD  "), std::string::npos) << no_device.out;
  not_tried(no_device, {"kernels", "training", "one token", "speed", "plan", "text"}, "a device");
  EXPECT_NE(no_device.out.find("\nlink       ok   "), std::string::npos) << no_device.out;
}

TEST(EdgeTerminal, BashCompletesFlagsAndTheirWords) {
  const TemporaryFolder folder;
  const std::string file = (folder.path / "completion").string();
  const Outcome got = run_edge({"--completion=bash"});
  EXPECT_EQ(got.code, 0) << got.err;
  write_file(file, as_bytes_of(got.out));
  const auto complete = [&](const std::string& words) {
    const std::string command =
        cat("bash -c 'source ", file, "; COMP_WORDS=(edge_client ", words,
            "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _edge_client; echo \"${COMPREPLY[*]}\"'");
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
    std::string out;
    char buffer[4096];
    while (std::fgets(buffer, sizeof buffer, pipe.get()) != nullptr) out += buffer;
    return out;
  };
  EXPECT_EQ(complete("--max"), "--max-weights --max-tokens\n");
  EXPECT_EQ(complete("--head \"\""), "edge cloud\n");
  EXPECT_EQ(complete("--cut c"), "cloud\n");
  EXPECT_EQ(complete("--device c"), "cpu\n");
  EXPECT_EQ(complete("doc"), "doctor\n");
  EXPECT_EQ(complete("--server x"), "\n");
}

}  // namespace
}  // namespace split::test
