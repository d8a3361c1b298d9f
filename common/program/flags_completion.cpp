// The table of flags as a completion for bash.
#include <algorithm>

#include "program/flags.h"

namespace split {
namespace {

// "edge|cloud" as "edge cloud": those parts of a metavar that are words to be typed.
std::string words_of(std::string_view metavar) {
  std::string words;
  while (!metavar.empty()) {
    const size_t bar = std::min(metavar.find('|'), metavar.size());
    const std::string_view word = metavar.substr(0, bar);
    metavar.remove_prefix(std::min(bar + 1, metavar.size()));
    const bool typed = !word.empty() && std::ranges::all_of(word, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (typed) words += cat(words.empty() ? "" : " ", word);
  }
  return words;
}

}  // namespace

std::string Flags::bash_completion(std::string_view program,
                                   const std::vector<std::string>& commands) const {
  std::string all = "--help --version", files, folders, others, choices;
  for (const Flag& flag : flags_) {
    const std::string name = "--" + flag.name;
    all += " " + name;
    if (flag.switched || flag.implied) continue;
    const std::string words = words_of(flag.metavar);
    std::string& kind = flag.metavar == "FILE" ? files : flag.metavar == "DIR" ? folders : others;
    if (words.empty()) {
      kind += cat(kind.empty() ? "" : "|", name);
    } else {
      choices += cat("    ", name, ") COMPREPLY=($(compgen -W '", words, "' -- \"$word\")) ;;\n");
    }
  }
  for (const std::string& command : commands) all += " " + command;
  const auto arm = [](const std::string& names, const char* action) {
    return names.empty() ? "" : cat("    ", names, ") ", action, " ;;\n");
  };
  return cat("# bash completion of ", program, ": source <(", program, " --completion bash)\n", "_",
             program, "() {\n",
             "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n",
             "  COMPREPLY=()\n", "  case $before in\n", choices,
             arm(files, "COMPREPLY=($(compgen -f -- \"$word\"))"),
             arm(folders, "COMPREPLY=($(compgen -d -- \"$word\"))"), arm(others, ":"),
             "    *) COMPREPLY=($(compgen -W '", all, "' -- \"$word\")) ;;\n", "  esac\n", "}\n",
             "complete -F _", program, " ", program, "\n");
}

}  // namespace split
