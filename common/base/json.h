// JSON: values that programs make and read, a strict parser for input, and a writer. nlohmann's
// library parses, and writes fractions and text that needs escapes; json.cpp alone includes it,
// since its templates cost each includer seconds to compile.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace split {

class MemoryShare;

// Null, a boolean, a number, a string, an array, or an object that keeps the order of its keys.
// A value takes 16 bytes, and what is in it is freed without an allocation. Braces make an object:
//   Json{{"id", id}, {"stages", Json::array({"embed", "head"})}}
// Readers throw Error(kInput) for a value of another kind.
class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  Json() noexcept : kind_(Kind::kNull), unsigned_(0) {}
  Json(std::nullptr_t) noexcept : Json() {}
  template <std::integral T>
  Json(T value) noexcept : unsigned_(0) {
    if constexpr (std::same_as<T, bool>) {
      kind_ = Kind::kBoolean, boolean_ = value;
    } else if constexpr (std::signed_integral<T>) {
      kind_ = Kind::kSigned, signed_ = value;
    } else {
      kind_ = Kind::kUnsigned, unsigned_ = value;
    }
  }
  Json(double value) noexcept : kind_(Kind::kDouble), double_(value) {}
  Json(std::string text);
  Json(std::string_view text);
  Json(const char* text);
  Json(Array values);
  Json(Object members);
  Json(std::initializer_list<Member> members);
  template <typename T>
  Json(std::span<const T> values) : Json(Array(values.begin(), values.end())) {}
  template <typename T>
  Json(const std::vector<T>& values) : Json(std::span<const T>(values)) {}

  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(Json other) noexcept;
  ~Json();

  static Json array(std::initializer_list<Json> values = {});
  static Json object();

  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_boolean() const { return kind_ == Kind::kBoolean; }
  bool is_number_unsigned() const { return kind_ == Kind::kUnsigned; }
  bool is_number_integer() const { return kind_ == Kind::kSigned || is_number_unsigned(); }
  bool is_number() const { return kind_ == Kind::kDouble || is_number_integer(); }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }

  // A boolean, a string, or a number of any kind as a T.
  template <typename T>
  T get() const {
    if constexpr (std::same_as<T, std::string>) {
      return text();
    } else if constexpr (std::same_as<T, bool>) {
      if (!is_boolean()) refuse("true or false");
      return boolean_;
    } else {
      if (!is_number()) refuse("a number");
      return kind_ == Kind::kDouble   ? static_cast<T>(double_)
             : kind_ == Kind::kSigned ? static_cast<T>(signed_)
                                      : static_cast<T>(unsigned_);
    }
  }
  const std::string& text() const;

  // Values of an array or members of an object; 0 of null, 1 of anything else.
  size_t size() const;
  bool empty() const { return size() == 0; }

  // The values of an array in turn.
  const Json* begin() const;
  const Json* end() const;
  const Json& at(size_t index) const;
  const Json& operator[](size_t index) const { return at(index); }
  // Null becomes an array first.
  void push_back(Json value);

  // The members of an object in turn; of anything else there are none.
  const Object& members() const;
  // Null if there is no such member. Linear in the number of members.
  const Json* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const Json& at(std::string_view name) const;
  const Json& operator[](std::string_view name) const { return at(name); }
  // Adds a missing member; null becomes an object first.
  Json& operator[](std::string_view name);
  // Adds a member without a search: the name must be new.
  void add(std::string name, Json value);
  // Moves out the string.
  std::string take_text();
  Array take_array();
  Object take_object();

  // Numbers are equal by value, objects whatever their order.
  friend bool operator==(const Json& a, const Json& b);

  struct Style {
    int indent = -1;            // spaces for each level; below 0: one line
    bool ascii = false;         // other characters as \u escapes
    bool refuse_bytes = false;  // throws Error(kInput) for invalid UTF-8, which else becomes U+FFFD
  };
  // Writes the value, with objects sorted by their keys' bytes; numbers that are not finite become
  // null.
  std::string dump(const Style& style) const;
  std::string dump() const { return dump({}); }

 private:
  enum class Kind : uint8_t {
    kNull,
    kBoolean,
    kSigned,
    kUnsigned,
    kDouble,
    kString,
    kArray,
    kObject
  };

  [[noreturn]] void refuse(std::string_view expected) const;
  void write(std::string& out, const Style& style, int spaces) const;

  Kind kind_;
  // NOLINTBEGIN(readability-identifier-naming): the union is private, and clang-tidy takes it for
  // public
  union {
    bool boolean_;
    int64_t signed_;
    uint64_t unsigned_;
    double double_;
    std::string* string_;  // owned, like the next two
    Array* array_;
    Object* object_;
  };
  // NOLINTEND(readability-identifier-naming)
};

struct Json::Member {
  std::string name;
  Json value;
};

// Parses the whole text as JSON. Refuses other bytes before or after the value, invalid UTF-8,
// numbers that do not fit, duplicate keys in an object, and more than `max_depth` nested objects
// and arrays. Throws Error(kInput) that begins with `where`. Time and memory are linear in the
// text; the caller caps its size, or gives a share that pays for the values before they are made
// and throws if it cannot. Values of one digit in an array take 24 bytes a byte of text.
Json parse_json(std::string_view text, int max_depth, std::string_view where,
                MemoryShare* memory = nullptr);

// Quotes `name` for a message: at most 64 bytes, no control characters.
std::string shown(std::string_view name);

// A JSON string literal with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string json_quote(std::string_view text);

}  // namespace split
