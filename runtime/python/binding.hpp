// How a call gets into the module: each argument as the caller passed it, by position or by name.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <utility>

namespace attune::python {

/// Several arrays as one.
template <typename Element, std::size_t... size>
constexpr auto joined(const std::array<Element, size>&... parts) {
  std::array<Element, (size + ...)> all{};
  std::size_t at = 0;
  const auto append = [&](const auto& part) {
    for (const Element& one : part) all[at++] = one;
  };
  (append(parts), ...);
  return all;
}

template <std::size_t>
struct HandleAt {
  using Type = nanobind::handle;
};

/// What a call takes.
template <typename Result, typename Arguments>
Arguments taken_by(Result (*call)(const Arguments&));

/// Adds a call to the module. What it takes is an aggregate of handles, and its `names` are theirs, in order; they are
/// checked against the package's list of functions by its tests. None is taken for any of them: what is wrong with a
/// value is said under its own name.
template <auto call>
void bind_call(nanobind::module_& module, const char* name, const char* doc) {
  using Arguments = decltype(taken_by(call));
  constexpr std::size_t count = Arguments::names.size();
  static_assert(sizeof(Arguments) == count * sizeof(nanobind::handle), "each member has a name");
  [&]<std::size_t... index>(std::index_sequence<index...>) {
    module.def(
        name, [](typename HandleAt<index>::Type... values) { return call(Arguments{values...}); },
        nanobind::arg(Arguments::names[index]).none()..., doc);
  }
  (std::make_index_sequence<count>());
}

}  // namespace attune::python
