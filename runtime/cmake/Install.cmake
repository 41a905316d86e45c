# make install: libattune, its headers, the tool and a package that find_package(attune) finds.

install(TARGETS attune EXPORT attune_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS attune_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY runtime/include/attune DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY specs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/attune/specs)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/attune)
install(EXPORT attune_targets NAMESPACE attune:: FILE attune-targets.cmake DESTINATION ${package_dir})
configure_package_config_file(runtime/cmake/attune-config.cmake.in ${PROJECT_BINARY_DIR}/attune-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/attune-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attune-config.cmake ${PROJECT_BINARY_DIR}/attune-config-version.cmake
        DESTINATION ${package_dir})
