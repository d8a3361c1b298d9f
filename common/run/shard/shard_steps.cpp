// The steps of a Shard.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/log.h"
#include "run/shard/shard_loaded.h"
#include "tensor/blocks.h"

namespace split {
namespace {

constexpr uint32_t kSmallRows = 8;  // most rows of a step whose stages are timed
constexpr uint64_t kMeasureEvery = 32;
constexpr double kMostGrowth = 1.25;  // limit of a stage's time, relative to the last

// Runs stage by stage: three early steps, behind one with cold caches, and few later ones.
bool is_timed(uint64_t step) { return step % kMeasureEvery == 1 || step == 2 || step == 3; }

}  // namespace

std::map<std::string, double> Shard::stage_times() const {
  const std::lock_guard lock(times_mutex_);
  return times_;
}

// Runs and times one program after the other. The final norm is in the head's program.
void Shard::run_stage_by_stage(const RowBatch& batch) {
  Loaded& loaded = *loaded_;
  const std::span<Executable* const> programs = loaded.programs;
  std::vector<double> ms;
  for (size_t i = 0; i < programs.size(); ++i) {
    RowBatch part = batch;
    part.states = batch.states.subspan(i, 1);
    if (i > 0) part.in = nullptr;
    if (i + 1 < programs.size()) part.out = nullptr;
    const auto start = std::chrono::steady_clock::now();
    device().run(*loaded.workspace, programs.subspan(i, 1), part);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
                     .count());
  }
  const std::lock_guard lock(times_mutex_);
  // An outlier makes a time little longer, and the next step corrects it.
  for (size_t i = 0; i < ms.size(); ++i) {
    double& known = times_.try_emplace(std::string(loaded.names[i]), ms[i]).first->second;
    known = std::min(ms[i], kMostGrowth * known);
  }
}

// Adds the programs of a range's stages, without stages that the next one computes too, and without
// the stages of wanted rows if there are none.
void Shard::add_programs(const StageRange& range, bool any_wanted) {
  Loaded& loaded = *loaded_;
  loaded.programs.clear();
  loaded.names.clear();
  loaded.states.clear();
  const int layers = model_.config().layers;
  const size_t ours = options_.range.begin(layers), end = range.end(layers) - ours;
  for (size_t i = range.begin(layers) - ours; i < end; ++i) {
    const bool top = i == stages_.size();
    const bool joined = i + 1 < std::min(end, stages_.size()) && stages_[i + 1].joins_last;
    const bool of_wanted = top || stages_[i].takes == Takes::kOutRows;
    if (joined || (of_wanted && !any_wanted)) continue;
    loaded.programs.push_back(loaded.parts[i].executable.get());
    loaded.names.push_back(loaded.parts[i].name);
    loaded.states.emplace_back();
    if (loaded.parts[i].states != nullptr) {
      loaded.states.back() = loaded.rows.states[i + ours - 1];  // the embedding comes first
    }
  }
}

void GatheredRows::clear(size_t count, const Limits& limits) {
  tokens.clear();
  positions.clear();
  marks.clear();
  sequences.clear();
  out_rows.clear();
  seen.clear();
  hidden.clear();
  table_pages = limits.pages_per_sequence;
  tables.assign(count * table_pages, limits.pages);
  for (auto& of_block : states) of_block.assign(count, 0);
}

void GatheredRows::add(uint32_t sequence, const SequenceRows& rows, const ModelConfig& config) {
  const auto row0 = static_cast<uint32_t>(positions.size());
  const uint32_t count = rows.count();
  tokens.insert(tokens.end(), rows.tokens.begin(), rows.tokens.end());
  config.add_marks(rows.tokens, rows.second, marks);
  hidden.insert(hidden.end(), rows.hidden.begin(), rows.hidden.end());
  for (uint32_t row = 0; row < count; ++row) {
    const uint32_t position = rows.past + row;
    positions.push_back(static_cast<int32_t>(position));
    sequences.push_back(sequence);
    seen.push_back({0, config.encodes() ? count : position + 1});
  }
  rows.wanted.append_to(out_rows, count, row0);
}

RowBatch GatheredRows::batch(Phase phase, size_t rows, size_t count, size_t first,
                             size_t end) const {
  RowBatch batch;
  batch.phase = phase;
  batch.rows = static_cast<uint32_t>(rows);
  batch.tokens = std::span(tokens).first(std::min(rows, tokens.size()));
  batch.positions = std::span(positions).first(rows);
  batch.marks = std::span(marks).first(std::min(rows, marks.size()));
  batch.sequences = std::span(sequences).first(rows);
  batch.seen = std::span(seen).first(rows);
  batch.page_tables = std::span(tables).first(count * table_pages);
  batch.out_rows = std::span(out_rows).subspan(first, end - first);
  return batch;
}

// Gathers and checks the rows of all parts and their pages: a device's workers cannot throw.
void Shard::gather(std::span<const ShardRows> parts) {
  Loaded& loaded = *loaded_;
  const ModelConfig& config = model_.config();
  const SequenceRows& first = parts[0].rows;
  loaded.rows.clear(parts.size(), loaded.limits);
  std::vector<uint32_t> states(loaded.rows.states.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    const SequenceRows& rows = parts[p].rows;
    const auto [from, to] = rows.range;
    CHECK(from == first.range.from && rows.hidden.empty() == from.is_tokens());
    CHECK(to >= from && (p == 0 || to <= parts[p - 1].rows.range.to));
    CHECK(rows.phase == first.phase || same_bits_in_both_phases());
    const uint32_t length = pages_.length(parts[p].sequence);
    CHECK(rows.past == length || rows.past + rows.count() <= length);
    CHECK(!config.encodes() || length == 0);  // all rows of a text
    CHECK(pages_.filled(parts[p].sequence, rows.range) >= rows.past);
    CHECK(uint64_t{rows.past} + rows.count() <= static_cast<uint64_t>(config.context));
    CHECK(rows.hidden.empty() || rows.width == width(from));
    for (const int32_t token : rows.tokens) CHECK(token >= 0 && token < config.vocab);
    loaded.rows.add(static_cast<uint32_t>(p), rows, config);
    const size_t pages = pages_.copy_table(parts[p].sequence,
                                           loaded.rows.tables.data() + p * loaded.rows.table_pages);
    CHECK(pages * kPageTokens >= rows.past + rows.count());
    if (states.empty()) continue;
    copy_states(
        pages_.begin(parts[p].sequence, rows.range, rows.past, rows.past + rows.count(), states));
    for (size_t block = 0; block < states.size(); ++block) {
      loaded.rows.states[block][p] = states[block];
    }
    if (rows.past == 0) spoil_states(rows.range, states);
  }
  if (first.range.from.is_tokens()) look_up();
}

// Brings the rows of the step's tokens out of tables that no device holds, some at a time.
void Shard::look_up() {
  constexpr size_t kAtOnce = 32;
  Loaded& loaded = *loaded_;
  const std::span<const int32_t> tokens = loaded.rows.tokens;
  for (auto& [name, table] : loaded.tables) {
    const TensorView& all = table.view;
    const size_t row = all.bytes.size() / static_cast<size_t>(all.dims[0]);
    std::vector<std::byte> bytes(std::min(kAtOnce, tokens.size()) * row);
    for (size_t first = 0; first < tokens.size(); first += kAtOnce) {
      const size_t count = std::min(kAtOnce, tokens.size() - first);
      const std::span<std::byte> part = std::span(bytes).first(count * row);
      for (size_t i = 0; i < count; ++i) {
        MappedFile::read(all.bytes.subspan(static_cast<size_t>(tokens[first + i]) * row, row),
                         part.subspan(i * row, row));
      }
      const TensorView rows{all.dtype, {static_cast<int64_t>(count), all.dims[1]}, part};
      const OwnedTensor floats =
          is_quantised(all.dtype) ? dequantised(rows) : converted(rows, DType::kF32);
      const size_t row_bytes = floats.view.bytes.size() / count;
      device().write(*table.rows, first * row_bytes, floats.view.bytes);
    }
  }
}

// Fills a state that a text begins in with numbers that no step may read.
void Shard::spoil_state([[maybe_unused]] size_t block, [[maybe_unused]] uint32_t number) {
#ifndef NDEBUG
  Loaded::Part& part = loaded_->parts[block + 1 - options_.range.begin(model_.config().layers)];
  if (part.states == nullptr) return;
  const std::vector<float> none(part.states->size() / sizeof(float) / pages_.states(), NAN);
  const Bytes bytes = std::as_bytes(std::span(none));
  device().write(*part.states, number * bytes.size(), bytes);
#endif
}

void Shard::spoil_states(const StageRange& range, std::span<const uint32_t> states) {
  const int layers = model_.config().layers;
  const auto first = static_cast<size_t>(range.from.blocks_before(layers));
  for (size_t block = first; block < first + static_cast<size_t>(range.blocks(layers)); ++block) {
    spoil_state(block, states[block]);
  }
}

void Shard::copy_states(const KvPages::Copies& copies) {
  using Kind = KvPages::StateCopy::Kind;
  std::vector<BufferCopy> all;
  for (const KvPages::StateCopy& copy : copies) {
    const StateShape& shape = model_.state(static_cast<int>(copy.block));
    Loaded::Part& part =
        loaded_->parts[copy.block + 1 - options_.range.begin(model_.config().layers)];
    const size_t each = shape.floats(), page = copy.row / kPageTokens % 2;
    const auto move = [&](size_t from, size_t to, size_t count) {
      all.push_back(
          {part.states.get(), from * sizeof(float), to * sizeof(float), count * sizeof(float)});
    };
    if (copy.kind == Kind::kWhole) {
      move(copy.from * each, copy.to * each, each);
      continue;
    }
    const bool leaves = copy.kind == Kind::kLeave;
    if (!leaves) spoil_state(copy.block, copy.to);
    const uint32_t state = leaves ? copy.from : copy.to, snapshot = leaves ? copy.to : copy.from;
    const auto copy_part = [&](size_t in_state, size_t in_snapshot, size_t count) {
      in_state += state * each;
      in_snapshot += snapshot / 2 * each;
      leaves ? move(in_state, in_snapshot, count) : move(in_snapshot, in_state, count);
    };
    copy_part(shape.anchors(page), shape.anchors(snapshot % 2), shape.anchors(1));
    for (size_t back = 1; back < shape.taps; ++back) {
      copy_part(shape.taken() + (copy.row - back) % shape.taken_rows() * shape.width(),
                shape.taken() + (snapshot % 2 * kMostTaps + back) * shape.width(), shape.width());
    }
  }
  if (!all.empty()) device().copy(all);
}

KvPages::Snapshot Shard::leave(SequenceId id, const StageRange& range, uint32_t row) {
  const std::lock_guard turn(turns_);
  KvPages::Copies copies;
  if (loaded_ == nullptr) return {};
  const KvPages::Snapshot left = pages_.leave(id, range, row, copies);
  if (copied(copies)) return left;
  pages_.drop_snapshot(left);
  return {};
}

bool Shard::join(SequenceId id, SequenceId fork, const StageRange& range, uint32_t from) {
  const std::lock_guard turn(turns_);
  KvPages::Copies copies;
  const bool joined = pages_.join(id, fork, range, from, copies);
  if (loaded_ == nullptr || copied(copies)) return joined;
  pages_.truncate(id, 0);
  return false;
}

// A device that fails here fails in the next step too, whose rows it tells.
bool Shard::copied(const KvPages::Copies& copies) {
  try {
    copy_states(copies);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDevice) throw;
    log_warning(error.what());
    return false;
  }
}

// Runs a batch from one point to another, and copies its wanted rows there to `out`.
void Shard::run_range(const StageRange& range, RowBatch batch, bool timed, float* out) {
  Loaded& loaded = *loaded_;
  const Point to = range.to;
  const std::span<const uint32_t> wanted = batch.out_rows;
  CHECK(wanted.size() <= max_wanted(to));
  add_programs(range, !wanted.empty());
  batch.states = loaded.states;
  const bool whole_rows = to != Point::top() && stage_to(to).takes != Takes::kOutRows;
  const auto channels = static_cast<size_t>(model_.config().channels);
  const size_t row_floats = whole_rows ? channels : width(to);
  if (!wanted.empty() && whole_rows) {
    // The smallest run of rows that holds the wanted ones.
    const size_t first = wanted.front(), count = wanted.back() - first + 1;
    loaded.out.resize(count * row_floats);
    batch.out = loaded.hidden[stage_index(to) % 2].get();
    batch.out_offset = first * row_floats * sizeof(float);
    batch.out_bytes = std::as_writable_bytes(std::span(loaded.out));
  } else if (!wanted.empty()) {
    batch.out = loaded.parts[index_to(to)].rows.get();
    batch.out_bytes = std::as_writable_bytes(std::span(out, wanted.size() * row_floats));
  }
  if (loaded.programs.empty() && batch.in == nullptr && batch.out == nullptr) return;
  if (timed && !loaded.programs.empty()) {  // else rows only pass through
    run_stage_by_stage(batch);
  } else {
    device().run(*loaded.workspace, loaded.programs, batch);
  }
  for (size_t i = 0; whole_rows && i < wanted.size(); ++i) {
    const float* const row = loaded.out.data() + (wanted[i] - wanted.front()) * row_floats;
    std::copy_n(row, row_floats, out + i * width(to));
  }
  if (whole_rows && width(to) > channels && !wanted.empty()) take_parts(to, wanted, out);
}

// Takes the parts of rows apart that come in at a point, behind their hidden states.
void Shard::place_parts(Point from) {
  Loaded& loaded = *loaded_;
  const ModelConfig& config = model_.config();
  const size_t row_floats = width(from), rows = loaded.rows.hidden.size() / row_floats;
  auto at = static_cast<size_t>(config.channels);
  for (const RowPart& part : config.row_parts) {
    const auto columns = static_cast<size_t>(part.columns),
               here = static_cast<size_t>(part.at(from.block()));
    if (here == 0) continue;
    loaded.out.assign(rows * columns, 0);
    for (size_t row = 0; row < rows; ++row) {
      std::copy_n(loaded.rows.hidden.data() + row * row_floats + at, here,
                  loaded.out.data() + (row + 1) * columns - here);
    }
    device().write(*loaded.beside.at(part.name), 0, std::as_bytes(std::span(loaded.out)));
    at += here;
  }
  const auto channels = static_cast<size_t>(config.channels);
  for (size_t row = 1; row < rows; ++row) {
    std::copy_n(loaded.rows.hidden.data() + row * row_floats, channels,
                loaded.rows.hidden.data() + row * channels);
  }
  loaded.rows.hidden.resize(rows * channels);
}

// Writes the parts of wanted rows at a point behind their hidden states in `out`.
void Shard::take_parts(Point to, std::span<const uint32_t> wanted, float* out) {
  Loaded& loaded = *loaded_;
  const ModelConfig& config = model_.config();
  const size_t count = wanted.back() - wanted.front() + 1;
  auto at = static_cast<size_t>(config.channels);
  for (const RowPart& part : config.row_parts) {
    const auto columns = static_cast<size_t>(part.columns),
               here = static_cast<size_t>(part.at(to.block()));
    if (here == 0) continue;
    loaded.out.resize(count * columns);
    device().read(*loaded.beside.at(part.name), wanted.front() * columns * sizeof(float),
                  std::as_writable_bytes(std::span(loaded.out)));
    for (size_t i = 0; i < wanted.size(); ++i) {
      const size_t behind = (wanted[i] - wanted.front() + 1) * columns;
      std::copy_n(loaded.out.data() + behind - here, here, out + i * width(to) + at);
    }
    at += here;
  }
}

void Shard::forward(std::span<const ShardRows> parts, float* out) {
  const std::lock_guard turn(turns_);
  if (loaded_ == nullptr) throw Error(ErrorKind::kDevice, "[shard] its device failed");
  Loaded& loaded = *loaded_;
  const auto [from, farthest] = parts[0].rows.range;
  if (from < floor()) {
    throw Error(ErrorKind::kNotFound,
                cat("[shard] rows at ", from.name(), ": expected ", floor().name(),
                    " or later, until more stages are there"));
  }
  const StageRange& ours = options_.range;
  CHECK(from >= ours.from && from <= ours.to);
  CHECK(from.is_tokens() || stage_to(from).takes != Takes::kOutRows);
  CHECK(farthest <= ours.to || (farthest == Point::top() && ours.to == Point::head()));
  gather(parts);
  const Phase phase = parts[0].rows.phase;
  size_t rows = loaded.rows.positions.size(), wanted = loaded.rows.out_rows.size();
  const bool alone = parts.size() == 1 && phase == Phase::kPrompt;
  CHECK(rows <= (alone ? long_rows() : options_.max_rows));
  const bool small = phase == Phase::kGenerate && rows <= kSmallRows && farthest > from;
  // A GPU would take a submission and a wait for each stage.
  const bool timed = small && !device().can_be_lost() && is_timed(small_steps_++);
  for (const ShardRows& part : parts) {
    out += part.rows.wanted_count() * width(part.rows.range.to);
  }
  // The nearest end point first: behind it the rows of farther ones, which lie before, go on alone.
  Point at = from;
  for (size_t end = parts.size(), begin = end; end > 0; end = begin) {
    const Point to = parts[end - 1].rows.range.to;
    size_t fewer = rows, before = wanted;
    for (; begin > 0 && parts[begin - 1].rows.range.to == to; --begin) {
      fewer -= parts[begin - 1].rows.count();
      before -= parts[begin - 1].rows.wanted_count();
    }
    out -= (wanted - before) * width(to);
    RowBatch batch = loaded.rows.batch(phase, rows, end, before, wanted);
    if (end == parts.size() && !from.is_tokens()) {
      if (width(from) > static_cast<size_t>(model_.config().channels)) place_parts(from);
      batch.in = loaded.hidden[stage_index(from) % 2].get();
      batch.in_bytes = std::as_bytes(std::span(loaded.rows.hidden));
    }
    run_range({at, to}, batch, timed, out);
    at = std::min(to, Point(model_.config().layers));  // beyond the blocks, wanted rows alone go on
    rows = fewer, wanted = before;
  }
  ++steps_;
  if (model_.config().encodes()) return;  // nothing is kept
  for (const ShardRows& part : parts) {
    const SequenceRows& done = part.rows;
    pages_.advance(part.sequence, done.range, done.past + done.count());
  }
}

}  // namespace split
