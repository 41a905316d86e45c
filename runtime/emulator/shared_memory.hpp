// The shared memory of one block, with the history of every byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/emulator/clock.hpp"
#include "runtime/emulator/kernel/machine.hpp"

namespace attune::emulator {

/// Addresses start at shared_base.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : data_(bytes), granules_((bytes + granule_bytes - 1) / granule_bytes) {}

  /// A new block: nothing is written.
  void reset();

  /// An access that breaks a promise: what it is about, and the earlier access where there is one.
  struct Problem {
    std::string text;
    Epoch earlier;
    bool lacks_proxy_fence = false;  ///< and not order
  };

  /// Notes the access, or says what is wrong with it: it leaves the memory, is not aligned to its own size, reads a
  /// byte that nothing wrote, is not ordered after an earlier access to one of its bytes, or comes through the
  /// asynchronous proxy to a byte written, or writes one read, through the generic one without a proxy fence in
  /// between. `clock` is what is known where the access starts; `epoch` is how later accesses will know it.
  std::optional<Problem> note_load(unsigned address, unsigned bytes, const Clock& clock, const Epoch& epoch);
  std::optional<Problem> note_store(unsigned address, unsigned bytes, const Clock& clock, const Epoch& epoch);

  /// Why these bytes are not all within the launch's shared memory, or nothing.
  [[nodiscard]] std::optional<Problem> outside(unsigned address, unsigned bytes) const;

  [[nodiscard]] std::byte* at(unsigned address) { return data_.data() + (address - shared_base); }

 private:
  // Most accesses are of 16 aligned bytes, so bytes share their history until a smaller one tells them apart.
  static constexpr unsigned granule_bytes = 16;

  /// The last write of a byte, and the reads since it that are not ordered before one another.
  struct History {
    Epoch write;
    std::vector<Epoch> reads;

    void note_read(const Clock& clock, const Epoch& epoch);
    void note_write(const Epoch& epoch);
    [[nodiscard]] const Epoch* unordered_before_read(const Clock& clock) const;
    [[nodiscard]] const Epoch* unordered_before_write(const Clock& clock) const;
  };
  struct Granule {
    History whole;
    std::unique_ptr<std::array<History, granule_bytes>> bytes;  ///< null: all are like `whole`
  };

  template <class Visit>
  std::optional<Problem> visit(unsigned address, unsigned bytes, const Visit& visit);
  [[nodiscard]] std::optional<Problem> misplaced(unsigned address, unsigned bytes) const;

  std::vector<std::byte> data_;
  std::vector<Granule> granules_;
};

}  // namespace attune::emulator
