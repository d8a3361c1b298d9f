// The fields of an HTML form, as a browser or jQuery sends them: application/x-www-form-urlencoded
// or multipart/form-data (RFC 7578). Strict: refuses what two readers might read differently.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace split::cloud {

using FormFields = std::vector<std::pair<std::string, std::string>>;

// Returns the fields in their order. Throws HttpError: 415 for another content type, 413 above 1
// MiB, 400 for the rest: broken escapes, an invalid boundary, unterminated parts, files, over 32
// fields, duplicates.
FormFields parse_form(std::string_view content_type, std::string_view body);

}  // namespace split::cloud
