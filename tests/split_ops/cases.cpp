#include "tests/split_ops/cases.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>

#include "autograd/functions.h"
#include "autograd/grad.h"
#include "base/error.h"
#include "tests/split_ops/operations.h"
#include "tests/split_ops/optimiser_cases.h"

namespace split::ops {
namespace {

enum class Layout : uint8_t { kDense, kTransposed, kStepped, kOffset, kExpanded };
constexpr Layout kLayouts[] = {Layout::kDense, Layout::kTransposed, Layout::kStepped,
                               Layout::kOffset, Layout::kExpanded};
constexpr std::string_view kLayoutNames[] = {"dense", "transposed", "stepped", "offset",
                                             "expanded"};

// Element i of a shape at the place that strides give it.
size_t place_of(size_t i, const Dims& dims, const std::vector<size_t>& strides) {
  size_t place = 0;
  for (size_t axis = dims.size(); axis-- > 0;) {
    place += i % static_cast<size_t>(dims[axis]) * strides[axis];
    i /= static_cast<size_t>(dims[axis]);
  }
  return place;
}
std::vector<size_t> strides_of(const Dims& dims) {
  std::vector<size_t> strides(dims.size());
  size_t stride = 1;
  for (size_t axis = dims.size(); axis-- > 0; stride *= static_cast<size_t>(dims[axis])) {
    strides[axis] = stride;
  }
  return strides;
}

// Numbers as they are, or as a device reads them that takes subnormal ones for 0.
enum class Subnormals : uint8_t { kKept, kFlushed };
std::vector<float> read(const TensorView& view, Subnormals subnormals) {
  std::vector<float> values = numbers_of(view);
  if (subnormals == Subnormals::kKept) return values;
  for (float& value : values) {
    if (std::abs(value) < std::numeric_limits<float>::min()) value = std::copysign(0.0F, value);
  }
  return values;
}

// Leaves of one case in a store, laid out.
class Inputs {
 public:
  Inputs(array::Store& store, Subnormals subnormals) : store_(store), subnormals_(subnormals) {}

  Tensor add(const std::string& name, const TensorView& view, Layout layout) {
    const Dims dims = view.dims;
    const std::vector<float> values = read(view, subnormals_);
    Dims stored = dims;
    std::vector<size_t> strides = strides_of(dims);
    size_t offset = 0;
    if (layout == Layout::kTransposed) {
      std::reverse(stored.begin(), stored.end());
      strides = strides_of(stored);
      std::reverse(strides.begin(), strides.end());
    } else if (layout == Layout::kStepped) {
      for (int64_t& size : stored) size = 2 * size + 1;
      strides = strides_of(stored);
      for (size_t& stride : strides) offset += stride, stride *= 2;
    } else if (layout == Layout::kOffset) {
      stored = {static_cast<int64_t>(values.size()) + 3};
      offset = 3;
    } else if (layout == Layout::kExpanded) {
      std::erase(stored, 1);
    }
    const bool whole = view.dtype == DType::kI64 || view.dtype == DType::kI32;
    constexpr float kOther = 77;  // what lies between is not read
    const auto fill = [&](auto& to) {
      std::fill(to.begin(), to.end(),
                static_cast<typename std::decay_t<decltype(to)>::value_type>(kOther));
      for (size_t i = 0; i < values.size(); ++i) {
        to[place_of(i, dims, strides) + offset] =
            static_cast<typename std::decay_t<decltype(to)>::value_type>(values[i]);
      }
    };
    if (whole) {
      fill(store_.add_numbers(name, stored).numbers);
    } else {
      fill(store_.add(name, stored).floats);
    }
    const Tensor leaf = input(name, whole ? DType::kI32 : DType::kF32, stored);
    return shown(leaf, dims, layout);
  }

 private:
  static Tensor shown(Tensor leaf, const Dims& dims, Layout layout) {
    switch (layout) {
      case Layout::kTransposed: {
        Axes order(dims.size());
        std::iota(order.rbegin(), order.rend(), int64_t{0});
        return permute(leaf, order);
      }
      case Layout::kStepped:
        for (size_t i = 0; i < dims.size(); ++i) {
          leaf = slice(leaf, static_cast<int64_t>(i), 1, 2 * dims[i] + 1, 2);
        }
        return leaf;
      case Layout::kOffset:
        return reshape(slice(leaf, 0, 3, leaf.dims()[0]), dims);
      case Layout::kExpanded:
        return reshape(leaf, dims);
      default:
        return leaf;
    }
  }
  array::Store& store_;
  Subnormals subnormals_;
};

bool may_be_there(const Json& entry) {
  if (!is_optimiser_case(entry) && !is_known(entry.at("op").text())) return false;
  if (const std::string& dtype = entry.at("dtype").text();
      dtype == "F16" || dtype == "BF16" || dtype == "U8") {
    return false;
  }
  return !entry.at("name").text().starts_with("integer.") &&
         !entry.at("name").text().starts_with("promote.") &&
         !entry.at("name").text().starts_with("convert.");
}

class Runner {
 public:
  Runner(Goldens& goldens, array::Runtime& runtime, Report& report)
      : goldens_(goldens), runtime_(runtime), report_(report) {}

  // False where the case is not there yet.
  bool run(const Json& entry) {
    if (!may_be_there(entry)) return false;
    if (is_optimiser_case(entry)) return run_optimiser_case(goldens_, runtime_, entry, report_);
    for (const Layout layout : kLayouts) {
      if (!run(entry, layout)) return false;
    }
    return true;
  }
  bool known(const Json& entry) {
    if (!may_be_there(entry)) return false;
    if (is_optimiser_case(entry)) return knows_optimiser_case(entry);
    array::Store store;
    return traced(entry, Layout::kDense, Subnormals::kKept, store).has_value();
  }

 private:
  struct Traced {
    std::map<std::string, Tensor> inputs;
    Results results;
  };
  std::optional<Traced> traced(const Json& entry, Layout layout, Subnormals subnormals,
                               array::Store& store) {
    const std::string& file = entry.at("file").text();
    Inputs inputs(store, subnormals);
    Traced all;
    for (const Json& one : entry.at("inputs")) {
      const std::string& name = one.at("name").text();
      const TensorView& view = goldens_.tensor(file, one.at("tensor").text());
      if (view.dtype == DType::kF16 || view.dtype == DType::kBF16) return std::nullopt;
      all.inputs.emplace(name, inputs.add(name, view, layout));
    }
    auto results = evaluate({entry, all.inputs});
    if (!results) return std::nullopt;
    all.results = std::move(*results);
    return all;
  }

  struct Computed {  // outputs `out<i>` and `grad <name>` of a case
    array::Store store;
    std::optional<array::Plan> plan;
  };
  // Null where the case is not there yet.
  std::unique_ptr<Computed> computed(const Json& entry, Layout layout, Subnormals subnormals) {
    const std::string& file = entry.at("file").text();
    auto made = std::make_unique<Computed>();
    array::Store& store = made->store;
    auto all = traced(entry, layout, subnormals, store);
    if (!all) return nullptr;
    array::Graph graph;
    std::vector<Tensor> with_dy, dys, wanted;
    const Json& outputs = entry.at("outputs");
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& result = all->results.at(i);
      graph.outputs.push_back({cat("out", i), result});
      const Json* const dy = dy_of(outputs[i]);
      if (dy == nullptr) continue;
      const TensorView& view = goldens_.tensor(file, dy->text());
      const std::string name = cat("dy", i);
      store.add(name, view.dims).floats = read(view, subnormals);
      with_dy.push_back(result);
      dys.push_back(input(name, DType::kF32, view.dims));
    }
    if (!with_dy.empty()) {
      const auto grads = gradients(entry);
      for (const auto* member : grads) wanted.push_back(all->inputs.at(member->name));
      const auto found = autograd::grad(with_dy, wanted, dys);
      for (size_t i = 0; i < grads.size(); ++i) {
        graph.outputs.push_back({cat("grad ", grads[i]->name), found[i]});
      }
    }
    made->plan.emplace(runtime_, graph, store).run();
    return made;
  }
  // The gradient that arrives at an output, or null.
  static const Json* dy_of(const Json& output) {
    const Json* const dy = output.find("dy");
    return dy == nullptr || dy->is_null() ? nullptr : dy;
  }
  static std::vector<const Json::Member*> gradients(const Json& entry) {
    std::vector<const Json::Member*> grads;
    for (const Json::Member& member : entry.at("grads").members()) {
      if (!member.value.is_null()) grads.push_back(&member);
    }
    return grads;
  }

  bool run(const Json& entry, Layout layout) {
    const auto kept = computed(entry, layout, Subnormals::kKept);
    if (kept == nullptr) return false;
    const Json* const tag = entry.find("tag");
    const bool may_flush = tag != nullptr && tag->text() == "denormals" && flushes();
    const auto flushed = may_flush ? computed(entry, layout, Subnormals::kFlushed) : nullptr;
    const bool sign = entry.find("zero_sign") != nullptr && entry.at("zero_sign").get<bool>();
    const auto check = [&](const Json& expected, const std::string& name, bool zero_sign) {
      compare(entry, layout, expected, *kept->plan, name, zero_sign,
              flushed == nullptr ? std::span<const float>{} : flushed->plan->output(name));
    };
    const Json& outputs = entry.at("outputs");
    for (size_t i = 0; i < outputs.size(); ++i) check(outputs[i], cat("out", i), sign);
    if (std::none_of(outputs.begin(), outputs.end(), dy_of)) return true;
    for (const auto* member : gradients(entry)) {
      check(member->value, cat("grad ", member->name), false);
    }
    return true;
  }

  // Whether the device takes subnormal numbers for 0.
  bool flushes() {
    if (flushes_) return *flushes_;
    constexpr float kSmall = std::numeric_limits<float>::min() / 2;
    array::Store store;
    store.add("x", Dims{1}).floats = {kSmall};
    array::Graph graph;
    graph.outputs.push_back({"out", sqrt(input("x", DType::kF32, {1}))});
    array::Plan plan(runtime_, graph, store);
    plan.run();
    flushes_ = plan.output("out")[0] == 0;
    return *flushes_;
  }

  // Elements of `zeroed`, what the device gives where inputs have 0 for subnormal numbers, are
  // right too.
  void compare(const Json& entry, Layout layout, const Json& expected, const array::Plan& plan,
               const std::string& name, bool sign, std::span<const float> zeroed) {
    const std::string& file = entry.at("file").text();
    const TensorView& view = goldens_.tensor(file, expected.at("tensor").text());
    const auto number = [&](const char* key) {
      const Json* const value = expected.find(key);
      return value == nullptr || value->is_null() ? 0.0 : value->get<double>();
    };
    std::vector<float> mask;
    if (const Json* const of = expected.find("mask"); of != nullptr && !of->is_null()) {
      mask = goldens_.numbers(file, of->text());
    }
    Worst worst;
    const auto got = plan.output(name);
    const std::vector<float> want = numbers_of(view);
    const auto same_bits = [](float a, float b) {
      return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
    };
    if (plan.dims(name) != view.dims) {
      worst = {std::numeric_limits<double>::infinity(), 0, true};
    } else {
      for (size_t i = 0; i < want.size(); ++i) {
        if (!mask.empty() && mask[i] == 0) continue;
        if (!zeroed.empty() && same_bits(got[i], zeroed[i])) continue;
        worst.add(got[i], want[i], number("rtol"), number("atol"));
        if (sign && want[i] == 0 && got[i] == 0 && std::signbit(want[i]) != std::signbit(got[i])) {
          worst = {0, 0, true};
        }
      }
    }
    if (worst.failed) {
      report_.failed.push_back({entry.at("name").text(),
                                cat(name, ", ", kLayoutNames[static_cast<size_t>(layout)]), worst});
    }
  }

  Goldens& goldens_;
  array::Runtime& runtime_;
  Report& report_;
  std::optional<bool> flushes_;
};

}  // namespace

Report run_cases(Goldens& goldens, array::Runtime& runtime,
                 const std::function<bool(const std::string&)>& wanted) {
  const Json index = goldens.json("index.json");
  Report report;
  Runner runner(goldens, runtime, report);
  for (const Json& entry : index.at("cases")) {
    const std::string& name = entry.at("name").text();
    if (wanted && !wanted(name)) continue;
    ++report.cases;
    try {
      if (!runner.run(entry)) ++report.skipped;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kShape) throw;
      report.failed.push_back({name, error.what(), {0, 0, true}});
    } catch (const std::logic_error& error) {  // a fault of ours is that case's alone
      report.failed.push_back({name, error.what(), {0, 0, true}});
    }
  }
  return report;
}

std::vector<std::string> known_cases(Goldens& goldens) {
  const Json index = goldens.json("index.json");
  Report report;
  array::Runtime runtime(1);
  Runner runner(goldens, runtime, report);
  std::vector<std::string> names;
  for (const Json& entry : index.at("cases")) {
    if (runner.known(entry)) names.push_back(entry.at("name").text());
  }
  return names;
}

}  // namespace split::ops
