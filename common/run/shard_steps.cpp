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

// Those of the stages in a range. One that the next does the work of is left out, and so are those
// of wanted rows when there are none.
void Shard::add_programs(const StageRange& range) {
  Loaded& loaded = *loaded_;
  loaded.programs.clear();
  loaded.names.clear();
  const int layers = model_.config().layers;
  const size_t ours = options_.range.begin(layers), end = range.end(layers) - ours;
  for (size_t i = range.begin(layers) - ours; i < end; ++i) {
    const bool top = i == stages_.size();
    const bool joined = i + 1 < std::min(end, stages_.size()) && stages_[i + 1].joins_last;
    const bool of_wanted = top || stages_[i].takes == Takes::kOutRows;
    if (joined || (of_wanted && loaded.rows.out_rows.empty())) continue;
    loaded.programs.push_back(loaded.parts[i].executable.get());
    loaded.names.push_back(loaded.parts[i].name);
  }
}

void GatheredRows::clear(size_t count, const Limits& limits) {
  tokens.clear();
  positions.clear();
  sequences.clear();
  out_rows.clear();
  seen.clear();
  hidden.clear();
  tables.assign(count * limits.pages_per_sequence, limits.pages);
}

void GatheredRows::add(uint32_t sequence, const SequenceRows& rows) {
  const auto row0 = static_cast<uint32_t>(positions.size());
  const uint32_t count = rows.count();
  tokens.insert(tokens.end(), rows.tokens.begin(), rows.tokens.end());
  hidden.insert(hidden.end(), rows.hidden.begin(), rows.hidden.end());
  for (uint32_t row = 0; row < count; ++row) {
    const uint32_t position = rows.past + row;
    positions.push_back(static_cast<int32_t>(position));
    sequences.push_back(sequence);
    seen.push_back({0, position + 1});
  }
  rows.wanted.append_to(out_rows, count, row0);
}

RowBatch GatheredRows::batch(Phase phase) const {
  RowBatch batch;
  batch.phase = phase;
  batch.rows = static_cast<uint32_t>(positions.size());
  batch.tokens = tokens;
  batch.positions = positions;
  batch.sequences = sequences;
  batch.seen = seen;
  batch.page_tables = tables;
  batch.out_rows = out_rows;
  return batch;
}

// The rows of all parts and their sequences' pages, checked: a device's workers cannot throw.
void Shard::gather(std::span<const ShardRows> parts) {
  Loaded& loaded = *loaded_;
  const ModelConfig& config = model_.config();
  const SequenceRows& first = parts[0].rows;
  const uint32_t per_sequence = loaded.limits.pages_per_sequence;
  loaded.rows.clear(parts.size(), loaded.limits);
  for (size_t p = 0; p < parts.size(); ++p) {
    const SequenceRows& rows = parts[p].rows;
    CHECK(rows.range == first.range && rows.hidden.empty() == first.range.from.is_tokens());
    CHECK(rows.phase == first.phase || same_bits_in_both_phases());
    CHECK(rows.past == pages_.length(parts[p].sequence));
    CHECK(uint64_t{rows.past} + rows.count() <= static_cast<uint64_t>(config.context));
    CHECK(rows.hidden.empty() || rows.width == static_cast<uint32_t>(config.channels));
    for (const int32_t token : rows.tokens) CHECK(token >= 0 && token < config.vocab);
    loaded.rows.add(static_cast<uint32_t>(p), rows);
    const size_t pages =
        pages_.copy_table(parts[p].sequence, loaded.rows.tables.data() + p * per_sequence);
    CHECK(pages * kPageTokens >= rows.past + rows.count());
  }
}

void Shard::forward(std::span<const ShardRows> parts, float* out) {
  if (loaded_ == nullptr) throw Error(ErrorKind::kDevice, "[shard] its device failed");
  Loaded& loaded = *loaded_;
  const auto [from, to] = parts[0].rows.range;
  const StageRange& ours = options_.range;
  CHECK(from >= ours.from && from <= ours.to && to >= from);
  CHECK(from.is_tokens() || stage_to(from).takes != Takes::kOutRows);
  CHECK(to <= ours.to || (to == Point::top() && ours.to == Point::head()));
  gather(parts);
  add_programs(parts[0].rows.range);
  const std::vector<uint32_t>& out_rows = loaded.rows.out_rows;
  const bool any = !out_rows.empty();
  const bool whole_rows = to != Point::top() && stage_to(to).takes != Takes::kOutRows;

  RowBatch batch = loaded.rows.batch(parts[0].rows.phase);
  CHECK(batch.rows <= options_.max_rows && out_rows.size() <= max_wanted(to));
  if (!from.is_tokens()) {
    batch.in = loaded.hidden[stage_index(from) % 2].get();
    batch.in_bytes = std::as_bytes(std::span(loaded.rows.hidden));
  }
  const size_t row_floats = width(to);
  if (any && whole_rows) {
    // The smallest run of rows that holds the wanted ones.
    const size_t first = out_rows.front(), count = out_rows.back() - first + 1;
    loaded.out.resize(count * row_floats);
    batch.out = loaded.hidden[stage_index(to) % 2].get();
    batch.out_offset = first * row_floats * sizeof(float);
    batch.out_bytes = std::as_writable_bytes(std::span(loaded.out));
  } else if (any) {
    batch.out = loaded.parts[index_to(to)].rows.get();
    batch.out_bytes = std::as_writable_bytes(std::span(out, out_rows.size() * row_floats));
  }
  const bool small = batch.phase == Phase::kGenerate && batch.rows <= kSmallRows &&
                     !loaded.programs.empty();  // else rows only pass through
  // A GPU would take a submission and a wait for each stage.
  if (small && !device().can_be_lost() && small_steps_++ % kMeasureEvery == 1) {
    run_stage_by_stage(batch);
  } else {
    device().run(*loaded.workspace, loaded.programs, batch);
  }
  ++steps_;
  if (any && whole_rows) {
    for (const uint32_t row : out_rows) {
      const float* const from_row = loaded.out.data() + (row - out_rows.front()) * row_floats;
      out = std::copy_n(from_row, row_floats, out);
    }
  }
  for (const ShardRows& part : parts) {
    pages_.advance(part.sequence, part.rows.past + part.rows.count());
  }
}

}  // namespace split
