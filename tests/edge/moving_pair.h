// A cloud and edges in this process whose texts move, with the text of one machine beside them.
#pragma once

#include <map>

#include "run/text/generate.h"
#include "support/edge_world.h"

namespace split::test {

struct MovingPair {
  static MovingPair& of(const std::string& name) {
    static std::map<std::string, ForAllTests<MovingPair>> all;
    MovingPair& one = all[name].get(name);
    one.cloud.reset({});
    one.through.clear();
    return one;
  }
  explicit MovingPair(const std::string& name) : cloud(name), golden(name) {}

  std::vector<std::string> arguments(std::vector<std::string> more) const {
    more.insert(more.end(), {cat("--server=", through.empty() ? cloud.url() : through),
                             cat("--cache=", cache.path.string()), "--retry-for=5"});
    return more;
  }
  // One text at the command line.
  Outcome run(const std::string& moves, float temperature, uint64_t seed, int tokens,
              std::vector<std::string> more = {}) {
    more.insert(more.end(), {cat("--prompt-ids=", joined(prompt())), cat("--moves=", moves),
                             cat("--temperature=", temperature), cat("--seed=", seed),
                             cat("--max-tokens=", tokens), "--ignore-eos", "--json", "--device=cpu",
                             "--threads=1"});
    return cloud.ended(run_edge(arguments(std::move(more))));
  }
  std::vector<int32_t> prompt() const { return golden.values<int32_t>("p1.ids"); }
  // The text that one machine alone writes.
  std::vector<int32_t> alone(float temperature, float top_p, uint64_t seed, int tokens) {
    GenerateOptions options;
    options.max_tokens = tokens;
    options.sampling.temperature = temperature;
    options.sampling.top_p = top_p;
    options.sampling.seed = seed;
    options.ignore_end = true;
    LocalForward forward(cloud.model().batcher());
    return generate(forward, cloud.model().config(), cloud.model().tokenizer(), prompt(), options,
                    {})
        .tokens;
  }
  int layers() const { return golden.model->config().layers; }

  GatedCloud cloud;
  Golden golden;
  TemporaryFolder cache;
  std::string through;  // the address by which edges reach the cloud, where it is another
};

}  // namespace split::test
