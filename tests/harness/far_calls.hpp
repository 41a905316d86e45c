// Calls whose tensors reach beyond 2^32 elements, of which a few rows are used: what they leave is held
// to the reference, on any memory of that size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/registry/registry.hpp"

namespace attune::testing {

/// Memory that a registry's kernels reach.
class FarMemory {
 public:
  FarMemory() = default;
  virtual ~FarMemory() = default;
  FarMemory(const FarMemory&) = delete;
  FarMemory& operator=(const FarMemory&) = delete;

  [[nodiscard]] virtual char* data() const = 0;

  // Bytes at an offset, to and from the host; reading waits for all launches.
  virtual void write(std::size_t offset, const void* from, std::size_t bytes) = 0;
  virtual void read(void* to, std::size_t offset, std::size_t bytes) const = 0;
};

using MakeFarMemory = std::function<std::unique_ptr<FarMemory>(std::size_t bytes)>;

/// Which of a tensor's strides is so large that its last element lies beyond 2^32 others.
enum class Far { batch, seqlen, head };
inline constexpr Far far_strides[] = {Far::batch, Far::seqlen, Far::head};

/// CHECK what a call leaves; prefills also that a kernel of this family served. They take up to 36 GB of addresses.
void check_far_prefill(Registry& registry, const MakeFarMemory& make, Far far, const std::string& family);

/// A ragged batch of over a million rows, the last of which are a sequence.
void check_far_ragged_prefill(Registry& registry, const MakeFarMemory& make, const std::string& family);

/// A cache of four million pages, of which sequences have the last.
void check_far_paged_prefill(Registry& registry, const MakeFarMemory& make);
void check_far_paged_decode(Registry& registry, const MakeFarMemory& make, int page_size);

/// Contiguous, in two parts that combine merges.
void check_far_decode(Registry& registry, const MakeFarMemory& make, Far far);

/// A sequence of over a million keys, the last of which a window shows.
void check_long_decode(Registry& registry, const MakeFarMemory& make);

/// New keys at the end of such a cache of pages: by slots, and by a table.
void check_far_store(Registry& registry, const MakeFarMemory& make, bool by_slots);

void check_far_merge(Registry& registry, const MakeFarMemory& make, Far far);

}  // namespace attune::testing
