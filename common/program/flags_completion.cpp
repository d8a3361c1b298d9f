// Writes the table of flags as a completion for shells.
#include <algorithm>

#include "program/flags.h"

namespace split {
namespace {

// "edge|cloud" as "edge cloud": the parts of a metavar that are typed as words.
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

// Shells distinguish words, files and folders as values.
bool is_folder(std::string_view metavar) { return metavar == "DIR"; }
bool is_file(std::string_view metavar) {
  return metavar == "FILE" || metavar.ends_with("PATH") || metavar.ends_with("FILE|TEXT");
}

// Text with a backslash before each of these characters.
std::string escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != special.npos) out += '\\';
    out += c;
  }
  return out;
}

// Text inside single quotes of a shell whose quotes know no backslash.
std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

const std::vector<std::string> Flags::kShells = {"bash", "zsh", "fish"};

std::string Flags::completion(std::string_view shell, std::string_view program,
                              const std::vector<std::string>& commands) const {
  if (shell == "zsh") return zsh_completion(program, commands);
  if (shell == "fish") return fish_completion(program, commands);
  CHECK(shell == "bash");
  return bash_completion(program, commands);
}

// Written for _arguments: '--flag[help]:value:what completes it'.
std::string Flags::zsh_completion(std::string_view program,
                                  const std::vector<std::string>& commands) const {
  std::string specs;
  const auto add = [&](bool often, std::string_view name, std::string_view help,
                       const std::string& value) {
    specs +=
        cat("    ",
            in_quotes(cat(often ? "*" : "", "--", name, "[", escaped(help, "[]:\\"), "]", value)),
            " \\\n");
  };
  for (const Flag& flag : flags_) {
    const std::string words = words_of(flag.offered.empty() ? flag.metavar : flag.offered);
    const std::string action = !words.empty()            ? cat("(", words, ")")
                               : is_file(flag.metavar)   ? "_files"
                               : is_folder(flag.metavar) ? "_files -/"
                                                         : "";
    const std::string value =
        cat(flag.implied ? "::" : ":", escaped(flag.metavar, "[]:\\"), ":", action);
    add(flag.list != nullptr, flag.name, flag.help, flag.switched ? "" : value);
  }
  add(false, "help", "print the flags", "");
  add(false, "version", "print the version", "");
  std::string words;
  for (const std::string& command : commands) words += cat(words.empty() ? "" : " ", command);
  const std::string rest =
      words.empty() ? "" : cat("    ", in_quotes(cat("1::command:(", words, ")")), " \\\n");
  return cat("#compdef ", program, "\n# zsh completion of ", program, ": source <(", program,
             " --completion zsh)\n_", program, "() {\n  _arguments -s -S \\\n", specs, rest,
             "    && return\n}\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then _", program,
             " \"$@\"; else compdef _", program, " ", program, "; fi\n");
}

std::string Flags::fish_completion(std::string_view program,
                                   const std::vector<std::string>& commands) const {
  std::string out = cat("# fish completion of ", program, ": ", program,
                        " --completion fish | source\ncomplete -c ", program, " -f\n");
  const auto add = [&](std::string_view name, std::string_view help, std::string_view value) {
    out += cat("complete -c ", program, " -l ", name, value, " -d '", escaped(help, "'\\"), "'\n");
  };
  for (const Flag& flag : flags_) {
    const std::string words = words_of(flag.offered.empty() ? flag.metavar : flag.offered);
    std::string value;
    if (flag.switched || flag.implied) {
    } else if (!words.empty()) {
      value = cat(" -x -a '", words, "'");
    } else if (is_folder(flag.metavar)) {
      value = " -x -a '(__fish_complete_directories)'";
    } else {
      value = is_file(flag.metavar) ? " -r -F" : " -x";
    }
    add(flag.name, flag.help, value);
  }
  add("help", "print the flags", "");
  add("version", "print the version", "");
  for (const std::string& command : commands) {
    out += cat("complete -c ", program, " -n __fish_use_subcommand -a ", command, "\n");
  }
  return out;
}

std::string Flags::bash_completion(std::string_view program,
                                   const std::vector<std::string>& commands) const {
  std::string all = "--help --version", files, folders, others, choices;
  for (const Flag& flag : flags_) {
    const std::string name = "--" + flag.name;
    all += " " + name;
    if (flag.switched || flag.implied) continue;
    const std::string words = words_of(flag.offered.empty() ? flag.metavar : flag.offered);
    std::string& kind = is_file(flag.metavar) ? files : is_folder(flag.metavar) ? folders : others;
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
