// Command-line flags as a table: each is stated once, with its type, range and help, and can be
// given as `--top-k 40`, `--top-k=40` or SPLIT_TOP_K=40 in the environment. Everything is checked
// before anything is returned. Knows no program and prints nothing.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace split {

// The variables behind the pointers hold the defaults and outlive the object.
class Flags {
 public:
  // `summary` is the head of the help text: usage lines, ending with a line feed. `width`: most
  // columns of the rest.
  explicit Flags(std::string summary, size_t width = 80)
      : summary_(std::move(summary)), width_(width) {}

  // Sets the width for a terminal of so many columns; 0: not a terminal.
  void fit(size_t columns) {
    if (columns > 0) width_ = std::max<size_t>(columns, 60);
  }

  // Starts a group of the help text; later flags belong to it.
  void group(std::string title);

  // Any text. A completion offers the words of `offered`, "a|b", or else of the metavar.
  template <typename Text>  // a string, or an optional one
  void text(std::string name, std::string metavar, std::string help, Text* out,
            std::string offered = {}) {
    add_text(std::move(name), std::move(metavar), std::move(help), std::move(offered),
             [out](std::string_view value) { *out = std::string(value); });
  }
  // One of `words`.
  void choice(std::string name, std::vector<std::string> words, std::string help, std::string* out);
  // May be given several times; the first one replaces the defaults. In the environment: one for
  // each line.
  void texts(std::string name, std::string metavar, std::string help,
             std::vector<std::string>* out);
  // A whole number in [low, high].
  template <typename Out, std::integral T>  // T, or an optional one
  void number(std::string name, std::string metavar, std::string help, Out* out, T low, T high) {
    add_number(std::move(name), std::move(metavar), std::move(help), static_cast<uint64_t>(low),
               static_cast<uint64_t>(high),
               [out](uint64_t value) { *out = static_cast<T>(value); });
  }
  // Bytes: a whole number, perhaps with K, M, G or T for the powers of 1024.
  template <typename T>
  void bytes(std::string name, std::string metavar, std::string help, T* out, uint64_t low = 0) {
    add_bytes(std::move(name), std::move(metavar), std::move(help), low,
              [out](uint64_t value) { *out = value; });
  }
  // A finite number in [low, high].
  void real(std::string name, std::string metavar, std::string help, float* out, float low,
            float high);
  // Takes no value; in the environment 1, true, 0 or false.
  void toggle(std::string name, std::string help, bool* out);
  // Any text, or no value: then `implied`, like 1 in the environment. The next argument is its
  // value unless it begins with "-".
  void optional_text(std::string name, std::string metavar, std::string help, std::string implied,
                     std::string* out);
  // Takes arguments that are no flags; without it they are refused.
  void rest(std::string metavar, std::vector<std::string>* out);

  // Commands that may stand before the flags, and the flag for a text that was given without one:
  // the error for such an argument names what may have been meant.
  void commands(std::vector<std::string> words, std::string text_flag = {});

  enum class Asked { kNothing, kHelp, kVersion };
  using Environment = std::function<const char*(const char*)>;  // std::getenv, or a test's

  // Reads the arguments (without the program's name), then the environment for the other flags; an
  // empty variable counts as unset. `--help`, `-h` and `--version` end the reading; `--` ends the
  // flags. Throws Error(kInput), one line that names the flag or the variable.
  Asked parse(const std::vector<std::string>& arguments, const Environment& environment);
  Asked parse(int argc, char** argv);  // with the process's environment

  // Whether the flag takes a value; nothing: no such flag.
  std::optional<bool> takes_value(std::string_view name) const;
  // Whether it was given, as an argument or a variable.
  bool given(std::string_view name) const;

  struct Exit {
    std::string_view code, meaning;
  };
  // The summary, the groups with one line or more for each flag, the rule for the environment, and
  // the exit codes of `exits`.
  std::string help(std::span<const Exit> exits = {}) const;

  // A completion file for one of kShells to source: the flags, and `commands` that may stand in
  // their place.
  std::string completion(std::string_view shell, std::string_view program,
                         const std::vector<std::string>& commands) const;
  static const std::vector<std::string> kShells;

  // A page for man(1), in roff: the summary, which is one line "NAME: what it is" and lines of
  // usage, the groups, the rule for the environment, and the exit codes of `exits`.
  std::string manual(std::string_view program, std::string_view version,
                     std::span<const Exit> exits) const;

  static std::string variable_of(std::string_view name);  // "top-k" -> "SPLIT_TOP_K"

 private:
  // Stores a value, or returns what was expected instead.
  using Set = std::function<std::optional<std::string>(std::string_view value)>;
  struct Flag {
    std::string name, metavar, help, offered;
    size_t group = 0;
    bool switched = false;  // takes no value
    std::optional<std::string> implied;
    Set set;
    bool given = false;
    std::vector<std::string>* list = nullptr;
  };

  std::string bash_completion(std::string_view program, const std::vector<std::string>&) const;
  std::string zsh_completion(std::string_view program, const std::vector<std::string>&) const;
  std::string fish_completion(std::string_view program, const std::vector<std::string>&) const;

  void add(std::string name, std::string metavar, std::string help, Set set);
  void add_text(std::string name, std::string metavar, std::string help, std::string offered,
                std::function<void(std::string_view)> store);
  void add_number(std::string name, std::string metavar, std::string help, uint64_t low,
                  uint64_t high, std::function<void(uint64_t)> store);
  void add_bytes(std::string name, std::string metavar, std::string help, uint64_t low,
                 std::function<void(uint64_t)> store);
  Flag* find(std::string_view name);
  [[noreturn]] void refuse(std::string_view name) const;
  [[noreturn]] void refuse_argument(std::string_view argument) const;
  static void apply(Flag& flag, const std::string& source, std::string_view value);

  std::string summary_;
  size_t width_;
  std::vector<std::string> groups_;
  std::vector<Flag> flags_;
  std::vector<std::string> commands_;
  std::string text_flag_;
  std::string rest_metavar_;
  std::vector<std::string>* rest_ = nullptr;
};

}  // namespace split
