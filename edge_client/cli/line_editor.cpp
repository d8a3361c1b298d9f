#include "edge_client/cli/line_editor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>

#include "program/terminal.h"

namespace split::edge {
namespace {

constexpr size_t kLineBytes = 64 << 10;  // bytes of a line
constexpr size_t kMostLines = 1000;      // lines of the history
constexpr size_t kMostEscape = 16;       // bytes of a key

// Counts characters; wide ones count as one column.
size_t length(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

// Changes the terminal's mode until the result goes.
std::shared_ptr<void> with_mode(int fd, const std::function<void(termios&)>& change) {
  termios before{};
  if (::tcgetattr(fd, &before) != 0) return nullptr;
  termios mode = before;
  change(mode);
  ::tcsetattr(fd, TCSADRAIN, &mode);
  return {nullptr, [fd, before](void*) { ::tcsetattr(fd, TCSADRAIN, &before); }};
}

std::shared_ptr<void> without_echo(int fd) {
  return with_mode(fd, [](termios& mode) { mode.c_lflag &= ~static_cast<tcflag_t>(ECHO); });
}

// Keys come one by one and without echo.
std::shared_ptr<void> raw_mode(int fd) {
  return with_mode(fd, [](termios& mode) {
    mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    mode.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
    mode.c_cc[VMIN] = 1;
    mode.c_cc[VTIME] = 0;
  });
}

Fd new_wake() { return expect_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "an event"); }

}  // namespace

enum class LineEditor::Came { kKeys, kLines, kNothing };

size_t Line::before(size_t at) const {
  while (at > 0 && (text_[--at] & 0xc0) == 0x80) continue;
  return at;
}

size_t Line::after(size_t at) const {
  if (at < text_.size()) ++at;
  while (at < text_.size() && (text_[at] & 0xc0) == 0x80) ++at;
  return at;
}

void Line::erase(size_t from, size_t to) {
  text_.erase(from, to - from);
  at_ = from;
}

void Line::insert(char byte) {
  if (text_.size() >= kLineBytes) return;
  text_.insert(at_++, 1, byte);
}

void Line::recall(const std::vector<std::string>& history, size_t back) {
  if (back > history.size()) return;
  if (back_ == 0) typed_ = text_;
  back_ = back;
  text_ = back == 0 ? typed_ : history[history.size() - back];
  at_ = text_.size();
}

// Handles the bytes after ESC: "[A", "OA", "[3~" and the like.
void Line::escape(char byte, const std::vector<std::string>& history) {
  escape_ += byte;
  const bool begins = escape_.size() == 2 && (byte == '[' || byte == 'O');
  const bool more = escape_.size() > 2 && ((byte >= '0' && byte <= '9') || byte == ';');
  if (escape_.size() > kMostEscape) escape_.pop_back();  // no key that is used is so long
  if (begins || more) return;
  const std::string keys = escape_.size() > 2 ? escape_.substr(2) : "";
  escape_.clear();
  if (keys == "A") recall(history, back_ + 1);
  if (keys == "B" && back_ > 0) recall(history, back_ - 1);
  if (keys == "C") at_ = after(at_);
  if (keys == "D") at_ = before(at_);
  if (keys == "H" || keys == "1~") at_ = 0;
  if (keys == "F" || keys == "4~") at_ = text_.size();
  if (keys == "3~") erase(at_, after(at_));
}

Line::Key Line::type(char byte, const std::vector<std::string>& history) {
  const auto control = [](char letter) { return static_cast<char>(letter & 0x1f); };
  if (!escape_.empty()) {
    escape(byte, history);
  } else if (byte == 0x1b) {
    escape_ = byte;
  } else if (byte == '\r' || byte == '\n') {
    return Key::kEnter;
  } else if (byte == control('C')) {
    return Key::kCancel;
  } else if (byte == control('D')) {
    if (text_.empty()) return Key::kEnd;
    erase(at_, after(at_));
  } else if (byte == 0x7f || byte == control('H')) {
    erase(before(at_), at_);
  } else if (byte == control('A')) {
    at_ = 0;
  } else if (byte == control('E')) {
    at_ = text_.size();
  } else if (byte == control('B')) {
    at_ = before(at_);
  } else if (byte == control('F')) {
    at_ = after(at_);
  } else if (byte == control('K')) {
    erase(at_, text_.size());
  } else if (byte == control('U')) {
    erase(0, at_);
  } else if (byte == control('W')) {
    const size_t end = text_.find_last_not_of(' ', at_ == 0 ? 0 : at_ - 1);
    const size_t space = end == text_.npos ? text_.npos : text_.rfind(' ', end);
    erase(space == text_.npos || at_ == 0 ? 0 : space + 1, at_);
  } else if (byte == control('L')) {
    return Key::kClear;
  } else if (byte == control('P')) {
    recall(history, back_ + 1);
  } else if (byte == control('N') && back_ > 0) {
    recall(history, back_ - 1);
  } else if (static_cast<unsigned char>(byte) >= 0x20) {
    insert(byte);
  }
  return Key::kMore;
}

std::string Line::drawn(std::string_view prompt, size_t prompt_columns, size_t columns) const {
  const size_t room = columns > prompt_columns + 1 ? columns - prompt_columns - 1 : 1;
  const size_t cursor = length(std::string_view(text_).substr(0, at_));
  size_t begin = 0;
  for (size_t hidden = cursor > room ? cursor - room : 0; hidden > 0; --hidden)
    begin = after(begin);
  size_t end = begin, shown = 0;
  for (; end < text_.size() && shown < room; ++shown) end = after(end);
  const size_t column = length(std::string_view(text_).substr(begin, at_ - begin));
  std::string out = cat("\r", prompt, text_.substr(begin, end - begin), "\x1b[K");
  if (shown > column) out += cat("\x1b[", shown - column, "D");
  return out;
}

LineEditor::LineEditor(int input, Say say, Interrupt& interrupt, std::filesystem::path history)
    : input_(input),
      say_(std::move(say)),
      interrupt_(interrupt),
      file_(std::move(history)),
      no_echo_(without_echo(input)),
      told_wake_(new_wake()) {
  if (file_.empty()) return;
  std::ifstream in(file_);
  for (std::string line; std::getline(in, line) && line.size() <= kLineBytes;) {
    if (!line.empty()) history_.push_back(line);
    if (history_.size() > 2 * kMostLines) {
      history_.erase(history_.begin(), history_.end() - static_cast<ptrdiff_t>(kMostLines));
    }
  }
}

// Adds a line to the history. Errors are ignored: the line was typed for its answer.
void LineEditor::remember(const std::string& line) {
  if (line.empty() || (!history_.empty() && history_.back() == line)) return;
  history_.push_back(line);
  if (history_.size() > kMostLines) history_.erase(history_.begin());
  if (file_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(file_.parent_path(), ignored);
  // Private: it holds what its user wrote.
  const Fd fd(::open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  const std::string row = line + "\n";
  if (fd && ::write(fd.get(), row.data(), row.size()) < 0) return;
}

// Waits for keys, or for lines to print. kNothing: the input has ended.
LineEditor::Came LineEditor::fill(int wake) {
  for (;;) {
    pollfd fds[3] = {{input_, POLLIN, 0}, {wake, POLLIN, 0}, {told_wake_.get(), POLLIN, 0}};
    if (::poll(fds, 3, -1) < 0) continue;
    if (fds[1].revents != 0) return Came::kNothing;
    if (fds[2].revents != 0) return Came::kLines;
    char buffer[4096];
    const ssize_t n = ::read(input_, buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n > 0) typed_ahead_.append(buffer, static_cast<size_t>(n));
    return n > 0 ? Came::kKeys : Came::kNothing;
  }
}

void LineEditor::tell(std::string_view lines) {
  const std::lock_guard lock(telling_);
  told_ += lines;
  wake_reader(told_wake_);
}

void LineEditor::say_told() {
  const std::lock_guard lock(telling_);
  uint64_t times = 0;
  if (told_.empty() || ::read(told_wake_.get(), &times, sizeof times) < 0) return;
  say_("\r\x1b[K");
  say_(std::exchange(told_, {}));
}

LineEditor::Outcome LineEditor::read(std::string_view prompt, size_t prompt_columns,
                                     std::string& line) {
  const Fd wake = new_wake();
  const Interrupt::Hook hook(interrupt_, [&] { wake_reader(wake); });
  const std::shared_ptr<void> raw = raw_mode(input_);
  Line typed;
  const auto draw = [&] {
    const size_t columns = terminal_columns(input_);
    say_(typed.drawn(prompt, prompt_columns, columns));
  };
  for (;;) {
    say_told();
    draw();
    const Came came = typed_ahead_.empty() ? fill(wake.get()) : Came::kKeys;
    if (came == Came::kLines) continue;
    if (came == Came::kNothing) {
      say_("\r\n");
      return Outcome::kEnd;
    }
    const std::string keys = std::exchange(typed_ahead_, {});
    for (size_t i = 0; i < keys.size(); ++i) {
      const Line::Key key = typed.type(keys[i], history_);
      if (key == Line::Key::kClear) say_("\x1b[H\x1b[2J");
      if (key == Line::Key::kMore || key == Line::Key::kClear) continue;
      if (key == Line::Key::kCancel) {
        say_("^C\r\n");
        return Outcome::kCancelled;  // pasted lines after it are dropped
      }
      typed_ahead_ = keys.substr(i + 1);
      if (i > 0) draw();
      say_("\r\n");
      if (key == Line::Key::kEnd) return Outcome::kEnd;
      line = typed.text();
      remember(line);
      return Outcome::kLine;
    }
  }
}

std::filesystem::path history_file(const std::function<const char*(const char*)>& environment) {
  constexpr const char* kName = "splitcompute/history";
  const char* const state = environment("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return std::filesystem::path(state) / kName;
  const char* const home = environment("HOME");
  if (home == nullptr || *home != '/') return {};
  return std::filesystem::path(home) / ".local/state" / kName;
}

}  // namespace split::edge
