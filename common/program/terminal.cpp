#include "program/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"

namespace split {
namespace {

// Bytes of one unit on the screen: a character, or a sequence that takes no column.
size_t bytes_at(std::string_view text, size_t at) {
  size_t end = at + 1;
  if (text.substr(at).starts_with("\x1b[")) {
    end = std::min(text.find_first_not_of("0123456789;", at + 2), text.size() - 1) + 1;
  }
  while (end < text.size() && (text[end] & 0xc0) == 0x80) ++end;
  return end - at;
}

size_t columns_of(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size(); at += bytes_at(text, at)) {
    columns += text[at] == '\x1b' || text[at] == '\r' ? 0 : 1;
  }
  return columns;
}

// Cuts a line; keeps all sequences, so that colours end.
std::string cut(std::string_view line, size_t columns) {
  std::string out;
  size_t shown = 0;
  for (size_t at = 0; at < line.size();) {
    const std::string_view one = line.substr(at, bytes_at(line, at));
    at += one.size();
    if (one == "\r") shown = 0;
    if (columns_of(one) == 0 || shown++ < columns) out += one;
  }
  return out;
}

// The column at which words beside a name on the left begin.
size_t hanging(std::string_view line, size_t columns) {
  size_t indent = 2;
  for (size_t at = line.find_first_not_of(' '); at < line.size();) {
    const size_t gap = line.find("  ", at);
    at = gap == line.npos ? gap : line.find_first_not_of(' ', gap);
    if (at == line.npos || columns_of(line.substr(0, at)) > columns / 2) break;
    indent = columns_of(line.substr(0, at));
  }
  return indent;
}

// The end of the word at `begin`. A number keeps its unit, and "ms" its number.
size_t word_end(std::string_view line, size_t begin) {
  const size_t end = std::min(line.find(' ', begin), line.size());
  const std::string_view word = line.substr(begin, end - begin), rest = line.substr(end);
  const bool number = word.find_first_not_of("(0123456789.,") == word.npos && word.back() >= '0';
  const bool led = rest.size() > 1 && (rest[1] == '%' || (rest[1] >= 'a' && rest[1] <= 'z') ||
                                       (rest[1] >= 'A' && rest[1] <= 'Z'));
  return (number || word == "ms") && led ? word_end(line, end + 1) : end;
}

std::string wrapped_line(std::string_view line, size_t columns) {
  if (columns_of(line) <= columns) return std::string(line);
  const size_t indent = hanging(line, columns);
  std::string out, row;
  size_t begin = std::min(line.find_first_not_of(' '), line.size());
  row = line.substr(0, begin);
  bool fresh = true;  // the row has no word yet
  while (begin < line.size()) {
    const size_t end = word_end(line, begin);
    const size_t next = std::min(line.find_first_not_of(' ', end), line.size());
    const std::string_view word = line.substr(begin, end - begin);
    if (!fresh && columns_of(row) + columns_of(word) > columns) {
      row.erase(row.find_last_not_of(' ') + 1);
      out += row + "\n";
      row.assign(indent, ' ');
    }
    row += line.substr(begin, next - begin);
    fresh = false;
    begin = next;
  }
  return out + row;
}

}  // namespace

size_t terminal_columns(int fd) {
  winsize size{};
  if (::isatty(fd) != 1) return 0;
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string wrapped(std::string_view text, size_t columns) {
  if (columns == 0) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const bool drawn = line.find('\r') != line.npos;
    out += drawn ? cut(line, columns - 1) : wrapped_line(line, columns);
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string RunningText::next(std::string_view piece) {
  if (columns_ == 0) return std::string(piece);
  std::string out;
  for (size_t at = 0; at < piece.size();) {
    const std::string_view one = piece.substr(at, bytes_at(piece, at));
    at += one.size();
    const auto first = static_cast<uint8_t>(one[0]);
    const bool full = at_ + 1 >= columns_ && !plain_;
    if (one == "\n" || (one == " " && full)) {
      out += '\n';
      *this = RunningText(columns_);
      continue;
    }
    plain_ |= first < ' ' || first >= 0xe3;
    const size_t back = full ? columns_of(word_) : at_;
    if (back < at_ && !plain_) {  // else the terminal breaks a word that is wider than itself
      out += cat(back > 0 ? cat("\x1b[", back, "D\x1b[K") : "", "\n", word_);
      at_ = back;
    }
    out += one;
    at_ = at_ % columns_ + 1;
    word_ = one == " " ? "" : cat(word_, one);
  }
  return out;
}

std::string marked(bool colors, Mark mark, std::string_view text) {
  if (!colors || text.empty()) return std::string(text);
  return cat("\x1b[", static_cast<int>(mark), "m", text, "\x1b[0m");
}

}  // namespace split
