// The texts that run in a server of the edge, while they do: so that others can see where each is
// cut, and move it.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "edge_client/drive/split_forward.h"
#include "edge_client/weights/loader.h"

namespace split::edge {

// Any thread.
class Answers {
 public:
  // A text, from its first token to its last; goes before it.
  class Entry {
   public:
    Entry(Answers& answers, SplitForward& text);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    friend class Answers;
    Answers& answers_;
    SplitForward& text_;
    uint64_t id_ = 0;
  };
  struct Answer {
    uint64_t id = 0;
    SplitForward::Place place;
  };
  std::vector<Answer> list() const;

  // Each that can moves there, as soon as its lane has brought the rows: to this model, unless it
  // has the stages already.
  void move(int cut, const std::shared_ptr<PlacedModel>& split);

  // Whether that changes no bit; none: nobody looked.
  std::optional<bool> exact() const;
  void set_exact(bool exact);

 private:
  mutable std::mutex mutex_;  // of:
  uint64_t last_ = 0;
  std::list<Entry*> entries_;
  std::optional<bool> exact_;
};

}  // namespace split::edge
