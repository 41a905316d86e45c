#include "runtime/cli/machine.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <sstream>

#include "generator/hints.hpp"
#include "runtime/base/cuda_places.hpp"
#include "runtime/base/environment.hpp"
#include "runtime/base/error.hpp"
#include "runtime/cache/cache.hpp"
#include "runtime/cli/failure.hpp"
#include "runtime/emulator/emulator.hpp"

namespace attune::cli {
namespace {

void describe_arch_option(CLI::Option* option, const std::string& description) {
  std::vector<std::string> known;
  for (const Arch& arch : all_archs()) known.emplace_back(arch.name);
  option->description(fmt::format("{}; of {}", description, fmt::join(known, ", ")))
      ->option_text("ARCH")
      ->check([known](const std::string& name) {
        if (std::ranges::find(known, name) != known.end()) return std::string();
        const std::string meant = meant_arch(name);
        return fmt::format("unknown architecture '{}'; {}known: {}", name,
                           meant.empty() ? "" : fmt::format("did you mean {}? ", meant), fmt::join(known, ", "));
      });
}

/// A thing that its constructor finds, or why it did not.
template <class T>
Found<T> open() {
  Found<T> found;
  try {
    found.value = std::make_unique<T>();
  } catch (const Error& error) {
    found.problem = error.what();
  }
  return found;
}

}  // namespace

Found<Gpu> find_gpu() {
  try {
    auto gpu = std::make_unique<Gpu>();
    if (gpu->driver.device_count() == 0) return {.value = nullptr, .problem = "the NVIDIA driver reports no GPU"};
    gpu->device = gpu->driver.device(0);
    gpu->driver.make_current(0);
    return {.value = std::move(gpu), .problem = {}};
  } catch (const Error& error) {
    return {.value = nullptr, .problem = error.what()};
  }
}

Found<Compiler> find_compiler() { return open<Compiler>(); }

Found<emulator::HostCompiler> find_host_compiler() { return open<emulator::HostCompiler>(); }

Found<Disassembler> find_disassembler() { return open<Disassembler>(); }

std::optional<std::filesystem::path> find_cuda_tool(const std::string& name) {
  std::vector<std::filesystem::path> folders;
  std::istringstream path(environment("PATH"));
  for (std::string folder; std::getline(path, folder, ':');) folders.emplace_back(folder);
  for (const std::filesystem::path& root : cuda_roots()) folders.push_back(root / "bin");
  for (const std::filesystem::path& folder : folders) {
    std::filesystem::path candidate = folder / name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

void add_arch_option(CLI::App& app, std::string& name, const std::string& description) {
  describe_arch_option(app.add_option("--arch", name), description);
}

void add_arch_option(CLI::App& app, std::vector<std::string>& names, const std::string& description) {
  describe_arch_option(app.add_option("--arch", names), description);
}

std::vector<Arch> resolve_archs(const std::vector<std::string>& names) {
  std::vector<Arch> archs;
  for (const std::string& name : names) archs.push_back(*find_arch(name));
  if (!archs.empty()) return archs;
  const Found<Gpu> gpu = find_gpu();
  if (gpu) return {arch_of(gpu->device)};
  return {*find_arch("sm_80"), *find_arch("sm_90")};
}

Device device_for(const std::string& word) {
  if (!word.empty()) return find_gpu_device(word).value();
  const Found<Gpu> gpu = find_gpu();
  if (gpu) return gpu->device;
  Device usual = find_gpu_device(usual_gpu).value();
  fmt::print(stderr, "no GPU here: as on {} (--gpu names another)\n", usual.name);
  return usual;
}

void add_gpu_option(CLI::App& app, std::string& word, const std::string& description) {
  const std::vector<std::string> known = gpu_words();
  app.add_option("--gpu,--arch", word)
      ->description(fmt::format("{}; of {}", description, fmt::join(known, ", ")))
      ->option_text("GPU")
      ->check([known](const std::string& name) {
        if (std::ranges::find(known, name) != known.end()) return std::string();
        std::string meant = meant_arch(name);
        if (meant.empty()) meant = nearest_word(name, known);
        return fmt::format("unknown GPU '{}'; {}known: {}", name,
                           meant.empty() ? "" : fmt::format("did you mean {}? ", meant), fmt::join(known, ", "));
      });
}

Arch emulated_arch() {
  const Device device = emulator::device();
  return {.name = emulator_arch,
          .capability = device.capability,
          .shared_per_block = device.shared_per_block,
          .shared_per_sm = device.shared_per_sm};
}

}  // namespace attune::cli
