#include "run/text/texts.h"

#include <algorithm>
#include <list>

namespace split {
std::vector<float> run_texts(Batcher& batcher, const TextRows& texts, const Requester& requester,
                             Forward::Spent& spent) {
  Shard& shard = batcher.shard();
  const ModelConfig& config = shard.model().config();
  const size_t width = shard.width(texts.range.to);
  std::vector<float> out(texts.wanted_count() * width);
  float* at = out.data();
  // A decoder keeps a text's rows until its last one is done: a context of them at most.
  const size_t most = config.encodes() ? texts.count() : static_cast<size_t>(config.context);
  for (size_t first = 0; first < texts.lengths.size();) {
    const size_t n = texts_within(texts.lengths, first, most);
    std::list<OneSequence> sequences;
    std::vector<Job> jobs;
    for (SequenceRows& rows : texts.slice(first, n).split()) {
      const size_t floats = rows.wanted_count() * width;
      jobs.push_back({sequences.emplace_back(shard.pages(), !requester.self).id, std::move(rows),
                      at, requester});
      at += floats;
    }
    batcher.run(jobs);
    Forward::Spent most_of;
    for (const Job& job : jobs) {
      most_of.queue_ms = std::max(most_of.queue_ms, job.queue_ms);
      most_of.compute_ms = std::max(most_of.compute_ms, job.compute_ms);
    }
    spent.queue_ms += most_of.queue_ms;
    spent.compute_ms += most_of.compute_ms;
    first += n;
  }
  return out;
}

}  // namespace split
