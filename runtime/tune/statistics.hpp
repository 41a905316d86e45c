// What a few measurements with noise allow one to say.
#pragma once

#include <span>
#include <vector>

namespace attune::tune {

/// The middle of the values, of an even number the mean of the two in the middle; 0 of none.
double median(std::vector<double> values);

/// How sure pairs of measurements make it that the second kind is smaller: 1 - p, where p is the chance that equal
/// kinds would look at least so unequal. Of the one-sided signed-rank test (Wilcoxon 1945) over log(a / b): the
/// absolute values are ranked, W adds up the ranks of those above 0, and p = P(Z >= (W - n (n + 1) / 4 - 1/2) / s) for
/// a normal Z, with s^2 = n (n + 1) (2 n + 1) / 24. It assumes of noise only that it treats both alike, so drift that
/// both share and a few wild values do no harm. Pairs that are equal count half for either side. 0 of fewer than
/// `fewest_pairs`, for which the normal is no good.
double confidence_that_second_is_smaller(std::span<const double> first, std::span<const double> second);
inline constexpr int fewest_pairs = 10;

}  // namespace attune::tune
