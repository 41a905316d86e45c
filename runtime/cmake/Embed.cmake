# What is generated into the library: as text the templates and the files that the emulator compiles around a kernel, and
# a bundle of the kernels of ATTUNE_SPECS, the tables of ATTUNE_TUNED and their kernels.

# Adds the command that writes the sources of a folder as a C++ function of this name, which a header declares.
function(attune_embed_texts folder function header out)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${folder}/*.cu ${folder}/*.cuh ${folder}/*.h ${folder}/*.hpp)
  add_custom_command(
    OUTPUT ${out}
    COMMAND attune-gen texts ${folder} --function ${function} --header ${header} --out ${out}
    DEPENDS attune-gen ${files}
    COMMENT "Embedding ${folder}"
    VERBATIM)
endfunction()

# Adds the command that writes generation_digest() of runtime/bundle/embedded.hpp.
function(attune_digest_generation out)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS generator/*.cpp generator/*.hpp
       templates/*.cu templates/*.cuh templates/*.h templates/*.hpp)
  set(script ${PROJECT_SOURCE_DIR}/runtime/cmake/Digest.cmake)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -D "FILES=${files}" -D OUT=${out} -P ${script}
    DEPENDS ${script} ${files}
    COMMENT "Digest of the generator and of templates/"
    VERBATIM)
endfunction()

# Returns the full paths of the files that a list names, which a variable of this name holds.
function(attune_full_paths result variable)
  set(paths)
  foreach(file IN LISTS ${variable})
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    if(NOT EXISTS ${file})
      message(FATAL_ERROR "${variable} names ${file}, which does not exist")
    endif()
    list(APPEND paths ${file})
  endforeach()
  set(${result} ${paths} PARENT_SCOPE)
endfunction()

# Adds an object library with the bundle in this folder.
function(attune_bundle_object target folder)
  # A source of its own for each: what a source depends on is a property of the file.
  set(source ${folder}/embedded_bundle.S)
  configure_file(${PROJECT_SOURCE_DIR}/runtime/bundle/embedded_bundle.S ${source} COPYONLY)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${folder}/kernels.attune)
  add_library(${target} OBJECT ${source})
  target_include_directories(${target} PRIVATE ${folder})
endfunction()

# Adds the object libraries attune_kernels, with the shipped kernels, attune_no_kernels, with the tables alone, and
# attune_kernels_file, with the tables and the name of the file kernels.attune beside it; a program or library links one
# of them, and attune_shipped_kernels is the one for those that have the kernels. Adds a target attune_texts and returns the source files that it generates.
function(attune_embed result)
  attune_full_paths(specs ATTUNE_SPECS)
  attune_full_paths(tuned ATTUNE_TUNED)
  set(nvcc)
  if(NOT ATTUNE_EMBED)
    message(STATUS "ATTUNE_EMBED is off: no kernels are embedded")
  elseif(NOT ATTUNE_NVCC)
    message(WARNING "nvcc was not found (looked in PATH, $CUDA_HOME/bin, $CUDA_PATH/bin, /usr/local/cuda/bin and the "
      "Python environment's nvidia wheels). ./dev gets one from PyPI; the CUDA toolkit (13.0 or newer) brings one: "
      "https://developer.nvidia.com/cuda-downloads. No kernels are embedded; everything that needs no compiler still "
      "builds and works. To use one elsewhere, pass -DATTUNE_NVCC=<path of nvcc>.")
  else()
    message(STATUS "nvcc: ${ATTUNE_NVCC}")
    set(nvcc NVCC ${ATTUNE_NVCC})
  endif()
  attune_bundle_command(${PROJECT_BINARY_DIR}/kernels ${nvcc} SPECS ${specs} TUNED ${tuned})
  attune_bundle_command(${PROJECT_BINARY_DIR}/no_kernels SPECS ${specs} TUNED ${tuned})
  foreach(kind kernels no_kernels)
    add_custom_target(attune_${kind}_bundle DEPENDS ${PROJECT_BINARY_DIR}/${kind}/kernels.attune)
    attune_bundle_object(attune_${kind} ${PROJECT_BINARY_DIR}/${kind})
    add_dependencies(attune_${kind} attune_${kind}_bundle)
  endforeach()
  attune_bundle_object(attune_kernels_file ${PROJECT_BINARY_DIR}/no_kernels)
  add_dependencies(attune_kernels_file attune_no_kernels_bundle)
  target_compile_definitions(attune_kernels_file PRIVATE ATTUNE_BUNDLE_FILE="kernels.attune")
  set(shipped attune_kernels)
  if(ATTUNE_WHEEL)
    add_dependencies(attune_kernels_file attune_kernels_bundle)
    set(shipped attune_kernels_file)
  endif()
  add_library(attune_shipped_kernels ALIAS ${shipped})

  attune_embed_texts(${PROJECT_SOURCE_DIR}/templates attune::embedded_templates runtime/bundle/embedded.hpp
                     ${PROJECT_BINARY_DIR}/embedded_templates.cpp)
  attune_embed_texts(${PROJECT_SOURCE_DIR}/runtime/emulator/kernel attune::emulator::embedded_seam
                     runtime/emulator/seam.hpp ${PROJECT_BINARY_DIR}/embedded_seam.cpp)
  attune_digest_generation(${PROJECT_BINARY_DIR}/generation_digest.cpp)
  set(texts ${PROJECT_BINARY_DIR}/embedded_templates.cpp ${PROJECT_BINARY_DIR}/embedded_seam.cpp
            ${PROJECT_BINARY_DIR}/generation_digest.cpp)

  set_source_files_properties(${texts} PROPERTIES GENERATED TRUE)
  add_custom_target(attune_texts DEPENDS ${texts})
  set(${result} ${texts} PARENT_SCOPE)
endfunction()
