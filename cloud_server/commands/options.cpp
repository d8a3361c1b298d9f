#include "cloud_server/commands/options.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "base/cache_dir.h"
#include "cloud_server/commands/model_path.h"
#include "device/about.h"
#include "http/client.h"
#include "http/head.h"
#include "http/network.h"
#include "http/server/local_guard.h"

namespace split::cloud {

namespace {

void add_models(Flags& flags, Options& options) {
  flags.group("Models");
  flags.texts(
      "model", "[ID=]PATH",
      "a Hugging Face directory or a GGUF file; repeat it for more models (the bundled demo)",
      &options.models);
  flags.choice("profile", {"f32", "f16", "bf16", "q8_0", "q4_0", "int8", "int8_decode"},
               "what this server computes with: f32 takes the checkpoint's weights and stores keys "
               "and values as floats, the others take weights of their name and store halves; int8 "
               "takes the file's blocks, or makes q8_0, and rounds the rows of their products to "
               "eight bits too, on the CPU; int8_decode those of new tokens alone (f32)",
               &options.profile);
  flags.choice(
      "kv", {"auto", "q8_0"},
      "how keys and values are stored: as the profile says, or in blocks of eight bits, of "
      "heads of whole blocks (auto)",
      &options.kv);
  flags.number("context", "N",
               "most positions of a text (what the model was made for, 32768 at most, as far as "
               "--kv-budget and the memory go)",
               &options.context, 1, 1 << 24);
  flags.text("chat-template", "FILE|TEXT",
             "how chats become prompts, in Jinja (the model's own template)",
             &options.chat_template);
  flags.toggle("special-in-content", "read special tokens in messages as such, not text",
               &options.special_in_content);
  flags.text("formats", "LIST",
             "which formats edges may download, besides the checkpoint's own: some of "
             "f32,f16,q8_0,q4_0 (all)",
             &options.formats);
  flags.bytes(
      "kv-budget", "BYTES",
      "most for keys and values of all sessions of a model (1G, or one whole context where the "
      "memory has room for it)",
      &options.kv_budget, 1);
  flags.choice("prompt-cache", {"on", "off"},
               "whether prompts of one key that begin alike are computed once, in what the KV "
               "budget has free (on; off where there are no keys and others than this machine may "
               "ask: strangers would share)",
               &options.prompt_cache);
  flags.bytes(
      "memory-budget", "BYTES",
      "most that requests may hold at once: bodies, parsed JSON, scratch, answers; past it they "
      "get 503 (what the machine or the container grants, less weights and keys and values)",
      &options.memory_budget, 1 << 20);
  flags.text("blob-cache", "DIR",
             "where converted weights are kept (default: $XDG_CACHE_HOME/splitcompute/blobs)",
             &options.blob_cache);
  flags.real("price-hour", "X", "dollars that an hour of this machine costs, for edges that plan",
             &options.price_hour, 0, 1e6);
  flags.real("price-egress", "X", "dollars that 10^9 bytes sent from here cost, for the same",
             &options.price_egress, 0, 1e6);
  flags.text(
      "blob-url", "BASE",
      "where edges fetch blobs: BASE/SHA256 on any server; they check the hash (this server)",
      &options.blob_url);
}

void add_serving(Flags& flags, Options& options) {
  flags.group("Serving");
  flags.text("host", "ADDRESS", "address to listen at (127.0.0.1: this machine only)",
             &options.host);
  flags.number("port", "N", "port to listen at; 0 takes any free one (8080)", &options.port,
               uint64_t{0}, uint64_t{65535});
  flags.text("api-key-file", "FILE",
             "who may ask: a line NAME:KEY for each, with limits behind it: sessions=N "
             "rows_per_s=N bytes_per_s=N",
             &options.api_key_file);
  flags.text("tls-cert", "FILE", "certificates for https in PEM, the server's own first",
             &options.tls_cert);
  flags.text("tls-key", "FILE", "the certificate's private key in PEM", &options.tls_key);
  flags.toggle("insecure", "listen beyond this machine without keys or TLS", &options.insecure);
  flags.texts("cors-origin", "ORIGIN",
              "whose pages may ask this server: http(s)://host[:port], or *; repeat it for more",
              &options.cors_origins);
  flags.texts(
      "allowed-host", "NAME",
      "a name that the server answers to, besides localhost; repeat it for more. With this flag, "
      "or on this machine without keys, it answers no other name, and no page from elsewhere",
      &options.allowed_hosts);
  flags.choice("app", {"on", "off"},
               "the edge for browsers at /app/, where this program was built with it (on)",
               &options.app);
  flags.toggle("legacy-routes", "answer the original SplitCompute web page (with --port 5000)",
               &options.legacy_routes);
  flags.choice("metrics", {"keys", "open", "off"},
               "who may read /metrics: key holders (everyone where there are no keys), everyone, "
               "or nobody (keys)",
               &options.metrics);
  flags.choice(
      "log-format", {"text", "json"},
      "how requests are logged on stderr: as lines for people, or as JSON with each step (text)",
      &options.log_format);
  flags.real("slo-ms", "X",
             "p99 target of a token's queueing delay, in ms: above it, edges are asked to take "
             "layers (50)",
             &options.slo_ms, 1, 1e6);
}

void add_limits(Flags& flags, Options& options) {
  flags.number("max-inflight", "N",
               "most requests answered at once, each on a thread; a fourth as many wait, others "
               "get 503 (256)",
               &options.max_inflight, uint64_t{1}, uint64_t{4096});
  flags.number(
      "max-connections", "N",
      "most open connections; past nine tenths the one idle longest is closed for a new one (8192)",
      &options.max_connections, uint64_t{1}, uint64_t{1} << 20);
  flags.number("max-connections-per-address", "N",
               "most connections of one address; further ones get 503 (1024)",
               &options.max_per_address, uint64_t{1}, uint64_t{1} << 20);
  flags.texts("trusted-proxy", "ADDRESS[/BITS]",
              "a balancer without that limit, whose X-Forwarded-For names the client; repeat it "
              "for more (none)",
              &options.trusted_proxies);
  flags.number("shutdown-timeout", "SECONDS", "how long answers in flight may take at the end (10)",
               &options.shutdown_timeout, uint64_t{0}, uint64_t{3600});
  flags.number("drain-timeout", "SECONDS",
               "how long sessions may go on after a first SIGTERM, while new ones are sent "
               "elsewhere (0: not at all)",
               &options.drain_timeout, uint64_t{0}, uint64_t{86400});
}

}  // namespace

Flags make_flags(Options& options) {
  Flags flags(
      "cloud_server: serves models, whole or layer by layer, to edge_client and curl\n"
      "usage: cloud_server [--model [ID=]PATH ...] [--host ADDRESS] [--port N] ...\n"
      "       cloud_server doctor [the same flags]: what works, in ten lines\n"
      "       cloud_server quantize --model PATH --format FORMAT --out DIR\n");
  flags.commands({"doctor", "quantize"});
  add_models(flags, options);
  flags.group("Computing");
  flags.text("device", "NAME", cat(device_names(), " (auto: a GPU, else the CPU)"), &options.device,
             device_words());
  flags.number("threads", "N", "threads of the CPU device (one per processor)", &options.threads,
               0u, 1024u);
  flags.toggle("wide",
               "serve many sessions at once: a GPU computes generated tokens on its matrix units "
               "too, in halves (not with --profile f32)",
               &options.wide);
  add_serving(flags, options);
  add_limits(flags, options);
  flags.group("Other");
  flags.choice("completion", Flags::kShells,
               "print a completion: source <(cloud_server --completion bash)", &options.completion);
  flags.toggle("healthcheck",
               "ask the server that has these flags (--port, --host, --tls-cert) on this machine "
               "whether it is ready: exit code 0, else 1",
               &options.healthcheck);
  flags.toggle("list-devices", "print what --device can name", &options.list_devices);
  flags.toggle("manual", "print the page for man", &options.manual);
  return flags;
}

void complete_options(Options& options) {
  http::expect_origins(options.cors_origins);
  if (options.prompt_cache.empty()) {
    const bool strangers = options.api_key_file.empty() && !http::is_loopback(options.host);
    options.prompt_cache = strangers ? "off" : "on";
  }
  if (options.api_key_file.empty()) {
    http::expect_only_local(options.host, options.insecure, "--host " + options.host,
                            "give keys (--api-key-file), or ");
  }
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    throw Error(ErrorKind::kInput, cat(options.tls_cert.empty() ? "--tls-key" : "--tls-cert",
                                       ": expected --tls-cert and --tls-key together"));
  }
  if (!options.blob_url.empty()) {
    try {
      http::split_url(options.blob_url);
    } catch (const Error& error) {
      throw Error(ErrorKind::kInput, cat("--blob-url: ", error.what()));
    }
  }
  if (options.blob_cache.empty()) {
    if (const auto dir = cache_dir([](const char* name) { return std::getenv(name); })) {
      options.blob_cache = *dir / "blobs";
    }
  }
  if (options.models.empty()) options.models.push_back(bundled_model());
  for (const std::string& name : options.allowed_hosts) {
    if (name.empty() || http::host_of(name) != name) {
      throw Error(ErrorKind::kInput,
                  cat("--allowed-host: expected a name without a port, got ", shown(name)));
    }
  }
  for (const std::string& proxy : options.trusted_proxies) {
    try {
      http::Network::parse(proxy);
    } catch (const Error& error) {
      throw Error(ErrorKind::kInput, cat("--trusted-proxy: ", error.what()));
    }
  }
}

ModelOptions model_options(const Options& options, const std::string& argument) {
  ModelOptions model;
  const size_t equals = argument.find('=');
  const bool named =
      equals != std::string::npos && argument.substr(0, equals).find('/') == std::string::npos;
  model.path = named ? argument.substr(equals + 1) : argument;
  model.id = named ? argument.substr(0, equals)
                   : std::filesystem::absolute(model.path).lexically_normal().filename().string();
  if (model.id.empty()) {  // "weights/demo/"
    model.id =
        std::filesystem::absolute(model.path).lexically_normal().parent_path().filename().string();
  }
  if (model.id.ends_with(".gguf")) model.id.resize(model.id.size() - 5);
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  };
  if (model.id.empty() || model.id.size() > 64 ||
      !std::all_of(model.id.begin(), model.id.end(), plain)) {
    throw Error(ErrorKind::kInput,
                "--model: expected an id of 1..64 letters, digits, '.', '_' and '-' (ID=PATH)");
  }
  model.device = options.device;
  model.threads = options.threads;
  model.profile = *profile_from_name(options.profile);
  model.wide = options.wide;
  if (options.kv != "auto") model.kv = dtype_from_format(options.kv);
  model.kv_budget = options.kv_budget;
  model.prompt_cache = options.prompt_cache == "on";
  model.context = options.context;
  model.special_in_content = options.special_in_content;
  if (!options.chat_template.empty()) {
    try {
      model.chat_template = ChatTemplate::given(options.chat_template);
    } catch (const Error& error) {
      throw Error(error.kind(), cat("--chat-template: ", error.what()));
    }
  }
  model.blob_cache = options.blob_cache;
  try {
    model.formats = parse_formats(options.formats);
  } catch (const Error& error) {
    throw Error(ErrorKind::kInput, cat("--formats: ", error.what()));
  }
  return model;
}

http::Server::Options server_options(const Options& options) {
  http::Server::Options server;
  server.host = options.host;
  server.port = static_cast<int>(options.port);
  server.cors_origins = options.cors_origins;
  server.tls_cert_file = options.tls_cert;
  server.tls_key_file = options.tls_key;
  server.max_inflight = options.max_inflight;
  server.queue = options.max_inflight / 4;
  server.max_connections = options.max_connections;
  server.max_per_address = options.max_per_address;
  server.trusted_proxies = options.trusted_proxies;
  server.shutdown_timeout = std::chrono::seconds(options.shutdown_timeout);
  // A step runs on its caller's stack, which drivers' compilers need large.
  server.worker_stack_bytes = 1 << 20;
  return server;
}

}  // namespace split::cloud
