#include "edge_client/drive/split_embed.h"

#include "base/resources/clock.h"
#include "base/resources/fibres.h"
#include "edge_client/split/retry.h"
#include "run/text/texts.h"

namespace split::edge {
namespace {

// Most bytes of hidden states in one trip: below the cloud's limits.
constexpr size_t kMostBytes = 32 << 20;

std::vector<float> ask(const SplitContext& run, const TextRows& texts, bool pool, size_t width,
                       SplitCounts& counts) {
  const Send asked{.call = pool ? Send::kEmbed : Send::kTexts,
                   .traffic = &counts.traffic,
                   .texts = texts,
                   .width = static_cast<uint32_t>(width)};
  std::vector<float> values = retried(run.retry, run.waiter, [&] { return run.cloud.ask(asked); });
  const uint64_t layer_rows =
      texts.count() *
      static_cast<uint64_t>(texts.range.to.blocks_before(run.model.config().layers));
  counts.cloud_layer_rows += layer_rows;
  counts.work.cloud_layer_rows += layer_rows;
  return values;
}

void pool_rows(const std::vector<float>& rows, const TextRows& texts, size_t channels,
               const Sentences& sentences, std::vector<float>& out) {
  size_t at = 0;
  for (const uint32_t length : texts.lengths) {
    const auto one = sentences.pool(std::span(rows).subspan(at, length * channels), false);
    out.insert(out.end(), one.begin(), one.end());
    at += length * channels;
    fibres::yield();  // a Dense of many texts is some work
  }
}

// The final rows of texts, or their embeddings if all of the model is on the cloud.
void embed_part(const SplitContext& run, TextRows texts, const Sentences& sentences,
                SplitCounts& counts, EmbeddedTexts& out) {
  const auto channels = static_cast<size_t>(run.model.config().channels);
  const Point end = sentences.point();
  counts.work.rows += texts.count();
  if (run.place.cut.is_cloud()) {
    texts.range.to = end;
    const auto pooled = ask(run, texts, true, sentences.dimensions(), counts);
    out.values.insert(out.values.end(), pooled.begin(), pooled.end());
    ++out.trips;
    return;
  }
  std::vector<float> rows;
  if (run.place.cut > 0) {
    texts.range.to = run.place.cut.blocks();
    const auto width = static_cast<size_t>(run.model.config().row_width(texts.range.to.block()));
    rows = ask(run, texts, false, width, counts);
    ++out.trips;
    texts.range.from = run.place.cut.blocks();
    texts.tokens = {};
    texts.hidden = rows;
    texts.width = static_cast<uint32_t>(width);
  }
  const Timed timed(counts.edge_ms);
  texts.range.to = end;
  std::vector<float> last;
  if (!texts.range.empty()) {
    CHECK(run.tail != nullptr);
    Forward::Spent spent;
    last = run_texts(*run.tail, texts, run.requester, spent);
  }
  pool_rows(texts.range.empty() ? rows : last, texts, channels, sentences, out.values);
}

// All rows of a text that the cloud computes: of a long one in pieces, since a message is bounded.
std::vector<float> cloud_rows(const SplitContext& run, const SequenceRows& rows, Traffic& traffic) {
  constexpr uint32_t kPiece = SequenceHistory::kPieceRows;
  if (rows.count() <= kPiece) return run.cloud.ask({Send::kForward, {}, rows, &traffic});
  const std::string session = random_session_id();
  run.cloud.ask({Send::kOpen, session, {.range = rows.range}, &traffic});
  const std::shared_ptr<void> leave(nullptr, [&](void*) {
    run.cloud.ask({Send::kClose, session, {}, &traffic});
  });
  std::vector<float> all;
  for (uint32_t at = 0; at < rows.count(); at += kPiece) {
    const SequenceRows piece = rows.slice(at, std::min(kPiece, rows.count() - at));
    std::ranges::copy(run.cloud.ask({Send::kStep, session, piece, &traffic}),
                      std::back_inserter(all));
  }
  return all;
}

}  // namespace

EmbeddedTexts embed_texts(const SplitContext& run, std::span<const std::vector<int32_t>> texts,
                          const Sentences& sentences, SplitCounts& counts,
                          std::span<const uint32_t> seconds) {
  const Timed timed(counts.ms);
  const TextTokens owned(texts, seconds);
  const TextRows all = owned.to(Point());
  const size_t row_bytes = static_cast<size_t>(run.model.config().channels) * sizeof(float);
  EmbeddedTexts out;
  ++counts.steps;
  for (size_t first = 0; first < owned.lengths.size();) {
    const size_t n = texts_within(owned.lengths, first, kMostBytes / row_bytes);
    embed_part(run, all.slice(first, n), sentences, counts, out);
    first += n;
  }
  return out;
}

std::vector<float> rows_between(const SplitContext& run, SequenceRows rows, uint32_t prompt,
                                SplitCounts& counts) {
  const int layers = run.model.config().layers;
  const Point cut = run.place.cut.blocks(layers), to = rows.range.to;
  std::vector<float> below;
  if (rows.range.from < cut && cut > Point(0)) {
    rows.range.to = std::min(cut, to);
    below = retried(run.retry, run.waiter, [&] { return cloud_rows(run, rows, counts.traffic); });
    if (rows.range.to == to) return below;
    rows = {.range = {cut, to},
            .hidden = below,
            .width = static_cast<uint32_t>(run.model.config().row_width(cut.block())),
            .wanted = Wanted::kAll};
  }
  CHECK(run.tail != nullptr);
  return whole_text(*run.tail, run.requester, rows, prompt);
}

}  // namespace split::edge
