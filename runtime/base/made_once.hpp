// Values that are expensive to make and kept for good.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace attune {

/// Makes each key's value once: those who want the same wait for the one who makes it, those who want others do not.
/// What was made stays where it is until this goes. Thread-safe.
template <class Key, class Value>
class MadeOnce {
 public:
  /// The value, from `make()` where there is none yet, which returns a unique_ptr. Where that is null or throws,
  /// nothing is kept and the next one tries again.
  template <class Make>
  const Value* get(const Key& key, const Make& make) {
    Slot& slot = slot_of(key);
    if (const Value* made = slot.made.load(std::memory_order_acquire)) return made;
    const std::lock_guard lock(slot.making);
    if (slot.value == nullptr) {
      slot.value = make();
      slot.made.store(slot.value.get(), std::memory_order_release);
    }
    return slot.value.get();
  }

  /// The value as far as it has been made; waits for nobody who makes one.
  const Value* find(const Key& key) const {
    const std::lock_guard lock(mutex_);
    const auto slot = slots_.find(key);
    return slot == slots_.end() ? nullptr : slot->second.made.load(std::memory_order_acquire);
  }

  /// All that have been made, by key.
  std::vector<const Value*> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<const Value*> result;
    for (const auto& [key, slot] : slots_) {
      if (const Value* made = slot.made.load(std::memory_order_acquire)) result.push_back(made);
    }
    return result;
  }

 private:
  struct Slot {
    std::mutex making;
    std::unique_ptr<const Value> value;
    std::atomic<const Value*> made = nullptr;
  };

  Slot& slot_of(const Key& key) {
    const std::lock_guard lock(mutex_);
    return slots_[key];
  }

  mutable std::mutex mutex_;  ///< of the map alone, whose elements stay where they are
  std::map<Key, Slot> slots_;
};

}  // namespace attune
