#include "runtime/call/expressions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "generator/expression/cuda.hpp"
#include "generator/expression/parse.hpp"
#include "generator/expression/pool.hpp"
#include "runtime/base/add_line.hpp"
#include "runtime/base/error.hpp"
#include "runtime/call/arguments.hpp"

namespace attune {
namespace {

using expression::Expression;
using expression::Parameter;
using expression::Per;
using expression::Use;

/// The number of a text. A thread remembers its last texts: a launch must not wait for their parsing.
int remembered_number(std::string_view text, Use use) {
  struct Entry {
    std::string text;
    Use use = Use::score;
    int number = 0;
  };
  thread_local std::array<Entry, 16> met{};
  thread_local std::size_t replaced = 0;
  const auto known = std::ranges::find_if(
      met, [&](const Entry& entry) { return entry.number != 0 && entry.use == use && entry.text == text; });
  if (known != met.end()) return known->number;
  const Result<Expression> parsed = expression::parse(text, use, {}, {use == Use::score ? "score" : "mask", 1, 1});
  if (!parsed.ok()) throw Error(ATTUNE_INVALID_ARGUMENT, parsed.problems.front().text());
  const int number = expression::number_of(parsed.value);
  met[replaced++ % met.size()] = {std::string{text}, use, number};
  return number;
}

const Expression* expression_or_null(int number) { return number == 0 ? nullptr : &expression::expression_of(number); }

std::vector<Parameter> parameters_of(const CallExpressions& expressions) {
  return expression::parameters_of(expression_or_null(expressions.score), expression_or_null(expressions.mask));
}

/// Those of the numbers' own expressions, which stay: of a score and a mask, those of both again.
std::vector<const Parameter*> read_by(const CallExpressions& expressions) {
  std::vector<const Parameter*> found;
  for (const Expression* one : {expression_or_null(expressions.score), expression_or_null(expressions.mask)}) {
    if (one == nullptr) continue;
    for (const Parameter& parameter : one->parameters) found.push_back(&parameter);
  }
  return found;
}

const attune_named_array* find_array(const ExpressionTexts& texts, std::string_view name) {
  if (texts.params == nullptr) return nullptr;
  for (int i = 0; i < texts.count; ++i) {
    if (texts.params[i].name != nullptr && texts.params[i].name == name) return &texts.params[i];
  }
  return nullptr;
}

/// What an extent has to be, and whether it may be more.
std::pair<long long, bool> wanted_extent(const expression::Dimension& dimension, const ExpressionExtents& extents) {
  switch (dimension.per) {
    case Per::head:
      return {extents.heads_q, false};
    case Per::kv_head:
      return {extents.heads_kv, false};
    case Per::batch:
      return {extents.batch, false};
    case Per::query:
      return {extents.queries, true};
    case Per::position:
      return {extents.positions, true};
    case Per::fixed:
      break;
  }
  return {dimension.extent, false};
}

void check_array(std::vector<std::string>& found, const Parameter& parameter, const attune_named_array& array,
                 const ExpressionExtents& extents) {
  const int element = parameter.type == expression::Type::real ? ATTUNE_FP32 : ATTUNE_INT32;
  if (raw(array.element) != element) {
    add_line(found, "params: {} has elements of another type; {}", parameter.name, parameter.text());
  }
  if (array.rank != static_cast<int>(parameter.per.size())) {
    add_line(found, "params: {} has rank {}; {}", parameter.name, array.rank, parameter.text());
    return;
  }
  constexpr long long most_elements = 1LL << 40;
  long long elements = 1;
  for (std::size_t i = 0; i < parameter.per.size(); ++i) {
    const auto [wanted, or_more] = wanted_extent(parameter.per[i], extents);
    const long long given = array.extents[i];
    if (given > expression::most_extent && or_more) {
      add_line(found, "params: extent {} of {} is {}; it must be at most {}", i, parameter.name, given,
               expression::most_extent);
      return;
    }
    if (given < wanted || (given > wanted && !or_more)) {
      add_line(found, "params: extent {} of {} is {}; it must be {}{}, its {}", i, parameter.name, given,
               or_more ? "at least " : "", wanted, parameter.per[i].text());
      return;
    }
    elements *= std::max(1LL, given);
    if (elements > most_elements) {
      add_line(found, "params: {} has more than {} elements", parameter.name, most_elements);
      return;
    }
  }
}

}  // namespace

std::string CallExpressions::text() const {
  std::string result;
  if (score != 0) result += fmt::format(" score ({})", expression::text_of_number(score));
  if (mask != 0) result += fmt::format(" mask ({})", expression::text_of_number(mask));
  if (sink != 0) result += " sink";
  return result;
}

CallExpressions read_expressions(const ExpressionTexts& texts) {
  CallExpressions result;
  if (texts.score != nullptr) result.score = remembered_number(texts.score, Use::score);
  if (texts.mask != nullptr) result.mask = remembered_number(texts.mask, Use::mask);
  result.sink = texts.sink != nullptr ? 1 : 0;
  return result;
}

std::string conflict_of(const CallExpressions& expressions) {
  const std::string conflict =
      expression::conflict_of(expression_or_null(expressions.score), expression_or_null(expressions.mask));
  return conflict.empty() ? conflict : "params: " + conflict;
}

std::vector<attune_named_array> stand_ins(const CallExpressions& expressions, const ExpressionExtents& extents,
                                          const void* data) {
  std::vector<attune_named_array> arrays;
  for (const Parameter* parameter : read_by(expressions)) {
    attune_named_array array{.name = parameter->name.c_str(),
                             .data = data,
                             .element = parameter->type == expression::Type::real ? ATTUNE_FP32 : ATTUNE_INT32,
                             .rank = static_cast<std::int32_t>(parameter->per.size()),
                             .extents = {}};
    std::ranges::transform(parameter->per, array.extents,
                           [&](const expression::Dimension& one) { return wanted_extent(one, extents).first; });
    arrays.push_back(array);
  }
  return arrays;
}

void check_expressions(std::vector<std::string>& found, const ExpressionTexts& texts,
                       const CallExpressions& expressions, const ExpressionExtents& extents) {
  if (expressions.sink != 0) {
    check_flag(found, "sink_like_q", texts.sink_like_q);
    check_alignment(found, "sink", texts.sink, texts.sink_bytes());
  }
  if (expressions.score == 0 && expressions.mask == 0) return;
  const auto at_most = [&](const char* name, long long value, long long most) {
    if (value > most) add_line(found, "{} is {}; with expressions it must be at most {}", name, value, most);
  };
  at_most("heads_q", extents.heads_q, expression::most_heads);
  at_most("batch", extents.batch, expression::most_sequences);
  at_most("seqlen_q", extents.queries, expression::most_positions);
  at_most("seqlen_k", extents.positions, expression::most_positions);
  if (std::string conflict = conflict_of(expressions); !conflict.empty()) found.push_back(std::move(conflict));
  if (texts.count < 0 || (texts.count > 0 && texts.params == nullptr)) {
    add_line(found, "param_count is {}, and params is {}", texts.count, texts.params == nullptr ? "null" : "not null");
    return;
  }
  for (const Parameter& parameter : parameters_of(expressions)) {
    const attune_named_array* array = find_array(texts, parameter.name);
    if (array == nullptr) {
      add_line(found, "params: {} is missing; {}", parameter.name, parameter.text());
      continue;
    }
    check_array(found, parameter, *array, extents);
    if (array->data == nullptr) add_line(found, "params: {} is null", parameter.name);
    check_alignment(found, array->name, array->data, sizeof(float));
  }
}

void visit_expressions(const ExpressionTexts& texts, const CallExpressions& expressions, VisitOperand visit) {
  if (expressions.sink != 0) {
    visit(array_operand("sink", texts.sink, texts.sink_bytes(), texts.sink_bytes(), {1, 1, 1, texts.heads_q},
                        Access::read));
  }
  for (const Parameter& parameter : parameters_of(expressions)) {
    const attune_named_array* array = find_array(texts, parameter.name);
    if (array == nullptr) continue;
    std::array<std::int64_t, 4> extents{1, 1, 1, 1};
    const auto rank = static_cast<std::size_t>(std::clamp(array->rank, 0, 4));
    std::copy_n(array->extents, rank, extents.end() - static_cast<std::ptrdiff_t>(rank));
    visit(array_operand(array->name, static_cast<const float*>(array->data), extents));
  }
}

AttuneExpressionParams expression_params(const ExpressionTexts& texts, const CallExpressions& expressions,
                                         float score_scale) {
  AttuneExpressionParams result{};
  result.score_scale = score_scale;
  result.sink = texts.sink;
  result.sink_like_q = texts.sink_like_q;
  std::size_t i = 0;
  for (const Parameter& parameter : parameters_of(expressions)) {
    const attune_named_array& array = *find_array(texts, parameter.name);
    AttuneArray& to = result.arrays[i++];
    to.data = array.data;
    for (int d = 0; d < 4; ++d)
      to.extents[d] = d < array.rank ? static_cast<int>(std::max<std::int64_t>(1, array.extents[d])) : 1;
  }
  return result;
}

}  // namespace attune
