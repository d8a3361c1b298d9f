# The toolchain of the edge in a browser's tab: Debian's clang 19 with its C and C++ libraries for wasm32-wasi.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(SPLIT_WEB ON)

foreach(language C CXX)
  set(CMAKE_${language}_COMPILER_TARGET wasm32-wasi)
  # Features of every browser that suspends a WebAssembly stack (JSPI): that came last.
  set(CMAKE_${language}_FLAGS_INIT "-msimd128 -mbulk-memory -mnontrapping-fptoint -msign-ext")
endforeach()
set(CMAKE_C_COMPILER clang-19)
set(CMAKE_CXX_COMPILER clang++-19)
# Any compiler's will do: the linker reads an archive without its index.
find_program(CMAKE_AR ar REQUIRED)
find_program(CMAKE_RANLIB ranlib REQUIRED)
string(APPEND CMAKE_CXX_FLAGS_INIT " -fwasm-exceptions -fvisibility=hidden")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)  # ours define what an executable needs of exceptions
set(CMAKE_FIND_ROOT_PATH /usr/include/wasm32-wasi)
