// The system's figures of this process; 0 if unknown.
#pragma once

namespace split {

double process_cpu_seconds();  // user and system
double process_resident_bytes();
double process_virtual_bytes();
double process_threads();
double process_open_files();
double process_most_files();
double process_start();  // seconds since 1970

}  // namespace split
