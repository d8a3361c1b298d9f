#include "tests/split_ops/training.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/functions.h"
#include "autograd/grad.h"
#include "base/error.h"
#include "io/checkpoint.h"
#include "tests/split_ops/gpt.h"
#include "tests/split_ops/optimiser_cases.h"
#include "train/trainer.h"

namespace split::ops {
namespace {

// Matrices decay, vectors do not, where a run says so.
std::vector<optim::Group> groups_of(const Json& run, const std::vector<optim::Parameter>& trained,
                                    bool by_shape) {
  const optim::Options options = optimiser_options(run.at("optimizer").text(), run.at("options"));
  optim::Options plain = options;
  plain.weight_decay = 0;
  std::vector<optim::Parameter> matrices, vectors;
  for (const optim::Parameter& parameter : trained) {
    (parameter.leaf.dims().size() > 1 || !by_shape ? matrices : vectors).push_back(parameter);
  }
  if (vectors.empty()) return {{matrices, options}};
  return {{matrices, options}, {vectors, plain}};
}

void compare_losses(const std::string& name, const std::vector<float>& got,
                    const std::vector<float>& want, double rtol, Report& report) {
  for (size_t t = 0; t < want.size(); ++t) {
    Worst worst;
    worst.add(got[t], want[t], rtol, 0);
    if (worst.failed) return report.failed.push_back({name, cat("loss of step ", t), worst});
  }
}

// Tolerances are of the largest value of the tensor. Keys do not see their bias: what softmax
// leaves is rounding.
void compare_gradients(const std::string& name, const std::string& parameter,
                       std::span<const float> got, const std::vector<float>& want, Report& report) {
  Worst worst;
  double largest = 0;
  for (const float value : want) largest = std::max(largest, std::abs(static_cast<double>(value)));
  const bool qkv_bias = parameter.ends_with("attn.c_attn.bias");
  for (size_t i = 0; i < want.size(); ++i) {
    if (qkv_bias && i >= want.size() / 3 && i < 2 * want.size() / 3) continue;
    worst.add(got[i], want[i], 0, 1e-4 * largest);
  }
  if (worst.failed) report.failed.push_back({name, "grad0 " + parameter, worst});
}

struct GptRun {
  Goldens& goldens;
  array::Runtime& runtime;
  const std::string& file;
  const Json& run;
  GptShape shape;
  array::Store store = {};

  const std::string& name() const { return run.at("name").text(); }
  std::string lora_of(const std::string& matrix, const char* which) const {
    return cat(matrix, ".lora_", which);
  }

  void operator()(Report& report) {
    const std::string init = name() + "/init.";
    std::set<std::string> trained;
    for (const Json& one : run.at("trained_parameters")) trained.insert(one.text());
    for (const auto& [full, view] : goldens.tensors(file)) {
      if (!full.starts_with(init)) continue;
      store.add(full.substr(init.size()), view, trained.count(full.substr(init.size())) > 0);
    }
    const TensorView& tokens = goldens.tensor(file, "data.tokens");
    const std::vector<float> ids = numbers_of(tokens);
    const Dims one_batch{tokens.dims[1], tokens.dims[2]};
    store.add_numbers("tokens", one_batch);
    std::map<std::string, Tensor> leaves;  // gradients are by node
    const auto leaf = [&](const std::string& of) {
      return leaves.try_emplace(of, input(of, DType::kF32, store.at(of).dims)).first->second;
    };
    const auto linear = [&](const std::string& of, const Tensor& x) {
      Tensor y = matmul(reshape(x, {-1, x.dims().back()}), leaf(of + ".weight"));
      if (store.find(lora_of(of, "A")) != nullptr) {
        const Tensor flat = reshape(x, {-1, x.dims().back()});
        y = y + matmul(matmul(flat, transpose(leaf(lora_of(of, "A")), 0, 1)),
                       transpose(leaf(lora_of(of, "B")), 0, 1)) *
                    2.0f;
      }
      Dims dims = x.dims();
      dims.back() = y.dims().back();
      return reshape(y + leaf(of + ".bias"), dims);
    };
    const Tensor loss = gpt_loss(shape, input("tokens", DType::kI32, one_batch), leaf, linear);
    std::vector<optim::Parameter> parameters;
    for (const std::string& of : trained) parameters.push_back({of, leaf(of)});
    const auto accumulate = static_cast<int>(number(run, "accumulate", 1));
    const auto show = [&](size_t at) {
      auto& batch = store.at("tokens").numbers;
      for (size_t i = 0; i < batch.size(); ++i) {
        batch[i] =
            static_cast<int32_t>(ids[at % static_cast<size_t>(tokens.dims[0]) * batch.size() + i]);
      }
    };
    first_gradients(loss, parameters, accumulate, show, report);
    train::Step step(runtime, store, loss,
                     optim::Optimiser(groups_of(run, parameters, run.contains("groups"))),
                     {.clip_norm = number(run, "clip_grad_norm", 0), .accumulate = accumulate});
    optim::WarmupCosine schedule;
    const Json* const options = run.find("scheduler_options");
    if (options != nullptr) {
      schedule = {static_cast<int64_t>(number(*options, "warmup", 0)),
                  static_cast<int64_t>(number(*options, "total", 1)), number(*options, "floor", 0)};
    }
    std::vector<float> losses;
    const auto steps = static_cast<size_t>(number(run, "steps", 0));
    for (size_t t = 0; t < steps; ++t) {
      double loss_of_all = 0;
      for (size_t part = 0; part < static_cast<size_t>(accumulate); ++part) {
        show(t * static_cast<size_t>(accumulate) + part);
        loss_of_all += step.run(options == nullptr ? 1 : schedule.at(static_cast<int64_t>(t)));
      }
      losses.push_back(static_cast<float>(loss_of_all / accumulate));
    }
    compare_losses(full_name(), losses, goldens.numbers(file, name() + "/losses"),
                   number(run, "loss_rtol", 1e-4), report);
  }

  void first_gradients(const Tensor& loss, const std::vector<optim::Parameter>& parameters,
                       int accumulate, const auto& show, Report& report) {
    std::vector<Tensor> leaves;
    for (const auto& parameter : parameters) leaves.push_back(parameter.leaf);
    const std::vector<Tensor> outputs{loss};
    const auto gradients = autograd::grad(outputs, leaves);
    array::Graph graph;
    for (size_t i = 0; i < leaves.size(); ++i)
      graph.outputs.push_back({parameters[i].name, gradients[i]});
    array::Plan plan(runtime, graph, store);
    std::vector<std::vector<float>> sums(leaves.size());
    for (int part = 0; part < accumulate; ++part) {
      show(static_cast<size_t>(part));
      plan.run();
      for (size_t i = 0; i < leaves.size(); ++i) {
        const auto got = plan.output(parameters[i].name);
        sums[i].resize(got.size());
        for (size_t k = 0; k < got.size(); ++k)
          sums[i][k] += got[k] / static_cast<float>(accumulate);
      }
    }
    for (size_t i = 0; i < leaves.size(); ++i) {
      const std::string golden = cat(name(), "/grad0.", parameters[i].name);
      if (goldens.tensors(file).count(golden) == 0) continue;
      compare_gradients(full_name(), parameters[i].name, sums[i], goldens.numbers(file, golden),
                        report);
    }
  }
  std::string full_name() const { return "train_gpt/" + name(); }
};

void run_gpt(Goldens& goldens, array::Runtime& runtime, const Json& entry,
             const std::function<bool(const std::string&)>& wanted, Report& report) {
  const Json& config = entry.at("config");
  const auto size = [&](const char* name) { return config.at(name).get<int64_t>(); };
  for (const Json& run : entry.at("runs")) {
    if (wanted && !wanted("train_gpt/" + run.at("name").text())) continue;
    ++report.cases;
    GptRun{
        goldens,
        runtime,
        entry.at("file").text(),
        run,
        {size("vocab"), size("context"), size("channels"), size("heads"), size("layers")}}(report);
  }
}

// A run on the tail of a model of ours.
struct TailRun {
  Goldens& goldens;
  array::Runtime& runtime;
  const std::string file, prefix, name;  // tensors begin with the prefix
  const std::filesystem::path model_dir;
  const Json &all, &run;
  array::Store store = {};

  train::WindowSet windows(const std::string& of) {
    const TensorView& view = goldens.tensor(file, of);
    train::WindowSet set;
    set.length = view.dims.at(1) - 1;
    for (const float id : numbers_of(view)) set.ids.push_back(static_cast<int32_t>(id));
    return set;
  }
  std::string own(const std::string& what) const {
    return cat(prefix, run.at("name").text(), "/", what);
  }
  bool has(const std::string& tensor) { return goldens.tensors(file).count(tensor) > 0; }

  void operator()(Report& report) {
    const Checkpoint checkpoint(model_dir);
    const auto model = make_model(checkpoint.config_json());
    const auto first = static_cast<int>(number(run, "first", 0));
    train::Tail tail(*model, {first, static_cast<int>(number(run, "lora", 0)), 2});
    train::add_weights(store, tail, -1, [&](const WeightDecl& decl) {
      return converted(checkpoint.at(decl.from.empty() ? decl.name : decl.from), DType::kF32);
    });
    for (const optim::State& one : tail.trained()) {
      if (has(own("init." + one.name))) {
        store.add(one.name, goldens.tensor(file, own("init." + one.name)), true);
      }
    }
    train::WindowSet set = windows(prefix + "train");
    train::add_hidden(runtime, store, tail, set);
    auto options = optimiser_options("AdamW", run.at("options"));
    const train::Windows shape{static_cast<int64_t>(number(all, "batch", 4)), set.length};
    train::Trainer trainer(runtime, store, tail, shape, options, 1);
    perplexities(trainer, tail, "before", report);
    const Json& schedule = all.at("schedule");
    const optim::WarmupCosine rate{static_cast<int64_t>(number(schedule, "warmup", 0)),
                                   static_cast<int64_t>(number(schedule, "total", 1)),
                                   number(schedule, "floor", 0)};
    const std::vector<float> order = goldens.numbers(file, prefix + "order");
    const auto steps = static_cast<size_t>(number(run, "steps", 0));
    const auto batch = static_cast<size_t>(shape.batch);
    std::vector<float> losses, norms;
    for (size_t t = 0; t < steps; ++t) {
      std::vector<size_t> which;
      for (size_t i = 0; i < batch; ++i)
        which.push_back(static_cast<size_t>(order.at(t * batch + i)));
      if (t == 0) first_gradients(trainer, tail, set, which, report);
      losses.push_back(trainer.step(set, which, rate.at(static_cast<int64_t>(t))));
      norms.push_back(trainer.gradient_norm());
    }
    compare_losses(name, losses, goldens.numbers(file, own("losses")),
                   number(all, "loss_rtol", 1e-4), report);
    perplexities(trainer, tail, "after", report);
  }

  void first_gradients(train::Trainer& trainer, train::Tail& tail, const train::WindowSet& set,
                       std::span<const size_t> which, Report& report) {
    std::vector<Tensor> leaves;
    std::vector<std::string> names;
    for (const optim::Group& group : tail.groups({})) {
      for (const optim::Parameter& parameter : group.parameters) {
        if (!has(own("grad0." + parameter.name))) continue;
        leaves.push_back(parameter.leaf);
        names.push_back(parameter.name);
      }
    }
    const std::vector<Tensor> outputs{trainer.loss()};
    const auto gradients = autograd::grad(outputs, leaves);
    array::Graph graph;
    for (size_t i = 0; i < leaves.size(); ++i) graph.outputs.push_back({names[i], gradients[i]});
    array::Plan plan(runtime, graph, store);
    trainer.show(set, which);
    plan.run();
    for (const std::string& of : names) {
      compare_gradients(name, of, plan.output(of), goldens.numbers(file, own("grad0." + of)),
                        report);
    }
  }

  void perplexities(train::Trainer& trainer, train::Tail& tail, const char* when, Report& report) {
    for (const auto& [text, key] :
         {std::pair("eval", "perplexity_"), std::pair("story", "story_perplexity_")}) {
      const Json* const want = run.find(cat(key, when));
      if (want == nullptr || !has(prefix + text)) continue;
      train::WindowSet set = windows(prefix + text);
      train::add_hidden(runtime, store, tail, set);
      Worst worst;
      worst.add(trainer.perplexity(set), want->get<double>(), 1e-3, 0);
      if (worst.failed) report.failed.push_back({name, cat(key, when), worst});
    }
  }
};

}  // namespace

Report run_training(Goldens& goldens, const std::filesystem::path& models, array::Runtime& runtime,
                    const std::function<bool(const std::string&)>& wanted) {
  Report report;
  const Json index = goldens.json("index.json");
  for (const Json& entry : index.at("training")) {
    if (entry.at("name").text() == "train_gpt") {
      run_gpt(goldens, runtime, entry, wanted, report);
      continue;
    }
    for (const Json& run : entry.at("runs")) {  // with convolutions
      if (wanted && !wanted(cat(entry.at("name").text(), "/", run.at("name").text()))) continue;
      ++report.cases;
      ++report.skipped;
    }
  }
  const auto tail = [&](const std::string& file, const std::string& model,
                        const std::filesystem::path& dir, const Json& all, const Json& runs) {
    for (const Json& run : runs) {
      const std::string name = cat(model.empty() ? "finetune" : model, "/", run.at("name").text());
      if (wanted && !wanted(name)) continue;
      ++report.cases;
      TailRun{
          goldens, runtime, file, model.empty() ? "" : model + "/", name, dir, all, run}(report);
    }
  };
  const Json demo = goldens.json("finetune.json"), family = goldens.json("finetune_family.json");
  tail("finetune.safetensors", "", "weights/demo", demo, demo.at("runs"));
  for (const Json& one : family.at("models")) {
    const std::string& model = one.at("model").text();
    tail("finetune_family.safetensors", model, models / model, family, one.at("runs"));
  }
  return report;
}

}  // namespace split::ops
