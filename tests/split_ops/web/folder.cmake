# folder.cmake: copies FILES into the folder OUT and GOLDENS into OUT/goldens; and all of them, packed with gzip, into
# OUT-packed.
file(REMOVE_RECURSE ${OUT} ${OUT}-packed)
file(COPY ${FILES} DESTINATION ${OUT})
file(COPY ${GOLDENS} DESTINATION ${OUT}/goldens)
file(MAKE_DIRECTORY ${OUT}-packed/goldens)
file(GLOB_RECURSE files RELATIVE ${OUT} ${OUT}/*)
foreach(file IN LISTS files)
  execute_process(COMMAND gzip -9 -n -c ${OUT}/${file} OUTPUT_FILE ${OUT}-packed/${file}.gz COMMAND_ERROR_IS_FATAL ANY)
endforeach()
