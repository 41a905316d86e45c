// Random numbers that are the same for the same seed on every machine, unlike those of <random>'s distributions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace attune {

/// splitmix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t operator()() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }

  /// Less than `bound`.
  std::uint64_t below(std::uint64_t bound) { return (*this)() % bound; }

  /// In (0, 1].
  double uniform() { return (static_cast<double>((*this)() >> 11) + 1) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

/// The same values in any order (Fisher and Yates).
template <class T>
std::vector<T> shuffled(std::vector<T> values, Random& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
  return values;
}

}  // namespace attune
