#include "edge_client/cloud/remote.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/json.h"
#include "http/sse.h"
#include "text/utf8.h"
#include "wire/codes.h"
#include "wire/fields.h"
#include "wire/load.h"

namespace split::edge {
namespace {

constexpr double kBusy = 0.5;  // approximate part of its time in which a cloud's steps follow each
                               // other
constexpr size_t kMostMessage = 300;  // bytes of a server's message that are shown
// Most bytes of an answer, by kind.
constexpr uint64_t kMostFile = 64 << 20;         // the limit of io/checkpoint.h
constexpr unsigned kMostRetryAfter = 24 * 3600;  // seconds

// A server's message for our terminal: one line, valid UTF-8, no control characters, limited
// length.
std::string printable(std::string_view text) {
  std::string clean = to_valid_utf8(text.substr(0, kMostMessage));
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  if (text.size() > kMostMessage) clean += "...";
  return clean;
}

}  // namespace

double server_ms(std::optional<std::string_view> header) {
  double total = 0;
  std::string_view left = header.value_or("");
  while (!left.empty()) {
    const size_t comma = std::min(left.find(','), left.size());
    const std::string_view metric = left.substr(0, comma);
    left.remove_prefix(std::min(comma + 1, left.size()));
    const size_t at = metric.find("dur=");
    const std::string_view name =
        metric.substr(std::min(metric.find_first_not_of(' '), metric.size()));
    if (at == metric.npos || !(name.starts_with("queue;") || name.starts_with("compute;")))
      continue;
    double ms = 0;
    const auto [end, error] = parse_real(metric.data() + at + 4, metric.data() + metric.size(), ms);
    if (error == std::errc() && std::isfinite(ms) && ms > 0) total += ms;
  }
  return total;
}

std::string path_segment(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out += c;
    } else {
      const auto byte = static_cast<std::byte>(c);
      out += cat("%", to_hex({&byte, 1}));
    }
  }
  return out;
}

http::Client::Options client_options(const std::string& url, const Patience& patience,
                                     const Credentials& credentials) {
  const std::chrono::milliseconds timeout = patience.timeout;
  http::Client::Options options;
  options.min_rate = patience.min_rate;
  options.bearer_token = credentials.api_key;
  options.ca_cert_file = credentials.ca_cert_file;
  options.connector = credentials.connector;
  if (credentials.environment) {
    options.proxy =
        http::proxy_for(http::parse_url(http::split_url(url).origin), credentials.environment);
  }
  options.connect_timeout = std::min(options.connect_timeout, timeout);
  options.read_timeout = timeout;
  options.write_timeout = std::min(options.write_timeout, timeout);
  return options;
}

RemoteError no_answer(const http::NoReply& error) {
  return {error.what(), 0, error.why == http::NoReply::Why::kTls ? kTlsCode : ""};
}

Remote::Remote(const std::string& url, const Patience& patience, Credentials credentials)
    : patience_(patience),
      credentials_(std::move(credentials)),
      client_(url, client_options(url, patience, credentials_)) {}

// Reads an answer, and names what it failed to be.
template <typename Read>
auto Remote::read(std::string_view what, const Read& read) const {
  try {
    return read();
  } catch (const RemoteError&) {
    throw;
  } catch (const Error& error) {
    throw RemoteError(
        cat("[server] ", origin(), ": an answer that ", what, ": ", printable(error.what())), 200,
        "");
  }
}

RemoteError refusal(const std::string& origin, const http::Reply& reply, std::string_view path) {
  std::string message, code;
  std::optional<uint32_t> have;
  try {
    const Json body = parse_json(reply.body, 8, "the error");
    const Json& error = body.at("error");
    if (error.at("message").is_string()) message = error["message"].text();
    if (error.contains("code") && error["code"].is_string()) code = error["code"].text();
    if (error.contains("have") && error["have"].is_number_unsigned()) {
      have = error["have"].get<uint32_t>();
    }
  } catch (const Error&) {  // not one of our servers: the status is enough
  }
  std::string text = cat("[server] ", origin, " answered ", reply.status);
  text += message.empty() ? cat(" for ", path.substr(0, 200)) : ": " + printable(message);
  if (reply.status == 401) text += " (--api-key or SPLIT_API_KEY)";
  RemoteError error(text, reply.status, code);
  error.said = printable(message);
  error.have = have;
  if (const auto after = reply.headers.get("Retry-After")) {
    if (const auto seconds = parse_u64(*after, 0, kMostRetryAfter)) {
      error.retry_after = static_cast<unsigned>(*seconds);
    }
  }
  return error;
}

RemoteError model_changed(const std::string& origin, std::string_view id) {
  return {
      cat("[server] ", origin, ": the model ", shown(id), " has changed since it was loaded here"),
      200, wire::codes::kModelMismatch};
}

http::Headers Remote::traced(const http::Headers& headers) const {
  http::Headers all = headers;
  if (!trace_.empty()) all.add(http::kTraceHeader, trace_);
  return all;
}

http::Reply Remote::ask(std::string_view method, const std::string& path, std::string_view body,
                        std::string_view type, uint64_t max_bytes) {
  try {
    http::Reply reply = client_.request(method, path, body, type, traced({}), max_bytes);
    expect_ok(reply, path);
    return reply;
  } catch (const http::NoReply& error) {
    throw no_answer(error);
  }
}

void Remote::expect_ok(const http::Reply& reply, std::string_view path) const {
  if (reply.status >= 200 && reply.status <= 299) return;
  RemoteError error = refusal(origin(), reply, path);
  if (reply.unchecked && !error.transient()) error.code = wire::codes::kDamaged;
  throw error;
}

http::Reply Remote::get(const std::string& path, uint64_t max_bytes) {
  return ask("GET", path, {}, {}, max_bytes);
}

std::vector<float> Remote::tensor(const http::Reply& reply, std::string_view name, size_t rows,
                                  uint32_t columns) const {
  return read(cat("is no '", name, "' of this step"), [&] {
    wire::Matrix matrix =
        wire::parse_frame(as_bytes_of(reply.body), name, columns, static_cast<uint32_t>(rows));
    if (matrix.rows != rows) {
      throw Error(ErrorKind::kInput, cat("expected ", rows, " rows, got ", matrix.rows));
    }
    return std::move(matrix.values);
  });
}

std::vector<wire::ListedModel> Remote::models() {
  return read("is no list of models",
              [&] { return wire::parse_model_list(get("/v1/models", kMostJson).body); });
}

std::optional<std::string> Remote::version() {
  try {
    const Json info = parse_json(get("/openapi.json", kMostJson).body, 32, "it").at("info");
    return printable(cat(info.at("title").text(), " ", info.at("version").text()));
  } catch (const RemoteError& error) {
    if (error.status == 0) throw;
  } catch (const Error&) {
  }
  return std::nullopt;
}

wire::ModelInfo Remote::model(const std::string& id) {
  const http::Reply reply = get(wire::model_path(path_segment(id)) + query_, wire::kMaxJsonBytes);
  described_ = client_.connections();
  return read("describes no model", [&] { return wire::parse_model_info(reply.body); });
}

Remote::Has Remote::still_has(const wire::ModelInfo& info) {
  const bool told = load_note_ && !load_note_->bits.empty();
  bool same_bits = !told || load_note_->bits == wire::bits_mark(info.bits);
  if (described_ != client_.connections()) {
    wire::ModelInfo now = model(info.id);
    // A device that took another's place has bits of its own, and the model is the same.
    same_bits = std::exchange(now.bits, info.bits) == info.bits && same_bits;
    now.phases_alike = info.phases_alike;
    if (wire::to_json(now) != wire::to_json(info)) {
      described_ = 0;
      return Has::kAnother;
    }
  }
  return same_bits ? Has::kSame : Has::kInOtherBits;
}

std::optional<CloudLoad> Remote::load(const std::string& id) {
  http::Reply reply;
  try {
    reply = get(wire::model_path(path_segment(id)) + "/load", kMostJson);
  } catch (const RemoteError& error) {
    if (error.status == 404) return std::nullopt;
    throw;
  }
  const wire::Load told = read("is no load", [&] { return wire::parse_load(reply.body); });
  CloudLoad load;
  load.want = told.note.want;
  if (const auto& costs = told.costs) {  // a step of one row has both costs
    load.speed = Speed{.block_ms = costs->block_ms + costs->block_row_ms,
                       .block_row_ms = costs->block_row_ms,
                       .head_ms = costs->head_ms + costs->head_row_ms,
                       .head_row_ms = costs->head_row_ms,
                       .prompt_row_ms = costs->prompt_row_ms};
    if (told.busy > kBusy) load.speed->busy_step_ms = told.p50_ms.value_or(0);
  }
  if (told.price_hour || told.price_egress_gb) {
    load.prices = Prices{told.price_hour.value_or(0), told.price_egress_gb.value_or(0)};
  }
  return load;
}

std::map<std::string, double> Remote::stage_times(const std::string& id) {
  return read("is no list of stages", [&] {
    const std::string path = wire::model_path(path_segment(id)) + "/stages";
    const Json list = parse_json(get(path, kMostJson).body, 8, "the times");
    std::map<std::string, double> times;
    for (const Json& stage : list.at("data")) {
      const Json& ms = stage.at("ms");
      if (ms.is_number()) times[stage.at("stage").text()] = ms.get<double>();
    }
    return times;
  });
}

std::string Remote::file(const std::string& id, const std::string& name) {
  return get(wire::model_file_path(path_segment(id), path_segment(name)), kMostFile).body;
}

wire::AuditedRows Remote::audit(const Json& request, uint32_t rows, uint32_t width) {
  const uint64_t bytes = uint64_t{rows} * width * sizeof(float);
  const http::Reply reply =
      ask("POST", wire::kAuditPath, request.dump(), wire::kJsonType, bytes + kMostJson);
  return read("has no rows of the receipt",
              [&] { return wire::parse_audited_rows(as_bytes_of(reply.body), rows, width); });
}

bool Remote::leave(const std::string& session) {
  return client_.tell("DELETE", wire::session_path(session), traced({}));
}

void Remote::complete(const std::string& path, const std::string& body,
                      const std::function<bool(std::string_view)>& on_event, uint64_t max_bytes,
                      Traffic& traffic) {
  bool done = false, stopped = false;
  http::SseParser parser([&](std::string_view event) {
    done = done || event == "[DONE]";
    if (done) return true;  // the reply ends here, and its connection is kept
    stopped = !on_event(event);
    return !stopped;
  });
  load_note_.reset();
  parser.on_comment([&](std::string_view text) {
    const std::string name = cat(wire::kLoadHeader, ": ");
    if (text.starts_with(name)) load_note_ = wire::parse_load_note(text.substr(name.size()));
  });
  traffic.bytes_up += body.size();
  http::Reply reply;
  try {
    reply = client_.stream(
        "POST", path, body, wire::kJsonType, traced({}),
        [&](Bytes bytes) {
          traffic.bytes_down += bytes.size();
          return !done && parser.feed(as_text(bytes));
        },
        max_bytes);
  } catch (const http::NoReply& error) {
    if (done) return;  // complete
    throw no_answer(error);
  } catch (const RemoteError&) {
    throw;
  } catch (const Error& error) {  // the parser's
    if (error.kind() != ErrorKind::kRemote) throw;
    throw RemoteError(error.what(), 0, "");
  }
  if (reply.status != 200) throw refusal(origin(), reply, path);
  if (!done && !stopped) {
    throw RemoteError(cat("[server] ", origin(), ": the answer ended early"), 0, "");
  }
}

}  // namespace split::edge
