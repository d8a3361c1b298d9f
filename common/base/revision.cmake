# Writes the checkout's revision as a string of C++ to OUT, unless that says so already: cmake -D SOURCE=... -D OUT=... -D GIVEN=... -P
# this file, with each build.
set(revision "${GIVEN}")
if(NOT revision)
  execute_process(COMMAND git -c safe.directory=* -C ${SOURCE} rev-parse --short=7 HEAD
    OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(revision unknown)
  endif()
endif()
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT before STREQUAL "\"${revision}\"\n")
  file(WRITE ${OUT} "\"${revision}\"\n")
endif()
