// What a kernel's machine code is made of, as a disassembler of the CUDA toolkit shows it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace attune::cli {

/// The instructions that tell whether a kernel is what it was meant to be.
struct InstructionCounts {
  int HGMMA = 0;  ///< products of a warpgroup (wgmma)
  int HMMA = 0;   ///< products of a warp (mma.sync)
  int LDL = 0;    ///< loads from local memory: what was spilled, and arrays that registers cannot hold
  int STL = 0;    ///< stores to it

  bool operator==(const InstructionCounts&) const = default;
};

/// Counts in the text that nvdisasm or cuobjdump -sass prints.
InstructionCounts count_instructions(std::string_view disassembly);

/// nvdisasm or cuobjdump on this machine. Thread-safe.
class Disassembler {
 public:
  /// Throws Error{ATTUNE_NOT_COMPILED} saying where it looked.
  Disassembler();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// The machine code as the program prints it. Throws Error{ATTUNE_INTERNAL_ERROR} when it fails on this cubin.
  [[nodiscard]] std::string text(std::string_view cubin) const;

  [[nodiscard]] InstructionCounts count(std::string_view cubin) const { return count_instructions(text(cubin)); }

 private:
  std::filesystem::path path_;
};

}  // namespace attune::cli
