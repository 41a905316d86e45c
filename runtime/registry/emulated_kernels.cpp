#include "runtime/registry/emulated_kernels.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/text.hpp"
#include "runtime/choice/choice.hpp"

namespace attune {

CacheKey emulator_key(const emulator::HostCompiler& compiler, const Source& source) {
  return cache_key(source, emulator_arch, emulator::host_options(), compiler.identity() + "\n" + emulator::seam_text());
}

Compiled compile_cached(const emulator::HostCompiler& compiler, const Source& source, const Cache& cache) {
  return cache.find_or_build(emulator_key(compiler, source), source, [&] { return compiler.compile(source); });
}

const emulator::HostCompiler& EmulatedKernels::open_compiler() {
  const std::lock_guard lock(compiler_mutex_);
  if (compiler_ == nullptr) compiler_ = std::make_unique<emulator::HostCompiler>();
  return *compiler_;
}

std::unique_ptr<const EmulatedKernel> EmulatedKernels::make(const Variant& variant) {
  const Source source = generate(variant);
  const emulator::HostCompiler& compiler = open_compiler();
  const CacheKey key = emulator_key(compiler, source);
  std::optional<Compiled> compiled;
  bool built = false;
  if (policy_ == ATTUNE_COMPILE_FROZEN) {
    compiled = cache_.find(key);
    if (!compiled) {
      throw Error(ATTUNE_NOT_COMPILED, fmt::format("the compile policy is ATTUNE_COMPILE_FROZEN, and {} is not in the "
                                                   "cache ({}), the emulator's only source of kernels then",
                                                   variant.name(), cache_.root().string()));
    }
  } else {
    compiled = cache_.find_or_build(key, source, [&] {
      Compiled result = compiler.compile(source);
      counters_.count_compile(result.seconds);
      log_(ATTUNE_LOG_INFO,
           fmt::format("compiled {} for the emulator in {}", source.name, seconds_text(result.seconds)));
      built = true;
      return result;
    });
  }
  auto made = std::make_unique<const EmulatedKernel>(emulated_kernel(variant, compiled->image, source.name));
  counters_.bytes_loaded += compiled->image.size();
  if (!built) ++counters_.disk_loads;
  return made;
}

Variant EmulatedKernels::choice(const ProblemView& problem) const {
  const Device device = emulator::device();
  const ReadyChoice choice = choose_ready(ready_, problem, device, policy_);
  return choice.preferred ? choice.kernel->variant : variant_to_generate(problem, device);
}

ServingNames EmulatedKernels::serving(const ProblemView& problem) {
  const EmulatedKernel* made = kernels_.find(choice(problem));
  return {.now = made == nullptr ? "" : made->variant.name(), .coming = {}};
}

std::size_t EmulatedKernels::most_bytes(const ProblemView& problem,
                                        FunctionRef<std::size_t(const Variant&, const Device&)> bytes, Needed needed) {
  if (needed == Needed::no && optional_kernel_for(problem) == nullptr) return 0;
  return bytes(choice(problem), emulator::device());
}

const EmulatedKernel& EmulatedKernels::find_or_make(const ProblemView& problem, Needed needed) {
  const Variant variant = choice(problem);
  if (const EmulatedKernel* made = kernels_.find(variant)) {
    counters_.hit();
    return *made;
  }
  ++counters_.misses;
  try {
    return *kernels_.get(variant, [&] { return make(variant); });
  } catch (const Error& error) {
    if (needed == Needed::yes || !is_lack(error)) ++counters_.failures;
    throw;
  } catch (...) {
    ++counters_.failures;
    throw;
  }
}

const EmulatedKernel& EmulatedKernels::kernel_for(const ProblemView& problem) {
  return find_or_make(problem, Needed::yes);
}

const EmulatedKernel* EmulatedKernels::optional_kernel_for(const ProblemView& problem) {
  try {
    return &find_or_make(problem, Needed::no);
  } catch (const Error& error) {
    if (!is_lack(error)) throw;
    return nullptr;
  }
}

std::optional<Variant> EmulatedKernels::optional_variant_for(const ProblemView& problem) {
  try {
    return choice(problem);
  } catch (const Error& error) {
    if (!is_lack(error)) throw;
    return std::nullopt;
  }
}

}  // namespace attune
