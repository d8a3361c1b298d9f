// print_kernels FOLDER: writes attention, the storing of keys and values, rotation and the largest
// of a row in WGSL, inputs, and what double precision makes of them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "device/webgpu/row_attention.h"
#include "tensor/tensor.h"
#include "tensor/topk.h"
#include "tensor/types.h"
#include "webgpu/cases.h"

namespace split::test {
namespace {

constexpr uint32_t kRows = 5, kPages = 20, kSequences = 2, kPageRows = 16;

// Rows of two sequences, whose pages lie in no order.
struct Rows {
  uint32_t positions[kRows] = {270, 271, 0, 31, 310};
  uint32_t sequences[kRows] = {0, 0, 1, 1, 0};
  uint32_t tables[kSequences][kPages];

  Rows() {
    for (uint32_t i = 0; i < kSequences * kPages; ++i) {
      tables[i / kPages][i % kPages] = (i * 7 + 3) % (kSequences * kPages);
    }
  }

  size_t place(uint32_t row, uint32_t key) const {
    return tables[sequences[row]][key / kPageRows] * kPageRows + key % kPageRows;
  }
  // Rows see the keys up to their own; `both_ways`: all of some.
  uint32_t end(uint32_t row, bool both_ways) const {
    return both_ways ? std::min(positions[row] + 9, kPages * kPageRows) : positions[row] + 1;
  }
  std::vector<uint32_t> symbols(bool both_ways) const {
    std::vector<uint32_t> words(2 + 7 * kRows);
    for (uint32_t row = 0; row < kRows; ++row) {
      words[2 + 1 * kRows + row] = positions[row];
      words[2 + 4 * kRows + row] = sequences[row];
      words[2 + 6 * kRows + row] = end(row, both_ways);
    }
    for (const auto& table : tables) words.insert(words.end(), table, table + kPages);
    return words;
  }
};

// Numbers as a cache has them: floats, or pairs of halves.
std::vector<uint32_t> stored(const std::vector<float>& numbers, bool halves) {
  std::vector<uint32_t> words(halves ? numbers.size() / 2 : numbers.size());
  for (size_t i = 0; i < words.size(); ++i) {
    if (halves) {
      words[i] = f32_to_f16(numbers[2 * i]) | uint32_t{f32_to_f16(numbers[2 * i + 1])} << 16;
    } else {
      std::memcpy(&words[i], &numbers[i], sizeof words[i]);
    }
  }
  return words;
}
// Rounded to what halves can hold.
std::vector<float> rounded(std::vector<float> numbers) {
  for (float& x : numbers) x = f16_to_f32(f32_to_f16(x));
  return numbers;
}

struct AttentionCase {
  const char* name;
  uint32_t heads, kv_heads, d;
  uint32_t window = 0;
  bool both_ways = false, biased = false, halves = false;
  float cap = 0;
};

// The bucket of a key so many places behind the row, as T5 has it.
size_t bucket(int places) {
  const int n = std::abs(places);
  const int by_log =
      static_cast<int>(8 + std::log(std::max(n, 8) / 8.0) / std::log(16.0) * 8 + 1e-9);
  return static_cast<size_t>((n < 8 ? n : std::min(15, by_log)) + (places > 0 ? 16 : 0));
}

void add_attention(Cases& cases, const AttentionCase& of) {
  const Rows rows;
  const size_t width = of.kv_heads * of.d, stride = of.heads * of.d + 2 * width;
  const size_t slots = kSequences * kPages * kPageRows;
  const std::vector<float> q = cases.numbers(kRows * stride);
  const std::vector<float> k = rounded(cases.numbers(slots * width));
  const std::vector<float> v = rounded(cases.numbers(slots * width));
  const size_t bias_stride = (of.heads + 7) / 8 * 8;
  const std::vector<float> bias = cases.numbers(32 * bias_stride);
  const double scale = 0.11;
  std::vector<float> expected;
  for (uint32_t row = 0; row < kRows; ++row) {
    for (uint32_t head = 0; head < of.heads; ++head) {
      const size_t channel = head / (of.heads / of.kv_heads) * of.d;
      const auto own = rows.positions[row];
      uint32_t first = 0, end = rows.end(row, of.both_ways);
      if (of.window > 0 && of.both_ways) {
        first = own + 1 - std::min(own + 1, of.window);
        end = std::min(end, own + of.window);
      } else if (of.window > 0) {
        first = end - std::min(end, of.window);
      }
      std::vector<double> scores;
      for (uint32_t key = first; key < end; ++key) {
        double score = 0;
        for (size_t i = 0; i < of.d; ++i) {
          score += double{q[row * stride + head * of.d + i]} *
                   double{k[rows.place(row, key) * width + channel + i]};
        }
        score *= scale;
        if (of.cap > 0) score = of.cap * std::tanh(score / of.cap);
        if (of.biased) {
          score += bias[bucket(static_cast<int>(key) - static_cast<int>(own)) * bias_stride + head];
        }
        scores.push_back(score);
      }
      const double most = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - most);
      for (size_t i = 0; i < of.d; ++i) {
        double y = 0;
        for (uint32_t key = first; key < end; ++key) {
          y += scores[key - first] * double{v[rows.place(row, key) * width + channel + i]};
        }
        expected.push_back(static_cast<float>(y / sum));
      }
    }
  }
  cases.add(
      {{"name", cat("attention, ", of.name)},
       {"kernel", behind({"attention_rows", "attention"})},
       {"overrides",
        {{"CAPACITY", kRows},
         {"PAGES", kPages},
         {"HEADS", of.heads},
         {"KV_HEADS", of.kv_heads},
         {"D", of.d},
         {"WIDE", std::bit_ceil((of.d + 3) / 4)},
         {"Q_STRIDE", stride},
         {"Q_FIRST", 0},
         {"WINDOW", of.window},
         {"BOTH_WAYS", of.both_ways ? 1 : 0},
         {"BIASED", of.biased ? 1 : 0},
         {"KV_TYPE", of.halves ? 1 : 0},
         {"SCALE", scale},
         {"CAP", of.cap}}},
       {"buffers",
        {cases.file(rows.symbols(of.both_ways)), cases.result(expected), cases.file(q),
         cases.file(stored(k, of.halves)), cases.file(stored(v, of.halves)), cases.file(bias)}},
       {"size", 4},
       {"groups", {kRows, of.heads}}});
}

void add_kv_store(Cases& cases, bool halves) {
  const Rows rows;
  constexpr size_t kWidth = 40, kStride = 3 * kWidth;
  const std::vector<float> qkv = rounded(cases.numbers(kRows * kStride));
  std::vector<float> k(kSequences * kPages * kPageRows * kWidth), v(k.size());
  for (uint32_t row = 0; row < kRows; ++row) {
    const size_t to = rows.place(row, rows.positions[row]) * kWidth;
    const auto* const from = qkv.data() + row * kStride;
    std::copy_n(from + kWidth, kWidth, k.data() + to);
    std::copy_n(from + 2 * kWidth, kWidth, v.data() + to);
  }
  cases.add({{"name", cat("kv_store, ", halves ? "F16" : "F32")},
             {"kernel", behind({"kv_store"})},
             {"overrides",
              {{"CAPACITY", kRows},
               {"PAGES", kPages},
               {"KV_WIDTH", kWidth},
               {"K_STRIDE", kStride},
               {"K_FIRST", kWidth},
               {"V_STRIDE", kStride},
               {"V_FIRST", 2 * kWidth},
               {"KV_TYPE", halves ? 1 : 0}}},
             {"buffers",
              {cases.file(rows.symbols(false)), cases.file(qkv), cases.file(qkv),
               cases.result(stored(k, halves)), cases.result(stored(v, halves))}},
             {"whole", true},
             {"groups", {1, kRows}}});
}

void add_rotate(Cases& cases, bool normed) {
  const Rows rows;
  constexpr size_t kHeads = 3, kD = 40, kHalf = kD / 2, kStride = kHeads * kD + 8;
  const float eps = 1e-6f, plus = 1;
  const std::vector<float> x = cases.numbers(kRows * kStride), weight = cases.numbers(kD);
  const std::vector<float> cosines = cases.numbers(kPages * kPageRows * kHalf);
  const std::vector<float> sines = cases.numbers(cosines.size());
  std::vector<float> expected(kRows * kHeads * kD);
  for (uint32_t row = 0; row < kRows; ++row) {
    for (size_t head = 0; head < kHeads; ++head) {
      const float* const from = x.data() + row * kStride + 8 + head * kD;
      double squares = 0;
      for (size_t i = 0; i < kD; ++i) squares += double{from[i]} * double{from[i]};
      const double scale = 1 / std::sqrt(squares / kD + double{eps});
      const auto at = [&](size_t i) {
        return normed ? from[i] * scale * (double{weight[i]} + double{plus}) : double{from[i]};
      };
      for (size_t i = 0; i < kHalf; ++i) {
        const double c = cosines[rows.positions[row] * kHalf + i];
        const double s = sines[rows.positions[row] * kHalf + i];
        float* const to = expected.data() + (row * kHeads + head) * kD + i;
        to[0] = static_cast<float>(at(i) * c - at(i + kHalf) * s);
        to[kHalf] = static_cast<float>(at(i + kHalf) * c + at(i) * s);
      }
    }
  }
  cases.add({{"name", normed ? "rotate, normed" : "rotate"},
             {"kernel", behind({"norm_weight", "rotate"})},
             {"overrides",
              {{"CAPACITY", kRows},
               {"HEADS", kHeads},
               {"D", kD},
               {"X_STRIDE", kStride},
               {"X_FIRST", 8},
               {"NORMED", normed ? 1 : 0},
               {"W_TYPE", 0},
               {"EPS", eps},
               {"PLUS", plus}}},
             {"buffers",
              {cases.file(rows.symbols(false)), cases.file(x), cases.result(expected),
               cases.file(cosines), cases.file(sines), cases.file(weight)}},
             {"size", 16},
             {"groups", {kRows, kHeads}}});
}

// Some numbers are equal. First each block's columns, in order, then the row's of these lists.
// A step of one row: products that are merged, turned or not, and what attention stores and makes.
void add_row_attention(Cases& cases, bool turned, bool normed, bool halves) {
  constexpr size_t kHeads = 4, kKvHeads = 2, kD = 40, kHalf = kD / 2, kWidth = kKvHeads * kD;
  constexpr size_t kSlots = kSequences * kPages * kPageRows;
  constexpr double kScale = 0.11, kEps = 1e-6;
  const Rows rows;
  const Tensor x = input("x", DType::kF32, {split::kRows, 8});
  const auto product = [&](const char* name, int64_t heads) {
    return matmul(x, transpose(weight(name, DType::kF16, {heads * int64_t{kD}, 8})));
  };
  const auto table = [](const char* name) {
    return weight(name, DType::kF32, {int64_t{kPages * kPageRows}, int64_t{kHalf}});
  };
  const Rotation rotation{table("cos"), table("sin"),
                          input("positions", DType::kI32, {split::kRows})};
  const auto turn = [&](const Tensor& heads, const char* norm, int count) {
    if (!turned) return heads;
    if (!normed) return rotate(heads, rotation, count);
    return rotate(heads, {weight(norm, DType::kF32, {int64_t{kD}}), float{kEps}, 1}, rotation,
                  count);
  };
  const DType type = halves ? DType::kF16 : DType::kF32;
  const Tensor y =
      attention(turn(product("q", kHeads), "q_norm", kHeads),
                turn(product("k", kKvHeads), "k_norm", kKvHeads), product("v", kKvHeads),
                input("keys", type, {int64_t{kWidth}}), input("values", type, {int64_t{kWidth}}),
                {.heads = kHeads, .kv_heads = kKvHeads, .head_dim = kD, .scale = float{kScale}});
  webgpu::MergedProgram merged =
      webgpu::merge_products(compile("row", {{"y", y}}, webgpu::kFuseRules));
  const auto found = webgpu::row_attentions(merged);
  CHECK(found.size() == 1 && found[0].q->slot == found[0].v->slot);
  const webgpu::RowKernel kernel = webgpu::row_attention_kernel(merged.program, found[0]);

  const std::vector<float> qkv = rounded(cases.numbers(kHeads * kD + 2 * kWidth));
  const std::vector<float> norms = cases.numbers(2 * kD);
  const std::vector<float> cosines = cases.numbers(kPages * kPageRows * kHalf);
  const std::vector<float> sines = cases.numbers(cosines.size());
  std::vector<double> own(qkv.begin(), qkv.end());
  for (size_t head = 0; turned && head < kHeads + kKvHeads; ++head) {
    double* const at = own.data() + head * kD;
    double squares = 0;
    for (size_t i = 0; i < kD; ++i) squares += at[i] * at[i];
    for (size_t i = 0; normed && i < kD; ++i) {
      at[i] *= (norms[(head < kHeads ? 0 : kD) + i] + 1.0) / std::sqrt(squares / kD + kEps);
    }
    for (size_t i = 0; i < kHalf; ++i) {
      const double a = at[i], b = at[i + kHalf];
      const double c = cosines[rows.positions[0] * kHalf + i],
                   s = sines[rows.positions[0] * kHalf + i];
      at[i] = a * c - b * s;
      at[i + kHalf] = b * c + a * s;
    }
  }
  std::vector<float> caches[2];
  for (size_t m = 0; m < 2; ++m) {
    caches[m] = rounded(cases.numbers(kSlots * kWidth));
    for (size_t i = 0; i < kWidth; ++i) {
      caches[m][rows.place(0, rows.positions[0]) * kWidth + i] =
          static_cast<float>(own[kHeads * kD + m * kWidth + i]);
    }
    if (halves) caches[m] = rounded(caches[m]);
  }
  std::vector<float> expected;
  for (size_t head = 0; head < kHeads; ++head) {
    const size_t channel = head / (kHeads / kKvHeads) * kD;
    std::vector<double> sums(kD);
    double all = 0;
    for (uint32_t key = 0; key <= rows.positions[0]; ++key) {
      const size_t at = rows.place(0, key) * kWidth + channel;
      double score = 0;
      for (size_t i = 0; i < kD; ++i) score += own[head * kD + i] * caches[0][at + i];
      const double weight = std::exp(score * kScale);
      all += weight;
      for (size_t i = 0; i < kD; ++i) sums[i] += weight * caches[1][at + i];
    }
    for (const double sum : sums) expected.push_back(static_cast<float>(sum / all));
  }
  Json overrides = {{"CAPACITY", kRows}, {"PAGES", kPages},
                    {"HEADS", kHeads},   {"KV_HEADS", kKvHeads},
                    {"D", kD},           {"WIDE", std::bit_ceil(kD / 4)},
                    {"WINDOW", 0},       {"BOTH_WAYS", 0},
                    {"BIASED", 0},       {"KV_TYPE", halves ? 1 : 0},
                    {"SCALE", kScale},   {"CAP", 0}};
  for (const auto& [name, value] : kernel.overrides) overrides[name] = value;
  // The caches have other rows' keys and values, and noise in the place of its own.
  Json buffers = {cases.file(rows.symbols(false)), cases.result(expected)};
  for (std::vector<float>& cache : caches) {
    const Json after = cases.result(stored(cache, halves));
    const size_t at = rows.place(0, rows.positions[0]) * kWidth;
    std::fill_n(cache.begin() + static_cast<ptrdiff_t>(at), kWidth, 100.0f);
    buffers.push_back({{"result", after["result"]},
                       {"begins", cases.file(stored(cache, halves))["file"]},
                       {"halves", halves}});
  }
  for (const int slot : kernel.read) {
    const std::string& name = merged.program.slots[static_cast<size_t>(slot)].name;
    buffers.push_back(cases.file(name == "cos"      ? cosines
                                 : name == "sin"    ? sines
                                 : name == "q_norm" ? norms
                                                    : qkv));
  }
  Json bases = Json::array({"attention_row", "attention"});
  if (normed) bases.push_back("norm_weight");
  cases.add({{"name",
              cat("attention of one row", turned ? normed ? ", normed and turned" : ", turned" : "",
                  halves ? ", F16" : ", F32")},
             {"kernel", {{"text", kernel.text}, {"bases", bases}}},
             {"overrides", overrides},
             {"buffers", buffers},
             {"size", 30},
             {"groups", {1, kHeads}}});
}

// The columns of the first numbers of each `width` columns of a row.
std::vector<uint32_t> lists_of(std::span<const float> x, size_t columns, size_t taken,
                               size_t width) {
  std::vector<uint32_t> lists;
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t first = 0; first < columns; first += width) {
      const auto part = x.subspan(row * columns + first, std::min(width, columns - first));
      const size_t n = std::min(taken, part.size());
      std::vector<float> top(2 * n);
      topk_row(part, top);
      for (size_t i = 0; i < taken; ++i) {
        lists.push_back(i < n ? static_cast<uint32_t>(first + static_cast<size_t>(top[n + i]))
                              : ~0u);
      }
    }
  }
  return lists;
}

void add_topk(Cases& cases, size_t columns, size_t taken) {
  constexpr size_t kSorted = 1024;
  const std::vector<float> x = cases.numbers(kRows * columns);
  std::vector<float> expected(kRows * 2 * taken);
  for (size_t row = 0; row < kRows; ++row) {
    topk_row(std::span(x).subspan(row * columns, columns),
             std::span(expected).subspan(row * 2 * taken, 2 * taken));
  }
  size_t width = kSorted, lists = (columns + width - 1) / width;
  const std::string name = cat("topk, ", taken, " of ", columns);
  const Json overrides = {{"TAKEN", taken}, {"COLUMNS", columns}, {"BLOCKS", lists}};
  cases.add(
      {{"name", name + ", blocks"},
       {"kernel", behind({"best", "topk_blocks"})},
       {"overrides", overrides},
       {"buffers", {nullptr, cases.file(x), cases.result(lists_of(x, columns, taken, width))}},
       {"whole", true},
       {"groups", {kRows, lists}}});
  for (bool last = false; !last;) {
    const std::vector<uint32_t> before = lists_of(x, columns, taken, width);
    width *= kSorted / taken;
    const size_t left = (columns + width - 1) / width;
    last = left == 1;
    Json its = overrides;
    its["LISTS"] = lists;
    cases.add({{"name", cat(name, ", ", lists, " lists")},
               {"kernel", behind({"best", "topk"})},
               {"overrides", its},
               {"buffers",
                {nullptr, cases.file(x),
                 last ? cases.result(expected) : cases.result(lists_of(x, columns, taken, width)),
                 cases.file(before)}},
               {"whole", !last},
               {"groups", {kRows, left}}});
    lists = left;
  }
}

void print(Cases& cases) {
  add_attention(cases, {"one head a key", 4, 4, 64});
  add_attention(cases, {"grouped, in halves", 6, 2, 40, 0, false, false, true});
  add_attention(cases, {"a window and a cap", 4, 2, 128, 20, false, false, false, 3});
  add_attention(cases, {"both ways, by places", 12, 12, 16, 24, true, true});
  add_attention(cases, {"wide heads", 2, 1, 256});
  add_attention(cases, {"heads of 11", 4, 2, 11});
  add_attention(cases, {"heads of 10, in halves", 6, 2, 10, 0, false, false, true});
  for (const bool halves : {false, true}) add_kv_store(cases, halves);
  for (const bool normed : {false, true}) add_rotate(cases, normed);
  for (const bool halves : {false, true}) {
    add_row_attention(cases, false, false, halves);
    for (const bool normed : {false, true}) add_row_attention(cases, true, normed, halves);
  }
  add_topk(cases, 8192, 64);
  add_topk(cases, 70, 70);
  add_topk(cases, 70000, 64);  // lists of lists
  add_topk(cases, 1030, 20);   // a block with fewer
}

}  // namespace
}  // namespace split::test

int main(int argc, char** argv) {
  return split::test::print_cases(argc, argv, "kernels", split::test::print);
}
