#include "text/tokenizer.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>

#include "base/error.h"
#include "base/resources/fibres.h"
#include "base/resources/memory_budget.h"
#include "base/sort.h"
#include "text/unicode.h"
#include "text/unigram/unigram.h"
#include "text/utf8.h"

namespace split {
namespace {

constexpr uint32_t kNoMerge = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxText = size_t{1} << 30;  // positions are 32 bits

}  // namespace

// The state of one piece: its symbols as a linked list, and the merges that may apply.
struct Tokenizer::Scratch {
  std::vector<int32_t> ids;  // -1: merged into the symbol before
  std::vector<uint32_t> previous, next;
  std::vector<uint64_t> heap;  // rank << 32 | position of the left symbol; smallest on top
  MemoryShare* memory = nullptr;
  size_t paid = 0;  // bytes of text whose symbols there is room for

  // Pays for a text that is merged, or normalised, as a whole.
  void pay(size_t bytes) {
    constexpr uint64_t kSymbol = 40;  // bytes: an id, two links, and a heap that has grown
    if (memory == nullptr || bytes <= paid) return;
    memory->take(kSymbol * (bytes - paid));
    paid = bytes;
  }
};

struct Tokenizer::Order {
  std::once_flag once;
  ByBytes all;
};

Tokenizer::Tokenizer(Parts parts) : file_(std::move(parts)), order_(std::make_shared<Order>()) {
  const std::vector<std::string> tokens = std::exchange(file_.tokens, {});
  const std::vector<bool> plain = std::exchange(file_.plain, {});
  offsets_.push_back(0);
  if (file_.kind == Kind::kBytes) file_.byte_ids.fill(-1);
  const auto in_vocabulary = [&](size_t id) { return plain.empty() || plain[id]; };
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string& token = tokens[id];
    if (file_.kind == Kind::kBytes && token.size() == 1 && in_vocabulary(id)) {
      file_.byte_ids[static_cast<unsigned char>(token[0])] = static_cast<int32_t>(id);
    } else if (file_.kind == Kind::kCharacters && !token.empty() && in_vocabulary(id)) {
      const Utf8Char c = utf8_first(token);
      if (c.status == Utf8Status::kValid && c.length == token.size()) {
        character_ids_.emplace(c.code, static_cast<int32_t>(id));
      }
    }
    bytes_ += token;
    offsets_.push_back(static_cast<uint32_t>(bytes_.size()));
    longest_ = std::max(longest_, token.size());
  }
  if (file_.kind == Kind::kBytes) {
    for (size_t byte = 0; byte < 256; ++byte) {
      if (file_.byte_ids[byte] >= 0) continue;
      throw Error(
          ErrorKind::kInput,
          cat("[tokenizer] vocabulary: expected a token for each byte, got none for byte ", byte));
    }
  }
  index_merges();
  if (file_.whole_pieces || file_.kind == Kind::kWords) index_tokens(plain);
  index_added();
  if (file_.kind == Kind::kWords && file_.words.clean_up) clean_up_words();
}

void Tokenizer::index_merges() {
  std::vector<uint32_t> order(file_.merges.size());
  for (size_t rank = 0; rank < order.size(); ++rank) order[rank] = static_cast<uint32_t>(rank);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const Merge &x = file_.merges[a], &y = file_.merges[b];
    return x.left != y.left ? x.left < y.left : x.right != y.right ? x.right < y.right : a < b;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const Merge &x = file_.merges[order[i - 1]], &y = file_.merges[order[i]];
    if (x.left == y.left && x.right == y.right) {
      throw Error(ErrorKind::kInput, cat("[tokenizer] merges: merge ", order[i] + 1,
                                         " repeats merge ", order[i - 1] + 1));
    }
  }
  first_of_left_.resize(offsets_.size(), 0);
  for (const uint32_t rank : order) {
    by_left_.push_back({file_.merges[rank].right, rank});
    ++first_of_left_[static_cast<size_t>(file_.merges[rank].left) + 1];
  }
  std::partial_sum(first_of_left_.begin(), first_of_left_.end(), first_of_left_.begin());
}

void Tokenizer::index_tokens(const std::vector<bool>& plain) {
  size_t slots = 16;
  while (slots < 2 * offsets_.size()) slots *= 2;
  slots_.assign(slots, -1);
  for (int32_t id = 0; id < size(); ++id) {
    fibres::yield();
    if (!plain.empty() && !plain[static_cast<size_t>(id)]) continue;
    size_t slot = std::hash<std::string_view>{}(raw(id)) & (slots - 1);
    while (slots_[slot] >= 0) slot = (slot + 1) & (slots - 1);
    slots_[slot] = id;
  }
}

int32_t Tokenizer::id_of(std::string_view token) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = std::hash<std::string_view>{}(token)&mask;; slot = (slot + 1) & mask) {
    const int32_t id = slots_[slot];
    if (id < 0 || raw(id) == token) return id;
  }
}

void Tokenizer::index_added() {
  sort_stably(file_.added, {}, &Added::text);
  for (const Added& one : file_.added) {
    added_starts_[static_cast<unsigned char>(one.text[0])] = true;
    if (one.special) special_ids_.push_back(one.id);
    if (one.text == "<|endoftext|>") end_of_text_ = one.id;
  }
  sort_stably(special_ids_);
}

const Tokenizer::ByBytes& Tokenizer::by_bytes() const {
  std::call_once(order_->once, [this] {
    // Most tokens differ within eight bytes, which compare as one number.
    struct Begun {
      uint64_t begin = 0;
      int32_t id;
    };
    std::vector<Begun> sorted;
    for (int32_t id = 0; id < size(); ++id) {
      const std::string_view bytes = token_bytes(id);
      if (bytes.empty() || is_special(id)) continue;
      Begun one{0, id};
      for (size_t i = 0; i < sizeof one.begin; ++i) {
        one.begin = one.begin << 8 | (i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : 0);
      }
      sorted.push_back(one);
    }
    std::ranges::sort(sorted, [this](const Begun& a, const Begun& b) {
      if (a.begin != b.begin) return a.begin < b.begin;
      return token_bytes(a.id) < token_bytes(b.id);
    });
    std::string_view before;
    for (const Begun& one : sorted) {
      const std::string_view bytes = token_bytes(one.id);
      const auto shared = std::ranges::mismatch(before, bytes).in1 - before.begin();
      const std::string_view own = bytes.substr(static_cast<size_t>(shared));
      order_->all.tokens.push_back(
          {one.id, static_cast<uint32_t>(shared), static_cast<uint32_t>(own.size())});
      order_->all.own += own;
      before = bytes;
    }
  });
  return order_->all;
}

bool Tokenizer::is_special(int32_t id) const {
  return std::ranges::binary_search(special_ids_, id);
}

std::optional<int32_t> Tokenizer::added_id(std::string_view text) const {
  const auto found = std::ranges::lower_bound(file_.added, text, {}, &Added::text);
  if (found == file_.added.end() || found->text != text) return std::nullopt;
  return found->id;
}

const Tokenizer::Added* Tokenizer::added_at(std::string_view text, bool special) const {
  if (text.empty() || !added_starts_[static_cast<unsigned char>(text[0])]) return nullptr;
  const Added* longest = nullptr;
  auto begin = file_.added.begin(), end = file_.added.end();
  // Tokens that agree with the text so far stand together, the one that ends here first.
  for (size_t length = 1; length <= text.size() && begin != end; ++length) {
    const auto at = [&](const Added& one) {
      return one.text.size() < length ? -1 : int{static_cast<unsigned char>(one.text[length - 1])};
    };
    const int byte = static_cast<unsigned char>(text[length - 1]);
    begin = std::partition_point(begin, end, [&](const Added& one) { return at(one) < byte; });
    end = std::partition_point(begin, end, [&](const Added& one) { return at(one) <= byte; });
    if (begin != end && begin->text.size() == length && (special || !begin->special)) {
      longest = &*begin;
    }
  }
  return longest;
}

std::string Tokenizer::broken(std::string_view text) const {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_first(text).length;
    out += text.substr(0, length);
    // A special token starts here that goes on beyond the one found.
    const Added* found = added_at(text, true);
    if (found != nullptr && found->text.size() > length) out += kBreak;
    text.remove_prefix(length);
  }
  // Following text must not complete a token with its end.
  size_t most = 0;
  for (const Added& one : file_.added) most = std::max(most, one.text.size());
  for (size_t length = 1; length < std::min(most, out.size() + 1); ++length) {
    const std::string_view end = std::string_view(out).substr(out.size() - length);
    const auto next = std::ranges::lower_bound(file_.added, end, {}, &Added::text);
    if (next == file_.added.end() || !next->text.starts_with(end)) continue;
    out += kBreak;
    break;
  }
  return out;
}

uint32_t Tokenizer::rank_of(int32_t left, int32_t right) const {
  const auto begin = by_left_.begin() + first_of_left_[static_cast<size_t>(left)];
  const auto end = by_left_.begin() + first_of_left_[static_cast<size_t>(left) + 1];
  const auto found = std::lower_bound(
      begin, end, right, [](const Ranked& entry, int32_t wanted) { return entry.right < wanted; });
  return found != end && found->right == right ? found->rank : kNoMerge;
}

// Merges the symbols of `s.ids`, and appends what is left.
void Tokenizer::merge(Scratch& s, std::vector<int32_t>& ids) const {
  const auto n = static_cast<uint32_t>(s.ids.size());
  s.previous.resize(n);
  s.next.resize(n);
  s.heap.clear();
  for (uint32_t i = 0; i < n; ++i) {
    s.previous[i] = i - 1;  // the first symbol: no position
    s.next[i] = i + 1;      // the last symbol: n
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
    const Merge& merge = file_.merges[top >> 32];
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

void Tokenizer::encode_bytes(std::string_view text, Scratch& scratch,
                             std::vector<int32_t>& ids) const {
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, first_piece(text, file_.cut));
    text.remove_prefix(piece.size());
    if (file_.whole_pieces) {
      if (const int32_t id = id_of(piece); id >= 0) {
        ids.push_back(id);
        continue;
      }
    }
    scratch.pay(piece.size());
    scratch.ids.resize(piece.size());
    for (size_t i = 0; i < piece.size(); ++i) {
      scratch.ids[i] = file_.byte_ids[static_cast<unsigned char>(piece[i])];
    }
    merge(scratch, ids);
  }
}

void Tokenizer::encode_characters(std::string_view text, bool first, Scratch& scratch,
                                  std::vector<int32_t>& ids) const {
  std::string spaced;
  const bool space = text[0] == ' ' || text.starts_with(kSpaceMark);
  if (file_.prefix == Prefix::kEach || (file_.prefix == Prefix::kFirst && first && !space) ||
      (file_.prefix == Prefix::kUnlessSpace && !space)) {
    spaced = " ";
  }
  spaced += text;
  spaced = replaced(std::move(spaced), kSpaceMark, " ");
  scratch.ids.clear();
  for (std::string_view rest = spaced; !rest.empty();) {
    const Utf8Char c = utf8_first(rest);
    const auto found =
        c.status == Utf8Status::kValid ? character_ids_.find(c.code) : character_ids_.end();
    if (found != character_ids_.end()) {
      scratch.ids.push_back(found->second);
    } else {
      for (const char byte : rest.substr(0, c.length)) {
        scratch.ids.push_back(file_.byte_ids[static_cast<unsigned char>(byte)]);
      }
    }
    rest.remove_prefix(c.length);
  }
  merge(scratch, ids);
}

void Tokenizer::encode_stretch(std::string_view text, bool first, Scratch& scratch,
                               std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  constexpr uint64_t kIds = 12;  // bytes: a token for each byte, in a list that has grown
  if (scratch.memory != nullptr) scratch.memory->take(kIds * text.size());
  if (file_.kind != Kind::kBytes) scratch.pay(text.size());
  switch (file_.kind) {
    case Kind::kBytes:
      return file_.nfc ? encode_bytes(nfc(text), scratch, ids) : encode_bytes(text, scratch, ids);
    case Kind::kCharacters:
      return encode_characters(text, first, scratch, ids);
    case Kind::kWords:
      return encode_words(text, ids);
    case Kind::kPieces:
      return file_.pieces->encode(text, first, scratch.memory, ids);
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxText) {
    throw Error(ErrorKind::kInput,
                cat("[tokenizer] text: expected at most ", kMaxText, " bytes, got ", text.size()));
  }
  Scratch scratch;
  scratch.memory = options.memory;
  std::vector<int32_t> ids;
  if (options.add_special) ids = file_.before;
  const auto stretch = [&](size_t from, size_t to) {
    const std::string_view plain = text.substr(from, to - from);
    if (!options.breaks) return encode_stretch(plain, from == 0, scratch, ids);
    std::string whole(plain);
    std::erase(whole, kBreak);
    encode_stretch(whole, from == 0, scratch, ids);
  };
  // Each stretch between added tokens is a text of its own.
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const bool starts = added_starts_[static_cast<unsigned char>(text[at])];
    const Added* found = starts ? added_at(text.substr(at), options.parse_special) : nullptr;
    if (found == nullptr) {
      ++at;
      continue;
    }
    stretch(begin, begin + (found->takes_left ? length_stripped(text.substr(begin, at - begin))
                                              : at - begin));
    ids.push_back(found->id);
    at += found->text.size();
    if (found->takes_right) at += white_length(text.substr(at));
    begin = at;
  }
  stretch(begin, text.size());
  if (options.add_special) ids.insert(ids.end(), file_.behind.begin(), file_.behind.end());
  return ids;
}

std::string_view Tokenizer::raw(int32_t id) const {
  if (id < 0) {
    throw Error(ErrorKind::kInput, cat("[tokenizer] token id: expected 0 and above, got ", id));
  }
  if (id >= size()) return {};  // rows that a model has beyond its tokens
  const uint32_t begin = offsets_[static_cast<size_t>(id)];
  return std::string_view(bytes_).substr(begin, offsets_[static_cast<size_t>(id) + 1] - begin);
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  const std::string_view bytes = raw(id);
  if (file_.kind != Kind::kWords) return bytes;
  if (const auto clean = clean_.find(id); clean != clean_.end()) return clean->second;
  return bytes.starts_with(file_.words.prefix) ? bytes.substr(file_.words.prefix.size()) : bytes;
}

std::string_view Tokenizer::first_bytes(int32_t id) const {
  std::string_view bytes = raw(id);
  if (!file_.strip && file_.kind != Kind::kWords) return bytes;
  // Metaspace takes all of a first token's spaces, other decoders one.
  do {
    if (!bytes.starts_with(' ')) break;
    bytes.remove_prefix(1);
  } while (file_.kind == Kind::kPieces);
  return bytes;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  TokenStream stream(*this, skip_special);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text;
}

std::string_view TokenStream::push(int32_t id) {
  if (skip_ && tokenizer_->is_special(id)) return {};
  const std::string_view text = begun_ ? tokenizer_->token_bytes(id) : tokenizer_->first_bytes(id);
  begun_ = begun_ || !tokenizer_->token_bytes(id).empty();
  return text;
}

}  // namespace split
