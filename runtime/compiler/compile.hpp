// NVRTC: from an emitted source to machine code, in process. libnvrtc is opened on first need.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "generator/emit.hpp"

namespace attune {

/// What the compiler says a kernel uses.
struct ResourceUsage {
  int registers = 0;
  int static_shared_bytes = 0;
  int stack_bytes = 0;
  int spill_stores = 0;  ///< bytes
  int spill_loads = 0;   ///< bytes
  long long code_bytes = 0;
  /// ptxas lets each wgmma wait for the one before (its messages C7510 and following): half the speed and less.
  bool serialized = false;
};

struct Compiled {
  std::string image;  ///< a cubin; a shared object where the host's compiler made it
  ResourceUsage usage;
  double seconds = 0;  ///< of compilation alone
};

/// A handle to libnvrtc. Thread-safe.
class Compiler {
 public:
  /// Opens libnvrtc (soname of the toolkit, then plain). Throws Error{ATTUNE_NOT_COMPILED} saying where it looked.
  Compiler();
  ~Compiler();
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  /// "13.0"
  [[nodiscard]] std::string version() const;

  /// Tells builds of one version apart, for cache keys: "13.0+109338064" (version and size of the library).
  [[nodiscard]] std::string identity() const;

  /// Where it was found.
  [[nodiscard]] std::string path() const;

  /// Compiles for exactly this compute capability (80, 90, ...). Throws Error{ATTUNE_COMPILE_ERROR} with NVRTC's log.
  [[nodiscard]] Compiled compile(const Source& source, int capability) const;

  /// The PTX on the way to that machine code, to be read. Throws Error{ATTUNE_COMPILE_ERROR} likewise.
  [[nodiscard]] std::string ptx(const Source& source, int capability) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

/// Every option that compile() gives NVRTC: the shared flags, the architecture as the family needs it, ptxas's report,
/// and, where the environment has ATTUNE_LINE_INFO, the lines of the source that profilers show.
std::vector<std::string> compile_options(const Family& family, int capability);

/// "sm_90" for 90.
std::string arch_name(int capability);

/// Reads registers, spills and stack from ptxas's -v report, and the code size from the cubin (ELF).
ResourceUsage parse_usage(const std::string& ptxas_log, const std::string& cubin);

}  // namespace attune
