// Messages of errors as people read them. Each layer that an error goes through may put its name
// before the message: "[cache] [file] /x: full". That is for us: neither a terminal nor the body of
// an answer shows it, and a log one at most.
#pragma once

#include <string>
#include <string_view>

namespace split {

// A message without the names of our layers: "[http] http://127.0.0.1:8080: cannot connect" begins
// with the URL. Brackets of an address stay.
std::string plain_words(std::string_view message);
// A message as plain_words() gives it, but with the last name that it begins with: "[file] /x:
// full".
std::string one_layer(std::string_view message);

}  // namespace split
