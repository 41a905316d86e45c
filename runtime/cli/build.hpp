// Compiling sources, several at a time, and the table of what came out.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/arch.hpp"
#include "runtime/base/text.hpp"
#include "runtime/cli/disassembly.hpp"
#include "runtime/compiler/compile.hpp"
#include "runtime/emulator/host_compiler.hpp"

namespace attune::cli {

/// One source for one architecture: what the compiler made of it, or why it did not.
struct Built {
  const Source* source = nullptr;
  Arch arch{};
  Compiled compiled;
  std::optional<InstructionCounts> instructions;  ///< where disassemble() has counted them
  std::string error;                              ///< empty when it compiled

  [[nodiscard]] bool ok() const { return error.empty(); }
};

/// Told of each kernel that has been tried as soon as all before it are; from any thread, but from one at a time.
using OnBuilt = std::function<void(const Built&)>;

/// Compiles every source for each of the architectures that it fits, on `jobs` threads (0: all cores). In the order
/// of the sources. `sources` must outlive the result.
std::vector<Built> build(const Compiler& compiler, std::span<const Source> sources, const std::vector<Arch>& archs,
                         int jobs, const OnBuilt& on_built = {});

/// The same for the emulator: by the host's compiler, or from the cache.
std::vector<Built> build(const emulator::HostCompiler& compiler, std::span<const Source> sources, int jobs,
                         const OnBuilt& on_built = {});

/// How many kernels that makes.
long long kernels_to_build(std::span<const Source> sources, const std::vector<Arch>& archs);

/// Counts the instructions of whatever compiled to machine code, on `jobs` threads (0: all cores).
void disassemble(const Disassembler& disassembler, std::vector<Built>& built, int jobs);

/// Registers, shared memory, spills, instructions where they were counted, code size and seconds, one row for each.
std::string resource_table(const std::vector<Built>& built);

/// The same without instructions, for kernels that are to be built and printed one by one.
RowWriter resource_rows(std::span<const Source> sources, const std::vector<Arch>& archs);
std::vector<std::string> resource_cells(const Built& one);

nlohmann::ordered_json resource_json(const std::vector<Built>& built);

/// The log of whatever did not compile.
std::vector<Diagnostic> failures_of(const std::vector<Built>& built);

/// Prints that to stderr; whether all compiled.
bool report(const std::vector<Diagnostic>& failures);
bool report_failures(const std::vector<Built>& built);

}  // namespace attune::cli
