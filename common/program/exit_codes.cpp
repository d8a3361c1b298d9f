#include "program/exit_codes.h"

namespace split {
namespace {

struct Codes {
  int cloud, edge;
};

Codes codes_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInput:
    case ErrorKind::kNotFound:
      return {2, 2};
    case ErrorKind::kShape:  // the cloud's own checkpoint is wrong, or what a server sent
      return {2, 5};
    case ErrorKind::kRemote:
    case ErrorKind::kBusy:
      return {kExitFailed, 3};
    case ErrorKind::kIo:
      return {4, 4};
    case ErrorKind::kIntegrity:
      return {kExitFailed, 5};
    case ErrorKind::kDevice:
      return {kExitFailed, 6};
    case ErrorKind::kInUse:
      return {98, 98};
  }
  return {kExitFailed, kExitFailed};
}

}  // namespace

int cloud_exit_code(ErrorKind kind) { return codes_of(kind).cloud; }
int edge_exit_code(ErrorKind kind) { return codes_of(kind).edge; }

}  // namespace split
