// Finds the rows of texts that were computed before: whole pages of keys and values, by the ids and
// phases that lead to them, so that a prompt with a known beginning is not computed from its start.
// By row invariance a cached row has the bits of a computed one. Knows ids and pages, no device,
// and has no thread.
//
// A page is found by a hash and compared whole, under its root alone: the texts of one owner and
// salt. Takes no memory but a bounded index: pages that only the cache holds are free for any
// sequence. The owner with most pages gives first: pages that nobody took yet, then the pages that
// were taken longest ago, and each before its predecessors in the text.
//
// Where blocks keep a state, a prefix ends where a snapshot of it is (run/kv_pages.h). Texts leave
// these before the end of a prompt, since the next turn's text often lacks a prompt's last ids,
// behind an answer, each kSnapshotEvery rows, and where they part from others.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "run/kv_pages.h"
#include "run/sequence.h"

namespace split {

// Texts of one root share pages, with no others.
struct PrefixRoot {
  std::string owner, salt;
  bool operator==(const PrefixRoot&) const = default;
};

// Any number of threads.
class PrefixCache {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Options {
    std::function<bool()> phases_alike = [] { return false; };  // Shard::same_bits_in_both_phases
    uint64_t index_bytes = 0;                                   // the index's limit
    std::function<Time()> clock = std::chrono::steady_clock::now;
    // Shard::leave
    std::function<KvPages::Snapshot(SequenceId, const StageRange&, uint32_t row)> leave = {};
  };
  // A page that is not taken for this long is dropped.
  static constexpr std::chrono::hours kUnused{1};
  // A text waits for another that computes at least so many of its next rows.
  static constexpr uint32_t kWorthWaiting = 64;
  static constexpr size_t kNodeBytes = 144;
  static constexpr uint32_t kSnapshotEvery = 1024;  // rows

  PrefixCache(KvPages& pages, Options options);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // A prompt that is being computed: others wait for its rows until this is destroyed.
  class Computing {
   public:
    Computing() = default;
    Computing(Computing&& other) noexcept : cache_(other.cache_), entry_(other.entry_) {
      other.cache_ = nullptr;
    }
    Computing& operator=(Computing&&) = delete;
    ~Computing();

   private:
    friend class PrefixCache;
    struct Entry {
      PrefixRoot root;
      SequenceHistory rows;
      StageRange range;
    };
    PrefixCache* cache_ = nullptr;
    std::list<Entry>::iterator entry_ = {};
  };
  struct Taken {
    uint32_t rows = 0;  // newly taken
    // Where the text parts from others, if it is to leave a snapshot there.
    uint32_t parts_at = 0;
    Computing rest = {};
  };

  // How many rows take() would give an empty sequence now.
  uint32_t known(const PrefixRoot& root, const SequenceHistory& rows, const StageRange& range,
                 uint32_t most);
  // Gives the sequence, which has the first `own` of these rows in whole pages, the longest cached
  // prefix of them that the blocks of the range have, `most` rows at most. Waits while another text
  // of this root computes more of it, unless `gone`.
  Taken take(const PrefixRoot& root, SequenceId sequence, uint32_t own, const SequenceHistory& rows,
             const StageRange& range, uint32_t most, const std::function<bool()>& gone);
  // The next row behind `row` where a step of the range is to end, for a snapshot: `parts_at`, as
  // take() gave it, or a multiple of kSnapshotEvery.
  uint32_t step_end(const StageRange& range, uint32_t row, uint32_t parts_at) const;
  // Keeps the whole pages of a sequence, which has these rows in all blocks of the range, and whose
  // step has ended; and a snapshot at this row, if it is not 0 and can be left there.
  void put(const PrefixRoot& root, SequenceId sequence, const SequenceHistory& rows,
           const StageRange& range, uint32_t snapshot);
  void put(const PrefixRoot& root, SequenceId sequence, const SequenceHistory& rows,
           const StageRange& range) {
    put(root, sequence, rows, range, end_of(rows));
  }
  // Where a prompt or an answer that ends with these rows leaves a snapshot.
  static uint32_t end_of(const SequenceHistory& rows);
  // Frees a page that only the cache holds; false if there is none.
  bool evict_one();
  // Lets go of all pages of a root, or of the owners that `keeps` rejects.
  void forget(const PrefixRoot& root);
  void keep_owners(const std::function<bool(const std::string& owner)>& keeps);

  size_t pages();               // held pages
  uint64_t taken_rows() const;  // in total, like evicted()
  uint64_t evicted() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  using Ids = std::array<int32_t, kPageTokens>;
  struct List {
    uint32_t oldest = kNone, newest = kNone;
    size_t size = 0;
  };
  struct Owner;
  struct Root {
    Owner* owner = nullptr;
    std::string salt;
    size_t nodes = 0;
  };
  struct Owner {
    std::string name;
    std::map<std::string, Root> roots;  // by salt
    List lists[2];                      // its pages: first the ones never taken
    size_t nodes() const { return lists[0].size + lists[1].size; }
  };
  struct Key {
    Root* root = nullptr;
    uint32_t parent = kNone;  // the node of the page before it
    uint16_t phases = 0;      // a bit for each id; 0 if the phases are alike
    Ids ids = {};
    bool operator==(const Key&) const = default;
  };
  struct Node {
    Key key;  // without a root: an unused node
    StageRange range = {};
    KvPages::Snapshot state = {};  // behind its page
    uint32_t page = 0;
    uint32_t children = 0;
    uint32_t next = kNone;  // next in its bucket
    uint32_t older = kNone, newer = kNone;
    uint32_t used = 0;  // seconds since the cache began
    bool hit = false;   // taken before
  };
  static_assert(sizeof(Node) + 2 * sizeof(uint32_t) <= kNodeBytes);

  // Called with the lock held:
  void refresh();
  Root& open_root(const PrefixRoot& name);
  void close_if_empty(Root& root);
  void forget_if(const std::function<bool(const Root&)>& is);
  Key key_of(Root& root, uint32_t parent, const SequenceHistory& rows, size_t page) const;
  uint32_t& bucket_of(const Key& key);
  uint32_t find(const Key& key);
  std::vector<uint32_t> path_of(const PrefixRoot& root, const SequenceHistory& rows,
                                const StageRange& range, size_t pages);
  size_t usable(const std::vector<uint32_t>& path, const StageRange& range) const;
  bool is_computed(const PrefixRoot& root, const SequenceHistory& rows, const StageRange& range,
                   uint32_t have, uint32_t most) const;
  bool has_room(const std::vector<uint32_t>& path);
  uint32_t add(const Key& key);
  void touch(const std::vector<uint32_t>& path, bool hit);
  List& list_of(const Node& node) { return node.key.root->owner->lists[node.hit ? 1 : 0]; }
  void enter(uint32_t at);
  void leave(uint32_t at);
  uint32_t victim();
  void erase(uint32_t at);
  void erase_unused();
  uint32_t now() const;

  KvPages& pages_;
  const Options options_;
  const size_t most_;  // nodes at most
  const Time began_;
  const uint64_t seed_;
  mutable std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  uint64_t generation_;
  std::map<std::string, Owner> owners_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> free_, buckets_;
  std::list<Computing::Entry> computing_;
  uint64_t taken_rows_ = 0, evicted_ = 0;
};

}  // namespace split
