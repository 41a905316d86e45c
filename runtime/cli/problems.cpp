#include "runtime/cli/problems.hpp"

#include <fmt/format.h>

#include <utility>

#include "generator/variant.hpp"
#include "runtime/cli/failure.hpp"
#include "runtime/cli/problem_options.hpp"
#include "runtime/lab/lengths.hpp"
#include "runtime/operations/prefill/problem_fields.hpp"

namespace attune::cli {

namespace {

/// Calls `visit` with the fields that are sizes or, where those are not asked for, choices of a variant, of those that
/// the command line has.
template <class Visitor>
void for_each_option(bool sizes, const Visitor& visit) {
  for_each_field<Problem>([&](const auto& field) {
    const bool is_size = field.topic == Topic::batch || field.topic == Topic::heads || field.topic == Topic::lengths;
    if (field.doc != nullptr && is_size == sizes) visit(field);
  });
}

bool any_given(const CLI::App& app, bool sizes) {
  bool given = false;
  for_each_option(sizes, [&](const auto& field) { given = given || app.count(option_name(field)) > 0; });
  return given;
}

}  // namespace

void ProblemOptions::add_sizes(CLI::App& app) {
  for_each_option(true, [&](const auto& field) { add_field_option(app, "Problem", field, named); });
}

void ProblemOptions::add_choices(CLI::App& app) {
  for_each_option(false, [&](const auto& field) { add_field_option(app, "Problem", field, named); });
}

bool ProblemOptions::given(const CLI::App& app) { return any_given(app, true); }

bool ProblemOptions::choices_given(const CLI::App& app) { return any_given(app, false); }

Problem ProblemOptions::problem() const {
  Problem result = named;
  result.complete();
  result.set_window(named.window_left, named.window_right);
  return result;
}

Problem ProblemOptions::problem_for(const Variant& variant) const {
  Problem result = problem();
  result.dtype = static_cast<Dtype>(variant.dtype);
  result.head_dim = variant.head_dim;
  result.head_dim_v = variant.head_dim_v;
  result.causal = variant.causal != 0;
  if (variant.window != 0) result.set_window(result.seqlen_k / 4, 0);
  if (variant.softcap != 0) result.softcap = 30;
  if (variant.ragged != 0) make_ragged(result);
  if (variant.paged != 0) make_paged(result);
  if (variant.gqa_ratio > 0 && named.heads_kv == left_out && result.heads_q % variant.gqa_ratio == 0) {
    result.heads_kv = result.heads_q / variant.gqa_ratio;
  }
  return result;
}

namespace {

void throw_all(const std::vector<std::string>& problems) {
  std::vector<Diagnostic> found;
  for (const std::string& text : problems) found.push_back({.where = {}, .what = text, .fix = {}});
  throw_any(std::move(found));
}

}  // namespace

void require_sound(const Problem& problem) { throw_all(problems_of(problem)); }

void require_sound(const DecodeProblem& problem) { throw_all(problems_of(problem)); }

}  // namespace attune::cli
