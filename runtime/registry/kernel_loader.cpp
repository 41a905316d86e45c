#include "runtime/registry/kernel_loader.hpp"

#include <fmt/format.h>

#include <optional>

#include "runtime/base/error.hpp"
#include "runtime/base/text.hpp"
#include "runtime/cache/compiler_note.hpp"
#include "runtime/choice/choice.hpp"

namespace attune {

std::vector<Variant> KernelLoader::loaded_variants(Operation operation, int ordinal) const {
  std::vector<Variant> result;
  for (const LoadedKernel* loaded : kernels_.all()) {
    if (loaded->device.ordinal == ordinal && family_of(loaded->variant).operation == operation) {
      result.push_back(loaded->variant);
    }
  }
  return result;
}

std::unique_ptr<const LoadedKernel> KernelLoader::load(const Variant& variant, const Device& device,
                                                       std::string_view image, const std::string& name) {
  auto loaded = std::make_unique<const LoadedKernel>(driver_, variant, device, image, name);
  counters_.bytes_loaded += image.size();
  return loaded;
}

const LoadedKernel* KernelLoader::load_ready(const ReadyKernel& kernel, const Device& device) {
  return kernels_.get({device.ordinal, kernel.variant}, [&]() -> std::unique_ptr<const LoadedKernel> {
    try {
      auto loaded = load(kernel.variant, device, kernel.fatbin, std::string(kernel.name));
      ++counters_.ready_loads;
      return loaded;
    } catch (const Error& error) {
      if (error.status() != ATTUNE_UNSUPPORTED) throw;
      return nullptr;
    }
  });
}

const LoadedKernel* KernelLoader::load_cached(const Variant& variant, const Device& device) {
  return kernels_.get({device.ordinal, variant}, [&]() -> std::unique_ptr<const LoadedKernel> {
    std::optional<Compiled> found = find_noted(variant, device.capability);
    if (!found) found = cache_.find(cache_key(variant, device.capability, open_compiler(Note::no).identity()));
    if (!found) return nullptr;
    auto loaded = load(variant, device, found->image, variant.name());
    ++counters_.disk_loads;
    return loaded;
  });
}

const LoadedKernel& KernelLoader::load_generated(const Variant& variant, const Device& device) {
  return *kernels_.get({device.ordinal, variant}, [&] {
    bool built = false;
    std::optional<Compiled> compiled = find_noted(variant, device.capability);
    if (!compiled) {
      const Compiler& nvrtc = open_compiler(Note::yes);
      const CacheKey key = cache_key(variant, device.capability, nvrtc.identity());
      compiled = cache_.find(key);
      if (!compiled) {
        const Source source = generate(variant);
        compiled = cache_.find_or_build(key, source, [&] {
          Compiled result = nvrtc.compile(source, device.capability);
          counters_.count_compile(result.seconds);
          log_(ATTUNE_LOG_INFO,
               fmt::format("compiled {} for {} in {}", source.name, device.name, seconds_text(result.seconds)));
          built = true;
          return result;
        });
      }
    }
    auto loaded = load(variant, device, compiled->image, variant.name());
    if (!built) ++counters_.disk_loads;
    return loaded;
  });
}

std::optional<Compiled> KernelLoader::find_noted(const Variant& variant, int capability) {
  {
    const std::lock_guard lock(compiler_mutex_);
    if (compiler_ != nullptr) return std::nullopt;
  }
  const std::optional<std::string> noted = noted_compiler(cache_);
  return noted ? cache_.find(cache_key(variant, capability, *noted)) : std::nullopt;
}

const Compiler& KernelLoader::open_compiler(Note note) {
  const std::lock_guard lock(compiler_mutex_);
  if (compiler_ == nullptr) {
    compiler_ = std::make_unique<Compiler>();
    if (note == Note::yes) note_compiler(cache_, *compiler_);
  }
  return *compiler_;
}

}  // namespace attune
