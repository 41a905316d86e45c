// A value made in its place.
#pragma once

#include <utility>

namespace attune {

/// Stands for what a function returns, in emplace() and the like: the value is constructed where it stays, and not
/// copied there.
template <class Function>
class ResultOf {
 public:
  explicit ResultOf(Function function) : function_(std::move(function)) {}
  operator decltype(std::declval<Function&>()())() { return function_(); }  // implicit: it is the value's initialiser

 private:
  Function function_;
};

}  // namespace attune
