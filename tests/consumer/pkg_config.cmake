# Compiles the example in C against the package at PREFIX with what pkg-config says, and runs it. CC is the compiler.
file(GLOB_RECURSE package ${PREFIX}/lib*/pkgconfig/attune.pc)
cmake_path(GET package PARENT_PATH folder)
set(ENV{PKG_CONFIG_PATH} ${folder})
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs attune OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PKG_CONFIG} --variable=libdir attune OUTPUT_VARIABLE libdir OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(COMMAND ${CC} -I${EXAMPLES} ${EXAMPLES}/c/main.c -o ${PREFIX}.consumer ${flags} -Wl,-rpath,${libdir}
                COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PREFIX}.consumer COMMAND_ERROR_IS_FATAL ANY)
