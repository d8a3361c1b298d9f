// One side of `bench.sh peers`: steps of a model on a device, to the logits, timed when a line of
// stdin asks for them, so that another program's steps on the same weights can be timed in turn.
// Lines, each answered by one number:
//   decode N K       seconds a token, over N tokens that see K keys each
//   prefill T        seconds of a prompt of T tokens
//   batch S N [top]  seconds a step of S sequences, over N steps; to the 64 largest logits of each
// and of an encoder
//   embed N T     seconds of a request of N texts of T tokens
#include <iostream>
#include <sstream>

#include "bench/steps.h"
#include "bench/text_steps.h"

namespace split::bench {
namespace {

double answer(Steps& steps, const std::string& line) {
  std::istringstream words(line);
  std::string what, to;
  unsigned first = 0, second = 0;
  words >> what >> first >> second >> to;
  double seconds = 0;
  if (what == "decode" && first > 0 && second > 0) {
    for (unsigned i = 0; i < first; ++i) seconds += steps.decode(second);
    return seconds / first;
  }
  if (what == "prefill" && first > 0) return steps.prefill(first);
  if (what == "batch" && first > 0 && first <= kMostSequences && second > 0) {
    for (unsigned i = 0; i < second; ++i) seconds += steps.batch(first, to == "top");
    return seconds / second;
  }
  throw Error(ErrorKind::kInput,
              cat("[stdin] expected decode N K, prefill T or batch S N [top], got '", line, "'"));
}

double answer(TextSteps& steps, const std::string& line) {
  std::istringstream words(line);
  std::string what;
  uint32_t texts = 0, length = 0;
  words >> what >> texts >> length;
  if (what == "embed" && texts > 0 && length > 0) return steps.embed(texts, length);
  throw Error(ErrorKind::kInput, cat("[stdin] expected embed N T, got '", line, "'"));
}

void answer_lines(auto& steps) {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(steps, line) << std::endl;
  }
}

int run(int argc, char** argv) {
  std::string profile_text = "f16", format_text, kv_text = "auto", path;
  bool wide = false;
  uint32_t keys = kBatchContext;
  const auto options = parse_options(
      argc, argv, "bench_player: a model whose steps lines of stdin time (bench.sh peers)\n", "cpu",
      [&](Flags& flags) {
        flags.text("model", "PATH", "a Hugging Face directory or a GGUF file", &path);
        flags.text("profile", "NAME", "f16, bf16, q8_0, q4_0, int8, int8_decode or f32 (f16)",
                   &profile_text);
        flags.text("format", "NAME", "q8_0, q4_0 or own: the weights (those of the profile)",
                   &format_text);
        flags.choice("kv", {"auto", "q8_0"}, "how keys and values are stored (auto)", &kv_text);
        flags.number("keys", "N", "that each sequence of a batch sees (128)", &keys, 1, 1 << 20);
        flags.toggle("wide", "generated rows on a GPU's matrix units too", &wide);
      });
  if (!options) return 0;
  const auto profile = profile_from_name(profile_text);
  if (!profile) {
    throw Error(ErrorKind::kInput,
                cat("--profile: expected a profile's name, got '", profile_text, "'"));
  }
  const FileModel model(path);
  const auto device = make_device({options->device, options->threads});
  std::cout << device->name() << std::endl;
  if (model.config().encodes()) {
    TextSteps steps(*device, model.model(), model.weights(), *profile);
    answer_lines(steps);
    return 0;
  }
  const StageFormats formats = format_text.empty()    ? profile_formats(*profile)
                               : format_text == "own" ? StageFormats{}
                                                      : StageFormats::parse(format_text);
  const std::optional<DType> kv = kv_text == "auto" ? std::nullopt : dtype_from_format(kv_text);
  Steps steps(*device, model.model(), model.weights(), *profile, kv, wide, formats, keys);
  answer_lines(steps);
  return 0;
}

}  // namespace
}  // namespace split::bench

int main(int argc, char** argv) { return split::bench::run_main(split::bench::run, argc, argv); }
