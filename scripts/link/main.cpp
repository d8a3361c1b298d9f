// split_link: a line of a given rate and round trip between two programs of one machine. Wiring
// only.
#include <csignal>
#include <iostream>

#include "base/bytes.h"
#include "base/figures.h"
#include "base/json.h"
#include "base/log.h"
#include "program/exit_codes.h"
#include "program/flags.h"
#include "program/interrupt.h"
#include "scripts/link/relay.h"
#include "scripts/link/units.h"

#ifndef SPLIT_VERSION
#define SPLIT_VERSION "unknown"
#endif

namespace split::link {
namespace {

struct Given {
  std::string to, rate, rate_up, rate_down, rtt = "0ms";
  uint64_t port = 0, cut_after = 0;
  float events_per_s = 0;
  std::optional<uint64_t> seed;
};

Flags make_flags(Given& given) {
  Flags flags(
      "split_link: a slow line on this machine, as a TCP proxy before a server\n"
      "usage: split_link --to HOST:PORT [--rate 20Mbit] [--rtt 30ms] ...\n",
      80);
  flags.group("Ends");
  flags.text("to", "HOST:PORT", "the server behind the line", &given.to);
  flags.number("port", "N", "where it listens; 0 takes any free one (0)", &given.port, uint64_t{0},
               uint64_t{65535});
  flags.group("Line");
  flags.text("rate", "RATE",
             "bits a second of each direction, shared by all connections: 56kbit, 20Mbit, 1Gbit "
             "(no limit)",
             &given.rate);
  flags.text("rate-up", "RATE", "to the server, where it differs", &given.rate_up);
  flags.text("rate-down", "RATE", "from it, where it differs", &given.rate_down);
  flags.text("rtt", "TIME",
             "a round trip, half of it each way: 30ms, 0.2s; a connection costs one (0ms)",
             &given.rtt);
  flags.group("Server");
  flags.real("events-per-s", "N",
             "lets server-sent events of each connection come no faster, as from a slow server; "
             "what it has not sent is lost with it (0: as they come)",
             &given.events_per_s, 0, 1e6);
  flags.group("Faults");
  flags.bytes("cut-after", "BYTES",
              "resets each connection behind so many bytes of both directions (0: never)",
              &given.cut_after);
  flags.number("seed", "N", "behind 1..BYTES instead, drawn for each; one seed draws the same",
               &given.seed, uint64_t{0}, std::numeric_limits<uint64_t>::max());
  return flags;
}

uint64_t rate(std::string_view flag, const std::string& text, const std::string& otherwise) {
  if (text.empty() && otherwise.empty()) return 0;
  const auto bits = parse_rate(text.empty() ? otherwise : text);
  if (bits) return *bits;
  throw Error(ErrorKind::kInput, cat(text.empty() ? "--rate" : flag,
                                     ": expected a rate such as 56kbit, 20Mbit or 1Gbit, got ",
                                     shown(text.empty() ? otherwise : text)));
}

Relay::Options read(const Given& given) {
  Relay::Options options;
  const size_t colon = given.to.rfind(':');
  const auto port =
      colon == given.to.npos ? std::nullopt : parse_u64(given.to.substr(colon + 1), 1, 65535);
  if (!port || colon == 0) {
    throw Error(ErrorKind::kInput, cat("--to: expected HOST:PORT, got ", shown(given.to)));
  }
  options.to_host = given.to.substr(0, colon);
  if (options.to_host.starts_with('[') && options.to_host.ends_with(']'))
    options.to_host = options.to_host.substr(1, options.to_host.size() - 2);
  options.to_port = static_cast<int>(*port);
  options.port = static_cast<int>(given.port);
  const auto rtt = parse_time(given.rtt);
  if (!rtt) {
    throw Error(ErrorKind::kInput,
                cat("--rtt: expected a time such as 30ms or 0.2s, got ", shown(given.rtt)));
  }
  options.rtt = *rtt;
  options.up = {rate("--rate-up", given.rate_up, given.rate), *rtt / 2};
  options.down = {rate("--rate-down", given.rate_down, given.rate), *rtt / 2};
  options.events_per_s = given.events_per_s;
  options.cut_after = given.cut_after;
  options.seed = given.seed;
  if (options.seed && options.cut_after == 0)
    throw Error(ErrorKind::kInput, "--seed: expected --cut-after too");
  return options;
}

int run(int argc, char** argv) {
  Given given;
  Flags flags = make_flags(given);
  switch (flags.parse(argc, argv)) {
    case Flags::Asked::kHelp:
      std::cout << flags.help();
      return 0;
    case Flags::Asked::kVersion:
      std::cout << "split_link " SPLIT_VERSION "\n";
      return 0;
    case Flags::Asked::kNothing:
      break;
  }
  const Relay::Options options = read(given);
  Interrupt interrupt;
  const SignalWatch watch(interrupt);
  ::signal(SIGPIPE, SIG_IGN);
  Relay relay(options);
  const Interrupt::Hook stop(interrupt, [&] { relay.stop(); });
  log_info(cat("listening on http://127.0.0.1:", relay.port(), " for ", given.to, ": up ",
               rate_text(options.up.bits_per_s), ", down ", rate_text(options.down.bits_per_s),
               ", round trip ",
               time_text(std::chrono::duration_cast<std::chrono::microseconds>(options.rtt))));
  relay.run();
  const Relay::Counts counts = relay.counts();
  log_info(cat(counts.connections, " connections, ", counts.cut, " cut; ", human_bytes(counts.up),
               " up, ", human_bytes(counts.down), " down"));
  return exit_code_of_signal(interrupt.signal());
}

}  // namespace
}  // namespace split::link

int main(int argc, char** argv) {
  try {
    split::hold_standard_streams();
    return split::link::run(argc, argv);
  } catch (const split::Error& error) {
    split::log_error(error.what());
    return split::exit_code(error.kind());
  } catch (const std::exception& error) {
    split::log_error(error.what());
    return split::kExitFailed;
  }
}
