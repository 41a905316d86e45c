# In the consumer's build BUILD: the size of the kernels, and what is compiled again after a change.
set(bundle ${BUILD}/consumer_kernels_attune_kernels/kernels.attune)
if(NOT EXISTS ${bundle})
  message("skipped: without nvcc there are no kernels")
  return()
endif()
file(SIZE ${bundle} bytes)
message("kernels of the consumer: ${bytes} bytes")
if(bytes GREATER 1000000)
  message(FATAL_ERROR "more than 1 MB")
endif()

# Builds, and holds the number of times that nvcc ran against what is expected.
function(expect_runs expected when)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} OUTPUT_VARIABLE output ERROR_VARIABLE output
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "nvcc [a-z0-9_]+\\.cu, [0-9.]+ s" runs "${output}")
  list(LENGTH runs count)
  message("${when}: ${runs}")
  if(NOT count EQUAL expected)
    message(FATAL_ERROR "nvcc ran ${count} times instead of ${expected}:\n${output}")
  endif()
endfunction()

expect_runs(0 "nothing changed")
file(APPEND ${BUILD}/combine.yaml "  - {dtype: bf16, head_dim: 64}\n")
expect_runs(1 "a variant more")
file(TOUCH ${BUILD}/prefill.yaml)
expect_runs(0 "a spec touched")
