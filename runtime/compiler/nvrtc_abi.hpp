// The part of NVRTC that Attune calls: constants and signatures as its reference publishes them (CUDA
// 13.0; the same since 11.1), so that the library compiles where no toolkit is installed.
#pragma once

#include <cstddef>

namespace attune::nvrtc {

/// What the library is called, in the order to try.
inline constexpr const char* sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

using Result = int;     // nvrtcResult
using Program = void*;  // nvrtcProgram

inline constexpr Result success = 0;
inline constexpr Result error_compilation = 6;

using Version = Result(int*, int*);
using GetErrorString = const char*(Result);
using CreateProgram = Result(Program*, const char*, const char*, int, const char* const*, const char* const*);
using DestroyProgram = Result(Program*);
using CompileProgram = Result(Program, int, const char* const*);
using GetSize = Result(Program, std::size_t*);  // nvrtcGetProgramLogSize, nvrtcGetCUBINSize
using GetText = Result(Program, char*);         // nvrtcGetProgramLog, nvrtcGetCUBIN

}  // namespace attune::nvrtc
