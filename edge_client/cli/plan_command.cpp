#include "edge_client/cli/plan_command.h"

#include "edge_client/measure/calibrate.h"
#include "edge_client/measure/measure.h"
#include "edge_client/measure/plan.h"
#include "edge_client/place/plan_report.h"
#include "edge_client/server/loader_output.h"
#include "edge_client/weights/exactness.h"
#include "program/terminal.h"
#include "run/self_test.h"

namespace split::edge {
namespace {

// Returns the plan's input for the requested format, which the server need not have made.
PlanInput planned(TailBuilder& tails, const wire::ModelInfo& info, const ShardCache& cache) {
  const StageFormats formats = tails.weights().formats(info);
  const Model& model = tails.choice().model();
  PlanInput input = plan_input(model, with_blobs_to_come(model, info, formats), formats, cache);
  input.wire = tails.wire_of(info);
  input.highest = tails.choice().bounds().highest;
  return input;
}

}  // namespace

void plan_command(const Options& options, const World& world, ModelChoice& choice) {
  choice.select_model();
  if (options.measure && choice.config().encodes()) {
    throw Error(ErrorKind::kInput,
                cat("--measure: ", shown(choice.id()), " is an encoder, whose texts take one trip ",
                    "at any cut: expected --plan alone"));
  }
  const wire::ModelInfo info = choice.manifest(nullptr);
  TailBuilder tails(choice, progress_on(world.console, options.quiet));
  const bool person = world.console.out_is_terminal && !options.json;
  if (!options.json && !person) world.console.out(download_table(choice.model(), info));
  if (!options.json && !person && !options.measure) return;
  const ShardCache cache(cache_root(options.cache, world.environment));
  PlanReport report{info.id, options.goal, options.pace, {}, planned(tails, info, cache)};
  std::string here = "this machine";
  if (options.measure) {
    const std::unique_ptr<Forecasts> forecasts = make_forecasts(tails, info);
    Network network = measure_network(choice.remote(), info);
    const std::optional<CloudLoad> load =
        measure_steps(choice.remote(), info, choice.config(), network);
    const std::unique_ptr<Device> device = make_tested_device(options.placement.device);
    here = device->name();
    std::string bits;
    const Speed edge = calibrate(
        *device, choice.model(), dtype_from_format(info.format).value_or(DType::kF32),
        choice.request().formats, choice.request().profile,
        [&](const Shard& shard) { bits = own_bits(shard, info, tails.weights().formats(info)); });
    report.exact = tails.is_exact_here(info, bits);
    forecasts->measured(network, edge, load);
    report.input.know(forecasts->facts(), options.drafts.most > 0);
    if (load) report.input.want = load->want;
  }
  if (options.json) {
    world.console.out(to_json(report));
    return;
  }
  if (person) {
    world.console.out(wrapped(to_text(report, here), world.console.columns));
    return;
  }
  const std::vector<Place> places = price_places(report.input);
  const Pick pick = pick_place(places, report.input, report.goal, report.pace);
  world.console.out(cat("\n", plan_words(places, report.input), ".\nPick: --cut ",
                        places[pick.place].cut.name(), ": ", pick_words(pick, places, report.pace),
                        ".\n"));
}

}  // namespace split::edge
