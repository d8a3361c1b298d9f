// How the matrix products of one row are laid on this device's lanes: by a rule, until the first
// load has measured what is fastest here. What it found is kept beside the pipeline cache, under
// $XDG_CACHE_HOME/splitcompute/tuning (a bad or foreign file is a miss). No layout changes the
// order of a sum, so no result depends on it. It knows no kernel and runs nothing.
//
// For tests: SPLIT_VULKAN_TUNE=measure tunes software devices too, =I takes layout I unmeasured.
// SPLIT_VULKAN_DISABLE=tuner leaves all to the rule.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "device/vulkan/runtime/context.h"

namespace split::vulkan {

// How a matmul's work is laid on lanes. `lanes` fixes the order of the sum, so it depends on the
// matrix and the device alone; the others only move work.
struct MatmulShape {
  uint32_t workgroup = 0, lanes = 0, columns_per_lane = 0, unroll = 0;
  uint32_t columns() const { return workgroup / lanes * columns_per_lane; }
  auto operator<=>(const MatmulShape&) const = default;
};

// The product that a layout is chosen for.
struct MatmulQuestion {
  uint32_t inner = 0, columns = 0, type = 0;  // the matrix's
  uint32_t joined = 0;  // FusedNeighbours::Input, 4 more with a twin, 8 with a rotation
  auto operator<=>(const MatmulQuestion&) const = default;
};

// One thread at a time.
class Tuner {
 public:
  explicit Tuner(const Capabilities& device);

  // One of `layouts`, of which the first is the rule's: the fastest, or, of an open question, what
  // is proposed.
  MatmulShape choose(const MatmulQuestion& question, const std::vector<MatmulShape>& layouts);
  // Nothing is known of it, and something could be.
  bool is_open(const MatmulQuestion& question) const {
    return on_ && matters(question) && !known_.contains(question);
  }
  // As long as it lives, choose() takes layout i, where there is one, for open questions.
  class Proposal {
   public:
    Proposal(Tuner& tuner, size_t i) : tuner_(tuner) { tuner_.proposed_ = i; }
    ~Proposal() { tuner_.proposed_ = 0; }
    Proposal(const Proposal&) = delete;
    Proposal& operator=(const Proposal&) = delete;

   private:
    Tuner& tuner_;
  };
  // As long as it lives, choose() leaves open questions unasked.
  class Preview {
   public:
    explicit Preview(Tuner& tuner) : tuner_(tuner) { tuner_.previews_ = true; }
    ~Preview() { tuner_.previews_ = false; }
    Preview(const Preview&) = delete;
    Preview& operator=(const Preview&) = delete;

   private:
    Tuner& tuner_;
  };
  void took(const MatmulQuestion& question, const MatmulShape& layout, double us);
  // Stores the fastest measured layout for each question that choose() left open, or the default.
  void settle();

 private:
  struct Answer {
    MatmulShape layout;
    bool measured = false;
  };
  struct Asked {
    MatmulShape rule;
    std::map<MatmulShape, double> us;  // the least
  };
  static bool matters(const MatmulQuestion& question);
  void load();
  void save() const;

  bool on_ = false;
  std::optional<uint64_t> taken_;  // SPLIT_VULKAN_TUNE=I
  std::filesystem::path path_;     // empty when there is no cache directory
  size_t proposed_ = 0;
  bool previews_ = false;
  std::map<MatmulQuestion, Answer> known_;
  std::map<MatmulQuestion, Asked> asked_;
};

}  // namespace split::vulkan
