# Installs both programs, the C library, the bundled model where they find it, manual pages and completions as the programs print them, and the
# systemd units; and packs the same as a .deb for each program (prefix /usr) and a tarball of both: cmake --install build, or cpack
# --config build/CPackConfig.cmake. A component is what one .deb has: `cloud` the model too, `edge` the C library.
set(package ${CMAKE_CURRENT_LIST_DIR})
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # what is installed was built; benchmarks need not be
install(TARGETS splitcompute LIBRARY COMPONENT edge)
install(TARGETS edge_train RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/splitcompute COMPONENT edge)
install(FILES ${CMAKE_SOURCE_DIR}/edge_client/api/splitcompute.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT edge)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/edge_client/api/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/splitcompute-edge COMPONENT edge)
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
install(FILES ${CMAKE_BINARY_DIR}/splitcompute.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT edge)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/weights/demo DESTINATION ${CMAKE_INSTALL_DATADIR}/splitcompute COMPONENT cloud)
install(FILES ${CMAKE_SOURCE_DIR}/scripts/cluster/grafana.json ${CMAKE_SOURCE_DIR}/scripts/cluster/alerts.yaml
  DESTINATION ${CMAKE_INSTALL_DATADIR}/splitcompute/monitoring COMPONENT cloud OPTIONAL)

# Pages and completions are printed now, by the program that is installed. Debian's zsh looks below /usr elsewhere than below
# /usr/local. Only a package has files in /etc.
foreach(program cloud_server edge_client)
  string(REGEX REPLACE _.* "" component ${program})
  install(TARGETS ${program} RUNTIME COMPONENT ${component})
  install(FILES ${package}/splitcompute-${component}.service DESTINATION lib/systemd/system COMPONENT ${component})
  install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/CHANGELOG.md
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/splitcompute-${component} COMPONENT ${component})
  install(CODE "set(printed \"${CMAKE_BINARY_DIR}/printed\")
function(print to)
  execute_process(COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} \"$<TARGET_FILE:${program}>\" \${ARGN} OUTPUT_FILE \${printed}/\${to} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
file(MAKE_DIRECTORY \${printed})
print(${program}.1 --manual)
print(${program} --completion bash)
print(_${program} --completion zsh)
print(${program}.fish --completion fish)
set(to \"\${CMAKE_INSTALL_PREFIX}/share/zsh/site-functions\")
if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
  set(to \"/usr/share/zsh/vendor-completions\")
  file(INSTALL DESTINATION \"/etc/default\" TYPE FILE RENAME splitcompute-${component} FILES \"${package}/splitcompute-${component}.default\")
endif()
file(INSTALL DESTINATION \"\${to}\" TYPE FILE FILES \"\${printed}/_${program}\")" COMPONENT ${component})
  install(FILES ${CMAKE_BINARY_DIR}/printed/${program}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
  install(FILES ${CMAKE_BINARY_DIR}/printed/${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT ${component})
  install(FILES ${CMAKE_BINARY_DIR}/printed/${program}.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT ${component})

  # What dpkg runs, and keeps, is of one program.
  string(TOUPPER ${component} upper)
  set(control)
  foreach(file postinst prerm postrm)
    configure_file(${package}/${file} ${CMAKE_BINARY_DIR}/package/${component}/${file} @ONLY)
    list(APPEND control ${CMAKE_BINARY_DIR}/package/${component}/${file})
  endforeach()
  file(WRITE ${CMAKE_BINARY_DIR}/package/${component}/conffiles "/etc/default/splitcompute-${component}\n")
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA ${control} ${CMAKE_BINARY_DIR}/package/${component}/conffiles)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME splitcompute-${component})
endforeach()

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_COMPONENTS_ALL cloud edge)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGE_NAME splitcompute)
set(CPACK_PACKAGE_CONTACT "SplitCompute <splitcompute@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "One language model run by a server and an edge together")
set(CPACK_COMPONENT_CLOUD_DESCRIPTION "The server: it holds the whole model, runs its first blocks and hands out the others.")
set(CPACK_COMPONENT_EDGE_DESCRIPTION "The edge: it fetches the blocks that it needs and runs them behind the server's.")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_STRIP_FILES ON)
set(CPACK_PROJECT_CONFIG_FILE ${package}/cpack.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS passwd)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "mesa-vulkan-drivers")
set(CPACK_DEBIAN_PACKAGE_CONFLICTS splitcompute)  # had both programs
set(CPACK_DEBIAN_PACKAGE_REPLACES splitcompute)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
