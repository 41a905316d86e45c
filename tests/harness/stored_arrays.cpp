#include "tests/harness/stored_arrays.hpp"

#include <algorithm>

#include "generator/expression/pool.hpp"

namespace attune::testing {

StoredArrays::StoredArrays(const Problem& problem, std::uint64_t seed, Places& places)
    : expressions_(problem.expressions), values_(random_values(seed, problem)) {
  const auto store = [&](int number, const std::vector<expression::Array>& values) {
    if (number == 0) return;
    const std::vector<expression::Parameter>& parameters = expression::expression_of(number).parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      std::vector<std::uint32_t> words = stored(parameters[i], values[i]);
      const std::size_t place = places.add(words);
      stored_.push_back({parameters[i].name, std::move(words), values[i].extents,
                         parameters[i].type == expression::Type::real, place});
    }
  };
  store(problem.expressions.score, values_.of_score);
  store(problem.expressions.mask, values_.of_mask);
}

void StoredArrays::set(std::string_view name, const std::function<int(int)>& value) {
  const auto change = [&](int number, std::vector<expression::Array>& values) {
    if (number == 0) return;
    const std::vector<expression::Parameter>& parameters = expression::expression_of(number).parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].name != name) continue;
      for (std::size_t j = 0; j < values[i].values.size(); ++j) values[i].values[j] = value(static_cast<int>(j));
      std::ranges::find(stored_, name, &Stored::name)->words = stored(parameters[i], values[i]);
    }
  };
  change(expressions_.score, values_.of_score);
  change(expressions_.mask, values_.of_mask);
}

void StoredArrays::put(Memory& memory) const {
  for (const Stored& one : stored_) attune::put(memory, one.place, one.words);
}

std::vector<attune_named_array> StoredArrays::named(void* memory) const {
  std::vector<attune_named_array> result;
  for (const Stored& one : stored_) {
    attune_named_array array{.name = one.name.c_str(),
                             .data = at<void>(memory, one.place),
                             .element = one.is_real ? ATTUNE_FP32 : ATTUNE_INT32,
                             .rank = static_cast<std::int32_t>(one.extents.size()),
                             .extents = {}};
    std::ranges::copy(one.extents, array.extents);
    result.push_back(array);
  }
  return result;
}

}  // namespace attune::testing
