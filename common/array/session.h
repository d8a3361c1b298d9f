// Where values of a Runtime live: their numbers, plans that equal graphs share, and which cell a
// node is of. For value.cpp alone.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "array/plan.h"
#include "array/value.h"
#include "tensor/home.h"

namespace split::array {

class Session;

// Numbers of a node: it is a leaf to what is computed from it.
class Stored final : public Home {
 public:
  explicit Stored(std::shared_ptr<Session> session) : session(std::move(session)) {}
  OwnedTensor values(const Tensor& x) override;
  Tensor leaf(const TensorView& view) override;

  const std::shared_ptr<Session> session;
  Store::Entry entry;
};

struct Cell : std::enable_shared_from_this<Cell> {
  ~Cell();
  // The node that it is now: a view is made anew where its base was written.
  const std::shared_ptr<const Node>& now();
  void become(std::shared_ptr<const Node> next);  // its base changes too

  std::shared_ptr<Session> session;
  std::shared_ptr<const Node> node;
  uint64_t version = 0;
  std::shared_ptr<Cell> base;                      // set for a view
  std::vector<std::shared_ptr<const Node>> chain;  // views from the base on
  uint64_t seen = 0;                               // version of the base
  bool requires_grad = false, retains = false;
  std::shared_ptr<Value> grad;
};

// Whether a node shows elements of its input that writing it would write.
bool is_view(const Node& node);

class Session final : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(Runtime& runtime) : runtime_(runtime) {}

  Tensor leaf(const TensorView& view);
  // Computes nodes, each of which has its numbers afterwards.
  void evaluate(const std::vector<std::shared_ptr<const Node>>& nodes);
  static Stored* stored(const Node& node);
  size_t plans() const { return plans_.size(); }

  std::unordered_map<const Node*, Cell*> cells;
  size_t pending = 0;  // values made since some were computed
  uint64_t drawn = 0;  // random numbers: how often
  uint32_t seed = 0;

 private:
  struct Shared {
    Store store;
    std::unique_ptr<Plan> plan;
    std::list<std::string>::iterator used;
  };
  Runtime& runtime_;
  std::unordered_map<std::string, std::unique_ptr<Shared>> plans_;  // by structure
  std::list<std::string> order_;                                    // the last used first
};

}  // namespace split::array
