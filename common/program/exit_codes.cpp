#include "program/exit_codes.h"

namespace split {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInput:
    case ErrorKind::kNotFound:
      return 2;
    case ErrorKind::kRemote:
      return 3;
    case ErrorKind::kBusy:
      return kExitFailed;
    case ErrorKind::kIo:
      return 4;
    case ErrorKind::kShape:  // a checkpoint's, or in a server's answer
    case ErrorKind::kIntegrity:
      return 5;
    case ErrorKind::kDevice:
      return 6;
    case ErrorKind::kInUse:
      return 98;
  }
  return kExitFailed;
}

}  // namespace split
