#include "edge_client/place/begin.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace split::edge {
namespace {

size_t count_within(const std::vector<uint64_t>& steps, uint64_t most) {
  uint64_t bytes = 0;
  const auto over = std::ranges::find_if(steps, [&](uint64_t step) {
    bytes += step;
    return bytes > most;
  });
  return static_cast<size_t>(over - steps.begin());
}

uint64_t bytes_of(const std::vector<uint64_t>& steps, size_t count) {
  const auto end = steps.begin() + static_cast<std::ptrdiff_t>(count);
  return std::accumulate(steps.begin(), end, uint64_t{0});
}

// Where the text begins; the first rule that holds decides.
InitialPlacement first_cut(const BeginInput& in) {
  const Constraint bound = bound_of(in.sessions, true);
  const Cut usual = in.bounds.highest.is_cloud() ? in.fixed : auto_cut(in.bounds, in.cloud_lost);
  const Cut cut = in.cut.value_or(usual);
  if (!in.follows || !cut.is_cloud()) return {.cut = cut};
  if (in.cloud_lost) return {.cut = 0, .why = Why::kCloudLost};
  if (bound != Constraint::kNone) return {.cut = in.fixed, .why = Why::kOnlyFit, .bound = bound};
  return {.cut = cut, .why = Why::kOnlyFit};  // no weights are here yet
}

// Whether the cloud has the head for its size, where nobody said. A text that moves, or may, needs
// it here; one without words needs none.
bool is_too_large(const BeginInput& in, const InitialPlacement& begin) {
  const bool splits = begin.cut > 0 && !begin.cut.is_cloud();
  const bool moves = in.scheduled || (in.follows && begin.bound == Constraint::kNone);
  const bool open = !in.head_given && !in.bounds.head_here;
  return splits && !moves && open && !in.embeds && in.head_blocks > kLargeHead;
}

}  // namespace

Constraint bound_of(const CloudSessions& sessions, bool streams) {
  if (!sessions.move) return Constraint::kOneCut;
  return streams && !sessions.stream ? Constraint::kRowsLost : Constraint::kNone;
}

std::string_view words_of(Constraint bound) {
  constexpr std::array<std::string_view, 3> kWords = {
      "", "the server's sessions have one cut for good", "the server keeps no text's rows"};
  return kWords.at(static_cast<size_t>(bound));
}

InitialPlacement initial_placement(const BeginInput& in) {
  InitialPlacement begin = first_cut(in);
  begin.head_is_large = is_too_large(in, begin);
  begin.head_on_cloud = in.head_cloud || begin.head_is_large;
  return begin;
}

FetchPlan fetch_plan(const ComingInput& in) {
  FetchPlan coming;
  coming.by_memory = in.granted < in.max_weights;
  coming.most = std::min(in.granted, in.max_weights);
  coming.steps = count_within(in.steps, coming.most);
  coming.whole = coming.steps == in.steps.size();
  if (!coming.whole && in.head_blocks > kLargeHead) {
    coming.head = false;
    coming.steps = count_within(in.headless, coming.most);
    if (coming.steps == 1) coming.steps = 0;  // the norm alone
  }
  coming.bytes = bytes_of(coming.head ? in.steps : in.headless, coming.steps);
  coming.all = bytes_of(in.steps, in.steps.size());
  return coming;
}

}  // namespace split::edge
