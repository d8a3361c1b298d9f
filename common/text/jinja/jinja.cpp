#include "text/jinja/jinja.h"

#include <deque>

#include "text/jinja/values.h"

namespace split {
namespace jinja {
namespace {

using K = Value::Kind;

enum class Flow : uint8_t { kOn, kBreak, kContinue };

class Run {
 public:
  Run(const std::vector<NodePtr>& tree, Json names, const JinjaCaller& caller)
      : values_(caller), tree_(tree) {
    frames_.emplace_back();
    for (const char* name : {"raise_exception", "strftime_now", "range", "namespace", "dict"}) {
      frames_[0].emplace_back(name, boxed(K::kFunction, name));
    }
    for (Json::Member& one : names.take_object())
      define(one.name, values_.of_json(std::move(one.value)));
  }

  std::string render() {
    outputs_.emplace_back(values_.meter);
    execute(tree_);
    return outputs_.back().take().first;
  }

 private:
  using Frame = std::vector<Member>;

  // Names.
  void define(const std::string& name, Value value) {
    Frame& frame = frames_.back();
    Member* const found = values_.find(frame, name);
    found == nullptr ? void(frame.emplace_back(name, std::move(value)))
                     : void(found->second = std::move(value));
  }

  Value look_up(const std::string& name) {
    for (size_t i = frames_.size(); i > floor_; --i) {
      if (const Member* found = values_.find(frames_[i - 1], name)) return found->second;
    }
    if (floor_ > 0) {
      if (const Member* found = values_.find(frames_[0], name)) return found->second;
    }
    return values_.undefined(name);
  }

  struct Scope {
    // Frames from `floor` on are seen; a macro sees its own alone.
    Scope(Run& run, size_t floor) : run(run), floor(std::exchange(run.floor_, floor)) {
      run.frames_.emplace_back();
    }
    explicit Scope(Run& run) : Scope(run, run.floor_) {}
    ~Scope() {
      run.frames_.pop_back();
      run.floor_ = floor;
    }
    Run& run;
    size_t floor;
  };

  // Statements. The callers of execute() and evaluate() do not inline them: a level's frames stay
  // small, and kMostDepth of them fit a worker's stack.
  [[gnu::noinline]] Flow execute(const std::vector<NodePtr>& body) {
    const Deeper deeper(values_.depth, kMostDepth);
    for (const NodePtr& node : body) {
      values_.meter.steps(1);
      if (const Flow flow = statement(*node); flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
  }

  Flow statement(const Node& node) {
    switch (node.op) {
      case Op::kText:
        return outputs_.back().add(node.text), Flow::kOn;
      case Op::kPrint:
        return print(node);
      case Op::kIf:
        return choose(node);
      case Op::kFor:
        return loop(node);
      case Op::kSet:
        return set(node);
      case Op::kSetBlock:
        return set_block(node);
      case Op::kMacro:
        return define_macro(node);
      case Op::kBreak:
        return Flow::kBreak;
      case Op::kContinue:
        return Flow::kContinue;
      default:
        return execute(node.bodies[0]);
    }
  }

  [[gnu::noinline]] Flow print(const Node& node) {
    const Value value = evaluate(*node.kids[0]);
    TextMade scratch(values_.meter);
    outputs_.back().add(str(value, scratch));
    return Flow::kOn;
  }

  [[gnu::noinline]] bool holds(const Node& condition) { return truth(evaluate(condition)); }

  [[gnu::noinline]] Flow choose(const Node& node) {
    for (size_t i = 0; i < node.bodies.size(); ++i) {
      if (i == node.kids.size() || holds(*node.kids[i])) return execute(node.bodies[i]);
    }
    return Flow::kOn;
  }

  [[gnu::noinline]] Flow set_block(const Node& node) {
    assign(*node.kids[0], captured(node.bodies[0]));
    return Flow::kOn;
  }

  [[gnu::noinline]] Flow define_macro(const Node& node) {
    Value macro(K::kMacro);
    macro.macro = &node;
    define(node.text, std::move(macro));
    return Flow::kOn;
  }

  [[gnu::noinline]] Value captured(const std::vector<NodePtr>& body) {
    outputs_.emplace_back(values_.meter);
    const Scope scope(*this);
    execute(body);
    Value text = values_.taken(outputs_.back());
    outputs_.pop_back();
    return text;
  }

  void assign(const Node& target, Value value) {
    if (target.op == Op::kName) return define(target.text, std::move(value));
    const Value space = look_up(target.kids[0]->text);
    if (!space.is(K::kNamespace)) refuse("cannot assign attribute on non-namespace object");
    values_.set_member(*space.box, target.text, std::move(value));
  }

  [[gnu::noinline]] Flow set(const Node& node) {
    const size_t targets = node.kids.size() - 1;
    Value value = evaluate(*node.kids[targets]);
    if (targets == 1) return assign(*node.kids[0], std::move(value)), Flow::kOn;
    const Value parts = unpacked(value, targets);
    for (size_t i = 0; i < targets; ++i) assign(*node.kids[i], parts.items()[i]);
    return Flow::kOn;
  }

  Value unpacked(const Value& value, size_t count) {
    Value parts = values_.iterate(value);
    if (parts.items().size() != count) {
      refuse(cat("expected ", count, " values to unpack, got ", parts.items().size()));
    }
    return parts;
  }

  void unpack(const std::vector<std::string>& names, const Value& item) {
    if (names.size() == 1) return define(names[0], item);
    const Value parts = unpacked(item, names.size());
    for (size_t i = 0; i < names.size(); ++i) define(names[i], parts.items()[i]);
  }

  [[gnu::noinline]] Flow loop(const Node& node) {
    Value list = values_.iterate(evaluate(*node.kids[0]));
    if (node.kids[1] != nullptr) {
      ListMade wanted(values_);
      for (const Value& item : list.items()) {
        values_.meter.steps(1);
        const Scope scope(*this);
        unpack(node.names, item);
        if (holds(*node.kids[1])) wanted.add(item);
      }
      list = wanted.take();
    }
    const std::vector<Value>& items = list.items();
    if (items.empty()) {
      if (node.bodies.size() < 2) return Flow::kOn;
      const Scope scope(*this);
      return execute(node.bodies[1]);
    }
    const Deeper deeper(loops_, JinjaLimits::kNesting);
    Loop state{&items, 0, loops_};
    for (; state.at < items.size(); ++state.at) {
      values_.meter.steps(1);
      const Scope scope(*this);
      Value self(K::kLoop);
      self.loop = &state;
      define("loop", self);
      unpack(node.names, items[state.at]);
      if (execute(node.bodies[0]) == Flow::kBreak) break;
    }
    return Flow::kOn;
  }

  // Expressions.
  [[gnu::noinline]] Value evaluate(const Node& node) {
    const Deeper deeper(values_.depth, kMostDepth);
    values_.meter.steps(1);
    switch (node.op) {
      case Op::kValue:
        return node.value;
      case Op::kName:
        return look_up(node.text);
      case Op::kList:
      case Op::kTuple:
        return list(node);
      case Op::kMap:
        return map(node);
      case Op::kAttribute:
        return attribute_of(node);
      case Op::kItem:
        return item(node);
      case Op::kSlice:
        return slice(node);
      case Op::kCall:
        return call(node);
      case Op::kFilter:
        return filtered(node);
      case Op::kTest:
        return tested(node);
      case Op::kNot:
        return boolean(!holds(*node.kids[0]));
      case Op::kMinus:
      case Op::kPlus:
        return with_sign(node);
      case Op::kAnd:
      case Op::kOr:
        return either(node);
      case Op::kCondition:
        if (holds(*node.kids[1])) return evaluate(*node.kids[0]);
        return node.kids[2] == nullptr ? values_.undefined("") : evaluate(*node.kids[2]);
      case Op::kCompare:
        return boolean(compare(node));
      default:
        return binary(node);
    }
  }

  [[gnu::noinline]] Value list(const Node& node) {
    ListMade list(values_, node.op == Op::kList ? K::kList : K::kTuple);
    for (const NodePtr& kid : node.kids) list.add(evaluate(*kid));
    return list.take();
  }

  [[gnu::noinline]] Value map(const Node& node) {
    Value map = values_.with_box(K::kMap);
    for (size_t i = 0; i < node.kids.size(); i += 2) {
      const Value key = evaluate(*node.kids[i]);
      if (!key.is(K::kString)) throw JinjaUnsupported(node.line, "a key that is no string");
      values_.set_member(*map.box, key.text(), evaluate(*node.kids[i + 1]));
    }
    return map;
  }

  [[gnu::noinline]] Value attribute_of(const Node& node) {
    return attribute(values_, evaluate(*node.kids[0]), node.text, node.line);
  }

  [[gnu::noinline]] Value item(const Node& node) {
    const Value value = evaluate(*node.kids[0]);
    return values_.item(value, evaluate(*node.kids[1]));
  }

  [[gnu::noinline]] Value filtered(const Node& node) {
    const Value value = evaluate(*node.kids[0]);
    return filter(values_, node.text, value, arguments(node, 1), node.line);
  }

  [[gnu::noinline]] Value tested(const Node& node) {
    const Value value = evaluate(*node.kids[0]);
    return boolean(test(values_, node.text, value, arguments(node, 1).values));
  }

  [[gnu::noinline]] Value with_sign(const Node& node) {
    return signed_number(evaluate(*node.kids[0]), node.op == Op::kMinus);
  }

  [[gnu::noinline]] Value either(const Node& node) {
    Value left = evaluate(*node.kids[0]);
    return truth(left) == (node.op == Op::kAnd) ? evaluate(*node.kids[1]) : left;
  }

  [[gnu::noinline]] Value binary(const Node& node) {
    const Value left = evaluate(*node.kids[0]);
    return values_.binary(node.text, left, evaluate(*node.kids[1]));
  }

  [[gnu::noinline]] bool compare(const Node& node) {
    Value left = evaluate(*node.kids[0]);
    for (size_t i = 0; i < node.names.size(); ++i) {
      Value right = evaluate(*node.kids[i + 1]);
      if (!values_.holds(left, node.names[i], right)) return false;
      left = std::move(right);
    }
    return true;
  }

  [[gnu::noinline]] Value slice(const Node& node) {
    const Value value = evaluate(*node.kids[0]);
    std::array<std::optional<int64_t>, 3> parts;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (node.kids[i + 1] == nullptr) continue;
      const Value one = evaluate(*node.kids[i + 1]);
      if (one.is(K::kInteger)) {
        parts[i] = one.integer;
      } else if (!one.is(K::kNone)) {
        refuse("slice indices must be integers or None");
      }
    }
    return values_.slice(value, parts);
  }

  [[gnu::noinline]] Arguments arguments(const Node& node, size_t from) {
    Arguments all;
    const size_t named = node.kids.size() - (node.op == Op::kTest ? 0 : node.names.size());
    for (size_t i = from; i < node.kids.size(); ++i) {
      Value value = evaluate(*node.kids[i]);
      if (i < named)
        all.values.push_back(std::move(value));
      else
        all.named.emplace_back(node.names[i - named], std::move(value));
    }
    return all;
  }

  [[gnu::noinline]] Value call(const Node& node) {
    const Value callee = evaluate(*node.kids[0]);
    const Arguments all = arguments(node, 1);
    if (callee.is(K::kMacro)) return macro(*callee.macro, all);
    if (callee.is(K::kFunction)) return function(values_, callee.text(), all);
    if (callee.is(K::kMethod)) {
      const Value& self = callee.items()[0];
      if (self.is(K::kLoop)) {
        if (all.values.empty()) refuse("no items for cycling given");
        return all.values[self.loop->at % all.values.size()];
      }
      return self.is(K::kMap) ? values_.map_method(self, callee.text(), all)
                              : string_method(values_, self, callee.text(), all, node.line);
    }
    expect_defined(callee);
    refuse(cat("'", type_name(callee), "' object is not callable"));
  }

  [[gnu::noinline]] Value macro(const Node& node, const Arguments& all) {
    const Deeper deeper(calls_, JinjaLimits::kNesting);
    if (all.values.size() > node.names.size()) {
      refuse(cat("macro ", shown(node.text), " takes not more than ", node.names.size(),
                 " argument(s)"));
    }
    const Scope scope(*this, frames_.size());
    const size_t first_default = node.names.size() - node.kids.size();
    for (size_t i = 0; i < node.names.size(); ++i) {
      Value value = all.get(i, node.names[i]);
      if (value.is(K::kUndefined) && i >= first_default) {
        value = evaluate(*node.kids[i - first_default]);
      }
      define(node.names[i], std::move(value));
    }
    return captured(node.bodies[0]);
  }

  Values values_;  // first: outlives all values
  const std::vector<NodePtr>& tree_;
  std::vector<Frame> frames_;
  size_t floor_ = 0;  // first frame of the running macro; frame 0 is seen everywhere
  std::deque<TextMade> outputs_;
  int loops_ = 0, calls_ = 0;
};

}  // namespace
}  // namespace jinja

struct JinjaTemplate::Tree {
  std::vector<jinja::NodePtr> nodes;
};

JinjaTemplate::JinjaTemplate(std::string_view text)
    : tree_(std::make_unique<Tree>(Tree{jinja::parse(text)})) {}
JinjaTemplate::~JinjaTemplate() = default;
JinjaTemplate::JinjaTemplate(JinjaTemplate&&) noexcept = default;
JinjaTemplate& JinjaTemplate::operator=(JinjaTemplate&&) noexcept = default;

std::string JinjaTemplate::render(Json names, const JinjaCaller& caller) const {
  return jinja::Run(tree_->nodes, std::move(names), caller).render();
}

}  // namespace split
