// Runs emitted kernels on the CPU, thread by thread. README.md says what is modelled and what is not.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/files.hpp"
#include "runtime/call/device.hpp"
#include "runtime/emulator/global_memory.hpp"

namespace attune::emulator {

/// One launch: what a driver would get, and the memory the kernel may touch.
struct Launch {
  Grid grid;
  int threads = 0;  ///< of a block, a multiple of 32
  int shared_bytes = 0;
  const void* params = nullptr;  ///< the kernel's parameter block
  std::vector<Buffer> memory;
  std::uint64_t seed = 1;    ///< of when asynchronous copies land and of the order of warps
  int jobs = 0;              ///< clusters at a time; 0: one for each core
  bool count_banks = false;  ///< fill Report::sites
};

/// What one line of the emitted source cost in shared memory.
struct BankSite {
  int line = 0;
  long long accesses = 0;    ///< of whole warps
  long long wavefronts = 0;  ///< passes over the banks
  long long ideal = 0;       ///< passes that the same bytes need without a conflict

  [[nodiscard]] bool conflicts() const { return wavefronts > ideal; }
};

struct Report {
  /// Empty when nothing was found; else kernel, line, block, thread and what is wrong there. The first cluster, in
  /// launch order, that has a fault speaks; the same seed gives the same words.
  std::string fault;
  std::vector<BankSite> sites;  ///< ascending by line

  [[nodiscard]] bool ok() const { return fault.empty(); }
};

/// While it lives, runs that its thread begins end between two blocks, with a fault, once the flag is set. One at a
/// time on a thread.
class Stoppable {
 public:
  explicit Stoppable(const std::atomic<bool>& stop);
  ~Stoppable();
  Stoppable(const Stoppable&) = delete;
  Stoppable& operator=(const Stoppable&) = delete;
};

/// A kernel that HostCompiler compiled, in memory.
class Kernel {
 public:
  /// Throws Error{ATTUNE_COMPILE_ERROR} when the bytes are no such shared object.
  Kernel(std::string_view shared_object, std::string name);
  ~Kernel();
  Kernel(Kernel&& other) noexcept;
  Kernel& operator=(Kernel&&) = delete;
  Kernel(const Kernel&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }

  /// A symbol that the source exports; null when there is none.
  [[nodiscard]] void* symbol(const char* name) const;

  /// Runs every block to its end, or until a fault. Safe from several threads.
  [[nodiscard]] Report run(const Launch& launch) const;

 private:
  std::string name_;
  FileDescriptor file_;  ///< open as long as the library: dlopen takes a path it knows for the library it has
  void* library_ = nullptr;
};

/// What planning sees: the limits of compute capability 9.0, so that every family can be emulated.
Device device();

}  // namespace attune::emulator
