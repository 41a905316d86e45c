// A reference to something that can be called, for parameters: it neither copies nor allocates.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace attune {

template <class Signature>
class FunctionRef;

/// What it refers to has to outlive it.
template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <class Function>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, FunctionRef> &&
           std::is_invocable_r_v<Result, Function&, Arguments...>)
      FunctionRef(Function&& function)  // implicit, as a lambda is what callers write
      : function_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* of, Arguments... arguments) -> Result {
          return (*static_cast<std::remove_reference_t<Function>*>(of))(std::forward<Arguments>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const { return call_(function_, std::forward<Arguments>(arguments)...); }

 private:
  void* function_;
  Result (*call_)(void*, Arguments...);
};

}  // namespace attune
