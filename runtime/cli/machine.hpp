// What the machine under the tool has: a GPU, compilers.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/arch.hpp"
#include "runtime/cli/app.hpp"
#include "runtime/cli/disassembly.hpp"
#include "runtime/compiler/compile.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "runtime/gpu/driver.hpp"

namespace attune::cli {

/// Something that may be missing, and why it is.
template <class T>
struct Found {
  std::unique_ptr<T> value;
  std::string problem;  ///< why there is none

  explicit operator bool() const { return value != nullptr; }
  T* operator->() const { return value.get(); }
  T& operator*() const { return *value; }
};

/// The first GPU, its context current on this thread.
struct Gpu {
  Driver driver;
  Device device;
};

Found<Gpu> find_gpu();
Found<Compiler> find_compiler();
Found<emulator::HostCompiler> find_host_compiler();
Found<Disassembler> find_disassembler();

/// A program of the CUDA toolkit, looked for where the build looks for nvcc: in cuda_tool_places.
std::optional<std::filesystem::path> find_cuda_tool(const std::string& name);
inline constexpr const char* cuda_tool_places =
    "PATH, or bin/ of $CUDA_HOME, $CUDA_PATH, /usr/local/cuda or the Python environment's nvidia wheels";

/// The GPU that a word names (find_gpu_device()), else that of this machine, else the usual one: which that is, is said
/// on stderr.
Device device_for(const std::string& word);

/// Adds --gpu, whose other name is --arch: what device_for() takes. An unknown word is bad usage.
void add_gpu_option(CLI::App& app, std::string& word, const std::string& description);

/// Adds --arch, once or (for a list) any number of times; an unknown name is bad usage.
void add_arch_option(CLI::App& app, std::string& name, const std::string& description);
void add_arch_option(CLI::App& app, std::vector<std::string>& names, const std::string& description);

/// Those named; else the GPU's of this machine; else sm_80 and sm_90.
std::vector<Arch> resolve_archs(const std::vector<std::string>& names);

/// The emulator as an architecture, its limits being those that it plans with.
Arch emulated_arch();

}  // namespace attune::cli
