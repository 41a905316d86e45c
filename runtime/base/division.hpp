// Division of counts.
#pragma once

namespace attune {

/// The least whole number that is at least a / b, for a of 0 or more and b above 0.
constexpr long long ceil_div(long long a, long long b) { return (a + b - 1) / b; }

}  // namespace attune
