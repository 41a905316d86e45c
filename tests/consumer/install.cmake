# Installs the build BUILD into a prefix, moves it to PREFIX, holds what is exported against
# tests/golden/abi.txt, and looks at how it is linked. NM and
# READELF are the programs nm and readelf.
file(REMOVE_RECURSE ${PREFIX} ${PREFIX}.before)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX}.before COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${PREFIX}.before ${PREFIX})

file(GLOB_RECURSE texts ${PREFIX}/*.cmake ${PREFIX}/*.pc)
foreach(text IN LISTS texts)
  file(READ ${text} content)
  if(content MATCHES "${PREFIX}|${BUILD}/")
    message(FATAL_ERROR "${text} holds a path of the machine that it was made on")
  endif()
endforeach()

file(GLOB_RECURSE library ${PREFIX}/lib*/libattune.so)
execute_process(COMMAND ${NM} -D --defined-only ${library} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" symbols "${symbols}")
list(TRANSFORM symbols REPLACE "^.* " "symbol ")
list(SORT symbols)
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../golden/abi.txt committed REGEX "^symbol ")
if(NOT symbols STREQUAL committed)
  message(FATAL_ERROR "${library} exports other symbols than tests/golden/abi.txt has: ${symbols}")
endif()

# Nothing that the loader fills in stays writable.
execute_process(COMMAND ${READELF} -dlW ${library} OUTPUT_VARIABLE sections COMMAND_ERROR_IS_FATAL ANY)
foreach(wanted GNU_RELRO NOW)
  if(NOT sections MATCHES ${wanted})
    message(FATAL_ERROR "${library} lacks ${wanted}: it is not linked with full RELRO")
  endif()
endforeach()
