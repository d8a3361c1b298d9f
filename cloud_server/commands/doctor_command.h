// "cloud_server doctor": whether a server with these flags could serve, with a line for each thing
// that it needs. Serves nothing, and changes no file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cloud_server/state/served_model.h"
#include "http/server/server.h"
#include "program/world.h"

namespace split::cloud {

struct DoctorInput {
  std::vector<ModelOptions> models;
  http::Server::Options server;
  std::string api_key_file;
  std::filesystem::path blob_cache;  // empty: none
};

// Prints the lines. Returns 0, or the exit code of the first bad thing.
int doctor_command(const DoctorInput& input, const Console& console);

}  // namespace split::cloud
