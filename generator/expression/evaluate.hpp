// The value of an expression for one query and one key, in float64 on the host: what kernels are held to.
#pragma once

#include <span>
#include <vector>

#include "generator/expression/language.hpp"

namespace attune::expression {

/// Where a score stands, and what it is.
struct Place {
  double s = 0;
  int q = 0;
  int p = 0;
  int k = 0;
  int h = 0;
  int hk = 0;
  int b = 0;
};

/// What a parameter holds, row-major; an index beyond its extents counts as the nearest one inside.
struct Array {
  std::vector<int> extents;    ///< none is 0
  std::vector<double> values;  ///< which has every fp32 and int32
};

/// The value of an expression whose parameters are `arrays`, in their order; of a mask 0 or 1.
double value_of(const Expression& expression, std::span<const Array> arrays, const Place& place);

}  // namespace attune::expression
