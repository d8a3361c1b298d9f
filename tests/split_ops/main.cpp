// split_ops: the tensor library against goldens that PyTorch made, on this machine. Wiring only.
#include <csignal>
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "program/exit_codes.h"
#include "program/flags.h"
#include "tests/split_ops/cases.h"
#include "tests/split_ops/reference.h"
#include "tests/split_ops/training.h"

namespace split::ops {
namespace {

int run(int argc, char** argv) {
  std::string goldens = SPLIT_SOURCE_DIR "/tests/golden/ops", models, device = "cpu", json, only,
              op, html;
  uint64_t threads = 0;
  Flags flags(
      "split_ops: the tensor library against goldens\n"
      "usage: split_ops test [--goldens DIR] [--op NAME] [--device D] [--json FILE] [--html FILE]\n"
      "       split_ops reference --html FILE\n"
      "       split_ops train --goldens DIR --models DIR [--device D] [--json FILE]\n",
      80);
  flags.group("Goldens");
  flags.text("goldens", "DIR", "a set of goldens of tensor operations (those of the build's tree)",
             &goldens);
  flags.text("models", "DIR", "the models that training runs name (train)", &models);
  flags.text("only", "TEXT", "cases or runs whose names begin so (all)", &only);
  flags.text("op", "NAME", "cases of that operation (all)", &op);
  flags.group("Machine");
  flags.text("device", "D", "where it runs: " + device_names() + " (cpu)", &device);
  flags.number("threads", "N", "of the CPU; 0: one per processor (0)", &threads, uint64_t{0},
               uint64_t{1024});
  flags.text("json", "FILE", "writes what was found there", &json);
  flags.text("html", "FILE", "writes a page of it there", &html);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "test" || command == "train" || command == "reference")
    arguments.erase(arguments.begin());
  switch (flags.parse(arguments, [](const char* name) { return std::getenv(name); })) {
    case Flags::Asked::kHelp:
      std::cout << flags.help(kExitCodes);
      return 0;
    case Flags::Asked::kVersion:
      std::cout << "split_ops " << SPLIT_VERSION << "\n";
      return 0;
    case Flags::Asked::kNothing:
      break;
  }
  if (command != "test" && command != "train" && command != "reference") {
    throw Error(ErrorKind::kInput,
                "expected a command, test, reference or train; --help says more");
  }
  if (goldens.empty()) throw Error(ErrorKind::kInput, "--goldens: expected a folder");
  Goldens set(goldens);
  if (command == "reference") {
    if (html.empty()) throw Error(ErrorKind::kInput, "--html: expected a file");
    const std::string list = read_file(SPLIT_SOURCE_DIR "/tests/split_ops/operations.def", 1 << 20);
    write_text(html, reference_page(set, list));
    return 0;
  }
  array::Runtime runtime({.device = device, .threads = static_cast<unsigned>(threads)});
  const auto wanted = [&](const std::string& name) {
    return name.starts_with(only) && (op.empty() || name.find("." + op + ".") != name.npos);
  };
  if (command == "test") {
    const Report report = run_cases(set, runtime, wanted);
    if (report.cases == 0) throw Error(ErrorKind::kInput, cat("no case of '", op + only, "'"));
    if (!html.empty()) report.write_page(html, runtime.name());
    return report.finish(json);
  }
  if (models.empty()) throw Error(ErrorKind::kInput, "--models: expected a folder");
  return run_training(set, models, runtime, wanted).finish(json);
}

}  // namespace
}  // namespace split::ops

int main(int argc, char** argv) {
  split::hold_standard_streams();
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return split::ops::run(argc, argv);
  } catch (const split::Error& error) {
    std::cerr << "split_ops: " << error.what() << "\n";
    return split::exit_code(error.kind());
  } catch (const std::exception& error) {
    std::cerr << "split_ops: " << error.what() << "\n";
    return split::kExitFailed;
  }
}
