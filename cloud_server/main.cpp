// cloud_server: holds checkpoints, runs their head layers, serves partial state and weights.
// Chooses the command.
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <new>

#include "base/log.h"
#include "base/plain_words.h"
#include "cloud_server/commands/doctor_command.h"
#include "cloud_server/commands/healthcheck_command.h"
#include "cloud_server/commands/options.h"
#include "cloud_server/commands/quantize_command.h"
#include "cloud_server/commands/serve_command.h"
#include "device/about.h"
#include "program/exit_codes.h"
#include "program/lost_pages.h"
#include "program/terminal.h"

#ifndef SPLIT_VERSION
#define SPLIT_VERSION "unknown"
#endif

namespace split::cloud {
namespace {

int doctor(Options options) {
  complete_options(options);
  DoctorInput input{{}, server_options(options), options.api_key_file, options.blob_cache};
  for (const std::string& argument : options.models) {
    input.models.push_back(model_options(options, argument));
  }
  Console console;
  console.out = [](std::string_view text) {
    return static_cast<bool>(std::cout << text << std::flush);
  };
  console.columns = terminal_columns(STDOUT_FILENO);
  return doctor_command(input, console);
}

int run(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "quantize") return quantize_command({argv + 2, argv + argc});
  const int skip = command == "doctor" ? 1 : 0;
  Options options;
  Flags flags = make_flags(options);
  const size_t columns = terminal_columns(STDOUT_FILENO);
  flags.fit(columns);
  switch (flags.parse(argc - skip, argv + skip)) {
    case Flags::Asked::kHelp:
      std::cout << flags.help(kExitCodes);
      return 0;
    case Flags::Asked::kVersion:
      std::cout << version_text("cloud_server", SPLIT_VERSION);
      return 0;
    case Flags::Asked::kNothing:
      break;
  }
  if (!options.completion.empty()) {
    std::cout << flags.completion(options.completion, "cloud_server", {"doctor", "quantize"});
    return 0;
  }
  if (options.list_devices) {
    for (const ListedDevice& device : list_devices()) {
      std::cout << wrapped(device.text, columns) << "\n";
    }
    return 0;
  }
  if (options.healthcheck) {
    return healthcheck_command(!options.tls_cert.empty(), options.host,
                               static_cast<int>(options.port));
  }
  if (options.manual) {
    std::cout << flags.manual("cloud_server", SPLIT_VERSION, kExitCodes);
    return 0;
  }
  return skip == 1 ? doctor(std::move(options)) : serve_command(std::move(options));
}

// Says why the program ends: on a terminal as edge_client does, in a machine's log as a line of it.
int end_with(std::string_view why, int code) {
  if (log_format() == LogFormat::kJson) {
    log_error(plain_words(why));
  } else {
    const size_t columns = terminal_columns(STDERR_FILENO);
    const char* const no_color = std::getenv("NO_COLOR");
    const bool colors = columns > 0 && (no_color == nullptr || *no_color == '\0');
    write_log(wrapped(cat(marked(colors, Mark::kRed, "cloud_server:"), " ", plain_words(why), "\n"),
                      columns));
  }
  return code;
}

}  // namespace
}  // namespace split::cloud

int main(int argc, char** argv) {
  try {
    split::hold_standard_streams();
    split::end_on_lost_pages("error: ");
    return split::cloud::run(argc, argv);
  } catch (const split::Error& error) {
    return split::cloud::end_with(error.what(), split::exit_code(error.kind()));
  } catch (const std::bad_alloc&) {
    return split::cloud::end_with("out of memory", split::kExitFailed);
  } catch (const std::exception& error) {
    return split::cloud::end_with(error.what(), split::kExitFailed);
  }
}
