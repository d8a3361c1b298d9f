# How a build for a browser's tab differs from a native one: libraries that are not there, sources whose place those of a
# layer's folder web take, and sources that a tab has no use for.
set(SPLIT_TESTS OFF)
set(SPLIT_BENCH OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE OFF)  # one module, at one place
foreach(name Threads::Threads OpenSSL::Crypto OpenSSL::SSL)
  add_library(${name} INTERFACE IMPORTED GLOBAL)
endforeach()
# By a folder of its own: the one around it has the headers of another C library.
find_path(json_headers nlohmann/json.hpp PATHS /usr/include NO_CMAKE_FIND_ROOT_PATH REQUIRED)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include/json)
file(CREATE_LINK ${json_headers}/nlohmann ${CMAKE_BINARY_DIR}/include/json/nlohmann SYMBOLIC)
add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED GLOBAL)
target_include_directories(nlohmann_json::nlohmann_json SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/include/json)

# Small before fast: what loops over numbers names its own -O. Not as a build type's flags, which the linker gets too: its
# driver would run whatever wasm-opt is on PATH. Instances of a template that came to the same code are one function.
set(CMAKE_CXX_FLAGS_RELEASE -DNDEBUG)
add_compile_options(-Oz -Xclang -fmerge-functions -fno-rtti -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
# Compiled once more when it is linked, as a whole, an eighth smaller: functions of all libraries that came to the same code are
# one, and only what is no longer than its call is put in the call's place. The linker must be told how exceptions work. Loops
# over numbers are left out (number_speed).
add_compile_options(-flto)
foreach(option wasm-enable-eh exception-model=wasm enable-merge-functions inline-threshold=0 inline-call-penalty=0)
  add_link_options(-Wl,-mllvm,-${option})
endforeach()
add_link_options(-Wl,-O2)  # strings that others end with are there once
add_compile_options(-include ${CMAKE_SOURCE_DIR}/common/base/web/fibres.h)  # the C++ library lacks threads
add_compile_definitions(SPLIT_FIBRES _WASI_EMULATED_SIGNAL)

set(split_not_in_a_tab
  common/base/file.cpp common/base/resources/granted.cpp
  common/base/system/numbers.cpp common/base/system/pages.cpp common/base/system/part_file.cpp common/base/system/process.cpp
  common/base/system/sha256.cpp
  common/http/client_connection.cpp common/http/proxy.cpp
  common/program/terminal.cpp common/run/tested_device.cpp
  # A terminal, a socket, signals.
  common/program/flags_completion.cpp common/program/flags_manual.cpp common/program/lost_pages.cpp
  common/program/signal_watch.cpp
  common/http/network.cpp common/http/resolve.cpp common/http/tls.cpp
  common/http/server/connection.cpp common/http/server/exchange.cpp common/http/server/local_guard.cpp
  common/http/server/outgoing.cpp common/http/server/server.cpp common/http/server/server_loop.cpp
  common/http/server/workers.cpp
  # Files that a cloud reads.
  common/io/checkpoint.cpp common/io/gguf.cpp common/io/gguf_architectures.cpp common/io/gguf_floats.cpp
  common/io/gguf_model.cpp common/io/gguf_tokenizer.cpp
  common/serve/api_keys.cpp
  server/page.cpp server/serve.cpp)
set(split_in_a_tab_base exceptions.cpp fibres.cpp file.cpp limits.cpp numbers.cpp page.cpp sha256.cpp)
list(TRANSFORM split_in_a_tab_base PREPEND common/base/web/)
set(split_in_a_tab_program common/program/web/terminal.cpp)
set(split_in_a_tab_run common/run/web/tested_device.cpp)
set(split_in_a_tab_http common/http/web/fetch.cpp)
# One of them is in part of assembler, and one replaces what the headers of the others declare.
set_source_files_properties(${split_in_a_tab_base} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
set_source_files_properties(common/base/web/sha256.cpp PROPERTIES COMPILE_OPTIONS "-O2;-fno-lto")
# Symbols that assembler and the C++ library name would be unseen then.
set_source_files_properties(common/base/web/fibres.cpp common/base/web/exceptions.cpp PROPERTIES COMPILE_OPTIONS -fno-lto)
# Asks at run time which type it has.
set_source_files_properties(common/array/session.cpp PROPERTIES COMPILE_OPTIONS -frtti SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
