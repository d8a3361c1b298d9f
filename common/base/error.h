// Errors and checks. Everything that can go wrong outside our own code (bad input, files, devices,
// networks) is an Error with a kind, which main() and the HTTP server turn into an exit code or a
// status. Our own bugs are CHECKs, which are always on. This layer knows nothing of tensors,
// models, files' meaning or sockets.
#pragma once

#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>

namespace split {

enum class ErrorKind {
  kShape,      // sizes that do not match
  kInput,      // a user's or a request's input
  kNotFound,   // a missing name, id or file
  kIo,         // files and memory maps
  kDevice,     // a compute device failed or is not usable
  kRemote,     // the other machine
  kBusy,       // a budget is spent: try again later
  kIntegrity,  // bytes that do not match their hash or size
  kInUse,      // an address on which another server listens
};

// The one exception type of common/. Messages read "[where] what: expected ..., got ...".
class Error : public std::runtime_error {
 public:
  // `field`: the wrong part of a request, if any.
  Error(ErrorKind kind, const std::string& message, std::string field = {})
      : std::runtime_error(message), kind_(kind), field_(std::move(field)) {}
  ErrorKind kind() const { return kind_; }
  const std::string& field() const { return field_; }

 private:
  ErrorKind kind_;
  std::string field_;
};

// Appends a value as a stream would print it; cat() joins several. Streams themselves are a sixth
// of the compile time of a file that includes them.
void append(std::string& out, std::string_view text);
void append(std::string& out, char c);
void append(std::string& out, double value);  // six significant digits
void append(std::string& out, long long value);
void append(std::string& out, unsigned long long value);
// A number in hexadecimal.
struct Hex {
  unsigned long long value;
};
void append(std::string& out, Hex hex);
template <std::integral T>
void append(std::string& out, T value) {
  if constexpr (std::signed_integral<T>) {
    append(out, static_cast<long long>(value));
  } else {
    append(out, static_cast<unsigned long long>(value));
  }
}

template <typename... Args>
std::string cat(const Args&... args) {
  std::string out;
  (append(out, args), ...);
  return out;
}

// Throws std::logic_error: a broken invariant of this program, never a user's mistake.
[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace split

#define CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::split::check_failed(__FILE__, __LINE__, #condition))
