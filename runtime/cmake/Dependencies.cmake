# The libraries Attune uses, under one name each for Debian 12 and Ubuntu 24.04.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)

# fmt's headers; generator/fmt.cpp compiles the rest of it, once. That file is for fmt 9 and 10, which Debian 12, Ubuntu
# 24.04 and their next releases have; a later one is compiled with every file, as headers alone.
add_library(attune_fmt INTERFACE)
set(attune_compiles_fmt ON)
if(fmt_VERSION VERSION_GREATER_EQUAL 11)
  set(attune_compiles_fmt OFF)
  target_link_libraries(attune_fmt INTERFACE fmt::fmt-header-only)
else()
  target_include_directories(attune_fmt SYSTEM INTERFACE
    $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
endif()

# The target is yaml-cpp in 0.7 and yaml-cpp::yaml-cpp from 0.8 on.
add_library(attune_yaml INTERFACE)
if(TARGET yaml-cpp::yaml-cpp)
  target_link_libraries(attune_yaml INTERFACE yaml-cpp::yaml-cpp)
else()
  target_link_libraries(attune_yaml INTERFACE yaml-cpp)
endif()

# A wheel brings all that it needs.
if(ATTUNE_WHEEL)
  find_library(ATTUNE_YAML_ARCHIVE libyaml-cpp.a DOC "libyaml-cpp.a")
  if(NOT ATTUNE_YAML_ARCHIVE)
    message(FATAL_ERROR "a wheel is linked with libyaml-cpp.a: install libyaml-cpp-dev, or pass -DATTUNE_YAML_ARCHIVE=<its path>")
  endif()
  set_property(TARGET attune_yaml PROPERTY INTERFACE_LINK_LIBRARIES ${ATTUNE_YAML_ARCHIVE})
endif()

find_path(ATTUNE_XXHASH_INCLUDE xxhash.h DOC "Folder of xxhash.h")
if(NOT ATTUNE_XXHASH_INCLUDE)
  message(FATAL_ERROR "xxhash.h was not found: install libxxhash-dev, or pass -DATTUNE_XXHASH_INCLUDE=<its folder>")
endif()

# Boost.Context, as an archive: libattune is to need nothing but the C++ runtime.
find_path(ATTUNE_BOOST_INCLUDE boost/context/fiber.hpp DOC "Folder that holds boost/")
find_library(ATTUNE_BOOST_CONTEXT libboost_context.a DOC "libboost_context.a")
if(NOT ATTUNE_BOOST_INCLUDE OR NOT ATTUNE_BOOST_CONTEXT)
  message(FATAL_ERROR "Boost.Context was not found: install libboost-context-dev, or pass "
    "-DATTUNE_BOOST_INCLUDE=<its headers' folder> -DATTUNE_BOOST_CONTEXT=<path of libboost_context.a>")
endif()

attune_find_nvcc()
