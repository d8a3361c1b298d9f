// Any bytes as a form: its content type up to the first line feed, then its body. Refused as a
// client's mistake, or fields of unlike names.
#include <set>

#include "cloud_server/routes/form.h"
#include "fuzz.h"
#include "http/message.h"

using namespace split;  // NOLINT(google-build-using-namespace): a program of its own

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const size_t end = std::min(text.find('\n'), text.size());
  try {
    std::set<std::string> names;
    for (const auto& [name, value] :
         cloud::parse_form(text.substr(0, end), text.substr(std::min(end + 1, text.size())))) {
      CHECK(names.insert(name).second && value.size() <= text.size());
    }
  } catch (const http::HttpError& error) {
    CHECK(error.status == 400 || error.status == 413 || error.status == 415);
  }
  return 0;
}
