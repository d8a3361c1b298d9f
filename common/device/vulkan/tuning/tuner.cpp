#include "device/vulkan/tuning/tuner.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/cache_dir.h"
#include "base/file.h"
#include "base/log.h"
#include "device/vulkan/codegen/spirv.h"

namespace split::vulkan {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;
constexpr double kGain = 0.95;  // factor of the rule's time: less may be noise

constexpr uint64_t kFewElements = uint64_t{1} << 14;  // a small matrix: read in 1 or 2 microseconds

}  // namespace

bool Tuner::matters(const MatmulQuestion& question) {
  return uint64_t{question.inner} * question.columns >= kFewElements;
}

Tuner::Tuner(const Capabilities& device) {
  const char* const value = std::getenv("SPLIT_VULKAN_TUNE");
  const std::string_view asked = value == nullptr ? "" : value;
  taken_ = parse_u64(asked, 0, 1000);
  on_ = !taken_ && device.timestamp_bits > 0 && !is_disabled("tuner") &&
        (!device.software || asked == "measure");
  const auto cache = cache_dir([](const char* name) { return std::getenv(name); });
  if (!on_ || !cache) return;
  Sha256 sum;
  sum.update(as_bytes_of(device.name));
  for (const EmbeddedKernel& kernel : embedded_kernels()) {
    sum.update(as_bytes_of(std::string_view(kernel.key)));
  }
  path_ = *cache / "tuning" / to_hex(sum.finish());
  load();
}

// A line an answer, numbers as in the structs.
void Tuner::load() {
  std::string file;
  try {
    file = read_file(path_, kMaxFileBytes);
  } catch (const Error&) {
    return;  // missing or unreadable: a miss
  }
  std::istringstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    MatmulQuestion q;
    MatmulShape s;
    numbers >> q.inner >> q.columns >> q.type >> q.joined >> s.workgroup >> s.lanes >>
        s.columns_per_lane >> s.unroll;
    if (!numbers || !(numbers >> std::ws).eof()) {
      known_.clear();
      return;
    }
    known_[q] = {s, true};
  }
}

void Tuner::save() const {
  if (path_.empty()) return;
  std::string file;
  for (const auto& [q, answer] : known_) {
    if (!answer.measured) continue;
    const MatmulShape& s = answer.layout;
    file += cat(q.inner, " ", q.columns, " ", q.type, " ", q.joined, " ", s.workgroup, " ", s.lanes,
                " ", s.columns_per_lane, " ", s.unroll, "\n");
  }
  try {
    std::filesystem::create_directories(path_.parent_path());
    AtomicFile kept(path_);
    kept.append(as_bytes_of(file));
    kept.commit();
  } catch (const std::exception& error) {  // Error, or the file system's
    log_warning(cat("[vulkan] what tuning found is not kept: ", error.what()));
  }
}

MatmulShape Tuner::choose(const MatmulQuestion& question, const std::vector<MatmulShape>& layouts) {
  if (taken_) return layouts[std::min<size_t>(*taken_, layouts.size() - 1)];
  if (!on_ || !matters(question)) return layouts[0];
  if (const auto at = known_.find(question); at != known_.end()) {
    const MatmulShape& layout = at->second.layout;
    if (std::find(layouts.begin(), layouts.end(), layout) != layouts.end()) return layout;
    known_.erase(at);  // from another version
  }
  if (previews_) return layouts[0];
  asked_[question].rule = layouts[0];
  return layouts[proposed_ < layouts.size() ? proposed_ : 0];
}

void Tuner::took(const MatmulQuestion& question, const MatmulShape& layout, double us) {
  const auto [at, first] = asked_[question].us.try_emplace(layout, us);
  if (!first) at->second = std::min(at->second, us);
}

void Tuner::settle() {
  for (const auto& [question, asked] : asked_) {
    const auto best = std::min_element(asked.us.begin(), asked.us.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    const auto rule = asked.us.find(asked.rule);
    const bool gains = rule != asked.us.end() && best->second < kGain * rule->second;
    known_[question] = {gains ? best->first : asked.rule, rule != asked.us.end()};
    if (debug_level() >= 1 && rule != asked.us.end()) {
      log_info(cat("tuned ", question.inner, "x", question.columns, ": ", best->second, " us by ",
                   best->first.workgroup, " lanes, ", best->first.columns_per_lane,
                   " columns each; ", rule->second, " by the rule"));
    }
  }
  asked_.clear();
  save();
}

}  // namespace split::vulkan
