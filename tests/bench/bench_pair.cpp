// The area pair: a cloud and an edge on loopback beside the whole model (pair.h).
#include "bench/support/pair.h"

namespace split::bench {
namespace {

int run(int argc, char** argv) {
  const auto options = parse_options(
      argc, argv,
      "bench_pair: cloud and edge over loopback HTTP, cut in the middle, beside the whole model\n\n"
      "--threads: of each side and of the unsplit run; the sides take turns.\n",
      "");
  if (!options) return 0;
  Report report(*options, "pair", "cpu");
  measure_pair(*options, report);
  report.finish();
  return 0;
}

}  // namespace
}  // namespace split::bench

int main(int argc, char** argv) { return split::bench::run_main(split::bench::run, argc, argv); }
