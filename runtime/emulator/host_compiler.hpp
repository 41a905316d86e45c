// The host's C++ compiler: from an emitted source to a shared object that the emulator runs.
#pragma once

#include <string>
#include <vector>

#include "runtime/compiler/compile.hpp"

namespace attune::emulator {

/// A C++20 compiler (GCC or Clang) found on this machine. Thread-safe.
class HostCompiler {
 public:
  /// The one that $CXX names, else the first of c++, g++ and clang++ in $PATH. Throws Error{ATTUNE_NOT_COMPILED}
  /// saying where it looked.
  HostCompiler();

  [[nodiscard]] const std::string& path() const { return path_; }        ///< with the arguments that $CXX gives it
  [[nodiscard]] const std::string& version() const { return version_; }  ///< the first line of --version

  /// Tells compilers apart, for cache keys: path and version.
  [[nodiscard]] std::string identity() const { return path_ + " " + version_; }

  /// The shared object, as Compiled::image; registers and the like stay 0. The emitted text is compiled unchanged,
  /// in a folder of its own that is gone afterwards. Throws Error{ATTUNE_COMPILE_ERROR} with the compiler's messages.
  [[nodiscard]] Compiled compile(const Source& source) const;

 private:
  std::vector<std::string> command_;  ///< the program and the arguments that $CXX gives it
  std::string path_;
  std::string version_;
};

/// Every option that compile() gives, the kernel's name apart.
std::vector<std::string> host_options();

/// The files that are compiled around an emitted source, as one text for cache keys.
std::string seam_text();

}  // namespace attune::emulator
