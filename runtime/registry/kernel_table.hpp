// Which loaded kernel serves which problems: read by every call, changed now and then.
#pragma once

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/call/preference.hpp"

namespace attune {

struct LoadedKernel;

/// What decides which loaded kernel serves: a device, the row of its tuned table that answers (0: none), and the ask.
struct KernelKey {
  KernelKey(int device, unsigned tuned_row, const Ask& of)
      : hash(of.need.hash()), ordinal(device), tuned(tuned_row), ask(of) {}

  std::uint64_t hash;  ///< of the need; first, so that comparing seldom goes further
  int ordinal;
  unsigned tuned;
  Ask ask;

  auto operator<=>(const KernelKey&) const = default;
};

/// One operation's table. Finding takes no lock; changing makes a new table and leaves the older ones, which may still
/// be read, where they are.
class KernelTable {
 public:
  struct Row {
    KernelKey key;
    const LoadedKernel* kernel;
    std::shared_ptr<const Variant> coming = nullptr;  ///< what is to take over once it is made; null: nothing
  };

  /// Null where there is none. What it points to stays until this goes.
  [[nodiscard]] const Row* find(const KernelKey& key) const {
    const Rows* rows = published_.load(std::memory_order_acquire);
    return rows == nullptr ? nullptr : find_in(*rows, key);
  }

  /// The row that is in the table from then on, and whether it is this one: no other thread was first.
  std::pair<const Row*, bool> add(Row row) {
    const std::lock_guard lock(mutex_);
    if (const Row* found = find(row.key)) return {found, false};
    const KernelKey key = row.key;
    Rows rows = copy();
    rows.insert(std::ranges::lower_bound(rows, key, {}, &Row::key), std::move(row));
    publish(std::move(rows));
    return {find(key), true};
  }

  /// Ends a row's wait: the kernel takes over or, where it is null, nothing does. False where the row waited for
  /// nothing any more.
  bool settle(const KernelKey& key, const LoadedKernel* kernel) {
    const std::lock_guard lock(mutex_);
    Rows rows = copy();
    const auto row = std::ranges::lower_bound(rows, key, {}, &Row::key);
    if (row == rows.end() || row->key != key || row->coming == nullptr) return false;
    if (kernel != nullptr) row->kernel = kernel;
    row->coming = nullptr;
    publish(std::move(rows));
    return true;
  }

 private:
  using Rows = std::vector<Row>;  ///< ascending by key

  static const Row* find_in(const Rows& rows, const KernelKey& key) {
    const auto row = std::ranges::lower_bound(rows, key, {}, &Row::key);
    return row != rows.end() && row->key == key ? &*row : nullptr;
  }

  [[nodiscard]] Rows copy() const {
    const Rows* rows = published_.load(std::memory_order_relaxed);
    return rows == nullptr ? Rows{} : *rows;
  }

  void publish(Rows rows) {
    versions_.push_back(std::make_unique<const Rows>(std::move(rows)));
    published_.store(versions_.back().get(), std::memory_order_release);
  }

  std::atomic<const Rows*> published_ = nullptr;
  std::mutex mutex_;
  std::vector<std::unique_ptr<const Rows>> versions_;
};

}  // namespace attune
