#include "edge_client/options/command_line.h"

#include <climits>

#include "base/bytes.h"
#include "base/json.h"
#include "edge_client/options/values.h"
#include "edge_client/place/counts.h"
#include "edge_client/place/plan_report.h"
#include "http/client.h"
#include "http/server/local_guard.h"
#include "program/exit_codes.h"
#include "text/chat_template.h"
#include "text/stop.h"

namespace split::edge {
namespace {

constexpr std::string_view kDefaultServer = "http://127.0.0.1:8080";
constexpr int kUsualRank = 8;  // a LoRA's

constexpr const char* kEdgeSummary =
    "edge_client: text from a model that runs partly on a server, partly here\n"
    "  edge_client --prompt \"Once upon a time\"      go on with a text\n"
    "  edge_client                                  ask for texts, one after another\n"
    "  edge_client --serve                          answer OpenAI's clients\n"
    "  edge_client doctor|audit RECEIPT             what works; if an answer is right\n"
    "  edge_client cache ls|verify|prune            the weights on this machine\n"
    "  edge_client train                            fine-tune its last blocks\n";

// Flag values as typed, before they are read.
struct Words {
  std::string prompt_ids, cut, moves, head = "edge", goal = "fast", format = "auto",
                                      profile = "f32", wire = "f32", draft = "auto";
  std::string address, completion;
  bool manual = false;
};

}  // namespace

void add_server_flags(Flags& flags, Options& options) {
  flags.group("The server");
  flags.text("server", "URL", "where cloud_server is (http://127.0.0.1:8080)", &options.server);
  flags.text("model", "ID", "one of the server's models (default: its first)",
             &options.placement.model);
  flags.text("api-key", "KEY", "the server's key; better given as SPLIT_API_KEY", &options.api_key);
  flags.text("ca-cert", "FILE", "certificates to trust for https (the system's)", &options.ca_cert);
  flags.number("timeout", "SECONDS", "server timeout, in seconds (60)", &options.timeout, 1u,
               86400u);
  flags.bytes("min-rate", "BYTES", "least bytes/s of a reply, over 10 s (100; 0: none)",
              &options.min_rate);
  flags.number("retry-for", "SECONDS", "retry a lost or busy server for so long (30)",
               &options.retry_for, 0u, 86400u);
}

void read_server(Options& options) {
  options.server = of_flag("--server", [&] {
    return http::server_url(options.server.empty() ? kDefaultServer : options.server);
  });
}

namespace {

void add_prompt_flags(Flags& flags, Options& options, Words& words) {
  flags.group("The prompt, one of");
  flags.text("prompt", "TEXT", "the text to go on from", &options.prompt);
  flags.text("prompt-file", "FILE", "a file to go on from, byte for byte, as stdin is",
             &options.prompt_file);
  flags.text("prompt-ids", "ID,ID...", "token ids, for a model without a tokenizer",
             &words.prompt_ids);
  flags.toggle("no-special", "<|endoftext|> in the prompt is plain text", &options.no_special);
}

void add_split_flags(Flags& flags, Options& options, Words& words) {
  flags.group("The split");
  flags.text("cut", "K|cloud|auto",
             "how many blocks the server runs, or all of them; auto: the text begins there, and "
             "comes here with the weights where that serves --goal (auto)",
             &words.cut);
  flags.bytes("max-weights", "BYTES", "most weights to download (1G; 0: none)",
              &options.max_weights);
  flags.text("moves", "N:K,...", "after N tokens, move the cut to K, or to cloud", &words.moves);
  flags.toggle("exact", "never move the cut where that could change a bit", &options.exact);
  flags.toggle("stay", "at a named cut, wait for a lost cloud", &options.stay);
  flags.choice("wire", {"f32", "f16", "q8_0"},
               "format of rows on the wire; f16 is off by 0.05 %, q8_0 by 0.45 % of 32 "
               "values' largest; a text is not exact then (f32)",
               &words.wire);
  flags.choice("head", {"edge", "cloud"},
               "which side holds the vocabulary's matrix; cloud downloads less, sends more "
               "(edge; at a numbered cut cloud, if over three blocks)",
               &words.head);
  flags.number("context", "N",
               "most positions of a text (what the model was made for, up to 32768, "
               "where there is room)",
               &options.context, 1, 1 << 24);
  flags.text("format", "FORMAT",
             "format of downloads: f32, f16, q8_0, q4_0 or head=q8_0,block=q4_0 (auto)",
             &words.format);
  flags.choice(
      "profile", {"f32", "int8", "int8_decode"},
      "int8: in eight bits, on the CPU; int8_decode: in new tokens alone (f32, or a server's "
      "int8)",
      &words.profile);
  flags.choice("goal", {"fast", "offload"},
               "what --cut auto and plans look for: the fastest text, or the least work for the "
               "cloud (fast)",
               &words.goal);
  flags.real("pace", "X", "tokens/s that offloading keeps (10)", &options.pace, 0.1, 1e6);
  flags.text("device", "NAME", device_names(), &options.placement.device.device, device_words());
  flags.number("threads", "N", "threads of the cpu device (0: one per processor)",
               &options.placement.device.threads, 0u, 1024u);
  flags.text("cache", "DIR", "where weights are kept (default: $XDG_CACHE_HOME/splitcompute)",
             &options.cache);
  flags.bytes("cache-limit", "BYTES", "evict the least recently used above it (no limit)",
              &options.cache_limit);
  flags.text("tail", "FILE", "a tail of your own, whose blocks run here alone", &options.tail);
}

void add_draft_flag(Flags& flags, Words& words) {
  flags.text("draft", "auto|off|N",
             "where the head is here: guess up to 7 tokens, check them in one step", &words.draft);
}

void add_text_flags(Flags& flags, Options& options, Words& words) {
  flags.group("The text");
  flags.number("max-tokens", "N", "most tokens to write (64)", &options.max_tokens, 0, 1 << 20);
  flags.real("temperature", "X", "0 takes the likeliest token each time (0.8)",
             &options.sampling.temperature, 0, 100);
  flags.number("top-k", "N", "choose among the N likeliest tokens (0: no limit)",
               &options.sampling.top_k, 0, INT_MAX);
  flags.real("top-p", "X", "choose among the likeliest that make up X (0.95)",
             &options.sampling.top_p, 0, 1);
  flags.real("min-p", "X", "choose among tokens X times as likely as the best, or more (0)",
             &options.sampling.min_p, 0, 1);
  flags.real("presence-penalty", "X", "penalise tokens already generated (0)",
             &options.sampling.presence_penalty, -2, 2);
  flags.real("frequency-penalty", "X", "penalise tokens for each occurrence so far (0)",
             &options.sampling.frequency_penalty, -2, 2);
  flags.real("repetition-penalty", "X", "above 1, penalise tokens of prompt and answer (1)",
             &options.sampling.repetition_penalty, 0.01f, 100);
  flags.number("seed", "N", "a seed determines the text (default: random)", &options.seed,
               uint64_t{0}, uint64_t{INT64_MAX});
  flags.texts("stop", "S", "end before this text; repeat it for more", &options.stop);
  flags.toggle("ignore-eos", "go on after <|endoftext|>", &options.ignore_eos);
  add_draft_flag(flags, words);
}

void add_listening_flags(Flags& flags, Options& options, Words& words) {
  flags.group("A server");
  flags.optional_text("serve", "HOST:PORT",
                      "answer OpenAI's clients at http://HOST:PORT/v1 (127.0.0.1:8081)",
                      kDefaultAddress, &words.address);
  flags.toggle("insecure", "listen beyond this machine without keys or TLS", &options.insecure);
  flags.texts("allowed-host", "NAME",
              "a name that the server answers to, besides localhost; repeat it for more. With this "
              "flag, or on this machine alone, it answers no other name",
              &options.allowed_hosts);
  flags.texts("cors-origin", "ORIGIN",
              "an origin whose pages may ask: http(s)://host[:port], or * for "
              "all; repeat it",
              &options.cors_origins);
  flags.number("stops-cloud", "PID", "let the page end this process, the cloud here",
               &options.stops_cloud, 2, INT_MAX);
  flags.choice("log-format", {"text", "json"}, "log requests for people, or as JSON (text)",
               &options.log_format);
}

// Flags of every face that answers requests.
void add_answering_flags(Flags& flags, Options& options) {
  flags.text("chat-template", "FILE|TEXT",
             "how chats become prompts, in Jinja (the model's own template)",
             &options.chat_template);
  flags.toggle("special-in-content", "read special tokens in messages as such, not text",
               &options.special_in_content);
  flags.toggle("any-model", "accept any model name, and answer with this model",
               &options.any_model);
  flags.bytes("memory-budget", "BYTES",
              "most that requests may hold at once; past it they get 503 (what the system grants)",
              &options.memory_budget, 1 << 20);
  flags.bytes("kv-budget", "BYTES",
              "most for keys and values of all answers (16 whole contexts, up to 1G)",
              &options.kv_budget);
}

void add_output_flags(Flags& flags, Options& options, Words& words) {
  flags.group("Output");
  flags.number("logprobs", "N", "with --json, add log-probabilities and the N likeliest tokens",
               &options.logprobs, 0, 1000);
  flags.toggle("embed", "print the prompt's embedding or last state alone",
               &options.placement.embed);
  flags.text("rerank", "QUERY", "rank each line of input by how well it answers", &options.rerank);
  flags.toggle("jsonl", "a JSON line for each line (--embed, --rerank)", &options.jsonl);
  flags.text("out", "FILE", "with --jsonl: append these lines to FILE", &options.out);
  flags.toggle("plan", "print what each cut costs, and download nothing", &options.plan);
  flags.toggle("measure", "with --plan, time the line, the server and this machine too",
               &options.measure);
  flags.toggle("json", "print one JSON object", &options.json);
  flags.toggle("quiet", "print no progress and no receipt", &options.quiet);
  flags.toggle("list-devices", "print what --device can name", &options.list_devices);
  flags.choice("completion", Flags::kShells,
               "print a completion: source <(edge_client --completion bash)", &words.completion);
  flags.toggle("manual", "print the page for man", &words.manual);
}

// Derives the engine's properties from --serve and --plan.
void tell_engine(Options& options) {
  options.placement.many_texts = options.waits_for_cloud = options.serve;
  options.keeps_turns = options.serve || !options.placement.auto_cut;
  options.needs_cloud = options.plan;
}

void read_prompt(const Flags& flags, const Words& words, Options& options) {
  const int prompts =
      flags.given("prompt") + flags.given("prompt-file") + flags.given("prompt-ids");
  if (prompts > 1) refuse("expected one of --prompt, --prompt-file and --prompt-ids, got more");
  const bool words_given = flags.given("prompt") || flags.given("prompt-ids");
  if (options.rerank &&
      (options.placement.embed || options.json || !options.out.empty() || words_given))
    refuse("--rerank: expected --prompt-file or stdin, and no --embed, --json or --out beside it");
  options.placement.embed = options.placement.embed || options.rerank;
  if (options.jsonl && (!options.placement.embed || words_given))
    refuse("--jsonl: expected --embed or --rerank, and --prompt-file or stdin");
  if (!options.out.empty() && !options.jsonl) refuse("--out: expected --embed --jsonl beside it");
  options.serve = flags.given("serve");
  if (options.serve) {
    if (prompts > 0 || options.placement.embed || options.plan)
      refuse("--serve: expected no prompt, --embed or --plan beside it");
    read_address(words.address, options);
  }
  if (options.stops_cloud > 0 && !(options.serve && http::is_loopback(options.host)))
    refuse("--stops-cloud: expected --serve on this machine alone beside it");
  http::expect_origins(options.cors_origins);
  if (flags.given("prompt-ids")) options.prompt_ids = ids_of(words.prompt_ids);
}

void read_template(Options& options) {
  if (!options.chat_template.empty()) {
    try {
      options.chat_template = ChatTemplate::given(options.chat_template);
    } catch (const Error& error) {
      throw Error(error.kind(), cat("--chat-template: ", error.what()));
    }
  }
}

// Reads the flags of placement. `cut_moves`: the cut is "auto" if none of them says what runs here.
void read_places(const Flags& flags, const Words& words, bool cut_moves, Options& options) {
  const bool open = cut_moves && !flags.given("cut") && !flags.given("moves") &&
                    !flags.given("head") && !options.placement.embed && !options.plan;
  if (words.cut == "auto" || open) {
    if (flags.given("head"))
      refuse("--head: expected no --cut auto beside it, which places the head too");
    options.placement.cut = Cut::cloud();
    options.placement.auto_cut = !options.placement.embed;  // an embedding is a single step
  } else if (words.cut == "cloud") {
    options.placement.cut = Cut::cloud();
  } else if (flags.given("cut")) {
    const auto k = parse_u64(words.cut, 0, 1024);
    if (!k)
      refuse(cat("--cut: expected a number of blocks, cloud or auto, got ", shown(words.cut)));
    options.placement.cut = static_cast<int>(*k);
  }
  if (!options.tail.empty()) {
    if (words.cut == "cloud" || words.head == "cloud")
      refuse("--tail: expected no --cut cloud or --head cloud beside it: its blocks run here");
    if (options.placement.cut == Cut::cloud()) options.placement.cut.reset();  // the loader chooses
    options.placement.auto_cut = false;
    if (options.any_model)
      refuse("--any-model: expected no --tail beside it, which makes two models of one");
  }
  if (options.stay && options.placement.auto_cut)
    refuse("--stay: expected --cut K, --cut cloud or --moves beside it, not --cut auto");
  options.drafts = drafts_of(words.draft);
  if (flags.given("head"))
    options.placement.head = words.head == "cloud" ? Head::kCloud : Head::kEdge;
  if (!flags.given("moves")) return;
  if (options.placement.head == Head::kCloud || options.placement.cut == Cut::cloud() ||
      options.placement.embed)
    refuse("--moves: expected no --cut cloud or auto, --head cloud or --embed beside it");
  read_moves(words.moves, options);
  if (!options.tail.empty() && words.moves.find("cloud") != words.moves.npos)
    refuse("--moves: expected numbers of blocks beside --tail, whose blocks run here, got cloud");
}

void read_arithmetic(const Flags& flags, const Words& words, Options& options) {
  options.placement.formats =
      of_flag("--format", [&] { return StageFormats::parse(words.format); });
  check_device_name(options.placement.device.device);
  options.goal = *goal_from_name(words.goal);
  options.goal_given = flags.given("goal");
  if (options.measure && !options.plan) refuse("--measure: expected --plan beside it");
  options.placement.profile = *profile_from_name(words.profile);
  options.wire = *dtype_from_format(words.wire);
  if (options.exact && options.wire != DType::kF32)
    refuse(cat("--exact: expected --wire f32 beside it, got ", words.wire));
  options.placement.names_arithmetic = flags.given("profile") || flags.given("format");
  if (rounds_to_int8(options.placement.profile)) {
    options.placement.own_blocks = !flags.given("format");
    if (options.placement.own_blocks)
      options.placement.formats = profile_formats(options.placement.profile);
    if (!options.placement.formats.quantise())
      refuse(cat("--profile ", words.profile, ": expected --format q8_0 or q4_0, got ",
                 shown(words.format)));
  }
  if (!StopTexts::fit(options.stop)) refuse(cat("--stop: ", StopTexts::expected()));
  read_server(options);
}

}  // namespace

CommandLine read_command_line(const std::vector<std::string>& arguments, const World& world,
                              bool cut_moves) {
  CommandLine line;
  Options& options = line.options;
  Words words;
  Flags flags(kEdgeSummary);
  flags.fit(world.console.columns);
  options.connector = world.connector;
  flags.commands({"audit", "cache", "doctor", "train"}, "prompt");
  add_server_flags(flags, options);
  add_prompt_flags(flags, options, words);
  add_split_flags(flags, options, words);
  add_text_flags(flags, options, words);
  add_listening_flags(flags, options, words);
  add_answering_flags(flags, options);
  add_output_flags(flags, options, words);

  line.asked = flags.parse(arguments, world.environment);
  if (line.asked == Flags::Asked::kHelp) line.help = flags.help(kExitCodes);
  if (line.asked != Flags::Asked::kNothing) return line;
  if (flags.given("completion")) {
    line.help =
        flags.completion(words.completion, "edge_client", {"audit", "cache", "doctor", "train"});
  } else if (words.manual) {
    line.help = flags.manual("edge_client", SPLIT_VERSION, kExitCodes);
  }
  if (!line.help.empty()) {
    line.asked = Flags::Asked::kHelp;
    return line;
  }
  read_prompt(flags, words, options);
  read_template(options);
  read_places(flags, words, cut_moves, options);
  read_arithmetic(flags, words, options);
  tell_engine(options);
  return line;
}

TrainCommand read_train_command(const std::vector<std::string>& arguments, const World& world) {
  TrainCommand command;
  Options& options = command.options;
  std::string cut, format = "auto";
  Flags flags(
      "edge_client train: a tail of your own, trained here on your own text\n"
      "  edge_client train --text FILE --out TAIL.safetensors\n");
  flags.fit(world.console.columns);
  options.connector = world.connector;
  add_server_flags(flags, options);
  flags.group("The tail");
  flags.text("text", "FILE", "the text to train on; its last fifth is for evaluation",
             &command.text);
  flags.text("out", "TAIL.safetensors", "the file to write", &command.out);
  flags.number("blocks", "K", "train the last K blocks, or with --lora put it on these",
               &command.blocks, 1, 1024);
  flags.number("lora", "R", "a LoRA of rank R; alone, on the last two blocks (8)", &command.lora, 1,
               1024);
  flags.number("steps", "N", "steps of four windows (five passes, 30 to 2000)", &command.steps,
               int64_t{1}, int64_t{1} << 24);
  flags.number("seed", "N", "the same seed gives the same bits (0)", &command.seed, uint64_t{0},
               uint64_t{INT64_MAX});
  flags.text("known", "FILE", "report the perplexity of this text, too", &command.known);
  flags.text("cut", "0", "run the frozen blocks here too, so that nothing leaves", &cut);
  flags.group("This machine");
  flags.text("format", "FORMAT", "format of downloads: f32, f16, q8_0 or q4_0 (auto)", &format);
  flags.text("device", "NAME", "where to train: " + device_names(),
             &options.placement.device.device, device_words());
  flags.number("threads", "N", "threads of the cpu (0: one per processor)",
               &options.placement.device.threads, 0u, 1024u);
  flags.text("cache", "DIR", "where weights are kept (default: $XDG_CACHE_HOME/splitcompute)",
             &options.cache);
  flags.bytes("cache-limit", "BYTES", "evict the least recently used above it (no limit)",
              &options.cache_limit);
  flags.toggle("quiet", "print no progress", &options.quiet);
  command.asked = flags.parse(arguments, world.environment);
  if (command.asked == Flags::Asked::kHelp) command.help = flags.help(kExitCodes);
  if (command.asked != Flags::Asked::kNothing) return command;
  if (command.text.empty()) refuse("--text: expected a file to train on");
  if (command.out.empty()) refuse("--out: expected a file that the tail becomes");
  if (command.blocks == 0 && command.lora == 0) command.lora = kUsualRank;
  if (!cut.empty() && cut != "0")
    refuse(cat("--cut: expected 0 or no such flag, got ", shown(cut)));
  if (!cut.empty()) options.placement.cut = 0;
  check_device_name(options.placement.device.device);
  options.placement.formats = of_flag("--format", [&] { return StageFormats::parse(format); });
  read_server(options);
  return command;
}

Options read_engine_options(const Json& given) {
  if (!given.is_object()) refuse("options: expected a JSON object like {\"server\":\"http://…\"}");
  Options options;
  Words words;
  Flags flags("");
  add_server_flags(flags, options);
  add_split_flags(flags, options, words);
  add_draft_flag(flags, words);
  add_answering_flags(flags, options);
  std::vector<std::string> arguments;
  for (const auto& [name, value] : given.members()) {
    const std::optional<bool> valued = flags.takes_value(name);
    if (!valued) refuse(cat("options: an edge has none of the name ", shown(name)));
    if (*valued ? !value.is_string() && !value.is_number() : !value.is_boolean()) {
      refuse(cat("options: ", shown(name), ": expected ",
                 *valued ? "a text or a number" : "true or false"));
    }
    if (!*valued && !value.get<bool>()) continue;
    arguments.push_back("--" + name);
    if (value.is_string()) arguments.back() += "=" + value.get<std::string>();
    if (value.is_number()) arguments.back() += "=" + value.dump();
  }
  flags.parse(arguments, [](const char*) { return nullptr; });
  options.serve = true;
  options.quiet = true;
  read_template(options);
  read_places(flags, words, true, options);
  read_arithmetic(flags, words, options);
  tell_engine(options);
  return options;
}

}  // namespace split::edge
