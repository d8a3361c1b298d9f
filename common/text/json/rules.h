// Rules of JSON's values, for grammars (json_grammar.h): strings and integers within bounds,
// arrays, members of objects, and any value. Makes each once. Knows no schema.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/json.h"
#include "text/grammar.h"

namespace split {

class JsonRules {
 public:
  explicit JsonRules(MemoryShare* memory = nullptr) : grammar_(memory) {}

  using Symbol = Grammar::Symbol;
  using Sequence = Grammar::Sequence;

  // An integer without bounds lies between this and its opposite: a double holds 15 digits.
  static constexpr int64_t kMostInteger = 999'999'999'999'999;
  static constexpr int64_t kMostBound = 1'000'000'000'000'000'000;  // limit of given bounds

  static Sequence join(std::initializer_list<Sequence> parts);
  Sequence lit(std::string_view text) { return grammar_.literal(text); }
  Symbol either(const std::vector<Sequence>& alternatives);

  // A string of so many characters.
  Symbol string(int64_t least, std::optional<int64_t> most);
  // A string with this text between its quotes.
  Symbol string(Symbol text) { return either({join({lit("\""), {text}, lit("\"")})}); }
  Symbol character();  // in a string: valid UTF-8 or an escape
  // Code points, by their first and last, in order and apart: a string's character among them,
  // escaped if it has to be. Throws Error(kInput) for none.
  using Characters = std::vector<std::pair<char32_t, char32_t>>;
  Symbol one_of(const Characters& some);
  Symbol number(bool negative);
  // low <= value <= high, neither beyond kMostBound.
  Symbol integer(int64_t low, int64_t high);
  // A bound of a number: `scaled` / 10^places, included unless it is open.
  struct Bound {
    int64_t scaled = 0;
    bool open = false;
  };
  static constexpr size_t kMostPlaces = 6;
  // A number between two bounds, with a value and not beyond kMostBound, without exponent.
  Symbol decimal(const Bound& low, const Bound& high, size_t places);
  // Any characters up to and with the first `mark`, which is ASCII.
  Symbol text_until(std::string_view mark);
  // One character, line breaks and tabs too, but none of `none`, and no other control.
  Symbol character_but(std::string_view none);
  Symbol any_value();
  Symbol any_object();
  // From here on texts and names are written as quoted.h says, by this mark; empty: as JSON. Texts
  // have no bounds then.
  void quote_by(std::string mark) { quote_ = std::move(mark); }
  bool is_quoted() const { return !quote_.empty(); }
  // A value or a name as they are written. Throws Error(kInput) for one that cannot be.
  Sequence written(const Json& value);
  Sequence name(std::string_view text);
  Symbol any_name();
  // An object with members of this name and value.
  Symbol object(Symbol name, Symbol value);
  // `first`, as far as the length allows, then `item`.
  Symbol array(const std::vector<Symbol>& first, Symbol item, int64_t least,
               std::optional<int64_t> most);
  Symbol space();
  Symbol many(const Sequence& one);  // any number of times
  Symbol at_most(const Symbol& one, size_t count);
  Symbol bytes(std::string_view any);  // one of these
  // Leaves 1/`parts` of the bounds' rest for what is made from here on.
  void allow(size_t parts) { grammar_.allow(parts); }
  size_t room() const { return grammar_.room(); }

  Grammar take(Symbol text);
  // Comparisons of two texts or values that may still be made for schemas: one budget for a whole
  // grammar, some 20 ms.
  int64_t& steps() { return steps_; }

 private:
  // Makes a rule once.
  template <typename Make>
  Symbol once(const std::string& name, const Make& make, bool nests = false) {
    const std::string key = quote_ + name;
    const auto at = known_.find(key);
    if (at != known_.end()) return Grammar::rule(at->second);
    const uint32_t rule = known_[key] = grammar_.add_rule(nests);
    try {
      make(rule);
    } catch (...) {  // drops the half-made rule
      known_.erase(key);
      throw;
    }
    return Grammar::rule(rule);
  }
  Symbol wide_character();
  Symbol digit(char low = '0', char high = '9');
  Symbol digits(size_t least, size_t most);
  // Puts a point before the last `places` digits, if any.
  Symbol naturals(uint64_t low, uint64_t high, size_t places = 0);
  Symbol span(const std::string& low, const std::string& high, char zero = '0', char nine = '9',
              size_t places = 0);
  Symbol magnitudes(const Bound& low, const Bound& high, size_t places);
  void members(uint32_t rule, Symbol name, Symbol value);

  Grammar grammar_;
  std::string quote_;
  int64_t steps_ = 1 << 22;
  const uint32_t text_ = grammar_.add_rule();
  std::map<std::string, uint32_t, std::less<>> known_;
};

}  // namespace split
