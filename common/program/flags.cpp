#include "program/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/bytes.h"
#include "base/json.h"

namespace split {
namespace {

constexpr size_t kHelpColumn = 30;

std::string range(uint64_t low, uint64_t high) {
  return cat("in ", low, "..", high == std::numeric_limits<uint64_t>::max() ? "" : cat(high));
}

// Insertions, deletions, other letters and swapped neighbours between two words.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t k = 0; k <= b.size(); ++k) {
      if (i == 0 || k == 0) {
        cost[i][k] = i + k;
        continue;
      }
      const size_t other = a[i - 1] == b[k - 1] ? 0 : 1;
      cost[i][k] = std::min({cost[i - 1][k] + 1, cost[i][k - 1] + 1, cost[i - 1][k - 1] + other});
      if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1]) {
        cost[i][k] = std::min(cost[i][k], cost[i - 2][k - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

void Flags::group(std::string title) { groups_.push_back(std::move(title)); }

void Flags::add(std::string name, std::string metavar, std::string help, Set set) {
  CHECK(find(name) == nullptr);
  if (groups_.empty()) groups_.push_back("Options");
  Flag flag;
  flag.name = std::move(name);
  flag.metavar = std::move(metavar);
  flag.help = std::move(help);
  flag.group = groups_.size() - 1;
  flag.set = std::move(set);
  flags_.push_back(std::move(flag));
}

void Flags::add_text(std::string name, std::string metavar, std::string help, std::string offered,
                     std::function<void(std::string_view)> store) {
  add(std::move(name), std::move(metavar), std::move(help),
      [store = std::move(store)](std::string_view value) -> std::optional<std::string> {
        store(value);
        return std::nullopt;
      });
  flags_.back().offered = std::move(offered);
}

void Flags::choice(std::string name, std::vector<std::string> words, std::string help,
                   std::string* out) {
  std::string metavar, expected;
  for (size_t i = 0; i < words.size(); ++i) {
    metavar += (i == 0 ? "" : "|") + words[i];
    expected += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  }
  add(std::move(name), std::move(metavar), std::move(help),
      [out, words = std::move(words),
       expected](std::string_view value) -> std::optional<std::string> {
        for (const std::string& word : words) {
          if (word != value) continue;
          *out = value;
          return std::nullopt;
        }
        return expected;
      });
}

void Flags::texts(std::string name, std::string metavar, std::string help,
                  std::vector<std::string>* out) {
  add(std::move(name), std::move(metavar), std::move(help),
      [out](std::string_view value) -> std::optional<std::string> {
        out->emplace_back(value);
        return std::nullopt;
      });
  flags_.back().list = out;
}

void Flags::add_number(std::string name, std::string metavar, std::string help, uint64_t low,
                       uint64_t high, std::function<void(uint64_t)> store) {
  add(std::move(name), std::move(metavar), std::move(help),
      [low, high, store = std::move(store)](std::string_view value) -> std::optional<std::string> {
        const std::optional<uint64_t> number = parse_u64(value, low, high);
        if (!number) return "a whole number " + range(low, high);
        store(*number);
        return std::nullopt;
      });
}

void Flags::add_bytes(std::string name, std::string metavar, std::string help, uint64_t low,
                      std::function<void(uint64_t)> store) {
  add(std::move(name), std::move(metavar), std::move(help),
      [low, store = std::move(store)](std::string_view value) -> std::optional<std::string> {
        constexpr std::string_view kUnits = "KMGT";
        uint64_t unit = 1;
        std::string_view digits = value;
        if (!digits.empty()) {
          const size_t power = kUnits.find(digits.back());
          if (power != kUnits.npos) {
            unit = uint64_t{1} << (10 * (power + 1));
            digits.remove_suffix(1);
          }
        }
        const auto number = parse_u64(digits, 0, std::numeric_limits<uint64_t>::max());
        const auto total = number ? checked_mul(*number, unit) : std::nullopt;
        if (!total || *total < low) {
          constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
          return cat("bytes ", range(low, kMost), ", perhaps with K, M, G or T");
        }
        store(*total);
        return std::nullopt;
      });
}

void Flags::real(std::string name, std::string metavar, std::string help, float* out, float low,
                 float high) {
  add(std::move(name), std::move(metavar), std::move(help),
      [out, low, high](std::string_view value) -> std::optional<std::string> {
        float number = 0;
        const auto [end, error] = parse_real(value.data(), value.data() + value.size(), number);
        if (error != std::errc() || end != value.data() + value.size() ||
            !(number >= low && number <= high)) {
          return cat("a number in ", low, "..", high);
        }
        *out = number;
        return std::nullopt;
      });
}

void Flags::toggle(std::string name, std::string help, bool* out) {
  add(std::move(name), "", std::move(help),
      [out](std::string_view value) -> std::optional<std::string> {
        const bool on = value == "1" || value == "true";
        if (!on && value != "0" && value != "false") return "1, true, 0 or false";
        *out = on;
        return std::nullopt;
      });
  flags_.back().switched = true;
}

void Flags::optional_text(std::string name, std::string metavar, std::string help,
                          std::string implied, std::string* out) {
  text(std::move(name), cat("[", metavar, "]"), std::move(help), out);
  flags_.back().implied = std::move(implied);
}

void Flags::rest(std::string metavar, std::vector<std::string>* out) {
  rest_metavar_ = std::move(metavar);
  rest_ = out;
}

Flags::Flag* Flags::find(std::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

// Names the flag that was meant: one with this beginning, or with a typo.
void Flags::refuse(std::string_view name) const {
  const std::string_view word = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  constexpr size_t kMostLetters = 40;  // longest flag
  std::vector<std::string_view> known;
  for (const Flag& flag : flags_) known.push_back(flag.name);
  known.insert(known.end(), {"help", "version"});
  std::string_view meant;
  size_t fewest = (word.size() + 1) / 3 + 1;  // most typos plus 1
  if (!word.empty() && word.size() <= kMostLetters) {
    for (const std::string_view one : known) {
      const size_t slips = one.starts_with(word) ? 0 : distance(word, one);
      if (slips < fewest && slips < word.size()) {
        fewest = slips;
        meant = one;
      }
    }
  }
  const bool plain = std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f; });
  throw Error(
      ErrorKind::kInput,
      cat("no flag ", plain && name.size() <= kMostLetters ? std::string(name) : shown(name),
          meant.empty() ? "; --help lists the flags" : cat("; did you mean --", meant, "?")));
}

void Flags::commands(std::vector<std::string> words, std::string text_flag) {
  commands_ = std::move(words);
  text_flag_ = std::move(text_flag);
}

void Flags::refuse_argument(std::string_view argument) const {
  std::string hint = "--help lists the flags";
  if (!text_flag_.empty()) {
    hint = given(text_flag_) ? "a text of several words needs quotes"
                             : cat("did you mean --", text_flag_, " ", shown(argument), "?");
  }
  for (const std::string& command : commands_) {
    constexpr size_t kSlips = 2;
    const size_t slips =
        argument.size() > 2 * command.size() ? kSlips + 1 : distance(argument, command);
    if (slips <= kSlips) hint = cat("did you mean ", command, "?");
    if (slips == 0) hint = cat(command, " comes first, before the flags");
  }
  throw Error(ErrorKind::kInput, cat("unexpected argument ", shown(argument), "; ", hint));
}

std::optional<bool> Flags::takes_value(std::string_view name) const {
  for (const Flag& flag : flags_) {
    if (flag.name == name) return !flag.switched;
  }
  return std::nullopt;
}

bool Flags::given(std::string_view name) const {
  for (const Flag& flag : flags_) {
    if (flag.name == name) return flag.given;
  }
  return false;
}

std::string Flags::variable_of(std::string_view name) {
  std::string variable = "SPLIT_";
  for (const char c : name) {
    variable += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return variable;
}

void Flags::apply(Flag& flag, const std::string& source, std::string_view value) {
  if (flag.list != nullptr && !flag.given) flag.list->clear();
  if (const auto expected = flag.set(value)) {
    throw Error(ErrorKind::kInput, cat(source, ": expected ", *expected, ", got ", shown(value)));
  }
  flag.given = true;
}

Flags::Asked Flags::parse(const std::vector<std::string>& arguments,
                          const Environment& environment) {
  bool only_rest = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (!only_rest && argument == "--") {
      only_rest = true;
      continue;
    }
    if (!only_rest && (argument == "--help" || argument == "-h")) return Asked::kHelp;
    if (!only_rest && argument == "--version") return Asked::kVersion;
    if (only_rest || !argument.starts_with("-") || argument == "-") {
      if (rest_ == nullptr) {
        refuse_argument(argument);
      }
      rest_->emplace_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    Flag* const flag = name.starts_with("--") ? find(name.substr(2)) : nullptr;
    if (flag == nullptr) refuse(name);
    const std::string source(name);
    if (flag->switched) {
      if (equals != argument.npos) {
        throw Error(ErrorKind::kInput,
                    cat(source, ": takes no value, got ", shown(argument.substr(equals + 1))));
      }
      apply(*flag, source, "1");
    } else if (equals != argument.npos) {
      apply(*flag, source, argument.substr(equals + 1));
    } else if (flag->implied && (i + 1 == arguments.size() || arguments[i + 1].starts_with("-"))) {
      apply(*flag, source, *flag->implied);
    } else if (i + 1 < arguments.size()) {
      apply(*flag, source, arguments[++i]);
    } else {
      throw Error(ErrorKind::kInput, cat(source, ": expected a value (", flag->metavar, ")"));
    }
  }
  for (Flag& flag : flags_) {
    if (flag.given) continue;
    const std::string variable = variable_of(flag.name);
    const char* const value = environment(variable.c_str());
    if (value == nullptr || *value == '\0') continue;
    std::string_view left = value;
    if (flag.list == nullptr) {
      apply(flag, variable, flag.implied && left == "1" ? *flag.implied : left);
      continue;
    }
    while (!left.empty()) {
      const size_t end = std::min(left.find('\n'), left.size());
      if (end > 0) apply(flag, variable, left.substr(0, end));
      left.remove_prefix(std::min(end + 1, left.size()));
    }
  }
  return Asked::kNothing;
}

Flags::Asked Flags::parse(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) arguments.emplace_back(argv[i]);
  return parse(arguments, [](const char* name) -> const char* { return std::getenv(name); });
}

std::string Flags::help(std::span<const Exit> exits) const {
  std::string out = summary_;
  const auto line = [&](std::string left, std::string_view text, size_t column = kHelpColumn) {
    if (!left.empty() && left.size() + 2 > column) {
      out += left + "\n";
      left.clear();
    }
    // Words, as many as fit.
    while (!text.empty()) {
      size_t take = text.size();
      if (take > width_ - column) {
        const size_t space = text.rfind(' ', width_ - column);
        take = space == text.npos || space == 0 ? width_ - column : space;
      }
      left.resize(column, ' ');
      out += cat(left, text.substr(0, take), "\n");
      left.clear();
      text.remove_prefix(take);
      while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    }
  };
  for (size_t group = 0; group < groups_.size(); ++group) {
    out += "\n" + groups_[group] + ":\n";
    for (const Flag& flag : flags_) {
      if (flag.group != group) continue;
      line("  --" + flag.name + (flag.metavar.empty() ? "" : " " + flag.metavar), flag.help);
    }
  }
  out += "\n";
  line("",
       "Each is also an environment variable (--top-k 40 is SPLIT_TOP_K=40). Also: --help, "
       "--version.",
       0);
  std::string codes;
  for (const Exit& exit : exits) {
    codes += cat(codes.empty() ? "Exit codes: " : "; ", exit.code, " ", exit.meaning);
  }
  if (!codes.empty()) line("", codes + ".", 0);
  return out;
}

}  // namespace split
