#include "tests/split_ops/cases.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>

#include "autograd/functions.h"
#include "autograd/grad.h"
#include "base/error.h"
#include "tensor/home.h"
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
OwnedTensor read(const TensorView& view, Subnormals subnormals) {
  OwnedTensor copy = converted(view, view.dtype);
  if (subnormals == Subnormals::kKept || !is_floating(view.dtype)) return copy;
  std::vector<float> values = numbers_of(view);
  const float least =
      view.dtype == DType::kF16 ? 6.103515625e-5F : std::numeric_limits<float>::min();
  for (float& value : values) {
    if (std::abs(value) < least) value = std::copysign(0.0F, value);
  }
  return converted({DType::kF32, view.dims, std::as_bytes(std::span(values))}, view.dtype);
}

// Leaves of one case in a store, laid out; computes what a case asks for while it is traced.
class Inputs final : public Home, public std::enable_shared_from_this<Inputs> {
 public:
  Inputs(array::Runtime& runtime, array::Store& store, Subnormals subnormals)
      : runtime_(runtime), store_(store), subnormals_(subnormals) {}

  OwnedTensor values(const Tensor& x) override {
    array::Plan plan(runtime_, {{{"value", x}}, {}}, store_);
    plan.run();
    return plan.tensor("value");
  }
  Tensor leaf(const TensorView& view) override {
    return add(cat("evaluated ", store_.entries().size()), view, Layout::kDense);
  }

  Tensor add(const std::string& name, const TensorView& view, Layout layout) {
    const Dims dims = view.dims;
    const OwnedTensor values = read(view, subnormals_);
    const auto count = static_cast<size_t>(count_of(dims));
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
      stored = {static_cast<int64_t>(count) + 3};
      offset = 3;
    } else if (layout == Layout::kExpanded) {
      std::erase(stored, 1);
    }
    const size_t size = dtype_size(view.dtype);
    const auto other = std::byte{1};  // what lies between is not read
    std::vector<std::byte> laid(static_cast<size_t>(count_of(stored)) * size, other);
    for (size_t i = 0; i < count; ++i) {
      std::copy_n(values.view.bytes.data() + i * size, size,
                  laid.data() + (place_of(i, dims, strides) + offset) * size);
    }
    store_.add_typed(name, TensorView{view.dtype, stored, laid});
    return shown(input_at(shared_from_this(), name, view.dtype, stored), dims, layout);
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
  array::Runtime& runtime_;
  array::Store& store_;
  Subnormals subnormals_;
};

class Runner {
 public:
  Runner(Goldens& goldens, array::Runtime& runtime, Report& report)
      : goldens_(goldens), runtime_(runtime), report_(report) {}

  void run(const Json& entry, Layouts layouts) {
    if (is_optimiser_case(entry)) return run_optimiser_case(goldens_, runtime_, entry, report_);
    for (const Layout layout : kLayouts) {
      if (layout == Layout::kDense || layouts == Layouts::kAll) run(entry, layout);
    }
  }

 private:
  struct Computed {  // outputs `out<i>` and `grad <name>` of a case
    array::Store store;
    std::shared_ptr<Inputs> inputs;
    std::optional<array::Plan> plan;
  };
  std::unique_ptr<Computed> computed(const Json& entry, Layout layout, Subnormals subnormals) {
    const std::string& file = entry.at("file").text();
    auto made = std::make_unique<Computed>();
    made->inputs = std::make_shared<Inputs>(runtime_, made->store, subnormals);
    std::map<std::string, Tensor> inputs;
    for (const Json& one : entry.at("inputs")) {
      const std::string& name = one.at("name").text();
      inputs.emplace(
          name, made->inputs->add(name, goldens_.tensor(file, one.at("tensor").text()), layout));
    }
    const Results results = evaluate({entry, inputs, *made->inputs});
    array::Graph graph;
    std::vector<Tensor> with_dy, dys, wanted;
    const Json& outputs = entry.at("outputs");
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& result = results.at(i);
      graph.outputs.push_back({cat("out", i), result});
      const Json* const dy = dy_of(outputs[i]);
      if (dy == nullptr) continue;
      with_dy.push_back(result);
      dys.push_back(
          made->inputs->add(cat("dy", i), goldens_.tensor(file, dy->text()), Layout::kDense));
    }
    if (!with_dy.empty()) {
      const auto grads = gradients(entry);
      for (const auto* member : grads) wanted.push_back(inputs.at(member->name));
      const auto found = autograd::grad(with_dy, wanted, dys);
      for (size_t i = 0; i < grads.size(); ++i) {
        graph.outputs.push_back({cat("grad ", grads[i]->name), found[i]});
      }
    }
    made->plan.emplace(runtime_, graph, made->store).run();
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

  void run(const Json& entry, Layout layout) {
    const auto kept = computed(entry, layout, Subnormals::kKept);
    const Json* const tag = entry.find("tag");
    const bool may_flush = tag != nullptr && tag->text() == "denormals" && flushes();
    const auto flushed = may_flush ? computed(entry, layout, Subnormals::kFlushed) : nullptr;
    const bool sign = entry.find("zero_sign") != nullptr && entry.at("zero_sign").get<bool>();
    const auto check = [&](const Json& expected, const std::string& name, bool zero_sign) {
      compare(entry, layout, expected, *kept->plan, name, zero_sign,
              flushed == nullptr ? nullptr : &*flushed->plan);
    };
    const Json& outputs = entry.at("outputs");
    for (size_t i = 0; i < outputs.size(); ++i) check(outputs[i], cat("out", i), sign);
    if (std::none_of(outputs.begin(), outputs.end(), dy_of)) return;
    for (const auto* member : gradients(entry)) {
      check(member->value, cat("grad ", member->name), false);
    }
  }

  // Whether the device takes subnormal numbers for 0.
  bool flushes() {
    constexpr float kSmall = std::numeric_limits<float>::min() / 2;
    array::Store store;
    store.add("x", Dims{1}).floats = {kSmall};
    array::Graph graph;
    graph.outputs.push_back({"out", sqrt(input("x", DType::kF32, {1}))});
    array::Plan plan(runtime_, graph, store);
    plan.run();
    return plan.output("out")[0] == 0;
  }

  // Elements of `zeroed`, what the device gives where inputs have 0 for subnormal numbers, are
  // right too.
  void compare(const Json& entry, Layout layout, const Json& expected, const array::Plan& plan,
               const std::string& name, bool sign, const array::Plan* zeroed) {
    const std::string& file = entry.at("file").text();
    const TensorView& view = goldens_.tensor(file, expected.at("tensor").text());
    const OwnedTensor got = plan.tensor(name);
    const auto number = [&](const char* key) {
      const Json* const value = expected.find(key);
      return value == nullptr || value->is_null() ? 0.0 : value->get<double>();
    };
    std::vector<float> mask;
    if (const Json* const of = expected.find("mask"); of != nullptr && !of->is_null()) {
      mask = goldens_.numbers(file, of->text());
    }
    Worst worst;
    if (plan.dims(name) != view.dims || got.view.dtype != view.dtype) {
      worst.differs = cat("expected ", dtype_name(view.dtype), " ", to_string(view.dims), ", got ",
                          dtype_name(got.view.dtype), " ", to_string(plan.dims(name)));
      worst.failed = true;
    } else if (!is_floating(view.dtype)) {
      const std::vector<int64_t> values = wholes_of(got.view), want = wholes_of(view);
      for (size_t i = 0; i < want.size(); ++i) {
        if (!mask.empty() && mask[i] == 0) continue;
        worst.add(static_cast<double>(values[i]), static_cast<double>(want[i]), 0, 0);
        if (values[i] != want[i]) worst.failed = true;
      }
    } else {
      const std::vector<float> values = numbers_of(got.view), want = numbers_of(view);
      const std::vector<float> other =
          zeroed == nullptr ? std::vector<float>{} : numbers_of(zeroed->tensor(name).view);
      for (size_t i = 0; i < want.size(); ++i) {
        if (!mask.empty() && mask[i] == 0) continue;
        if (!other.empty() &&
            std::bit_cast<uint32_t>(values[i]) == std::bit_cast<uint32_t>(other[i])) {
          continue;
        }
        worst.add(values[i], want[i], number("rtol"), number("atol"));
        if (sign && want[i] == 0 && values[i] == 0 &&
            std::signbit(want[i]) != std::signbit(values[i])) {
          worst = {std::numeric_limits<double>::min(), 0, true};  // the sign of a zero
        }
      }
    }
    report_.add(cat(name, ", ", kLayoutNames[static_cast<size_t>(layout)]), worst);
  }

  Goldens& goldens_;
  array::Runtime& runtime_;
  Report& report_;
};

}  // namespace

void run_case(Goldens& goldens, array::Runtime& runtime, const Json& entry, Layouts layouts,
              Report& report) {
  ++report.cases;
  report.all.push_back({entry.at("name").text(), entry.at("op").text(), entry.at("expr").text()});
  const auto broken = [&](const std::exception& error) {
    report.add("", {.failed = true, .differs = error.what()});
  };
  try {
    Runner(goldens, runtime, report).run(entry, layouts);
  } catch (const BrokenGoldens&) {
    throw;
  } catch (const Error& error) {
    broken(error);
  } catch (const std::logic_error& error) {  // a fault of ours is that case's alone
    broken(error);
  }
}

Report run_cases(Goldens& goldens, array::Runtime& runtime,
                 const std::function<bool(const std::string&)>& wanted) {
  const Json index = goldens.json("index.json");
  Report report;
  for (const Json& entry : index.at("cases")) {
    if (wanted && !wanted(entry.at("name").text())) continue;
    run_case(goldens, runtime, entry, Layouts::kAll, report);
  }
  return report;
}

namespace {

// Steps between two halves: of their bits as whole numbers in order.
int steps_between(uint16_t a, uint16_t b) {
  const auto place = [](uint16_t bits) {
    return (bits & 0x8000) != 0 ? -static_cast<int>(bits & 0x7fff) : static_cast<int>(bits);
  };
  return std::abs(place(a) - place(b));
}
bool nan_half(uint16_t bits, DType half) {
  return (bits & 0x7fff) > (half == DType::kF16 ? 0x7c00 : 0x7f80);
}

}  // namespace

std::vector<std::string> halves_that_differ(Goldens& goldens, array::Runtime& runtime, DType half,
                                            size_t* cases) {
  static constexpr std::string_view kFamilies[] = {"unary.",  "activation.", "binary.", "reduce.",
                                                   "matmul.", "conv.",       "norm.",   "special."};
  std::vector<std::string> differ;
  *cases = 0;
  for (const Json index = goldens.json("index.json"); const Json& entry : index.at("cases")) {
    const std::string &name = entry.at("name").text(), &file = entry.at("file").text();
    const auto is_one = [&](std::string_view family) { return name.starts_with(family); };
    if (entry.at("dtype").text() != "F32" || std::ranges::none_of(kFamilies, is_one)) continue;
    array::Store store;
    const auto home = std::make_shared<Inputs>(runtime, store, Subnormals::kKept);
    std::map<std::string, Tensor> halves, widened;
    for (const Json& one : entry.at("inputs")) {
      const std::string& input = one.at("name").text();
      const TensorView& view = goldens.tensor(file, one.at("tensor").text());
      const OwnedTensor as_half = converted(view, view.dtype == DType::kF32 ? half : view.dtype);
      halves.emplace(input, home->add(input, as_half.view, Layout::kDense));
      widened.emplace(input, view.dtype == DType::kF32 ? cast(halves.at(input), DType::kF32)
                                                       : halves.at(input));
    }
    const Results got = evaluate({entry, halves, *home}), want = evaluate({entry, widened, *home});
    array::Graph graph;
    for (size_t i = 0; i < got.size(); ++i) {
      if (want[i].dtype() != DType::kF32) continue;
      graph.outputs.push_back({cat("got", i), got[i]});
      graph.outputs.push_back({cat("want", i), cast(want[i], half)});
    }
    if (graph.outputs.empty()) continue;
    ++*cases;
    array::Plan plan(runtime, graph, store);
    plan.run();
    for (size_t i = 0; i < graph.outputs.size(); i += 2) {
      const OwnedTensor a = plan.tensor(graph.outputs[i].name),
                        b = plan.tensor(graph.outputs[i + 1].name);
      bool same = a.view.dtype == half && a.storage.size() == b.storage.size();
      for (size_t k = 0; same && k + 1 < a.storage.size(); k += 2) {
        uint16_t x = 0, z = 0;
        std::memcpy(&x, a.storage.data() + k, 2);
        std::memcpy(&z, b.storage.data() + k, 2);
        same = steps_between(x, z) <= 1 || (nan_half(x, half) && nan_half(z, half));
      }
      if (!same) differ.push_back(cat(name, " ", graph.outputs[i].name));
    }
  }
  return differ;
}

}  // namespace split::ops
