// The steps of a Shard.
#include <algorithm>
#include <chrono>

#include "run/shard_loaded.h"

namespace split {
namespace {

constexpr uint32_t kSmallRows = 8;  // of a step whose stages are timed
constexpr uint64_t kMeasureEvery = 32;

}  // namespace

std::map<std::string, double> Shard::stage_times() const {
  const std::lock_guard lock(times_mutex_);
  return times_;
}

// One program after the other, timed. The final norm is in the head's program.
void Shard::run_stage_by_stage(const RowBatch& batch) {
  Loaded& loaded = *loaded_;
  const std::span<Executable* const> programs = loaded.programs;
  std::vector<double> ms;
  for (size_t i = 0; i < programs.size(); ++i) {
    RowBatch part = batch;
    if (i > 0) part.in = nullptr;
    if (i + 1 < programs.size()) part.out = nullptr;
    const auto start = std::chrono::steady_clock::now();
    device().run(*loaded.workspace, programs.subspan(i, 1), part);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                     .count());
  }
  const std::lock_guard lock(times_mutex_);
  for (size_t i = 0; i < ms.size(); ++i) times_[std::string(loaded.names[i])] = ms[i];
}

// Those of the stages between two points. One that the next does the work of is left out, and so
// are those of wanted rows when there are none.
void Shard::add_programs(bool from_tokens, int from, int to) {
  Loaded& loaded = *loaded_;
  loaded.programs.clear();
  loaded.names.clear();
  const size_t end = index_to(to) + 1;
  for (size_t i = from_tokens ? 0 : index_to(from + 1); i < end; ++i) {
    const bool top = i == stages_.size();
    const bool joined = i + 1 < std::min(end, stages_.size()) && stages_[i + 1].joins_last;
    const bool of_wanted = top || stages_[i].takes == Takes::kOutRows;
    if (joined || (of_wanted && loaded.out_rows.empty())) continue;
    loaded.programs.push_back(loaded.parts[i].executable.get());
    loaded.names.push_back(loaded.parts[i].name);
  }
}

void Shard::forward(Phase phase, int from, int to, std::span<const ShardRows> parts, float* out) {
  if (loaded_ == nullptr) throw Error(ErrorKind::kDevice, "[shard] its device failed");
  Loaded& loaded = *loaded_;
  const ModelConfig& config = model_.config();
  const auto channels = static_cast<size_t>(config.channels);
  const bool from_tokens = parts[0].tokens != nullptr;
  CHECK(from >= options_.first && from <= options_.last && to >= from);
  CHECK(stage_to(from).takes != Takes::kOutRows);
  CHECK(to <= options_.last || (to == top_point() && options_.last == head_point()));
  CHECK(!from_tokens || (from == 0 && options_.embed));

  loaded.tokens.clear();
  loaded.positions.clear();
  loaded.sequences.clear();
  loaded.seen.clear();
  loaded.tables.assign(parts.size() * loaded.limits.pages_per_sequence, loaded.limits.pages);
  loaded.out_rows.clear();
  loaded.in.clear();
  for (size_t p = 0; p < parts.size(); ++p) {
    const ShardRows& part = parts[p];
    CHECK((part.tokens != nullptr) == from_tokens);
    const uint32_t past = pages_.length(part.sequence);
    const auto row0 = static_cast<uint32_t>(loaded.positions.size());
    // Here, because a device's workers cannot throw.
    CHECK(uint64_t{past} + part.count <= static_cast<uint64_t>(config.context));
    for (uint32_t t = 0; t < part.count; ++t) {
      if (from_tokens) {
        CHECK(part.tokens[t] >= 0 && part.tokens[t] < config.vocab);
        loaded.tokens.push_back(part.tokens[t]);
      }
      loaded.positions.push_back(static_cast<int32_t>(past + t));
      loaded.sequences.push_back(static_cast<uint32_t>(p));
      loaded.seen.push_back({0, past + t + 1});
    }
    if (!from_tokens)
      loaded.in.insert(loaded.in.end(), part.hidden, part.hidden + part.count * channels);
    const size_t pages = pages_.copy_table(
        part.sequence, loaded.tables.data() + p * loaded.limits.pages_per_sequence);
    CHECK(pages * kPageTokens >= past + part.count);
    for (const uint32_t wanted : part.wanted) loaded.out_rows.push_back(row0 + wanted);
  }

  add_programs(from_tokens, from, to);
  const bool any = !loaded.out_rows.empty();
  const bool whole_rows = to != top_point() && stage_to(to).takes != Takes::kOutRows;

  RowBatch batch;
  batch.phase = phase;
  batch.rows = static_cast<uint32_t>(loaded.positions.size());
  CHECK(batch.rows <= options_.max_rows && loaded.out_rows.size() <= max_wanted(to));
  batch.tokens = loaded.tokens;
  batch.positions = loaded.positions;
  batch.sequences = loaded.sequences;
  batch.seen = loaded.seen;
  batch.page_tables = loaded.tables;
  batch.out_rows = loaded.out_rows;
  if (!from_tokens) {
    batch.in = loaded.hidden[from % 2].get();
    batch.in_bytes = std::as_bytes(std::span(loaded.in));
  }
  const size_t row_floats = width(to);
  const auto rows_out = static_cast<ptrdiff_t>(loaded.out_rows.size());
  if (any && whole_rows) {
    // The smallest run of rows that holds the wanted ones.
    const size_t first = loaded.out_rows.front(), count = loaded.out_rows.back() - first + 1;
    loaded.out.resize(count * row_floats);
    batch.out = loaded.hidden[to % 2].get();
    batch.out_offset = first * row_floats * sizeof(float);
    batch.out_bytes = std::as_writable_bytes(std::span(loaded.out));
  } else if (any) {
    batch.out = loaded.parts[index_to(to)].rows.get();
    batch.out_bytes = std::as_writable_bytes(std::span(out, loaded.out_rows.size() * row_floats));
  }
  const bool small = phase == Phase::kGenerate && batch.rows <= kSmallRows &&
                     !loaded.programs.empty();  // else rows only pass through
  // A GPU would take a submission and a wait for each stage.
  if (small && !device().can_be_lost() && small_steps_++ % kMeasureEvery == 1) {
    run_stage_by_stage(batch);
  } else {
    device().run(*loaded.workspace, loaded.programs, batch);
  }
  ++steps_;
  if (any && whole_rows) {
    for (ptrdiff_t i = 0; i < rows_out; ++i) {
      const size_t row = loaded.out_rows[static_cast<size_t>(i)] - loaded.out_rows.front();
      std::copy_n(loaded.out.data() + row * row_floats, row_floats,
                  out + static_cast<size_t>(i) * row_floats);
    }
  }
  for (const ShardRows& part : parts) {
    pages_.advance(part.sequence, pages_.length(part.sequence) + part.count);
  }
}

}  // namespace split
