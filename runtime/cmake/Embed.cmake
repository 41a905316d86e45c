# What is generated into the library: a bundle of the kernels of ATTUNE_SPECS, the tables of ATTUNE_TUNED and their
# kernels, and as text the templates and the files that the emulator compiles around a kernel.

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

# Adds the commands that generate and compile, a target attune_embedded that runs them, and returns the source files
# to link in.
function(attune_embed result)
  attune_full_paths(specs ATTUNE_SPECS)
  attune_full_paths(tuned ATTUNE_TUNED)
  set(nvcc)
  if(NOT ATTUNE_EMBED)
    message(STATUS "ATTUNE_EMBED is off: no kernels are embedded")
  elseif(NOT ATTUNE_NVCC)
    message(WARNING "nvcc was not found (looked in PATH, $CUDA_HOME/bin, $CUDA_PATH/bin and /usr/local/cuda/bin). The "
      "CUDA toolkit (13.0 or newer) is a prerequisite that apt cannot bring: "
      "https://developer.nvidia.com/cuda-downloads. No kernels are embedded; everything that needs no compiler still "
      "builds and works. To use one elsewhere, pass -DATTUNE_NVCC=<path of nvcc>.")
  else()
    message(STATUS "nvcc: ${ATTUNE_NVCC}")
    set(nvcc NVCC ${ATTUNE_NVCC})
  endif()
  set(kernels ${PROJECT_BINARY_DIR}/kernels)
  attune_bundle_command(${kernels} ${nvcc} SPECS ${specs} TUNED ${tuned})

  attune_embed_texts(${PROJECT_SOURCE_DIR}/templates attune::embedded_templates runtime/bundle/embedded.hpp
                     ${PROJECT_BINARY_DIR}/embedded_templates.cpp)
  attune_embed_texts(${PROJECT_SOURCE_DIR}/runtime/emulator/kernel attune::emulator::embedded_seam
                     runtime/emulator/seam.hpp ${PROJECT_BINARY_DIR}/embedded_seam.cpp)
  set(texts ${PROJECT_BINARY_DIR}/embedded_templates.cpp ${PROJECT_BINARY_DIR}/embedded_seam.cpp)

  set(bundle ${PROJECT_SOURCE_DIR}/runtime/bundle/embedded_bundle.S)
  set_source_files_properties(${bundle} PROPERTIES COMPILE_OPTIONS "-I${kernels}"
                              OBJECT_DEPENDS ${kernels}/kernels.attune)
  set_source_files_properties(${texts} PROPERTIES GENERATED TRUE)
  add_custom_target(attune_embedded DEPENDS ${kernels}/kernels.attune ${texts})
  set(${result} ${bundle} ${texts} PARENT_SCOPE)
endfunction()
