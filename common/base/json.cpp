#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/resources/fibres.h"
#include "base/resources/memory_budget.h"
#include "base/sort.h"

namespace split {

Json::Json(std::string text) : kind_(Kind::kString), string_(new std::string(std::move(text))) {}
Json::Json(std::string_view text) : Json(std::string(text)) {}
Json::Json(const char* text) : Json(std::string(text)) {}
Json::Json(Array values) : kind_(Kind::kArray), array_(new Array(std::move(values))) {}
Json::Json(Object members) : kind_(Kind::kObject), object_(new Object(std::move(members))) {}
Json::Json(std::initializer_list<Member> members) : Json(Object(members)) {}

Json::Json(const Json& other) : kind_(other.kind_), unsigned_(other.unsigned_) {
  if (is_string()) string_ = new std::string(*other.string_);
  if (is_array()) array_ = new Array(*other.array_);
  if (is_object()) object_ = new Object(*other.object_);
}

Json::Json(Json&& other) noexcept
    : kind_(std::exchange(other.kind_, Kind::kNull)), unsigned_(other.unsigned_) {}

Json& Json::operator=(Json other) noexcept {
  std::swap(kind_, other.kind_);
  std::swap(unsigned_, other.unsigned_);
  return *this;
}

Json::~Json() {
  if (is_string()) delete string_;
  if (is_array()) delete array_;
  if (is_object()) delete object_;
}

Json Json::array(std::initializer_list<Json> values) { return Array(values); }
Json Json::object() { return Object(); }

void Json::refuse(std::string_view expected) const {
  throw Error(ErrorKind::kInput, cat("JSON of another shape: expected ", expected));
}

const std::string& Json::text() const {
  if (!is_string()) refuse("a string");
  return *string_;
}

size_t Json::size() const {
  return is_null() ? 0 : is_array() ? array_->size() : is_object() ? object_->size() : 1;
}

const Json* Json::begin() const {
  if (!is_array()) refuse("an array");
  return array_->data();
}
const Json* Json::end() const { return begin() + array_->size(); }

const Json& Json::at(size_t index) const {
  if (!is_array() || index >= array_->size()) refuse(cat("an array of more than ", index));
  return (*array_)[index];
}

void Json::push_back(Json value) {
  if (is_null()) *this = array();
  if (!is_array()) refuse("an array");
  array_->push_back(std::move(value));
}

const Json::Object& Json::members() const {
  static const Object none;
  return is_object() ? *object_ : none;
}

const Json* Json::find(std::string_view name) const {
  for (const Member& member : members()) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view name) const {
  const Json* found = find(name);
  if (found == nullptr) refuse(cat("an object with ", shown(name)));
  return *found;
}

Json& Json::operator[](std::string_view name) {
  if (const Json* found = find(name)) return const_cast<Json&>(*found);
  add(std::string(name), {});
  return object_->back().value;
}

void Json::add(std::string name, Json value) {
  if (is_null()) *this = object();
  if (!is_object()) refuse("an object");
  object_->push_back({std::move(name), std::move(value)});
}

std::string Json::take_text() {
  if (!is_string()) refuse("a string");
  return std::move(*string_);
}
Json::Array Json::take_array() {
  if (!is_array()) refuse("an array");
  return std::move(*array_);
}
Json::Object Json::take_object() {
  if (!is_object()) refuse("an object");
  return std::move(*object_);
}

bool operator==(const Json& a, const Json& b) {
  using Kind = Json::Kind;
  if (a.is_number() && b.is_number()) {
    if (a.kind_ == Kind::kDouble || b.kind_ == Kind::kDouble) {
      return a.get<double>() == b.get<double>();
    }
    const auto negative = [](const Json& x) { return x.kind_ == Kind::kSigned && x.signed_ < 0; };
    return a.unsigned_ == b.unsigned_ && negative(a) == negative(b);
  }
  if (a.kind_ != b.kind_ || a.size() != b.size()) return false;
  if (a.is_boolean()) return a.boolean_ == b.boolean_;
  if (a.is_string()) return *a.string_ == *b.string_;
  if (a.is_array()) return *a.array_ == *b.array_;
  return std::ranges::all_of(a.members(), [&](const Json::Member& member) {
    const Json* other = b.find(member.name);
    return other != nullptr && member.value == *other;
  });
}

namespace {

// Quotes `text`. Leaves text that needs escapes, or may not be UTF-8, to the library.
void write_text(std::string& out, const std::string& text, const Json::Style& style) {
  const bool plain = std::ranges::all_of(
      text, [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; });
  if (plain) {
    out.append("\"").append(text).append("\"");
    return;
  }
  using Handler = nlohmann::json::error_handler_t;
  try {
    out += nlohmann::json(text).dump(-1, ' ', style.ascii,
                                     style.refuse_bytes ? Handler::strict : Handler::replace);
  } catch (const nlohmann::json::type_error&) {
    throw Error(ErrorKind::kInput, cat(shown(text), " is not UTF-8"));
  }
}

}  // namespace

void Json::write(std::string& out, const Style& style, int spaces) const {
  // Begins the line of a value or member, or of a closing bracket.
  const auto line = [&](int width) {
    if (style.indent >= 0) out.append(1, '\n').append(static_cast<size_t>(width), ' ');
  };
  const int inner = spaces + style.indent;
  char digits[24];
  switch (kind_) {
    case Kind::kNull:
      out += "null";
      return;
    case Kind::kBoolean:
      out += boolean_ ? "true" : "false";
      return;
    case Kind::kSigned:
      out.append(digits, std::to_chars(digits, digits + sizeof digits, signed_).ptr);
      return;
    case Kind::kUnsigned:
      out.append(digits, std::to_chars(digits, digits + sizeof digits, unsigned_).ptr);
      return;
    case Kind::kDouble:
      out += nlohmann::json(double_).dump();
      return;
    case Kind::kString:
      write_text(out, *string_, style);
      return;
    case Kind::kArray:
      out += '[';
      for (const Json& value : *array_) {
        if (&value != array_->data()) out += ',';
        line(inner);
        value.write(out, style, inner);
      }
      if (!array_->empty()) line(spaces);
      out += ']';
      return;
    case Kind::kObject:
      std::vector<const Member*> sorted;
      sorted.reserve(object_->size());
      for (const Member& member : *object_) sorted.push_back(&member);
      sort_stably(sorted, {}, [](const Member* m) -> const std::string& { return m->name; });
      out += '{';
      for (const Member* member : sorted) {
        if (member != sorted.front()) out += ',';
        line(inner);
        write_text(out, member->name, style);
        out += style.indent >= 0 ? ": " : ":";
        member->value.write(out, style, inner);
      }
      if (!sorted.empty()) line(spaces);
      out += '}';
      return;
  }
}

std::string Json::dump(const Style& style) const {
  std::string out;
  write(out, style, 0);
  return out;
}

namespace {

// Builds the value while the library reads the text.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(int max_depth, std::string_view where, MemoryShare* memory)
      : max_depth_(max_depth), where_(where), memory_(memory) {}

  Json take() {
    settle();
    return std::move(whole_);
  }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override {
    charge(kAllocated + sizeof(std::string));
    charge_text(value);
    return add(std::move(value));
  }
  bool binary(binary_t&) override { return false; }  // JSON has no binary values
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override {
    refuse_twice(open_.back().value.members());
    return close();
  }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    charge_text(name);
    key_ = std::move(name);
    return true;
  }
  // Drops the parser's own message: it quotes the input at any length.
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw Error(ErrorKind::kInput, cat(where_, " is not valid JSON at byte ", position));
  }

 private:
  // An allocation's header and rounding.
  static constexpr uint64_t kAllocated = 32;
  // A growing vector holds its values once before and twice after.
  static constexpr uint64_t kGrown = 3;

  void charge(uint64_t bytes) {
    owed_ += bytes;
    if (owed_ >= 1 << 16) settle();
  }
  void charge_text(const std::string& text) {
    if (text.size() >= sizeof(std::string) / 2) charge(kAllocated + text.size());
  }
  void settle() {
    if (memory_ != nullptr) memory_->take(owed_);
    owed_ = 0;
  }

  bool add(Json value) {
    fibres::yield();
    if (!open_.empty()) {
      charge(kGrown * (open_.back().value.is_array() ? sizeof(Json) : sizeof(Json::Member)));
    }
    if (open_.empty()) {
      whole_ = std::move(value);
    } else if (Json& outer = open_.back().value; outer.is_array()) {
      outer.push_back(std::move(value));
    } else {
      outer.add(std::move(key_), std::move(value));
    }
    return true;
  }
  bool open(Json value) {
    if (open_.size() == static_cast<size_t>(max_depth_)) {
      throw Error(ErrorKind::kInput,
                  cat(where_, " nests deeper than ", max_depth_, " objects and arrays"));
    }
    charge(kAllocated + sizeof(Json::Array));
    open_.push_back({std::move(key_), std::move(value)});
    return true;
  }
  bool close() {
    Json::Member done = std::move(open_.back());
    open_.pop_back();
    key_ = std::move(done.name);
    return add(std::move(done.value));
  }
  void refuse_twice(const Json::Object& members) const {
    std::vector<std::string_view> names;
    names.reserve(members.size());
    for (const Json::Member& member : members) names.push_back(member.name);
    sort_stably(names);
    const auto twice = std::ranges::adjacent_find(names);
    if (twice == names.end()) return;
    throw Error(ErrorKind::kInput, cat(where_, " has the key ", shown(*twice), " twice"));
  }

  int max_depth_;
  std::string_view where_;
  MemoryShare* memory_;
  uint64_t owed_ = 0;               // bytes that values are about to take
  std::vector<Json::Member> open_;  // each with its own name in its parent
  std::string key_;                 // name of an object's next member
  Json whole_;
};

// Returns the length of the UTF-8 character at `at`, or 0 if there is none (RFC 3629: no overlong
// forms, no surrogates).
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : 0u;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned next = byte(1);
  if ((lead == 0xe0 && next < 0xa0) || (lead == 0xed && next > 0x9f) ||
      (lead == 0xf0 && next < 0x90) || (lead == 0xf4 && next > 0x8f)) {
    return 0;
  }
  return length;
}

// Returns an upper bound of the longest string or number.
size_t longest_token(std::string_view text) {
  size_t longest = 0, begin = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;  // an escaped quote ends nothing
    } else if (text[at] == '"') {
      longest = std::max(longest, at - begin);
      begin = at + 1;
    }
  }
  return std::max(longest, text.size() - begin);
}

}  // namespace

Json parse_json(std::string_view text, int max_depth, std::string_view where, MemoryShare* memory) {
  // The parser holds a token twice before it reports it, raw and decoded, each in a doubling
  // buffer.
  if (memory != nullptr) memory->take(4 * longest_token(text));
  Builder builder(max_depth, where, memory);
  CHECK(nlohmann::json::sax_parse(text, &builder));
  return builder.take();
}

std::string shown(std::string_view name) {
  constexpr size_t kMost = 64;
  size_t length = std::min(name.size(), kMost);
  if (length < name.size()) {  // not within a UTF-8 character
    while (length > 0 && (static_cast<unsigned char>(name[length]) & 0xc0) == 0x80) --length;
  }
  std::string out = "'";
  for (const char c : name.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return out + (length < name.size() ? "...'" : "'");
}

std::string json_quote(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    const char c = text[i];
    if (length == 0) {
      out += "\xef\xbf\xbd";  // U+FFFD
      ++i;
      continue;
    }
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) {
      out += "\\u00";
      out += kHex[static_cast<uint8_t>(c) >> 4];
      out += kHex[c & 15];
    } else {
      out += text.substr(i, length);
    }
    i += length;
  }
  return out + '"';
}

}  // namespace split
