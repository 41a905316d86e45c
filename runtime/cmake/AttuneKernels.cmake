# Kernels in a build, this one or another project's: from specs to a bundle, kernels.attune, that a target carries.
# Uses the target attune::attune-gen, whose property ATTUNE_TEMPLATES is the templates folder.

# Sets ATTUNE_NVCC in the cache: the CUDA toolkit's, or the one of PyPI's nvidia-cuda-nvcc in the active environment.
macro(attune_find_nvcc)
  file(GLOB attune_wheels $ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/cu*
       $ENV{CONDA_PREFIX}/lib/python3*/site-packages/nvidia/cu*)
  find_program(ATTUNE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda ${attune_wheels} PATH_SUFFIXES bin
               DOC "nvcc of the CUDA toolkit")
endmacro()

# Adds the command that makes FOLDER/kernels.attune of the specs, and of tables of tuned problems with the variants that
# they name: sources are emitted at build time, and nvcc compiles those alone that changed, on all cores. Without NVCC the
# bundle has the tables, and no kernels.
function(attune_bundle_command folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "NVCC" "SPECS;TUNED;ARCHS")
  set(options)
  if(arg_NVCC)
    list(APPEND options --nvcc ${arg_NVCC})
  endif()
  foreach(table IN LISTS arg_TUNED)
    list(APPEND options --tuned ${table})
  endforeach()
  if(arg_ARCHS)
    list(APPEND options --arch ${arg_ARCHS})
  endif()
  get_target_property(templates attune::attune-gen ATTUNE_TEMPLATES)
  file(GLOB_RECURSE template_files CONFIGURE_DEPENDS ${templates}/*.cu ${templates}/*.cuh ${templates}/*.h)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(
    OUTPUT ${folder}/kernels.attune
    COMMAND attune::attune-gen kernels --templates ${templates} --out ${folder} ${options} -- ${arg_SPECS}
    DEPENDS attune::attune-gen ${template_files} ${arg_SPECS} ${arg_TUNED}
    COMMENT "Kernels of ${folder}"
    USES_TERMINAL
    VERBATIM)
endfunction()

# attune_add_kernels(<target> SPECS <file>... [ARCHS sm_80 sm_90 ...] [TUNED <table>...])
#
# Compiles the kernels of the specs with nvcc as the target is built, puts them into it, and has them registered as it is
# loaded: every registry of the process prefers them to the library's own. ARCHS are the GPUs to make machine code for;
# without it kernels have code for 8.0 and 9.0 and PTX for newer GPUs. TUNED are tables that attune tune wrote: the target
# carries them and the kernels that they name, and registries choose by them. Links the target to attune::attune. Where
# there is no nvcc the target is built without kernels, which are then compiled at run time. ATTUNE_NVCC names another
# nvcc.
function(attune_add_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SPECS;ARCHS;TUNED")
  if(NOT TARGET ${target})
    message(FATAL_ERROR "attune_add_kernels: there is no target ${target}; add it before this call")
  elseif(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "attune_add_kernels(${target}): unexpected ${arg_UNPARSED_ARGUMENTS}; "
      "attune_add_kernels(<target> SPECS <file>... [ARCHS sm_80 ...] [TUNED <table>...])")
  elseif(NOT arg_SPECS)
    message(FATAL_ERROR "attune_add_kernels(${target}): SPECS names no file")
  elseif(TARGET ${target}_attune_kernels)
    message(FATAL_ERROR "attune_add_kernels(${target}) was called before; name all specs in one call")
  endif()
  foreach(kind SPECS TUNED)
    set(files_${kind})
    foreach(file IN LISTS arg_${kind})
      cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
      list(APPEND files_${kind} ${file})
    endforeach()
  endforeach()

  # Whatever comes of the kernels, the target calls the library. As a property: target_link_libraries() would have to
  # follow the signature, plain or with keywords, that the project uses for this target.
  set_property(TARGET ${target} APPEND PROPERTY LINK_LIBRARIES attune::attune)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES $<LINK_ONLY:attune::attune>)
  endif()

  attune_find_nvcc()
  if(NOT ATTUNE_NVCC)
    message(WARNING "attune_add_kernels(${target}): nvcc was not found (looked in PATH, $CUDA_HOME/bin, $CUDA_PATH/bin, "
      "/usr/local/cuda/bin and the Python environment's nvidia wheels), so ${target} carries no kernels: they are compiled at run time, by NVRTC. Install the "
      "CUDA toolkit, or pass -DATTUNE_NVCC=<path of nvcc>.")
    if(NOT files_TUNED)
      return()
    endif()
  endif()

  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${target}_attune_kernels)
  set(nvcc)
  if(ATTUNE_NVCC)
    set(nvcc NVCC ${ATTUNE_NVCC})
  endif()
  attune_bundle_command(${folder} ${nvcc} SPECS ${files_SPECS} TUNED ${files_TUNED} ARCHS ${arg_ARCHS})

  # The source that holds and registers the bundle is C and C++ alike: a project may have only one of them.
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(extension c)
  if(NOT "C" IN_LIST languages)
    set(extension cpp)
  endif()
  set(ATTUNE_BUNDLE ${folder}/kernels.attune)
  string(MAKE_C_IDENTIFIER ${target} ATTUNE_BUNDLE_NAME)
  set(source ${folder}/registered.${extension})
  configure_file(${CMAKE_CURRENT_FUNCTION_LIST_DIR}/registered.c.in ${source} @ONLY)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${folder}/kernels.attune)

  # Its own target, so that the one it is for may belong to another folder.
  add_custom_target(${target}_attune_bundle DEPENDS ${folder}/kernels.attune)
  add_library(${target}_attune_kernels OBJECT ${source})
  add_dependencies(${target}_attune_kernels ${target}_attune_bundle)
  target_link_libraries(${target}_attune_kernels PRIVATE attune::attune)
  set_target_properties(${target}_attune_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_attune_kernels>)

  if(type STREQUAL "STATIC_LIBRARY")
    # Nothing refers to what registers the kernels, and an archive's member that nothing refers to is not linked.
    set_property(TARGET ${target} APPEND PROPERTY
                 INTERFACE_LINK_OPTIONS LINKER:--undefined=attune_kernels_of_${ATTUNE_BUNDLE_NAME})
  elseif(NOT type STREQUAL "EXECUTABLE")
    # What is registered has to stay where it is.
    set_property(TARGET ${target} APPEND PROPERTY LINK_OPTIONS LINKER:-z,nodelete)
  endif()
endfunction()
