#include "tests/split_ops/optimiser_cases.h"

#include <algorithm>

#include "autograd/functions.h"
#include "base/error.h"
#include "optim/schedule.h"

namespace split::ops {

optim::Options optimiser_options(const std::string& optimiser, const Json& options,
                                 const Json* more) {
  optim::Options o;
  if (optimiser == "SGD") {
    o.method = optim::Method::kSgd;
  } else if (optimiser == "Adam") {
    o.method = optim::Method::kAdam;
  } else if (optimiser == "AdamW") {
    o.weight_decay = 0.01;
  } else if (optimiser == "RMSprop") {
    o.method = optim::Method::kRmsprop;
  } else if (optimiser == "Adagrad") {
    o.method = optim::Method::kAdagrad;
    o.eps = 1e-10;
  } else {
    throw Error(ErrorKind::kNotFound, cat("no optimiser '", optimiser, "'"));
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
      } else if (name == "alpha") {
        o.alpha = value.get<double>();
      } else if (name == "centered") {
        o.centered = value.get<bool>();
      } else if (name == "lr_decay") {
        o.lr_decay = value.get<double>();
      } else {
        throw Error(ErrorKind::kNotFound, cat("no option '", name, "' of ", optimiser));
      }
    }
  }
  return o;
}

bool is_optimiser_case(const Json& entry) { return entry.at("name").text().starts_with("optim."); }

namespace {

optim::Schedule schedule_of(const std::string& name, const Json& of) {
  const auto whole = [&](const char* key, int64_t otherwise) {
    return static_cast<int64_t>(number(of, key, static_cast<double>(otherwise)));
  };
  if (name == "StepLR") return optim::step_lr(whole("step_size", 1), number(of, "gamma", 0.1));
  if (name == "MultiStepLR") {
    std::vector<int64_t> milestones;
    for (const Json& one : of.at("milestones")) milestones.push_back(one.get<int64_t>());
    return optim::multi_step_lr(milestones, number(of, "gamma", 0.1));
  }
  if (name == "ExponentialLR") return optim::exponential_lr(number(of, "gamma", 0.1));
  if (name == "ConstantLR") {
    return optim::constant_lr(number(of, "factor", 1), whole("total_iters", 5));
  }
  if (name == "LinearLR") {
    return optim::linear_lr(number(of, "start_factor", 1), number(of, "end_factor", 1),
                            whole("total_iters", 5));
  }
  if (name == "PolynomialLR") {
    return optim::polynomial_lr(whole("total_iters", 5), number(of, "power", 1));
  }
  if (name == "CosineAnnealingLR") {
    return optim::cosine_annealing_lr(whole("T_max", 1), number(of, "eta_min", 0));
  }
  if (name == "CosineAnnealingWarmRestarts") {
    return optim::cosine_warm_restarts(whole("T_0", 1), whole("T_mult", 1));
  }
  if (name == "OneCycleLR") {
    const optim::OneCycle cycle{.most = number(of, "max_lr", 0), .total = whole("total_steps", 1)};
    return [=](double, int64_t step) { return cycle.rate(step); };
  }
  if (name == "WarmupCosine") {
    const optim::WarmupCosine cosine{whole("warmup", 0), whole("total", 1), number(of, "floor", 0)};
    return [=](double lr, int64_t step) { return lr * cosine.at(step); };
  }
  throw Error(ErrorKind::kNotFound, cat("no scheduler '", name, "'"));
}

}  // namespace

void run_optimiser_case(Goldens& goldens, array::Runtime& runtime, const Json& entry,
                        Report& report) {
  const Json& args = entry.at("args");
  const std::string &file = entry.at("file").text(), &method = args.at("optimizer").text();
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
  auto first = optimiser_options(method, args.at("options"));
  auto second = optimiser_options(method, args.at("options"), args.find("group1"));
  const std::string scheduler =
      args.find("scheduler") == nullptr ? "" : args.at("scheduler").text();
  first.cycled = second.cycled = scheduler == "OneCycleLR";
  const optim::Optimiser optimiser({{{parameters[0]}, first}, {{parameters[1]}, second}});
  for (const optim::State& state : optimiser.states()) store.add(state.name, state.dims, true);
  for (size_t i = 0; i < 2; ++i) {
    store.add(optim::Optimiser::rate_name(i), Dims{});
    store.add(optim::Optimiser::beta_name(i), Dims{});
  }
  if (const double most = number(args, "clip_grad_norm", 0); most > 0) {
    gradients = optim::clip_by_norm(gradients, optim::global_norm(gradients), most);
  }
  if (const double most = number(args, "clip_grad_value", 0); most > 0) {
    gradients = optim::clip_by_value(gradients, most);
  }
  optim::Schedule schedule = [](double lr, int64_t) { return lr; };
  optim::ReduceOnPlateau plateau(0.1, 10, 1e-4);
  const bool by_metric = scheduler == "ReduceLROnPlateau";
  optim::OneCycle cycle;
  if (by_metric) {
    const Json& of = args.at("scheduler_options");
    plateau = {number(of, "factor", 0.1), static_cast<int64_t>(number(of, "patience", 10)),
               number(of, "threshold", 1e-4)};
  } else if (!scheduler.empty()) {
    const Json& of = args.at("scheduler_options");
    schedule = schedule_of(scheduler, of);
    cycle.total = static_cast<int64_t>(number(of, "total_steps", 1));
  }
  array::Plan plan(runtime, {{}, optimiser.updates(gradients)}, store);
  const auto steps = static_cast<size_t>(dims["gp"][0]);
  std::vector<float> got[3];
  double factor = 1;
  for (size_t t = 0; t <= steps; ++t) {
    for (size_t i = 0; i < 2; ++i) {
      const auto& now = store.read(parameters[i].name).floats;
      got[i].insert(got[i].end(), now.begin(), now.end());
    }
    if (t == steps) break;
    const auto step = static_cast<int64_t>(t);
    got[2].push_back(static_cast<float>(schedule(first.lr, step) * factor));
    for (size_t i = 0; i < 2; ++i) {
      store.at(optim::Optimiser::rate_name(i)).floats[0] =
          static_cast<float>(schedule((i == 0 ? first : second).lr, step) * factor);
      store.at(optim::Optimiser::beta_name(i)).floats[0] = static_cast<float>(cycle.beta(step));
      auto& g = store.at("g" + parameters[i].name).floats;
      const auto& all = data["g" + parameters[i].name];
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(t * g.size()), g.size(), g.begin());
    }
    plan.run();
    if (by_metric) factor = plateau.seen(args.at("metrics")[t].get<double>());
  }
  const Json& outputs = entry.at("outputs");
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<float> want = goldens.numbers(file, outputs[i].at("tensor").text());
    Worst worst;
    if (want.size() != got[i].size()) worst = {.failed = true, .differs = "another length"};
    for (size_t k = 0; k < want.size() && k < got[i].size(); ++k) {
      worst.add(got[i][k], want[k], number(outputs[i], "rtol", 0), number(outputs[i], "atol", 0));
    }
    report.add(cat("out", i), worst);
  }
}

}  // namespace split::ops
