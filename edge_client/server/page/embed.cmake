# cmake -D FILES="a.html;b.js" -D OUT=files.inc -P embed.cmake: one row {"name", "bytes"sv} of C++ a file. Written in
# pieces, since a string literal may be no longer than the compiler likes.
set(rows "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(................................................................)" "\\1\"\n  \"" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${bytes}")
  string(APPEND rows "{\"${name}\", \"${bytes}\"sv},\n")
endforeach()
file(WRITE ${OUT} "${rows}")
