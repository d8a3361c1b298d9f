// The memory of one sequence's state in one block of gated DeltaNet, whose recurrence is anchored
// at pages: the state S changes only where a page ends, and the rows of the open page are kept like
// keys and values. Position p lies in page c = p / kPageTokens; a page lies in half c % 2, so that
// the page before the open one is there still, and rows can be cut back to it without a copy.
//
// All floats, one part after another, each of them for both halves but the last:
//   anchors   [2][value_heads][key_dim][value_room]       S before a page's first row
//   keys      [2][key_heads][key_dim][kPageTokens]        normed
//   deltas    [2][value_heads][kPageTokens][value_room]   what a row adds to S, with its key
//   decays    [2][value_heads][kPageTokens]               sums of g since the page's first row
//   taken     [kSnapshotRows + taps][width]               rows before the convolution, p % their
//   number
//
// A snapshot of a state at a page's first row is what later rows need of it: S and the last taps -
// 1 rows before the convolution. Two have room in the memory of a state: snapshot n lies in anchor
// n % 2 and in the rows from 8 * (n % 2) on of state n / 2.
#pragma once

#include <cstddef>
#include <cstdint>

namespace split {

inline constexpr uint32_t kPageTokens = 16;
// How far back of the furthest row a snapshot can be made: of a prompt, without its last 8 rows at
// least, at a page's first row.
inline constexpr uint32_t kSnapshotRows = 24;

struct StateShape {
  size_t key_heads = 0, value_heads = 0;
  size_t key_dim = 0, value_dim = 0;  // channels of a head
  size_t taps = 0;                    // rows of the convolution
  // Whether each key head is shared by every key_heads-th value head, not by consecutive ones.
  bool tiled = false;

  bool operator==(const StateShape&) const = default;
  bool keeps() const { return value_heads > 0; }  // else there is no state
  size_t group() const { return value_heads / key_heads; }
  // The value heads of a key head, n < group().
  size_t value_head(size_t key_head, size_t n) const {
    return tiled ? n * key_heads + key_head : key_head * group() + n;
  }
  // Channels of a row before and behind the convolution: queries, keys, values.
  size_t width() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  // Columns of a head's values with zeros behind them: whole vectors.
  size_t value_room() const { return (value_dim + 15) / 16 * 16; }
  size_t taken_rows() const { return kSnapshotRows + taps; }

  // Where a half of a part begins.
  size_t anchors(size_t half) const { return half * value_heads * key_dim * value_room(); }
  size_t keys(size_t half) const { return anchors(2) + half * key_heads * key_dim * kPageTokens; }
  size_t deltas(size_t half) const {
    return keys(2) + half * value_heads * kPageTokens * value_room();
  }
  size_t decays(size_t half) const { return deltas(2) + half * value_heads * kPageTokens; }
  size_t taken() const { return decays(2); }
  size_t floats() const { return taken() + taken_rows() * width(); }
};

// The limits that the kernels' orders of sums and scratch are made for.
inline constexpr int kMostStateDim = 256;  // channels of a head
inline constexpr int kLeastTaps = 2, kMostTaps = 8;

}  // namespace split
