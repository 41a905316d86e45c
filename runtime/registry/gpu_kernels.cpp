#include "runtime/registry/gpu_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/choice/nearest.hpp"

namespace attune {

GpuKernels::GpuKernels(attune_compile_policy policy, const ReadyKernels& ready, TunedDevices& tuned, const Cache& cache,
                       Counters& counters, Log log)
    : policy_(policy),
      ready_(ready),
      tuned_(tuned),
      cache_(cache),
      counters_(counters),
      log_(std::move(log)),
      loader_(driver_, cache, counters, log_) {
  if (policy == ATTUNE_COMPILE_BACKGROUND) background_.emplace();
}

int GpuKernels::current_device() const {
  const std::optional<int> ordinal = driver_.current_device();
  if (!ordinal) {
    throw Error(ATTUNE_NO_DEVICE,
                "no CUDA context is current on this thread; call cudaSetDevice (and, before CUDA 12, cudaFree(0)) or "
                "cuCtxSetCurrent first");
  }
  return *ordinal;
}

const Device& GpuKernels::device(int ordinal) {
  const std::lock_guard lock(mutex_);
  const auto known = devices_.find(ordinal);
  return known != devices_.end() ? known->second : devices_.emplace(ordinal, driver_.device(ordinal)).first->second;
}

GpuKernels::Located GpuKernels::locate(const ProblemView& problem) {
  const int ordinal = current_device();
  unsigned number = 0;
  const TunedRow* tuned = nullptr;
  if (has_tuned_rows(problem.operation())) {
    if (const TunedRows* rows = tuned_.rows(ordinal, [&](int of) { return device(of); })) {
      number = rows->number(problem);
      tuned = rows->row(number);
    }
  }
  return {.tuned = tuned, .key = KernelKey(ordinal, number, problem.ask())};
}

const KernelTable::Row& GpuKernels::row_for(const ProblemView& problem) {
  const Located located = locate(problem);
  const KernelTable::Row* row = table_of(problem.operation()).find(located.key);
  if (row == nullptr) return load(problem, located, Wait::no, Needed::yes);
  counters_.hit();
  return *row;
}

const KernelTable::Row* GpuKernels::optional_row_for(const ProblemView& problem) {
  const Located located = locate(problem);
  if (const KernelTable::Row* row = table_of(problem.operation()).find(located.key)) {
    counters_.hit();
    return row;
  }
  KernelTable& lacking = lacking_[static_cast<std::size_t>(problem.operation())];
  if (lacking.find(located.key) != nullptr) return nullptr;
  try {
    return &load(problem, located, Wait::no, Needed::no);
  } catch (const Error& error) {
    if (!is_lack(error)) throw;
    lacking.add({.key = located.key, .kernel = nullptr});
    return nullptr;
  }
}

ServingNames GpuKernels::serving(const ProblemView& problem) {
  const KernelTable::Row* row = table_of(problem.operation()).find(locate(problem).key);
  if (row == nullptr) return {};
  return {.now = row->kernel->variant.name(), .coming = row->coming == nullptr ? "" : row->coming->name()};
}

std::size_t GpuKernels::most_bytes(const ProblemView& problem,
                                   FunctionRef<std::size_t(const Variant&, const Device&)> bytes, Needed needed) {
  const KernelTable::Row* const row = needed == Needed::yes ? &row_for(problem) : optional_row_for(problem);
  if (row == nullptr) return 0;
  const Device& device = row->kernel->device;
  const std::size_t now = bytes(row->kernel->variant, device);
  return row->coming == nullptr ? now : std::max(now, bytes(*row->coming, device));
}

const LoadedKernel* GpuKernels::optional_kernel_for(const ProblemView& problem) {
  const KernelTable::Row* const row = optional_row_for(problem);
  return row == nullptr ? nullptr : row->kernel;
}

std::shared_ptr<const Variant> GpuKernels::expected(const ProblemView& problem, const Located& located) {
  const Device& where = device(located.key.ordinal);
  const ReadyChoice choice = choose_ready(ready_, problem, where, policy_, located.tuned);
  try {
    return std::make_shared<const Variant>(choice.preferred ? choice.kernel->variant
                                                            : variant_to_generate(problem, where, located.tuned));
  } catch (const Error& error) {
    if (!is_lack(error)) throw;
    return nullptr;
  }
}

std::optional<Variant> GpuKernels::optional_variant_for(const ProblemView& problem) {
  const Located located = locate(problem);
  if (const KernelTable::Row* row = table_of(problem.operation()).find(located.key)) return row->kernel->variant;
  KernelTable& table = expected_[static_cast<std::size_t>(problem.operation())];
  const KernelTable::Row* row = table.find(located.key);
  if (row == nullptr) {
    row = table.add({.key = located.key, .kernel = nullptr, .coming = expected(problem, located)}).first;
  }
  return row->coming == nullptr ? std::nullopt : std::optional(*row->coming);
}

const LoadedKernel& GpuKernels::prepare(const ProblemView& problem, Needed needed) {
  const Located located = locate(problem);
  const KernelTable& table = table_of(problem.operation());
  const KernelTable::Row* row = table.find(located.key);
  if (row == nullptr) {
    row = &load(problem, located, Wait::yes, needed);
  } else if (row->coming == nullptr) {
    counters_.hit();
  }
  if (row->coming != nullptr) {
    wait_for(problem.operation(), *row, device(located.key.ordinal));
    row = table.find(located.key);
  }
  // Loaded in another context of this device before: this context still has to get its code.
  driver_.warm(row->kernel->handle);
  return *row->kernel;
}

const KernelTable::Row& GpuKernels::load(const ProblemView& problem, const Located& located, Wait wait, Needed needed) {
  ++counters_.misses;
  try {
    const Device& where = device(located.key.ordinal);
    Provided serving = serve(problem, where, located.tuned, wait);
    const auto [row, first] =
        table_of(problem.operation())
            .add({.key = located.key, .kernel = serving.kernel, .coming = std::move(serving.coming)});
    if (first && serving.fallback) ++counters_.fallbacks;
    if (first && row->coming != nullptr) compile_later(problem.operation(), *row, where);
    return *row;
  } catch (const Error& error) {
    if (needed == Needed::yes || !is_lack(error)) ++counters_.failures;
    throw;
  } catch (...) {
    ++counters_.failures;
    throw;
  }
}

GpuKernels::Provided GpuKernels::serve(const ProblemView& problem, const Device& device, const TunedRow* tuned,
                                       Wait wait) {
  const ReadyChoice choice = choose_ready(ready_, problem, device, policy_, tuned);
  if (choice.preferred) {
    if (const LoadedKernel* loaded = loader_.load_ready(*choice.kernel, device)) return {.kernel = loaded};
    if (tuned != nullptr) return serve(problem, device, nullptr, wait);
  }
  const Variant own = variant_to_generate(problem, device, tuned);
  if (policy_ == ATTUNE_COMPILE_FROZEN) return {.kernel = &load_frozen(problem, own, device)};
  if (policy_ == ATTUNE_COMPILE_BACKGROUND && wait == Wait::no) {
    if (const LoadedKernel* made = loader_.find(own, device.ordinal)) return {.kernel = made};
    if (const LoadedKernel* meanwhile = stand_in(problem, device)) {
      auto coming = has_failed(own, device.ordinal) ? nullptr : std::make_shared<const Variant>(own);
      return {.kernel = meanwhile, .coming = std::move(coming), .fallback = true};
    }
  }
  try {
    return {.kernel = &loader_.load_generated(own, device)};
  } catch (const Error& error) {
    if (error.status() != ATTUNE_NOT_COMPILED) throw;
    // No compiler here: a kernel that pads head_dim gives the same numbers.
    if (choice.kernel != nullptr && !choice.preferred) {
      if (const LoadedKernel* loaded = loader_.load_ready(*choice.kernel, device)) {
        return {.kernel = loaded, .fallback = true};
      }
    }
    throw Error(ATTUNE_NOT_COMPILED, fmt::format("{}; {}", nearest_text(ready_, problem, device), error.what()));
  }
}

const LoadedKernel& GpuKernels::load_frozen(const ProblemView& problem, const Variant& own, const Device& device) {
  std::string disk = fmt::format("{} is not in the cache ({}) either", own.name(), cache_.root().string());
  try {
    if (const LoadedKernel* loaded = loader_.load_cached(own, device)) return *loaded;
  } catch (const Error& error) {
    if (error.status() != ATTUNE_NOT_COMPILED) throw;
    disk = fmt::format("the cache cannot be searched without a compiler's version ({})", error.what());
  }
  throw Error(ATTUNE_NOT_COMPILED, fmt::format("the compile policy is ATTUNE_COMPILE_FROZEN, and {}; {}",
                                               nearest_text(ready_, problem, device), disk));
}

const LoadedKernel* GpuKernels::stand_in(const ProblemView& problem, const Device& device) {
  const std::vector<Variant> loaded = loader_.loaded_variants(problem.operation(), device.ordinal);
  const std::span<const Variant> ready = ready_.variants(problem.operation());
  std::vector<Variant> candidates(ready.begin(), ready.end());
  candidates.insert(candidates.end(), loaded.begin(), loaded.end());
  const std::optional<Variant> best = choose(candidates, problem, device);
  if (!best) return nullptr;
  if (const LoadedKernel* found = loader_.find(*best, device.ordinal)) return found;
  if (const LoadedKernel* found = loader_.load_ready(*ready_.find(*best), device)) return found;
  const std::optional<Variant> second = choose(loaded, problem, device);
  return second ? loader_.find(*second, device.ordinal) : nullptr;
}

void GpuKernels::compile_later(Operation operation, const KernelTable::Row& row, const Device& device) {
  void* const context = driver_.current_context();
  ++counters_.pending;
  const bool added = background_->add([this, operation, &row, &device, context] {
    try {
      driver_.use_context(context);
      take_over(operation, row, device);
    } catch (const std::exception& error) {
      give_up(operation, row, device, error.what());
    }
    --counters_.pending;
  });
  if (added) return;
  --counters_.pending;
  table_of(operation).settle(row.key, nullptr);
}

void GpuKernels::take_over(Operation operation, const KernelTable::Row& row, const Device& device) {
  const LoadedKernel& made = loader_.load_generated(*row.coming, device);
  if (!table_of(operation).settle(row.key, &made)) return;
  ++counters_.swaps;
  log_(ATTUNE_LOG_INFO,
       fmt::format("{} takes over from {} on {}", made.variant.name(), row.kernel->variant.name(), device.name));
}

void GpuKernels::give_up(Operation operation, const KernelTable::Row& row, const Device& device,
                         const std::string& reason) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = failed_.emplace(device.ordinal, *row.coming).second;
  }
  ++counters_.failures;
  table_of(operation).settle(row.key, nullptr);
  if (!first) return;
  log_(ATTUNE_LOG_WARNING, fmt::format("{} was not compiled in the background, {} serves on: {}", row.coming->name(),
                                       row.kernel->variant.name(), reason));
}

void GpuKernels::wait_for(Operation operation, const KernelTable::Row& row, const Device& device) {
  ++counters_.misses;
  try {
    take_over(operation, row, device);
  } catch (const Error& error) {
    ++counters_.failures;
    if (error.status() != ATTUNE_NOT_COMPILED) throw;  // else there is no compiler, and what serves is all there is
  }
}

bool GpuKernels::has_failed(const Variant& variant, int ordinal) {
  const std::lock_guard lock(mutex_);
  return failed_.contains({ordinal, variant});
}

void GpuKernels::stop_background() {
  if (!background_) return;
  background_->stop();
  counters_.pending = 0;  // those that were dropped
}

}  // namespace attune
