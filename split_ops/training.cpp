#include "split_ops/training.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/functions.h"
#include "autograd/grad.h"
#include "base/error.h"
#include "split_ops/gpt.h"
#include "split_ops/optimiser_cases.h"
#include "train/step.h"

namespace split::ops {
namespace {

double number(const Json& in, const char* name, double otherwise) {
  const Json* const value = in.find(name);
  return value == nullptr || value->is_null() ? otherwise : value->get<double>();
}

// Matrices decay, vectors do not, where a run says so.
std::vector<optim::Group> groups_of(const Json& run, const std::vector<optim::Parameter>& trained,
                                    bool by_shape) {
  const auto options = optimiser_options(run.at("optimizer").text(), run.at("options"));
  if (!options) throw Error(ErrorKind::kInput, "[goldens] expected an optimiser that is there");
  optim::Options plain = *options;
  plain.weight_decay = 0;
  std::vector<optim::Parameter> matrices, vectors;
  for (const optim::Parameter& parameter : trained) {
    (parameter.leaf.dims().size() > 1 || !by_shape ? matrices : vectors).push_back(parameter);
  }
  std::vector<optim::Group> groups{{matrices, *options}};
  if (!vectors.empty()) groups.push_back({vectors, plain});
  return groups;
}

void compare_losses(const std::string& name, const std::vector<float>& got,
                    const std::vector<float>& want, double rtol, Report& report) {
  for (size_t t = 0; t < want.size(); ++t) {
    Worst worst;
    worst.add(got[t], want[t], rtol, 0);
    if (worst.failed) return report.failed.push_back({name, cat("loss of step ", t), worst});
  }
}

// Tolerances are of the largest value of the tensor. Keys do not see their bias: what softmax leaves is rounding.
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
    auto& batch = store.add_numbers("tokens", one_batch).numbers;
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

}  // namespace

Report run_training(Goldens& goldens, const std::filesystem::path&, array::Runtime& runtime,
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
  return report;
}

}  // namespace split::ops
