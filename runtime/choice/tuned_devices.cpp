#include "runtime/choice/tuned_devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "runtime/base/environment.hpp"

namespace attune {
namespace {

/// Adds what a table knows of problems that those before it do not; where it cannot be used, that is said.
void take_table(std::vector<TunedTable>& tables, Result<TunedTable> read, const LineLog& log) {
  if (read.ok()) {
    const auto same = std::ranges::find(tables, read.value.gpu, &TunedTable::gpu);
    if (same == tables.end()) {
      tables.push_back(std::move(read.value));
      return;
    }
    for (TunedRow& row : read.value.rows) {
      if (same->find(row.problem) == nullptr) same->put(std::move(row));
    }
    return;
  }
  const std::size_t more = read.problems.size() - 1;
  log(fmt::format("the tuned table is not used: {}{}", read.problems.front().text(),
                  more == 0 ? "" : fmt::format(" (and {} more)", more)));
}

std::string capability_text(int capability) { return fmt::format("{}.{}", capability / 10, capability % 10); }

}  // namespace

std::vector<TunedTable> default_tuned_tables(const ReadyKernels& ready, const LineLog& log) {
  const std::string wanted = environment("ATTUNE_TUNED");
  std::vector<TunedTable> tables;
  if (wanted == "off") return tables;
  if (!wanted.empty()) {
    take_table(tables, read_tuned(wanted), log);
    return tables;
  }
  for (const BundledTable& table : ready.tables()) take_table(tables, parse_tuned(table.text, table.file), log);
  return tables;
}

TunedSource tuned_table_for(std::span<const TunedTable> tables, const Device& device) {
  const TunedGpu gpu = tuned_gpu(device);
  if (const auto same = std::ranges::find(tables, gpu, &TunedTable::gpu); same != tables.end()) return {&*same, ""};
  const auto named = std::ranges::find(tables, gpu.name, [](const TunedTable& table) { return table.gpu.name; });
  if (named == tables.end()) {
    const auto alike = std::ranges::find_if(tables, [&](const TunedTable& table) {
      return table.gpu.capability == gpu.capability && table.gpu.multiprocessors == gpu.multiprocessors;
    });
    if (alike != tables.end()) return {&*alike, ""};
  }
  if (named == tables.end()) return {nullptr, fmt::format("no tuned table for {}", gpu.name)};
  return {nullptr, fmt::format("the tuned table for {} is for one of compute capability {} with {} multiprocessors, "
                               "this one has {} and {}",
                               gpu.name, capability_text(named->gpu.capability), named->gpu.multiprocessors,
                               capability_text(gpu.capability), gpu.multiprocessors)};
}

const TunedRows* TunedDevices::add(int ordinal, const Device& device) {
  const std::lock_guard lock(mutex_);
  std::atomic<const TunedRows*>& known = known_[static_cast<std::size_t>(ordinal)];
  if (const TunedRows* rows = known.load(std::memory_order_relaxed)) return rows;  // another thread was first
  const TunedTable* table = tuned_table_for(tables_, device).table;
  owned_.push_back(std::make_unique<const TunedRows>(table != nullptr ? *table : none_, device));
  known.store(owned_.back().get(), std::memory_order_release);
  return owned_.back().get();
}

}  // namespace attune
