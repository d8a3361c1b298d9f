#include "text/unigram/unigram.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/resources/fibres.h"
#include "base/resources/memory_budget.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace split {
Unigram::Unigram(Options options, const std::vector<std::string>& tokens,
                 std::vector<double> scores)
    : options_(std::move(options)), scores_(std::move(scores)) {
  constexpr double kUnknownPenalty = 10;  // tokenizers, unigram/model.rs
  unknown_score_ = *std::ranges::min_element(scores_) - kUnknownPenalty;
  std::vector<int32_t> order;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty()) order.push_back(static_cast<int32_t>(id));
  }
  const auto text = [&](size_t i) -> std::string_view {
    return tokens[static_cast<size_t>(order[i])];
  };
  std::ranges::sort(
      order, {}, [&](int32_t id) -> std::string_view { return tokens[static_cast<size_t>(id)]; });
  // Level by level: a node is a range of tokens with a common beginning.
  struct Node {
    size_t begin, end, depth;
  };
  std::vector<Node> nodes = {{0, order.size(), 0}};
  byte_ = {0};
  for (size_t n = 0; n < nodes.size(); ++n) {
    fibres::yield();
    auto [begin, end, depth] = nodes[n];
    first_child_.push_back(static_cast<uint32_t>(nodes.size()));
    const bool ends = begin < end && text(begin).size() == depth;
    token_.push_back(ends ? order[begin] : -1);
    for (begin += ends ? 1 : 0; begin < end;) {
      const char byte = text(begin)[depth];
      size_t next = begin;
      while (next < end && text(next)[depth] == byte) ++next;
      nodes.push_back({begin, next, depth + 1});
      byte_.push_back(byte);
      begin = next;
    }
  }
  first_child_.push_back(static_cast<uint32_t>(nodes.size()));
}

uint32_t Unigram::child(uint32_t node, char byte) const {
  const auto begin = byte_.begin() + first_child_[node],
             end = byte_.begin() + first_child_[node + 1];
  const auto found = std::lower_bound(begin, end, byte, [](char a, char b) {
    return static_cast<unsigned char>(a) < static_cast<unsigned char>(b);
  });
  return found != end && *found == byte ? static_cast<uint32_t>(found - byte_.begin()) : 0;
}

std::string Unigram::normalized(std::string_view text, MemoryShare* memory) const {
  std::string out = to_valid_utf8(text);
  if (options_.charsmap) out = options_.charsmap->apply(out, memory);
  if (options_.strip_right) out.resize(length_stripped(out));
  if (options_.strip_left) out.erase(0, white_length(out));
  if (options_.one_space) {
    const auto end =
        std::unique(out.begin(), out.end(), [](char a, char b) { return a == ' ' && b == ' '; });
    out.erase(end, out.end());
  }
  return out;
}

bool Unigram::keeps(std::string_view text) const { return normalized(text, nullptr) == text; }

void Unigram::encode(std::string_view text, bool first, MemoryShare* memory,
                     std::vector<int32_t>& ids) const {
  const std::string whole = normalized(text, memory);
  const auto encode_word = [&](std::string_view word, bool begins) {
    if (word.empty()) return;
    const bool spaced = word.starts_with(' ') || word.starts_with(kSpaceMark);
    const bool prefixed = options_.prefix == Options::Prefix::kEach ||
                          (options_.prefix == Options::Prefix::kFirst && begins);
    std::string marked = !spaced && prefixed ? " " : "";
    marked = replaced(std::move(marked += word), kSpaceMark, " ");
    for (std::string_view rest = marked; !rest.empty();) {
      const size_t length = options_.split ? std::min(rest.find(' ', 1), rest.size()) : rest.size();
      encode_piece(rest.substr(0, length), memory, ids);
      rest.remove_prefix(length);
    }
  };
  if (!options_.words) return encode_word(whole, first);
  for (std::string_view rest = whole; !rest.empty();) {
    rest.remove_prefix(white_length(rest));
    size_t length = 0;
    while (length < rest.size() && white_length(rest.substr(length)) == 0) {
      length += utf8_first(rest.substr(length)).length;
    }
    encode_word(rest.substr(0, length), first && rest.data() == whole.data());
    rest.remove_prefix(length);
  }
}

// The best path to each byte, from the left (Viterbi). The first of two equal ones stays.
void Unigram::encode_piece(std::string_view piece, MemoryShare* memory,
                           std::vector<int32_t>& ids) const {
  struct Best {
    double score = 0;
    uint32_t from = 0;
    int32_t id = -1;  // unset
  };
  if (memory != nullptr) memory->take((sizeof(Best) + sizeof(int32_t)) * piece.size());
  std::vector<Best> best(piece.size() + 1);
  const auto offer = [&](size_t from, size_t to, int32_t id, double score) {
    score += best[from].score;
    if (best[to].id < 0 || score > best[to].score)
      best[to] = {score, static_cast<uint32_t>(from), id};
  };
  for (size_t at = 0; at < piece.size();) {
    fibres::yield();
    const size_t length = utf8_first(piece.substr(at)).length;
    bool character = false;  // a token is this character alone
    uint32_t node = 0;
    for (size_t end = at; end < piece.size();) {
      node = child(node, piece[end++]);
      if (node == 0) break;
      const int32_t id = token_[node];
      if (id < 0) continue;
      offer(at, end, id, scores_[static_cast<size_t>(id)]);
      character = character || end - at == length;
    }
    if (!character) offer(at, at + length, options_.unknown, unknown_score_);
    at += length;
  }
  const size_t begin = ids.size();
  for (size_t end = piece.size(); end > 0;) {
    const Best& last = best[end];
    size_t from = last.from;
    if (last.id != options_.unknown) {
      ids.push_back(last.id);
    } else {
      // A run of unknowns is one id, or its bytes.
      while (from > 0 && best[from].id == options_.unknown) from = best[from].from;
      if (options_.byte_ids.empty()) ids.push_back(options_.unknown);
      for (size_t i = end; !options_.byte_ids.empty() && i > from; --i) {
        ids.push_back(options_.byte_ids[static_cast<unsigned char>(piece[i - 1])]);
      }
    }
    end = from;
  }
  std::reverse(ids.begin() + static_cast<ptrdiff_t>(begin), ids.end());
}

}  // namespace split
