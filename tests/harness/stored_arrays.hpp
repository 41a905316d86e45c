// What a problem's expressions look up, as host memory of a call.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attune/attune.h"
#include "runtime/lab/expressed_attention.hpp"
#include "runtime/lab/memory.hpp"

namespace attune::testing {

class StoredArrays {
 public:
  StoredArrays() = default;

  /// Random ones, each with a place.
  StoredArrays(const Problem& problem, std::uint64_t seed, Places& places);

  [[nodiscard]] const ExpressionValues& values() const { return values_; }

  /// Gives an array of integers these values, element by element.
  void set(std::string_view name, const std::function<int(int)>& value);

  /// Writes them.
  void put(Memory& memory) const;

  /// As a call has them that finds its memory there; names are those of this.
  [[nodiscard]] std::vector<attune_named_array> named(void* memory) const;

 private:
  struct Stored {
    std::string name;
    std::vector<std::uint32_t> words;
    std::vector<int> extents;
    bool is_real;
    std::size_t place;
  };

  CallExpressions expressions_;
  ExpressionValues values_;
  std::vector<Stored> stored_;
};

}  // namespace attune::testing
