#include "http/message.h"

#include <algorithm>

#include "base/log.h"

namespace split::http {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// Length of the UTF-8 character at `at`, or 0 when there is none (RFC 3629: no overlong forms, no
// surrogates).
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : 0u;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned next = byte(1);
  if ((lead == 0xe0 && next < 0xa0) || (lead == 0xed && next > 0x9f) ||
      (lead == 0xf0 && next < 0x90) || (lead == 0xf4 && next > 0x8f)) {
    return 0;
  }
  return length;
}

}  // namespace

bool same_name(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return lower(x) == lower(y); });
}

void Headers::set(std::string_view name, std::string value) {
  std::erase_if(fields_, [&](const auto& field) { return same_name(field.first, name); });
  fields_.emplace_back(std::string(name), std::move(value));
}

std::optional<std::string_view> Headers::get(std::string_view name) const {
  for (const auto& [key, value] : fields_) {
    if (same_name(key, name)) return value;
  }
  return std::nullopt;
}

size_t Headers::count(std::string_view name) const {
  return static_cast<size_t>(std::count_if(fields_.begin(), fields_.end(), [&](const auto& field) {
    return same_name(field.first, name);
  }));
}

std::optional<std::string> Request::query(std::string_view name) const {
  for (const auto& [key, value] : query_params) {
    if (key == name) return value;
  }
  return std::nullopt;
}

Response Response::text(int status, std::string body) {
  Response response;
  response.status = status;
  response.content_type = "text/plain; charset=utf-8";
  response.body = std::move(body);
  return response;
}

Response Response::json(int status, std::string body) {
  Response response = text(status, std::move(body));
  response.content_type = "application/json";
  return response;
}

Response Response::bytes(std::vector<Bytes> pieces, std::shared_ptr<const void> owner,
                         std::string content_type, std::string etag) {
  Response response;
  response.content_type = std::move(content_type);
  response.pieces = std::move(pieces);
  // No bytes are still a body of this kind: the owner is what says so.
  response.owner = owner ? std::move(owner) : std::make_shared<int>();
  response.etag = std::move(etag);
  return response;
}

Response Response::events(std::function<void(Sink&)> stream) {
  Response response;
  response.content_type = "text/event-stream";
  response.headers = {{"Cache-Control", "no-store"}};
  response.stream = std::move(stream);
  return response;
}

std::string json_quote(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    const char c = text[i];
    if (length == 0) {
      out += "\xef\xbf\xbd";  // U+FFFD
      ++i;
      continue;
    }
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) {
      out += "\\u00";
      out += kHex[static_cast<uint8_t>(c) >> 4];
      out += kHex[c & 15];
    } else {
      out += text.substr(i, length);
    }
    i += length;
  }
  return out + '"';
}

Response error_response(const HttpError& error) {
  const char* type = error.status >= 500   ? "server_error"
                     : error.status == 401 ? "authentication_error"
                     : error.status == 429 ? "rate_limit_error"
                                           : "invalid_request_error";
  std::string numbers;
  for (const auto& [name, value] : error.numbers) {
    numbers += cat(",", json_quote(name), ":", value);
  }
  Response response = Response::json(
      error.status, cat("{\"error\":{\"message\":", json_quote(error.message), ",\"type\":\"", type,
                        "\",\"param\":", error.param.empty() ? "null" : json_quote(error.param),
                        ",\"code\":", json_quote(error.code), numbers, "}}\n"));
  response.headers = error.headers;
  return response;
}

HttpError current_exception_as_error() {
  const auto internal = [] {
    return HttpError(500, "internal_error", "the server failed to answer this request");
  };
  try {
    throw;
  } catch (const HttpError& error) {
    return error;
  } catch (const Error& error) {
    switch (error.kind()) {
      case ErrorKind::kInput:
      case ErrorKind::kShape:
        return {400, "invalid_request", error.what(), error.field()};
      case ErrorKind::kNotFound:
        return {404, "not_found", error.what()};
      case ErrorKind::kBusy:
        return {503, "busy", error.what(), {}, {{"Retry-After", "1"}}};
      case ErrorKind::kRemote:
        log_error(cat("[http] ", error.what()));
        return {502, "upstream_error", "another machine that this answer needs failed"};
      case ErrorKind::kIo:
      case ErrorKind::kDevice:
      case ErrorKind::kIntegrity:
      case ErrorKind::kInUse:
        break;
    }
    log_error(cat("[http] ", error.what()));
    return internal();
  } catch (const std::bad_alloc&) {  // of this request; the next one may find some
    log_error("[http] out of memory");
    return {503, "out_of_memory", "no memory for this request now", {}, {{"Retry-After", "1"}}};
  } catch (const std::exception& error) {
    log_error(cat("[http] ", error.what()));
    return internal();
  } catch (...) {
    return internal();
  }
}

}  // namespace split::http
