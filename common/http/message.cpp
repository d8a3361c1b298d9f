#include "http/message.h"

#include <algorithm>
#include <system_error>

#include "base/json.h"
#include "base/log.h"
#include "base/plain_words.h"

namespace split::http {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

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
  // An empty body is still one of this kind, by its owner.
  response.owner = owner ? std::move(owner) : std::make_shared<int>();
  response.etag = std::move(etag);
  return response;
}

Response Response::events(Producer stream) {
  Response response;
  response.content_type = "text/event-stream";
  response.headers = {{"Cache-Control", "no-store"}};
  response.stream = std::move(stream);
  return response;
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

Response plain_error_response(const HttpError& error) {
  Response response =
      Response::json(error.status, cat("{\"error\":", json_quote(error.message), "}\n"));
  response.headers = error.headers;
  return response;
}

Response typed_error_response(const HttpError& error, std::string_view request_id) {
  constexpr std::pair<int, const char*> kTypes[] = {
      {400, "invalid_request_error"}, {401, "authentication_error"}, {403, "permission_error"},
      {404, "not_found_error"},       {413, "request_too_large"},    {429, "rate_limit_error"},
      {503, "overloaded_error"}};
  const char* type = "api_error";
  for (const auto& [status, name] : kTypes) {
    if (status == error.status) type = name;
  }
  Response response =
      Response::json(error.status, cat("{\"type\":\"error\",\"error\":{\"type\":\"", type,
                                       "\",\"message\":", json_quote(error.message),
                                       "},\"request_id\":", json_quote(request_id), "}\n"));
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
    HttpError told = error;
    told.message = plain_words(error.message);
    return told;
  } catch (const Error& error) {
    switch (error.kind()) {
      case ErrorKind::kInput:
      case ErrorKind::kShape:
        return {400, "invalid_request", plain_words(error.what()), error.field()};
      case ErrorKind::kNotFound:
        return {404, "not_found", plain_words(error.what())};
      case ErrorKind::kBusy:
        return {503, "busy", plain_words(error.what()), {}, {{"Retry-After", "1"}}};
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
  } catch (const std::system_error& error) {
    log_error(cat("[http] ", error.what()));
    if (error.code() != std::errc::resource_unavailable_try_again) return internal();
    return {503, "busy", "no thread for this request now", {}, {{"Retry-After", "1"}}};
  } catch (const std::bad_alloc&) {  // ended this request; the next one may find memory
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
