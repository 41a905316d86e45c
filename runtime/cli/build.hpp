// Compiling sources, several at a time, and the table of what came out.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "generator/arch.hpp"
#include "runtime/cli/disassembly.hpp"
#include "runtime/compiler/compile.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "runtime/text.hpp"

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

/// Compiles every source for each of the architectures that it fits, on `jobs` threads (0: all cores). In the order
/// of the sources. `sources` must outlive the result.
std::vector<Built> build(const Compiler& compiler, const std::vector<Source>& sources, const std::vector<Arch>& archs,
                         int jobs);

/// The same for the emulator: by the host's compiler, or from the cache.
std::vector<Built> build(const emulator::HostCompiler& compiler, const std::vector<Source>& sources, int jobs);

/// Counts the instructions of whatever compiled to machine code, on `jobs` threads (0: all cores).
void disassemble(const Disassembler& disassembler, std::vector<Built>& built, int jobs);

/// Registers, shared memory, spills, instructions where they were counted, code size and seconds, one row for each.
std::string resource_table(const std::vector<Built>& built);
nlohmann::ordered_json resource_json(const std::vector<Built>& built);

/// The log of whatever did not compile.
std::vector<Diagnostic> failures_of(const std::vector<Built>& built);

/// Prints that to stderr; whether all compiled.
bool report_failures(const std::vector<Built>& built);

}  // namespace attune::cli
