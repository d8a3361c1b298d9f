// Error messages for people. Each layer that an error passes may put its name before the message:
// "[cache] [file] /x: full". The names are for us: terminals and answers show none, logs at most
// one.
#pragma once

#include <string>
#include <string_view>

namespace split {

// Removes our layers' names: "[http] http://127.0.0.1:8080: cannot connect" then begins with the
// URL. An address's brackets stay.
std::string plain_words(std::string_view message);
// Keeps the last layer's name alone: "[file] /x: full".
std::string one_layer(std::string_view message);

}  // namespace split
