// The area train: a step of training by AdamW over four windows of 256 tokens, of the whole model
// and of its last two blocks, on the CPU or a GPU; and one small operation of tensors as values.
// bench.sh runs it in turn with PyTorch.
#include <cmath>

#include "array/value.h"
#include "autograd/functions.h"
#include "bench/support/bench.h"
#include "bench/support/random_model.h"
#include "train/trainer.h"

namespace split::bench {
namespace {

constexpr int kSteps = 3;  // of a repetition
constexpr int kBlocks = 2;
const train::Windows kWindows{4, 256};

// Tokens of windows, a last one to be predicted in each.
train::WindowSet random_windows(const ModelConfig& config, bool hidden) {
  train::WindowSet set;
  set.length = kWindows.length;
  set.ids = random_tokens(config, static_cast<size_t>(kWindows.batch * (kWindows.length + 1)));
  if (!hidden) return set;
  const OwnedTensor states = random_tensor({kWindows.rows(), config.channels}, DType::kF32, 7, 1);
  set.hidden.resize(states.storage.size() / sizeof(float));
  std::memcpy(set.hidden.data(), states.storage.data(), states.storage.size());
  return set;
}

// Every weight is trained, the embedding and the head too.
class WholeModel {
 public:
  WholeModel(array::Runtime& runtime, const RandomModel& random) {
    const Model& model = random.model();
    optim::Group group{{}, {.lr = 1e-4, .weight_decay = 0.01}};
    train::Leaves leaves;
    leaves.weight = [&](const std::string& name, const Dims& dims) {
      const auto at = leaves_.find(name);
      if (at != leaves_.end()) return at->second;
      const auto constant = std::ranges::find(model.constants(), name, &Constant::name);
      const bool trained = constant == model.constants().end();
      store_.add(name, trained ? random.weights().view(name) : constant->view(), trained);
      const Tensor leaf = weight(name, DType::kF32, dims);
      if (trained) group.parameters.push_back({name, leaf});
      return leaves_.emplace(name, leaf).first->second;
    };
    store_.add_numbers("ids", {kWindows.rows()});
    store_.add_numbers("targets", {kWindows.rows()});
    Tensor x = input("ids", DType::kI32, {kWindows.rows()});
    for (int layer = -1; layer <= model.config().layers; ++layer) {
      const std::string stage = layer < 0                        ? "embed"
                                : layer == model.config().layers ? "head"
                                                                 : cat("block.", layer);
      x = train::over_windows(model, model.stage(stage), kWindows, x, leaves);
    }
    const Tensor loss = mean(cross_entropy(x, input("targets", DType::kI32, {kWindows.rows()})));
    const train::WindowSet set = random_windows(model.config(), false);
    for (int64_t row = 0; row < kWindows.rows(); ++row) {
      const auto at = static_cast<size_t>(row / kWindows.length * (kWindows.length + 1) +
                                          row % kWindows.length);
      store_.at("ids").numbers[static_cast<size_t>(row)] = set.ids[at];
      store_.at("targets").numbers[static_cast<size_t>(row)] = set.ids[at + 1];
    }
    step_.emplace(runtime, store_, loss, optim::Optimiser({group}), train::StepOptions{});
  }
  float step() { return step_->run(1); }

 private:
  std::map<std::string, Tensor> leaves_;
  array::Store store_;
  std::optional<train::Step> step_;
};

class LastBlocks {
 public:
  LastBlocks(array::Runtime& runtime, const RandomModel& random)
      : tail_(random.model(), {.first = random.config().layers - kBlocks}),
        set_(random_windows(random.config(), true)) {
    train::add_weights(store_, tail_, tail_.shape().first, [&](const WeightDecl& decl) {
      return converted(random.weights().view(decl.name), DType::kF32);
    });
    trainer_.emplace(runtime, store_, tail_, kWindows,
                     optim::Options{.lr = 1e-4, .weight_decay = 0.01}, 0);
  }
  float step() {
    const size_t which[] = {0, 1, 2, 3};
    return trainer_->step(set_, which, 1);
  }

 private:
  train::Tail tail_;
  train::WindowSet set_;
  array::Store store_;
  std::optional<train::Trainer> trainer_;
};

// Milliseconds of a step, and of what is made before and within the first one.
template <typename TrainingSchedule>
void measure(array::Runtime& runtime, const RandomModel& random, const Options& options,
             const std::string& name, Report& report) {
  std::optional<TrainingSchedule> course;
  const auto step = [&] {
    if (!std::isfinite(course->step())) throw Error(ErrorKind::kDevice, "a loss is not finite");
  };
  const double first = timed([&] {
    course.emplace(runtime, random);
    step();
  });
  std::vector<double> seconds;
  for (unsigned run = 0; run < options.runs; ++run) {
    for (int i = 0; i < kSteps; ++i) seconds.push_back(timed(step));
  }
  report.add(name, 1e3 * median(seconds), "ms");
  report.add(name + "_first", first, "s");
}

// Made, computed and read, again and again.
double small_operation(array::Runtime& runtime) {
  constexpr int kTimes = 2000;
  const Value x = runtime.ones({4});
  const auto some = [&] {
    for (int i = 0; i < kTimes; ++i) Value(x + 1.0f).to_vector();
  };
  some();
  return timed(some) / kTimes;
}

int train_body(int argc, char** argv) {
  const auto options = parse_options(
      argc, argv, "bench_train: a step of training, of the whole model and of its last two blocks",
      "cpu");
  if (!options) return 0;
  array::Runtime runtime(DeviceOptions{options->device, options->threads});
  const RandomModel model(options->size, DType::kF32);
  Report report(*options, "train",
                cat(runtime.name(), runtime.gpu ? "" : cat(", ", options->threads, " threads")));
  measure<WholeModel>(runtime, model, *options, "gpt2_step_b4_t256", report);
  measure<LastBlocks>(runtime, model, *options, "last_two_blocks_step_b4_t256", report);
  std::vector<double> each;
  for (unsigned run = 0; run < options->runs; ++run) each.push_back(small_operation(runtime));
  report.add("small_operation", 1e6 * median(each), "us");
  report.finish();
  return 0;
}

}  // namespace
}  // namespace split::bench

int main(int argc, char** argv) {
  return split::bench::run_main(split::bench::train_body, argc, argv);
}
