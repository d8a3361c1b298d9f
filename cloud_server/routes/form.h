// The fields of an HTML form, as a browser or jQuery sends them: application/x-www-form-urlencoded
// or multipart/form-data (RFC 7578). Read strictly: what two readers might take differently is
// refused.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace split::cloud {

using FormFields = std::vector<std::pair<std::string, std::string>>;

// In their order. Throws HttpError: 415 for another content type, 413 above 1 MiB, 400 for the
// rest: broken escapes, a boundary that is none, parts that do not end, files, over 32 fields, one
// twice.
FormFields parse_form(std::string_view content_type, std::string_view body);

}  // namespace split::cloud
