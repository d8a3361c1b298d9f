#include "text/tokenizer.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "text/pretokenize.h"

namespace split {
namespace {

constexpr uint32_t kNoMerge = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxText = size_t{1} << 30;  // positions are 32 bits

}  // namespace

// The state of one piece: its symbols as a linked list over byte positions, and the merges that may
// apply.
struct Tokenizer::Scratch {
  std::vector<int32_t> ids;  // -1: merged into the symbol before
  std::vector<uint32_t> previous, next;
  std::vector<uint64_t> heap;  // rank << 32 | position of the left symbol; smallest on top
};

Tokenizer::Tokenizer(Parts parts)
    : merges_(std::move(parts.merges)), specials_(std::move(parts.specials)) {
  offsets_.push_back(0);
  byte_ids_.fill(-1);
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    const std::string& token = parts.tokens[id];
    if (token.size() == 1)
      byte_ids_[static_cast<unsigned char>(token[0])] = static_cast<int32_t>(id);
    bytes_ += token;
    offsets_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte_ids_[byte] < 0) {
      throw Error(
          ErrorKind::kInput,
          cat("[tokenizer] vocabulary: expected a token for each byte, got none for byte ", byte));
    }
  }

  std::vector<uint32_t> order(merges_.size());
  for (size_t rank = 0; rank < order.size(); ++rank) order[rank] = static_cast<uint32_t>(rank);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const Merge &x = merges_[a], &y = merges_[b];
    return x.left != y.left ? x.left < y.left : x.right != y.right ? x.right < y.right : a < b;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const Merge &x = merges_[order[i - 1]], &y = merges_[order[i]];
    if (x.left == y.left && x.right == y.right) {
      throw Error(ErrorKind::kInput, cat("[tokenizer] merges: merge ", order[i] + 1,
                                         " repeats merge ", order[i - 1] + 1));
    }
  }
  first_of_left_.resize(parts.tokens.size() + 1, 0);
  for (const uint32_t rank : order) {
    by_left_.push_back({merges_[rank].right, rank});
    ++first_of_left_[static_cast<size_t>(merges_[rank].left) + 1];
  }
  std::partial_sum(first_of_left_.begin(), first_of_left_.end(), first_of_left_.begin());

  std::sort(specials_.begin(), specials_.end(), [](const Special& a, const Special& b) {
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.text < b.text;
  });
  for (const Special& special : specials_) {
    special_starts_[static_cast<unsigned char>(special.text[0])] = true;
    if (special.text == "<|endoftext|>") end_of_text_ = special.id;
  }
}

uint32_t Tokenizer::rank_of(int32_t left, int32_t right) const {
  const auto begin = by_left_.begin() + first_of_left_[static_cast<size_t>(left)];
  const auto end = by_left_.begin() + first_of_left_[static_cast<size_t>(left) + 1];
  const auto found = std::lower_bound(
      begin, end, right, [](const Ranked& entry, int32_t wanted) { return entry.right < wanted; });
  return found != end && found->right == right ? found->rank : kNoMerge;
}

void Tokenizer::encode_piece(std::string_view piece, Scratch& s, std::vector<int32_t>& ids) const {
  const auto n = static_cast<uint32_t>(piece.size());
  s.ids.resize(n);
  s.previous.resize(n);
  s.next.resize(n);
  s.heap.clear();
  for (uint32_t i = 0; i < n; ++i) {
    s.ids[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
    s.previous[i] = i - 1;  // of the first symbol: no position
    s.next[i] = i + 1;      // of the last symbol: n
  }
  const auto candidate = [&](uint32_t i) {
    const uint32_t rank = rank_of(s.ids[i], s.ids[s.next[i]]);
    if (rank == kNoMerge) return false;
    s.heap.push_back(uint64_t{rank} << 32 | i);
    return true;
  };
  for (uint32_t i = 0; i + 1 < n; ++i) candidate(i);
  // Lowest rank first, and leftmost among equals. An entry is stale when its two symbols are no
  // longer its merge's.
  std::make_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  const auto push = [&](uint32_t i) {
    if (candidate(i)) std::push_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  };
  while (!s.heap.empty()) {
    const uint64_t top = s.heap.front();
    std::pop_heap(s.heap.begin(), s.heap.end(), std::greater<>());
    s.heap.pop_back();
    const Merge& merge = merges_[top >> 32];
    const auto i = static_cast<uint32_t>(top);
    const uint32_t j = s.next[i];
    if (s.ids[i] != merge.left || j == n || s.ids[j] != merge.right) continue;
    s.ids[i] = merge.result;
    s.ids[j] = -1;
    s.next[i] = s.next[j];
    if (s.next[i] < n) {
      s.previous[s.next[i]] = i;
      push(i);
    }
    if (i > 0) push(s.previous[i]);
  }
  for (uint32_t i = 0; i < n; i = s.next[i]) ids.push_back(s.ids[i]);
}

void Tokenizer::encode_plain(std::string_view text, Scratch& scratch,
                             std::vector<int32_t>& ids) const {
  while (!text.empty()) {
    const size_t length = first_piece(text);
    encode_piece(text.substr(0, length), scratch, ids);
    text.remove_prefix(length);
  }
}

std::pair<const Tokenizer::Special*, size_t> Tokenizer::find_special(std::string_view text,
                                                                     size_t from) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (!special_starts_[static_cast<unsigned char>(text[at])]) continue;
    for (const Special& special : specials_) {
      if (text.substr(at).starts_with(special.text)) return {&special, at};
    }
  }
  return {nullptr, text.size()};
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool special) const {
  if (text.size() > kMaxText) {
    throw Error(ErrorKind::kInput,
                cat("[tokenizer] text: expected at most ", kMaxText, " bytes, got ", text.size()));
  }
  Scratch scratch;
  std::vector<int32_t> ids;
  if (!special) {
    encode_plain(text, scratch, ids);
    return ids;
  }
  // Each stretch between special tokens is a text of its own.
  for (size_t at = 0; at < text.size();) {
    const auto [found, end] = find_special(text, at);
    encode_plain(text.substr(at, end - at), scratch, ids);
    at = end;
    if (found == nullptr) continue;
    ids.push_back(found->id);
    at += found->text.size();
  }
  return ids;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= size()) {
    throw Error(ErrorKind::kInput,
                cat("[tokenizer] token id: expected 0 to ", size() - 1, ", got ", id));
  }
  const uint32_t begin = offsets_[static_cast<size_t>(id)];
  return std::string_view(bytes_).substr(begin, offsets_[static_cast<size_t>(id) + 1] - begin);
}

size_t Tokenizer::longest() const {
  size_t longest = 1;
  for (size_t i = 1; i < offsets_.size(); ++i) {
    longest = std::max<size_t>(longest, offsets_[i] - offsets_[i - 1]);
  }
  return longest;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += token_bytes(id);
  return text;
}

}  // namespace split
