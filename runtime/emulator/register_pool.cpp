#include "runtime/emulator/register_pool.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/emulator/warpgroup.hpp"

namespace attune::emulator {

namespace {
constexpr unsigned least = 24;
constexpr unsigned most = 256;
constexpr unsigned step = 8;
constexpr unsigned of_multiprocessor = 65536;
}  // namespace

void RegisterPool::reset(std::size_t threads) {
  const auto at_launch = std::min(most, of_multiprocessor / static_cast<unsigned>(threads) / step * step);
  of_warpgroup_.assign((threads + warpgroup_threads - 1) / warpgroup_threads, at_launch);
  changed_.assign(of_warpgroup_.size(), false);
  free_ = 0;
}

std::optional<std::string> RegisterPool::problem(std::size_t warpgroup, unsigned registers, bool take) const {
  if (registers < least || registers > most || registers % step != 0) {
    return fmt::format("{} registers are no multiple of {} from {} to {}", registers, step, least, most);
  }
  const unsigned now = of_warpgroup_[warpgroup];
  if (take ? changed_[warpgroup] && registers < now : registers > now) {
    return fmt::format("{} registers cannot be reached by {}: the warpgroup has {}", registers,
                       take ? "taking" : "giving", now);
  }
  return std::nullopt;
}

bool RegisterPool::change(std::size_t warpgroup, unsigned registers) {
  unsigned& own = of_warpgroup_[warpgroup];
  const unsigned all = free_ + own * warpgroup_threads;
  if (all < registers * warpgroup_threads) return false;
  free_ = all - registers * warpgroup_threads;
  own = registers;
  changed_[warpgroup] = true;
  return true;
}

}  // namespace attune::emulator
