#include "runtime/tune/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace attune::tune {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double confidence_that_second_is_smaller(std::span<const double> first, std::span<const double> second) {
  const std::size_t pairs = std::min(first.size(), second.size());
  if (pairs < fewest_pairs) return 0;
  std::vector<double> differences;
  for (std::size_t i = 0; i < pairs; ++i) differences.push_back(std::log(first[i] / second[i]));
  std::ranges::sort(differences, {}, [](double x) { return std::abs(x); });
  double ranks_above = 0;
  for (std::size_t begin = 0, end = 0; begin < pairs; begin = end) {
    // Equal sizes share the mean of their ranks.
    while (end < pairs && std::abs(differences[end]) == std::abs(differences[begin])) ++end;
    const double rank = static_cast<double>(begin + 1 + end) / 2;
    for (std::size_t i = begin; i < end; ++i) {
      if (differences[i] > 0) ranks_above += rank;
      if (differences[i] == 0) ranks_above += rank / 2;
    }
  }
  const auto n = static_cast<double>(pairs);
  const double mean = n * (n + 1) / 4;
  const double deviation = std::sqrt(n * (n + 1) * (2 * n + 1) / 24);
  const double z = (ranks_above - mean - 0.5) / deviation;
  return 1 - std::erfc(z / std::sqrt(2.0)) / 2;
}

}  // namespace attune::tune
