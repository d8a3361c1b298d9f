#include "tests/split_ops/optimiser_cases.h"

#include <algorithm>

#include "autograd/functions.h"
#include "base/error.h"

namespace split::ops {

std::optional<optim::Options> optimiser_options(const std::string& optimiser, const Json& options,
                                                const Json* more) {
  optim::Options o;
  if (optimiser == "SGD") {
    o.method = optim::Method::kSgd;
  } else if (optimiser == "Adam") {
    o.method = optim::Method::kAdam;
  } else if (optimiser == "AdamW") {
    o.weight_decay = 0.01;
  } else {
    return std::nullopt;
  }
  for (const Json* from : {&options, more}) {
    if (from == nullptr) continue;
    for (const auto& [name, value] : from->members()) {
      if (name == "lr") {
        o.lr = value.get<double>();
      } else if (name == "weight_decay") {
        o.weight_decay = value.get<double>();
      } else if (name == "momentum") {
        o.momentum = value.get<double>();
      } else if (name == "dampening") {
        o.dampening = value.get<double>();
      } else if (name == "nesterov") {
        o.nesterov = value.get<bool>();
      } else if (name == "eps") {
        o.eps = value.get<double>();
      } else if (name == "amsgrad") {
        o.amsgrad = value.get<bool>();
      } else if (name == "maximize") {
        o.maximize = value.get<bool>();
      } else if (name == "betas") {
        o.beta1 = value[0].get<double>();
        o.beta2 = value[1].get<double>();
      } else {
        return std::nullopt;
      }
    }
  }
  return o;
}

bool is_optimiser_case(const Json& entry) { return entry.at("name").text().starts_with("optim."); }

bool knows_optimiser_case(const Json& entry) {
  const Json& args = entry.at("args");
  const Json* const scheduler = args.find("scheduler");
  if (scheduler != nullptr && scheduler->text() != "WarmupCosine") return false;
  const std::string& name = args.at("optimizer").text();
  return optimiser_options(name, args.at("options"), args.find("group1")).has_value();
}

bool run_optimiser_case(Goldens& goldens, array::Runtime& runtime, const Json& entry,
                        Report& report) {
  if (!knows_optimiser_case(entry)) return false;
  const Json& args = entry.at("args");
  const std::string &file = entry.at("file").text(), &method = args.at("optimizer").text();
  const auto number = [](const Json& in, const char* name, double otherwise) {
    const Json* const value = in.find(name);
    return value == nullptr ? otherwise : value->get<double>();
  };
  array::Store store;
  std::map<std::string, std::vector<float>> data;
  std::map<std::string, Dims> dims;
  for (const Json& one : entry.at("inputs")) {
    const TensorView& view = goldens.tensor(file, one.at("tensor").text());
    data[one.at("name").text()] = numbers_of(view);
    dims[one.at("name").text()] = view.dims;
  }
  std::vector<Tensor> gradients;
  std::vector<optim::Parameter> parameters;
  for (const std::string name : {"p", "q"}) {
    store.add(name, dims[name], true).floats = data[name];
    store.add("g" + name, dims[name]);
    parameters.push_back({name, input(name, DType::kF32, dims[name])});
    gradients.push_back(input("g" + name, DType::kF32, dims[name]));
  }
  const auto first = *optimiser_options(method, args.at("options"));
  const auto second = *optimiser_options(method, args.at("options"), args.find("group1"));
  const optim::Optimiser optimiser({{{parameters[0]}, first}, {{parameters[1]}, second}});
  for (const optim::State& state : optimiser.states()) store.add(state.name, state.dims, true);
  for (size_t i = 0; i < 2; ++i) store.add(optim::Optimiser::rate_name(i), Dims{});
  if (const double most = number(args, "clip_grad_norm", 0); most > 0) {
    gradients = optim::clip_by_norm(gradients, optim::global_norm(gradients), most);
  }
  if (const double most = number(args, "clip_grad_value", 0); most > 0) {
    gradients = optim::clip_by_value(gradients, most);
  }
  optim::WarmupCosine schedule;
  const bool scheduled = args.find("scheduler") != nullptr;
  if (scheduled) {
    const Json& of = args.at("scheduler_options");
    schedule = {static_cast<int64_t>(number(of, "warmup", 0)),
                static_cast<int64_t>(number(of, "total", 1)), number(of, "floor", 0)};
  }
  array::Plan plan(runtime, {{}, optimiser.updates(gradients)}, store);
  const auto steps = static_cast<size_t>(dims["gp"][0]);
  std::vector<float> got[3];
  for (size_t t = 0; t <= steps; ++t) {
    for (size_t i = 0; i < 2; ++i) {
      const auto& now = store.read(parameters[i].name).floats;
      got[i].insert(got[i].end(), now.begin(), now.end());
    }
    if (t == steps) break;
    const double factor = scheduled ? schedule.at(static_cast<int64_t>(t)) : 1;
    got[2].push_back(static_cast<float>(first.lr * factor));
    for (size_t i = 0; i < 2; ++i) {
      store.at(optim::Optimiser::rate_name(i)).floats[0] =
          static_cast<float>((i == 0 ? first : second).lr * factor);
      auto& g = store.at("g" + parameters[i].name).floats;
      const auto& all = data["g" + parameters[i].name];
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(t * g.size()), g.size(), g.begin());
    }
    plan.run();
  }
  const Json& outputs = entry.at("outputs");
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<float> want = goldens.numbers(file, outputs[i].at("tensor").text());
    Worst worst;
    if (want.size() != got[i].size()) worst = {0, 0, true};
    for (size_t k = 0; k < want.size() && k < got[i].size(); ++k) {
      worst.add(got[i][k], want[k], number(outputs[i], "rtol", 0), number(outputs[i], "atol", 0));
    }
    if (worst.failed) report.failed.push_back({entry.at("name").text(), cat("out", i), worst});
  }
  return true;
}

}  // namespace split::ops
