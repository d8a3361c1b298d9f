#include "text/unigram/charsmap.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/resources/fibres.h"
#include "base/resources/memory_budget.h"
#include "text/unigram/graphemes.h"
#include "text/utf8.h"

namespace split {
namespace {

constexpr size_t kMostText = 256;  // a replacement's bytes; the longest of Unicode's NFKC has 33

// The fields of a unit (darts-clone).
uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & ~(1u << 31); }

template <typename... Args>
[[noreturn]] void fail(const Args&... what) {
  throw Error(ErrorKind::kInput, cat("charsmap: ", what...));
}

uint32_t read_word(std::string_view bytes) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i) word |= uint32_t{static_cast<unsigned char>(bytes[i])} << 8 * i;
  return word;
}

}  // namespace

Charsmap::Charsmap(std::string_view blob) {
  const size_t size = blob.size() < 4 ? 0 : read_word(blob);
  if (size == 0 || size % 4 != 0 || size > blob.size() - 4) {
    fail("expected a trie of whole units within ", blob.size(), " bytes, got one of ", size);
  }
  units_.resize(size / 4);
  for (size_t i = 0; i < units_.size(); ++i) units_[i] = read_word(blob.substr(4 + 4 * i, 4));
  texts_ = blob.substr(4 + size);
  check();
}

// Walks every path once; a node that leads back to itself would be a loop.
void Charsmap::check() const {
  if (to_valid_utf8(texts_) != texts_) fail("its replacements are no UTF-8");
  struct Node {
    uint32_t base;   // its children stand at base ^ label
    uint32_t label;  // the next one to look at
  };
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> seen(units_.size(), kNew);
  std::vector<std::pair<uint32_t, Node>> path;  // a unit's index, and its walk's node
  const auto enter = [&](uint32_t index, uint32_t from) {
    const uint32_t unit = units_[index], base = from ^ offset_of(unit);
    if (seen[index] == kOpen) fail("its trie loops at unit ", index);
    if (seen[index] == kDone) return;
    seen[index] = kOpen;
    if (has_leaf(unit)) {
      if (base >= units_.size()) fail("its trie leaves its array at unit ", index);
      const size_t at = value_of(units_[base]);
      const size_t end = at < texts_.size() ? texts_.find('\0', at) : texts_.npos;
      const bool begins = at < texts_.size() && (texts_[at] & 0xC0) != 0x80;
      if (!begins || (end == texts_.npos ? texts_.size() : end) - at > kMostText) {
        fail("expected a replacement of at most ", kMostText, " bytes at byte ", at, " of ",
             texts_.size());
      }
    }
    path.push_back({index, {base, 1}});
  };
  enter(0, 0);
  while (!path.empty()) {
    fibres::yield();
    auto& [index, node] = path.back();
    if (node.label == 256) {
      seen[index] = kDone;
      path.pop_back();
      continue;
    }
    const uint32_t label = node.label++, child = node.base ^ label;
    if (child >= units_.size()) {
      // Darts lays nodes out in blocks of 256, so that a missing label is within, too.
      fail("its trie leaves its array at unit ", index);
    }
    if (label_of(units_[child]) == label) enter(child, child);
  }
}

bool Charsmap::find(std::string_view text, std::string_view* replacement) const {
  uint32_t at = offset_of(units_[0]);
  for (const char c : text) {
    const uint32_t label = static_cast<unsigned char>(c);
    if (label == 0) return false;
    at ^= label;
    const uint32_t unit = units_[at];
    if (label_of(unit) != label) return false;
    at ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    const std::string_view rest = std::string_view(texts_).substr(value_of(units_[at]));
    *replacement = rest.substr(0, rest.find('\0'));
    return true;
  }
  return false;
}

std::string Charsmap::apply(std::string_view text, MemoryShare* memory) const {
  std::string out;
  out.reserve(text.size());
  size_t paid = text.size();
  while (!text.empty()) {
    if (memory != nullptr && out.size() > paid) {
      memory->take(2 * out.size() - paid);
      paid = 2 * out.size();
    }
    // Fast path for most text: an ASCII character with ASCII behind it is a cluster of its own.
    const bool plain = text[0] >= ' ' && text[0] < 0x7F &&
                       (text.size() == 1 || (text[1] >= ' ' && text[1] < 0x7F));
    std::string_view cluster = text.substr(0, plain ? 1 : first_grapheme(text));
    text.remove_prefix(cluster.size());
    std::string_view replacement;
    if (cluster.size() < 6 && find(cluster, &replacement)) {
      out += replacement;
      continue;
    }
    while (!cluster.empty()) {
      const std::string_view character = cluster.substr(0, utf8_first(cluster).length);
      out += find(character, &replacement) ? replacement : character;
      cluster.remove_prefix(character.size());
    }
  }
  return out;
}

}  // namespace split
