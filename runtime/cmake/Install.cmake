# make install: libattune, its headers, the tool, what a build takes to make kernels of specs, a package that
# find_package(attune) finds and one that pkg-config finds. What is installed may be moved as a whole.

set(attune_data ${CMAKE_INSTALL_DATADIR}/attune)
set(attune_package ${CMAKE_INSTALL_LIBDIR}/cmake/attune)

# ./dev run builds less than an installation takes.
install(CODE "if(NOT EXISTS \"$<TARGET_FILE:attune>\" OR NOT EXISTS \"$<TARGET_FILE:attune_tool>\")
  message(FATAL_ERROR \"there is no library with its kernels in ${PROJECT_BINARY_DIR} yet: ./dev install PREFIX builds and \"
    \"installs it, or cmake --build ${PROJECT_BINARY_DIR} builds it for cmake --install\")
endif()")
install(TARGETS attune EXPORT attune_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS attune_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS attune-gen EXPORT attune_targets
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY runtime/include/attune DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY specs/ DESTINATION ${attune_data}/specs)
install(DIRECTORY templates/ DESTINATION ${attune_data}/templates)

install(EXPORT attune_targets NAMESPACE attune:: FILE attune-targets.cmake DESTINATION ${attune_package})
set(ATTUNE_TEMPLATES ${attune_data}/templates)
configure_package_config_file(runtime/cmake/attune-config.cmake.in ${PROJECT_BINARY_DIR}/attune-config.cmake
                              INSTALL_DESTINATION ${attune_package} PATH_VARS ATTUNE_TEMPLATES)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/attune-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attune-config.cmake ${PROJECT_BINARY_DIR}/attune-config-version.cmake
              runtime/cmake/AttuneKernels.cmake runtime/cmake/registered.c.in
        DESTINATION ${attune_package})

# From the folder of attune.pc up to the prefix.
file(RELATIVE_PATH ATTUNE_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(runtime/cmake/attune.pc.in ${PROJECT_BINARY_DIR}/attune.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/attune.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# cpack: a tarball of what is installed, without the Python module.
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_VENDOR Attune)
set(CPACK_PACKAGE_FILE_NAME attune-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};attune;Unspecified;/")
set(CPACK_VERBATIM_VARIABLES ON)
if(PROJECT_IS_TOP_LEVEL)
  include(CPack)
endif()
