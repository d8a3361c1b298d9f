# name_by_hash.cmake: packs FILES (WebAssembly) into the folder OUT as NAME-HASH.wasm.gz, so that a page and a cache that
# name one never get another.
file(REMOVE_RECURSE ${OUT})
file(MAKE_DIRECTORY ${OUT})
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(SHA256 ${file} hash)
  string(SUBSTRING ${hash} 0 16 hash)
  execute_process(COMMAND gzip -9 -n -c ${file} OUTPUT_FILE ${OUT}/${name}-${hash}.wasm.gz COMMAND_ERROR_IS_FATAL ANY)
endforeach()
