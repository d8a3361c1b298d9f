# Installs both programs, the C library, the bundled model where they find it, manual pages and completions as the programs print them, and the
# systemd units; and packs the same as a .deb (prefix /usr) and a tarball: cmake --install build, or cpack --config
# build/CPackConfig.cmake.
set(package ${CMAKE_CURRENT_LIST_DIR})
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # what is installed was built; benchmarks need not be
install(TARGETS cloud_server edge_client RUNTIME)
install(TARGETS splitcompute LIBRARY)
install(FILES ${CMAKE_SOURCE_DIR}/edge_client/api/splitcompute.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/edge_client/api/examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Its paths begin where the file is, so that the prefix may be any.
file(RELATIVE_PATH up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
file(WRITE ${CMAKE_BINARY_DIR}/splitcompute.pc "prefix=\${pcfiledir}/${up}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}
Name: splitcompute
Description: One language model run by a server and an edge together: the edge as a library
Version: ${PROJECT_VERSION}
Cflags: -I\${includedir}
Libs: -L\${libdir} -lsplitcompute
")
install(FILES ${CMAKE_BINARY_DIR}/splitcompute.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/weights/demo DESTINATION ${CMAKE_INSTALL_DATADIR}/splitcompute)
install(FILES ${package}/splitcompute-cloud.service ${package}/splitcompute-edge.service DESTINATION lib/systemd/system)
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${CMAKE_SOURCE_DIR}/scripts/cluster/grafana.json ${CMAKE_SOURCE_DIR}/scripts/cluster/alerts.yaml
  DESTINATION ${CMAKE_INSTALL_DATADIR}/splitcompute/monitoring OPTIONAL)

# Pages and completions are printed now, by the programs that are installed.
foreach(program cloud_server edge_client)
  install(CODE "set(printed \"${CMAKE_BINARY_DIR}/printed\")
function(print to)
  execute_process(COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} \"$<TARGET_FILE:${program}>\" \${ARGN} OUTPUT_FILE \${printed}/\${to} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
file(MAKE_DIRECTORY \${printed})
print(${program}.1 --manual)
print(${program} --completion bash)
print(_${program} --completion zsh)
print(${program}.fish --completion fish)")
  install(FILES ${CMAKE_BINARY_DIR}/printed/${program}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${CMAKE_BINARY_DIR}/printed/${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${CMAKE_BINARY_DIR}/printed/${program}.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endforeach()
# Debian's zsh looks below /usr elsewhere than below /usr/local. Only the package has files in /etc.
install(CODE "set(to \"\${CMAKE_INSTALL_PREFIX}/share/zsh/site-functions\")
if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
  set(to \"/usr/share/zsh/vendor-completions\")
  foreach(name cloud edge)
    file(INSTALL DESTINATION \"/etc/default\" TYPE FILE RENAME splitcompute-\${name}
      FILES \"${package}/splitcompute-\${name}.default\")
  endforeach()
endif()
foreach(program cloud_server edge_client)
  file(INSTALL DESTINATION \"\${to}\" TYPE FILE FILES \"${CMAKE_BINARY_DIR}/printed/_\${program}\")
endforeach()")

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME splitcompute)
set(CPACK_PACKAGE_CONTACT "SplitCompute <splitcompute@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "One language model run by a server and an edge together")
set(CPACK_PACKAGE_DESCRIPTION "The server holds the whole model and runs its first blocks; the edge fetches the\\nothers and runs them.")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_STRIP_FILES ON)
set(CPACK_PROJECT_CONFIG_FILE ${package}/cpack.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS passwd)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "mesa-vulkan-drivers")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${package}/postinst ${package}/prerm ${package}/postrm ${package}/conffiles)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
