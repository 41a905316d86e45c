// Ranges of integers, and what is known of a comparison of such: by them a mask says of a block of scores that all or
// none of it is seen. No sum or product here leaves 32 bits, as the generator has checked for the widest ranges.
#pragma once

#include "types.h"

// From low up to high, both included.
struct Range {
  int low;
  int high;
};

// Of a condition: whether it surely holds, and whether it may.
struct Truth {
  bool surely;
  bool maybe;
};

__device__ __forceinline__ int minimum_of(int x, int y) { return x < y ? x : y; }
__device__ __forceinline__ int maximum_of(int x, int y) { return x > y ? x : y; }

// x / y rounded down, ...
__device__ __forceinline__ int floor_divide(int x, int y) {
  const int quotient = x / y;
  return quotient - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0);
}
// ... and what it leaves.
__device__ __forceinline__ int remainder(int x, int y) { return x - floor_divide(x, y) * y; }

__device__ __forceinline__ Truth unknown() { return {false, true}; }
__device__ __forceinline__ Range only(int value) { return {value, value}; }
// The smallest that has these.
__device__ __forceinline__ Range hull(int a, int b, int c, int d) {
  return {minimum_of(minimum_of(a, b), minimum_of(c, d)), maximum_of(maximum_of(a, b), maximum_of(c, d))};
}

__device__ __forceinline__ Truth opposite_of(const Truth& x) { return {!x.maybe, !x.surely}; }
__device__ __forceinline__ Truth both(const Truth& x, const Truth& y) {
  return {x.surely && y.surely, x.maybe && y.maybe};
}
__device__ __forceinline__ Truth either(const Truth& x, const Truth& y) {
  return {x.surely || y.surely, x.maybe || y.maybe};
}
__device__ __forceinline__ Truth less(const Range& x, const Range& y) { return {x.high < y.low, x.low < y.high}; }
__device__ __forceinline__ Truth less_equal(const Range& x, const Range& y) {
  return {x.high <= y.low, x.low <= y.high};
}
__device__ __forceinline__ Truth equal(const Range& x, const Range& y) {
  return {x.low == x.high && y.low == y.high && x.low == y.low, x.low <= y.high && y.low <= x.high};
}

__device__ __forceinline__ Range range_sum(const Range& x, const Range& y) { return {x.low + y.low, x.high + y.high}; }
__device__ __forceinline__ Range difference(const Range& x, const Range& y) { return {x.low - y.high, x.high - y.low}; }
__device__ __forceinline__ Range negative_of(const Range& x) { return {-x.high, -x.low}; }
__device__ __forceinline__ Range product(const Range& x, const Range& y) {
  return hull(x.low * y.low, x.low * y.high, x.high * y.low, x.high * y.high);
}
__device__ __forceinline__ Range minimum_of(const Range& x, const Range& y) {
  return {minimum_of(x.low, y.low), minimum_of(x.high, y.high)};
}
__device__ __forceinline__ Range maximum_of(const Range& x, const Range& y) {
  return {maximum_of(x.low, y.low), maximum_of(x.high, y.high)};
}
__device__ __forceinline__ Range absolute_of(const Range& x) {
  const int least = x.low > 0 ? x.low : x.high < 0 ? -x.high : 0;
  return {least, maximum_of(-x.low, x.high)};
}
// Divisors are never 0.
__device__ __forceinline__ Range floor_divide(const Range& x, const Range& y) {
  return hull(floor_divide(x.low, y.low), floor_divide(x.low, y.high), floor_divide(x.high, y.low),
              floor_divide(x.high, y.high));
}
__device__ __forceinline__ Range remainder(const Range& x, const Range& y) {
  if (y.low == y.high && floor_divide(x.low, y.low) == floor_divide(x.high, y.low)) {
    return {remainder(x.low, y.low), remainder(x.high, y.low)};
  }
  return y.low > 0 ? Range{0, y.high - 1} : Range{y.low + 1, 0};
}

__device__ __forceinline__ Range chosen(const Truth& condition, const Range& yes, const Range& no) {
  if (condition.surely) return yes;
  return condition.maybe ? hull(yes.low, yes.high, no.low, no.high) : no;
}
__device__ __forceinline__ Truth chosen(const Truth& condition, const Truth& yes, const Truth& no) {
  if (condition.surely) return yes;
  return condition.maybe ? Truth{yes.surely && no.surely, yes.maybe || no.maybe} : no;
}
