// "cloud_server doctor": whether a server with these flags could serve, with a line for each thing
// that it needs. Serves nothing, and changes no file.
#pragma once

#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "cloud_server/state/served_model.h"
#include "http/server/server.h"

namespace split::cloud {

struct DoctorInput {
  std::vector<ModelOptions> models;
  http::Server::Options server;
  std::string api_key_file;
  std::filesystem::path blob_cache;  // empty: none
  size_t columns = 0;                // width of the terminal; 0: no terminal
};

// Writes the lines to `out`. Returns 0, or the exit code of the first bad thing.
int doctor_command(const DoctorInput& input, std::ostream& out);

}  // namespace split::cloud
