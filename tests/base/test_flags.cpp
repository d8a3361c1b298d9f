// program/flags: what is accepted, what is refused and in which words.
#include <gtest/gtest.h>

#include "program/terminal.h"

#include <map>
#include <memory>

#include "base/json.h"
#include "base/log.h"
#include "base/plain_words.h"
#include "program/exit_codes.h"
#include "program/flags.h"

namespace split {
namespace {

struct Program {
  std::string prompt = "none", format = "auto", device;
  int top_k = 5;
  std::optional<uint64_t> seed;
  uint64_t budget = 7;
  float temperature = 0.5f;
  bool quiet = false;
  std::vector<std::string> stop{"default"}, rest;
  Flags flags{"usage: program\n"};

  explicit Program(bool with_rest = false) {
    flags.group("Text");
    flags.text("prompt", "TEXT", "the prompt", &prompt);
    flags.number("top-k", "N", "the most likely ones", &top_k, 0, 1000);
    flags.number("seed", "N", "of the draws", &seed, uint64_t{0}, ~uint64_t{0});
    flags.real("temperature", "X", "0 is greedy", &temperature, 0, 100);
    flags.texts("stop", "S", std::string(50, 'x') + " end", &stop);
    flags.group("Machine");
    flags.choice("format", {"auto", "f32", "f16"}, "of the weights", &format);
    flags.text("device", "NAME", "that computes", &device, "auto|cpu");
    flags.bytes("budget", "BYTES", "of memory", &budget, 1);
    flags.toggle("quiet", "says nothing", &quiet);
    if (with_rest) flags.rest("WORD", &rest);
  }
  Flags::Asked parse(std::vector<std::string> arguments,
                     std::map<std::string, std::string> environment = {}) {
    return flags.parse(arguments, [&](const char* name) -> const char* {
      const auto at = environment.find(name);
      return at == environment.end() ? nullptr : at->second.c_str();
    });
  }
  std::string refusal(std::vector<std::string> arguments,
                      std::map<std::string, std::string> environment = {}) {
    try {
      parse(std::move(arguments), std::move(environment));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "accepted";
  }
};

TEST(Flags, TakesValuesBehindASpaceOrAnEqualsSign) {
  Program program;
  program.parse({"--top-k", "40", "--temperature=1.5", "--format", "f16", "--budget=3M", "--quiet",
                 "--prompt", "--top-k", "--seed=18446744073709551615"});
  EXPECT_EQ(program.top_k, 40);
  EXPECT_EQ(program.temperature, 1.5f);
  EXPECT_EQ(program.format, "f16");
  EXPECT_EQ(program.budget, uint64_t{3} << 20);
  EXPECT_TRUE(program.quiet);
  EXPECT_EQ(program.prompt, "--top-k");
  EXPECT_EQ(program.seed, ~uint64_t{0});
  EXPECT_TRUE(program.flags.given("top-k"));
  EXPECT_FALSE(program.flags.given("stop"));
}

TEST(Flags, KeepsDefaultsAndReplacesAListAsAWhole) {
  Program program;
  program.parse({"--prompt=", "--stop=a", "--stop", "b"});
  EXPECT_EQ(program.prompt, "");
  EXPECT_EQ(program.top_k, 5);
  EXPECT_EQ(program.seed, std::nullopt);
  EXPECT_EQ(program.stop, (std::vector<std::string>{"a", "b"}));
}

TEST(Flags, ReadsTheEnvironmentWhereNoArgumentSaysMore) {
  Program program;
  program.parse({"--top-k=1"}, {{"SPLIT_TOP_K", "2"},
                                {"SPLIT_BUDGET", "2K"},
                                {"SPLIT_QUIET", "true"},
                                {"SPLIT_FORMAT", ""},
                                {"SPLIT_STOP", "a\n\nb c\n"}});
  EXPECT_EQ(program.top_k, 1);
  EXPECT_EQ(program.budget, 2048u);
  EXPECT_TRUE(program.quiet);
  EXPECT_EQ(program.format, "auto");
  EXPECT_EQ(program.stop, (std::vector<std::string>{"a", "b c"}));
}

TEST(Flags, RefusesInOneLineThatNamesTheFlagOrTheVariable) {
  const auto refusal = [](std::vector<std::string> arguments) {
    return Program().refusal(std::move(arguments));
  };
  EXPECT_EQ(refusal({"--top-k", "x"}), "--top-k: expected a whole number in 0..1000, got 'x'");
  EXPECT_EQ(refusal({"--top-k=-1"}), "--top-k: expected a whole number in 0..1000, got '-1'");
  EXPECT_EQ(refusal({"--top-k=1001"}), "--top-k: expected a whole number in 0..1000, got '1001'");
  EXPECT_EQ(refusal({"--top-k="}), "--top-k: expected a whole number in 0..1000, got ''");
  EXPECT_EQ(refusal({"--seed=1e3"}), "--seed: expected a whole number in 0.., got '1e3'");
  EXPECT_EQ(refusal({"--format", "f8"}), "--format: expected auto, f32 or f16, got 'f8'");
  EXPECT_EQ(refusal({"--quiet=yes"}), "--quiet: takes no value, got 'yes'");
  EXPECT_EQ(refusal({"--prompt"}), "--prompt: expected a value (TEXT)");
  EXPECT_EQ(refusal({"--promt", "x"}), "no flag --promt; did you mean --prompt?");
  EXPECT_EQ(refusal({"-q"}), "no flag -q; did you mean --quiet?");
  EXPECT_EQ(refusal({"word"}), "unexpected argument 'word'; --help lists the flags");
  Flags named("");
  std::string text;
  named.text("prompt", "TEXT", "", &text);
  named.commands({"doctor"}, "prompt");
  const auto refused = [&](const std::vector<std::string>& arguments) -> std::string {
    try {
      named.parse(arguments, [](const char*) -> const char* { return nullptr; });
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refused({"docter"}), "unexpected argument 'docter'; did you mean doctor?");
  EXPECT_EQ(refused({"Once upon"}),
            "unexpected argument 'Once upon'; did you mean --prompt 'Once upon'?");
  EXPECT_EQ(refused({"--prompt", "Once", "upon"}),
            "unexpected argument 'upon'; a text of several words needs quotes");
  EXPECT_EQ(refused({"--prompt=x", "doctor"}),
            "unexpected argument 'doctor'; doctor comes first, before the flags");
  for (const char* number : {"nan", "inf", "-1", "1e9", "1x", "", " 1"}) {
    EXPECT_EQ(refusal({cat("--temperature=", number)}),
              cat("--temperature: expected a number in 0..100, got '", number, "'"));
  }
  for (const char* bytes : {"0", "K", "1Q", "1KK", "-1", "17179869184G", "1.5G"}) {
    EXPECT_EQ(refusal({cat("--budget=", bytes)}),
              cat("--budget: expected bytes in 1.., perhaps with K, M, G or T, got '", bytes, "'"));
  }
  EXPECT_EQ(Program().refusal({}, {{"SPLIT_TOP_K", "x"}}),
            "SPLIT_TOP_K: expected a whole number in 0..1000, got 'x'");
  EXPECT_EQ(Program().refusal({}, {{"SPLIT_QUIET", "yes"}}),
            "SPLIT_QUIET: expected 1, true, 0 or false, got 'yes'");
}

TEST(Flags, AsksForHelpBeforeTheEnvironmentIsLookedAt) {
  EXPECT_EQ(Program().parse({"--help"}, {{"SPLIT_TOP_K", "x"}}), Flags::Asked::kHelp);
  EXPECT_EQ(Program().parse({"-h"}), Flags::Asked::kHelp);
  EXPECT_EQ(Program().parse({"--version", "--nothing"}), Flags::Asked::kVersion);
  const std::string help = Program().flags.help();
  EXPECT_NE(help.find("\nMachine:\n  --format auto|f32|f16       of the weights\n"),
            std::string::npos)
      << help;
  EXPECT_NE(help.find("\n" + std::string(30, ' ') + "end\n"), std::string::npos) << help;
}

TEST(Flags, HelpsWithinItsColumns) {
  for (const size_t width : {size_t{80}, size_t{100}}) {
    std::string text;
    Flags flags("usage: program\n", width);
    flags.text("name", "TEXT",
               "as many words as make more than one line of the help, whatever it is", &text);
    const std::string help = flags.help();
    size_t longest = 0;
    for (size_t at = 0, end = 0; (end = help.find('\n', at)) != std::string::npos; at = end + 1)
      longest = std::max(longest, end - at);
    EXPECT_LE(longest, width) << help;
    EXPECT_GT(longest, width - 20) << help;
  }
}

TEST(Flags, GivesTheRestToWhoTakesIt) {
  Program program(true);
  program.parse({"a", "--top-k=3", "--", "--top-k=4", "-"});
  EXPECT_EQ(program.rest, (std::vector<std::string>{"a", "--top-k=4", "-"}));
  EXPECT_EQ(program.top_k, 3);
}

TEST(Flags, GiveEveryShellACompletion) {
  Program program;
  const auto of = [&](const char* shell) {
    return program.flags.completion(shell, "program", {"doctor"});
  };
  EXPECT_NE(of("bash").find("--format) COMPREPLY=($(compgen -W 'auto f32 f16'"), std::string::npos);
  EXPECT_NE(of("zsh").find("'--format[of the weights]:auto|f32|f16:(auto f32 f16)'"),
            std::string::npos)
      << of("zsh");
  EXPECT_NE(of("bash").find("--device) COMPREPLY=($(compgen -W 'auto cpu'"), std::string::npos);
  EXPECT_NE(of("zsh").find("'--device[that computes]:NAME:(auto cpu)'"), std::string::npos);
  EXPECT_NE(of("fish").find(" -l device -x -a 'auto cpu'"), std::string::npos) << of("fish");
  EXPECT_NE(of("zsh").find("'*--stop["), std::string::npos);  // again and again
  EXPECT_NE(of("zsh").find("'--quiet[says nothing]'"), std::string::npos);
  EXPECT_NE(
      of("fish").find("complete -c program -l format -x -a 'auto f32 f16' -d 'of the weights'"),
      std::string::npos)
      << of("fish");
  for (const std::string& shell : Flags::kShells) {
    for (const char* word : {"prompt", "top-k", "seed", "quiet", "doctor", "help"}) {
      EXPECT_NE(of(shell.c_str()).find(word), std::string::npos) << shell << ' ' << word;
    }
  }
}

TEST(Flags, QuoteWhatAShellWouldRead) {
  std::string text;
  Flags flags("p: x\n");
  flags.text("a", "FILE", "it's [here]: $HOME", &text);
  EXPECT_NE(
      flags.completion("zsh", "p", {}).find("'--a[it'\\''s \\[here\\]\\: $HOME]:FILE:_files'"),
      std::string::npos)
      << flags.completion("zsh", "p", {});
  EXPECT_NE(flags.completion("fish", "p", {}).find("-l a -r -F -d 'it\\'s [here]: $HOME'"),
            std::string::npos);
}

TEST(Flags, GiveAManualPage) {
  std::string text;
  Flags flags("p: does x\nusage: p --a\n.hidden\n");
  flags.group("One");
  flags.text("top-k", "N", ".B 'a' \\b-c", &text);
  const Flags::Exit exits[] = {{"0", "well"}};
  EXPECT_EQ(
      flags.manual("p", "1.2", exits),
      ".TH P 1 \"\" \"SplitCompute 1.2\" \"User Commands\"\n.SH NAME\np \\- does x\n.SH SYNOPSIS\n"
      ".nf\nusage: p \\-\\-a\n\\&.hidden\n.fi\n.SH OPTIONS\n.SS One\n.TP\n"
      "\\fB\\-\\-top\\-k\\fR \\fIN\\fR\n\\&.B 'a' \\eb\\-c\n.SH ENVIRONMENT\n"
      "Each flag is also a variable:\n\\fB\\-\\-top\\-k\\fR is \\fBSPLIT_TOP_K\\fR.\n"
      "A flag goes before its variable; of several values there is one a line.\n"
      ".SH EXIT STATUS\n.TP\n\\fB0\\fR\nwell\n");
}

TEST(Flags, KnowsWhichOneWasMeant) {
  Program program;
  EXPECT_EQ(program.refusal({"--tempreature"}),
            "no flag --tempreature; did you mean --temperature?");
  EXPECT_EQ(program.refusal({"--temp"}), "no flag --temp; did you mean --temperature?");
  EXPECT_EQ(program.refusal({"-v"}), "no flag -v; did you mean --version?");
  EXPECT_EQ(program.refusal({"--feet"}), "no flag --feet; --help lists the flags");
  EXPECT_EQ(program.refusal({"--zzz"}), "no flag --zzz; --help lists the flags");
  EXPECT_EQ(program.refusal({"--a\x1b[2J"}).find('\x1b'), std::string::npos);
}

TEST(PlainWords, LeaveOutTheNamesOfLayers) {
  EXPECT_EQ(plain_words("[http] http://[::1]:80: cannot connect"),
            "http://[::1]:80: cannot connect");
  EXPECT_EQ(plain_words("--server: [http] URL 'a': no [host] there"),
            "--server: URL 'a': no [host] there");
  EXPECT_EQ(plain_words("[cache] [file] /x: full"), "/x: full");
  EXPECT_EQ(plain_words("[1] [a b] [] x"), "[1] [a b] [] x");
}

TEST(LogLines, NameOneLayerAtMost) {
  constexpr const char* kMessage = "[http] [cloud] http://[::1]:80: [file] /x: full";
  const std::shared_ptr<void> plain(nullptr, [](void*) { set_log_format(LogFormat::kPlain); });
  EXPECT_EQ(log_line("error", kMessage), "error: http://[::1]:80: /x: full\n");
  set_log_format(LogFormat::kText);
  EXPECT_TRUE(log_line("error", kMessage).ends_with(" error: [cloud] http://[::1]:80: /x: full\n"));
  EXPECT_TRUE(log_line("info", "SIGHUP: [keys] /k: gone").ends_with(" SIGHUP: /k: gone\n"));
  set_log_format(LogFormat::kJson);
  EXPECT_EQ(*parse_json(log_line("error", kMessage), 2, "a line").find("message"),
            "[cloud] http://[::1]:80: /x: full");
}

TEST(ExitCodes, AreAlikeForBothPrograms) {
  const std::pair<ErrorKind, int> codes[] = {
      {ErrorKind::kInput, 2},     {ErrorKind::kNotFound, 2}, {ErrorKind::kRemote, 3},
      {ErrorKind::kBusy, 1},      {ErrorKind::kIo, 4},       {ErrorKind::kShape, 5},
      {ErrorKind::kIntegrity, 5}, {ErrorKind::kDevice, 6},   {ErrorKind::kInUse, 98}};
  for (const auto& [kind, code] : codes) EXPECT_EQ(exit_code(kind), code);
}

TEST(Terminal, BreaksLinesAtWordsBelowWhereTheyBegin) {
  EXPECT_EQ(wrapped("one two three\n", 0), "one two three\n");
  EXPECT_EQ(wrapped("one two three\n", 13), "one two three\n");
  EXPECT_EQ(wrapped("one two three\nfour", 12), "one two\n  three\nfour");
  EXPECT_EQ(wrapped("  text      8 tokens in 52 ms (first after 15 ms)\n", 31),
            "  text      8 tokens in 52 ms\n            (first after 15 ms)\n");
  EXPECT_EQ(wrapped("device     ok   one two three four five\n", 32),
            "device     ok   one two three\n                four five\n");
  EXPECT_EQ(wrapped("see http://a.very.long.address/ here", 12),
            "see\n  http://a.very.long.address/\n  here");
  EXPECT_EQ(wrapped("\x1b[2m  text  \x1b[0mone two three", 12),
            "\x1b[2m  text  \x1b[0mone\n  two three");
  EXPECT_EQ(wrapped("é é é é", 7), "é é é é");
  // A number stays with its unit, and with what took the time.
  EXPECT_EQ(wrapped("each 15.3 ms: 1.4 ms cloud + 13.9 ms waiting", 39),
            "each 15.3 ms: 1.4 ms cloud +\n  13.9 ms waiting");
  EXPECT_EQ(wrapped("the cloud did 60 % of it", 17), "the cloud did\n  60 % of it");
  EXPECT_EQ(wrapped("cuts 1, 2, 3, 4", 11), "cuts 1, 2,\n  3, 4");
  // A line that is drawn over is cut, and its colours end.
  EXPECT_EQ(wrapped("\r\x1b[33mwaiting for it\x1b[0m\x1b[K", 10),
            "\r\x1b[33mwaiting f\x1b[0m\x1b[K");
  EXPECT_EQ(marked(true, Mark::kRed, "no"), "\x1b[31mno\x1b[0m");
  EXPECT_EQ(marked(false, Mark::kRed, "no"), "no");
}

// What a terminal of 10 columns shows of such pieces.
std::vector<std::string> shown(const std::vector<std::string>& pieces) {
  constexpr size_t kColumns = 10;
  RunningText text(kColumns);
  std::vector<std::string> rows{""};
  size_t at = 0;
  for (const std::string& piece : pieces) {
    const std::string out = text.next(piece);
    for (size_t i = 0; i < out.size(); ++i) {
      if (out[i] == '\n') {
        rows.emplace_back();
        at = 0;
      } else if (out.compare(i, 2, "\x1b[") == 0 && out[i + 2] == 'K') {
        rows.back().resize(at);
        i += 2;
      } else if (out.compare(i, 2, "\x1b[") == 0) {
        const size_t back = std::stoul(out.substr(i + 2));
        EXPECT_LT(rows.back().size(), kColumns) << "it may wait at the edge: columns are not told";
        at -= back;
        i = out.find('D', i);
      } else {
        if (at == kColumns) {
          rows.emplace_back();
          at = 0;
        }
        rows.back().resize(std::max(rows.back().size(), at + 1));
        rows.back()[at++] = out[i];
      }
    }
  }
  return rows;
}

TEST(Terminal, ATextThatRunsBreaksNoWord) {
  using Rows = std::vector<std::string>;
  EXPECT_EQ(shown({"Once", " upon", " a", " time"}), (Rows{"Once upon", "a time"}));
  EXPECT_EQ(shown({"Once up", "o", "n a ", "time"}), (Rows{"Once upon", "a time"}));
  EXPECT_EQ(shown({"a the", "re", "fore", " x"}), (Rows{"a ", "therefore", "x"}));
  EXPECT_EQ(shown({"one\ntwo three four"}), (Rows{"one", "two three", "four"}));
  // A word that is wider than the terminal is the terminal's to break.
  EXPECT_EQ(shown({"see ", "0123456789", "01234", " you"}),
            (Rows{"see ", "0123456789", "01234 you"}));
  EXPECT_EQ(RunningText(0).next("0123456789 0123456789\t"), "0123456789 0123456789\t");
  // Nobody knows how wide these are.
  EXPECT_EQ(RunningText(5).next("\u6c49\u5b57 abcdef\n"), "\u6c49\u5b57 abcdef\n");
}

}  // namespace
}  // namespace split
