#include "runtime/emulator/bulk_copies.hpp"

#include <algorithm>
#include <limits>

#include "runtime/emulator/copies.hpp"

namespace attune::emulator {

void BulkCopies::reset(std::uint64_t seed) {
  random_ = Random(seed);
  now_ = 0;
  flights_.clear();
}

void BulkCopies::issue(const BulkCopy& copy) {
  const bool late = random_.below(2) == 0;
  flights_.push_back({copy, late ? std::numeric_limits<std::uint64_t>::max() : now_ + 1 + random_.below(longest_copy)});
}

std::optional<BulkCopy> BulkCopies::take(std::vector<Flight>::iterator flight) {
  const BulkCopy copy = flight->copy;
  flights_.erase(flight);
  return copy;
}

std::optional<BulkCopy> BulkCopies::due() {
  const auto found = std::ranges::find_if(flights_, [&](const Flight& flight) { return flight.due <= now_; });
  return found == flights_.end() ? std::nullopt : take(found);
}

std::optional<BulkCopy> BulkCopies::any() {
  if (flights_.empty()) return std::nullopt;
  return take(flights_.begin() + static_cast<std::ptrdiff_t>(random_.below(flights_.size())));
}

}  // namespace attune::emulator
