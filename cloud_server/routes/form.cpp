#include "cloud_server/routes/form.h"

#include <algorithm>

#include "http/head.h"

namespace split::cloud {
namespace {

using http::HttpError;
using http::percent_decode;
using http::same_name;

constexpr size_t kMaxForm = 1 << 20;  // 1 MiB: a text and a number
constexpr size_t kMaxFields = 32;
constexpr size_t kMaxPartHead = 1024;  // bytes of a part's header lines
constexpr size_t kMaxBoundary = 70;    // RFC 2046

[[noreturn]] void refuse(const std::string& message) {
  throw HttpError(400, "invalid_form", cat("the form: ", message));
}

void add(FormFields& fields, std::string name, std::string value) {
  if (fields.size() == kMaxFields) refuse(cat("expected at most ", kMaxFields, " fields"));
  if (std::ranges::find(fields, name, &FormFields::value_type::first) != fields.end()) {
    refuse("a field is there twice");
  }
  fields.emplace_back(std::move(name), std::move(value));
}

FormFields parse_urlencoded(std::string_view body) {
  FormFields fields;
  while (!body.empty()) {
    const std::string_view item = body.substr(0, body.find('&'));
    body.remove_prefix(std::min(item.size() + 1, body.size()));
    if (item.empty()) continue;
    const size_t equals = std::min(item.find('='), item.size());
    auto name = percent_decode(item.substr(0, equals), true);
    auto value = percent_decode(item.substr(std::min(equals + 1, item.size())), true);
    if (!name || !value) refuse("a broken escape");
    add(fields, std::move(*name), std::move(*value));
  }
  return fields;
}

// Returns the parameter of "type; name=value; other=\"value\"", without quotes; nullopt if it is
// not there. Refuses values with escapes or semicolons in quotes: browsers send none.
std::optional<std::string_view> parameter(std::string_view header, std::string_view name) {
  size_t at = header.find(';');
  while (at != header.npos) {
    header.remove_prefix(at + 1);
    at = header.find(';');
    const std::string_view item = http::trim(header.substr(0, at));
    const size_t equals = item.find('=');
    if (equals == item.npos || !same_name(item.substr(0, equals), name)) continue;
    std::string_view value = item.substr(equals + 1);
    if (value.starts_with('"')) {
      if (value.size() < 2 || !value.ends_with('"')) refuse(cat(name, ": a quote does not end"));
      value = value.substr(1, value.size() - 2);
    }
    if (value.find_first_of("\"\\") != value.npos) refuse(cat(name, ": unexpected quotes"));
    return value;
  }
  return std::nullopt;
}

// Returns the name in "Content-Disposition: form-data; name=..." of a part's header lines.
std::string field_name(std::string_view head) {
  std::optional<std::string> name;
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    const size_t colon = line.find(':');
    if (colon == line.npos) refuse("a part's header line has no colon");
    if (!same_name(line.substr(0, colon), "Content-Disposition")) continue;
    const std::string_view value = http::trim(line.substr(colon + 1));
    if (!same_name(http::trim(value.substr(0, value.find(';'))), "form-data")) {
      refuse("expected a part of form-data");
    }
    if (parameter(value, "filename") || parameter(value, "filename*")) {
      refuse("a file, expected fields");
    }
    const auto found = parameter(value, "name");
    if (!found || name) refuse("expected one name for each part");
    name = std::string(*found);
  }
  if (!name) refuse("a part has no name");
  return *name;
}

FormFields parse_multipart(std::string_view boundary, std::string_view body) {
  if (boundary.empty() || boundary.size() > kMaxBoundary) {
    refuse(cat("expected a boundary of 1 to ", kMaxBoundary, " characters"));
  }
  const std::string mark = cat("--", boundary), next = cat("\r\n", mark);
  if (!body.starts_with(mark)) refuse("does not begin with its boundary");
  body.remove_prefix(mark.size());
  FormFields fields;
  while (!body.starts_with("--")) {
    if (!body.starts_with("\r\n")) refuse("a boundary's line does not end");
    body.remove_prefix(2);
    const size_t head = body.substr(0, kMaxPartHead).find("\r\n\r\n");
    if (head == body.npos)
      refuse(cat("a part's head is over ", kMaxPartHead, " bytes or not there"));
    std::string name = field_name(body.substr(0, head));
    body.remove_prefix(head + 4);
    const size_t end = body.find(next);
    if (end == body.npos) refuse("a part does not end");
    add(fields, std::move(name), std::string(body.substr(0, end)));
    body.remove_prefix(end + next.size());
  }
  if (body != "--" && body != "--\r\n") refuse("bytes after its end");
  return fields;
}

}  // namespace

FormFields parse_form(std::string_view content_type, std::string_view body) {
  if (body.size() > kMaxForm) {
    throw HttpError(413, "form_too_large", cat("the form: expected at most ", kMaxForm, " bytes"));
  }
  const std::string_view type = http::trim(content_type.substr(0, content_type.find(';')));
  if (same_name(type, "application/x-www-form-urlencoded")) return parse_urlencoded(body);
  if (same_name(type, "multipart/form-data")) {
    const auto boundary = parameter(content_type, "boundary");
    if (!boundary) refuse("multipart/form-data without a boundary");
    return parse_multipart(*boundary, body);
  }
  throw HttpError(415, "unsupported_media_type",
                  "expected application/x-www-form-urlencoded or multipart/form-data",
                  "Content-Type");
}

}  // namespace split::cloud
