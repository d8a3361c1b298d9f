#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"

namespace split {
namespace {

using nlohmann::json;

// A pass that builds nothing. json::parse's own callback could check the same, but it walks all
// earlier members of an object at the end of each nested one: seconds for a header of a few MB.
class Checker : public nlohmann::json_sax<json> {
 public:
  Checker(int max_depth, std::string_view where) : max_depth_(max_depth), where_(where) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return start(); }
  bool start_array(size_t) override { return start(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) {
      throw Error(ErrorKind::kInput, cat(where_, " has the key ", shown(name), " twice"));
    }
    return true;
  }
  // The parser's own text is left out: it quotes the input at any length.
  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    throw Error(ErrorKind::kInput, cat(where_, " is not valid JSON at byte ", position));
  }

 private:
  bool start() {
    keys_.emplace_back();
    if (keys_.size() > static_cast<size_t>(max_depth_)) {
      throw Error(ErrorKind::kInput,
                  cat(where_, " nests deeper than ", max_depth_, " objects and arrays"));
    }
    return true;
  }
  bool end() {
    keys_.pop_back();
    return true;
  }

  int max_depth_;
  std::string_view where_;
  std::vector<std::set<std::string>> keys_;  // of each open object; empty for an open array
};

}  // namespace

nlohmann::json parse_json(std::string_view text, int max_depth, std::string_view where) {
  Checker checker(max_depth, where);
  CHECK(json::sax_parse(text, &checker));
  return json::parse(text);
}

std::string shown(std::string_view name) {
  constexpr size_t kMost = 64;
  size_t length = std::min(name.size(), kMost);
  if (length < name.size()) {  // not in the middle of a UTF-8 character
    while (length > 0 && (static_cast<unsigned char>(name[length]) & 0xc0) == 0x80) --length;
  }
  std::string out = "'";
  for (const char c : name.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return out + (length < name.size() ? "...'" : "'");
}

}  // namespace split
