# example_uses_memory(<target>): the header memory.h, and the CUDA runtime where a toolkit has one.
function(example_uses_memory target)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  find_package(CUDAToolkit QUIET)
  if(TARGET CUDA::cudart)
    target_link_libraries(${target} PRIVATE CUDA::cudart)
    target_compile_definitions(${target} PRIVATE USE_CUDA)
  endif()
endfunction()
