#include "runtime/cli/tune_lab.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/cli/tune_bench.hpp"

namespace attune::cli {
namespace {

Device first_device(const Driver& driver, const std::vector<int>& ordinals) {
  const int count = driver.device_count();
  if (count == 0) throw Error(ATTUNE_NO_DEVICE, "the NVIDIA driver reports no GPU");
  for (const int ordinal : ordinals) {
    if (ordinal < 0 || ordinal >= count) {
      throw Error(ATTUNE_INVALID_ARGUMENT,
                  fmt::format("there is no GPU {}; this machine has 0 to {}", ordinal, count - 1));
    }
  }
  Device first = driver.device(ordinals.front());
  for (const int ordinal : ordinals) {
    const Device other = driver.device(ordinal);
    if (other.name == first.name && other.multiprocessors == first.multiprocessors) continue;
    throw Error(
        ATTUNE_INVALID_ARGUMENT,
        fmt::format("GPU {} is {} with {} multiprocessors and GPU {} is {} with {}; a table is for one kind",
                    ordinals.front(), first.name, first.multiprocessors, ordinal, other.name, other.multiprocessors));
  }
  return first;
}

}  // namespace

GpuLab::GpuLab(std::vector<int> ordinals, std::uint64_t seed)
    : ordinals_(std::move(ordinals)),
      seed_(seed),
      cache_(default_cache_root()),
      start_(std::chrono::steady_clock::now()) {
  const Driver driver;
  device_ = first_device(driver, ordinals_);
  driver_version_ = driver.version();
}

tune::BuildReport GpuLab::build(const Variant& variant) {
  try {
    tune::BuildReport report = build_one(variant);
    for (const Variant& companion : companions_of(variant, device_)) build_one(companion);
    for (const auto& trial : small_trials(variant, seed_)) known(*trial);  // so that check() need not wait
    return report;
  } catch (const Error& error) {
    return {.error = error.what()};
  }
}

tune::BuildReport GpuLab::build_one(const Variant& variant) {
  const Source source = generate(variant);
  const CacheKey key = cache_key(variant, device_.capability, compiler_.identity());
  Compiled compiled = cache_.find_or_build(key, source, [&] { return compiler_.compile(source, device_.capability); });
  const ResourceUsage usage = compiled.usage;
  {
    const std::scoped_lock lock(mutex_);
    images_.emplace(source.name, std::move(compiled.image));
  }
  return {.error = {},
          .spill_bytes = usage.spill_stores + usage.spill_loads,
          .registers = usage.registers,
          .seconds = compiled.seconds};
}

std::unique_ptr<tune::Bench> GpuLab::bench(int gpu) {
  return std::make_unique<GpuBench>(*this, ordinals_.at(static_cast<std::size_t>(gpu)));
}

double GpuLab::now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

const std::string& GpuLab::image(const Variant& variant) const {
  const std::scoped_lock lock(mutex_);
  return images_.at(variant.name());  // of a map, whose elements stay where they are
}

const KnownTrial& GpuLab::known(const Trial& trial) {
  Slot* slot = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    slot = &trials_[fmt::format("{} {}", trial.problem().text(), fmt::join(trial.sequences().seqused_k, " "))];
  }
  std::call_once(slot->once, [&] {
    slot->known.inputs = trial.inputs();
    slot->known.expected = trial.expected(slot->known.inputs);
  });
  return slot->known;
}

}  // namespace attune::cli
