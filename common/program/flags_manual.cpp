// Writes the table of flags as a page for man(1).
#include <algorithm>

#include "program/flags.h"

namespace split {
namespace {

// Returns text that roff prints as it is: no line is a request, and hyphens can be searched and
// copied.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

// The first line of the summary without the program's name, and the lines behind it.
std::pair<std::string_view, std::string_view> summary_parts(std::string_view summary) {
  const size_t end = std::min(summary.find('\n'), summary.size());
  std::string_view first = summary.substr(0, end);
  const size_t colon = first.find(": ");
  if (colon != first.npos) first.remove_prefix(colon + 2);
  return {first, summary.substr(std::min(end + 1, summary.size()))};
}

}  // namespace

std::string Flags::manual(std::string_view program, std::string_view version,
                          std::span<const Exit> exits) const {
  const auto [about, usage] = summary_parts(summary_);
  std::string out = cat(".TH ", upper(program), " 1 \"\" \"SplitCompute ", version,
                        "\" \"User Commands\"\n.SH NAME\n", plain(program), " \\- ", plain(about),
                        "\n.SH SYNOPSIS\n.nf\n", plain(usage), ".fi\n.SH OPTIONS\n");
  for (size_t group = 0; group < groups_.size(); ++group) {
    out += cat(".SS ", plain(groups_[group]), "\n");
    for (const Flag& flag : flags_) {
      if (flag.group != group) continue;
      out += cat(".TP\n\\fB", plain("--" + flag.name), "\\fR",
                 flag.metavar.empty() ? "" : cat(" \\fI", plain(flag.metavar), "\\fR"), "\n",
                 plain(flag.help), "\n");
    }
  }
  out += ".SH ENVIRONMENT\nEach flag is also a variable:\n";
  if (!flags_.empty()) {
    out += cat("\\fB", plain("--" + flags_[0].name), "\\fR is \\fB", variable_of(flags_[0].name),
               "\\fR.\n");
  }
  out += "A flag goes before its variable; of several values there is one a line.\n";
  if (exits.empty()) return out;
  out += ".SH EXIT STATUS\n";
  for (const Exit& exit : exits) {
    out += cat(".TP\n\\fB", exit.code, "\\fR\n", plain(exit.meaning), "\n");
  }
  return out;
}

}  // namespace split
