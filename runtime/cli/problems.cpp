#include "runtime/cli/problems.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <type_traits>
#include <utility>

#include "generator/variant.hpp"
#include "runtime/cli/failure.hpp"
#include "runtime/cli/number_options.hpp"
#include "runtime/cli/problem_options.hpp"
#include "runtime/lab/lengths.hpp"
#include "runtime/operations/decode/problem_fields.hpp"
#include "runtime/operations/prefill/problem_fields.hpp"

namespace attune::cli {

namespace {

enum class Fields { sizes, limits, choices };

bool is_size(const FieldRoles& field) {
  return field.topic == Topic::batch || field.topic == Topic::heads || field.topic == Topic::lengths;
}

/// Calls `visit` with those fields that the command line has.
template <class Visitor>
void for_each_option(Fields which, const Visitor& visit) {
  for_each_field<Problem>([&](const auto& field) {
    using Value = typename std::decay_t<decltype(field)>::ValueType;
    const bool is_limit = field.topic == Topic::mask && !std::is_same_v<Value, bool>;
    const bool wanted = which == Fields::limits ? is_limit : is_size(field) == (which == Fields::sizes);
    if (field.doc != nullptr && wanted) visit(field);
  });
}

bool any_given(const CLI::App& app, Fields which) {
  bool given = false;
  for_each_option(which, [&](const auto& field) { given = given || app.count(option_name(field)) > 0; });
  return given;
}

void add_fields(CLI::App& app, Fields which, Problem& named) {
  for_each_option(which, [&](const auto& field) { add_field_option(app, "Problem", field, named); });
}

}  // namespace

void ProblemOptions::add_sizes(CLI::App& app) { add_fields(app, Fields::sizes, named); }

void ProblemOptions::add_limits(CLI::App& app) { add_fields(app, Fields::limits, named); }

void ProblemOptions::add_choices(CLI::App& app) { add_fields(app, Fields::choices, named); }

bool ProblemOptions::given(const CLI::App& app) { return any_given(app, Fields::sizes); }

bool ProblemOptions::limits_given(const CLI::App& app) { return any_given(app, Fields::limits); }

bool ProblemOptions::choices_given(const CLI::App& app) { return any_given(app, Fields::choices); }

Problem ProblemOptions::problem() const {
  Problem result = named;
  result.complete();
  set_window(result, named.window_left, named.window_right);
  return result;
}

Problem ProblemOptions::problem_for(const Variant& variant) const {
  Problem result = problem();
  result.dtype = static_cast<Dtype>(variant.dtype);
  result.head_dim = variant.head_dim;
  result.head_dim_v = variant.head_dim_v;
  result.causal = result.causal || variant.causal != 0;
  const bool has_window_bounds = named.window_left != -1 || named.window_right != -1;
  if (variant.window != 0 && !has_window_bounds) set_window(result, result.seqlen_k / 4, 0);
  if (variant.softcap != 0 && result.softcap == 0) result.softcap = usual_softcap;
  result.expressions = CallExpressions::of(variant);
  if (variant.ragged != 0) make_ragged(result);
  if (variant.paged != 0) make_paged(result);
  if (variant.gqa_ratio > 0 && named.heads_kv == left_out && result.heads_q % variant.gqa_ratio == 0) {
    result.heads_kv = result.heads_q / variant.gqa_ratio;
  }
  return result;
}

DecodeOptions::DecodeOptions() : named(DecodeProblem::usual()) {
  constexpr int usual_seqlen_k = 4096;
  named.max_seqlen_k = usual_seqlen_k;
  named.seqlen_new = 0;
}

void DecodeOptions::add(CLI::App& app) {
  constexpr const char* group = "Decoding";
  CLI::Option* const only =
      app.add_flag("--decode", decode,
                   "Attention of up to 16 queries to a cache; --seqlen-q is then 1 by default, --seqlen-k 4096")
          ->group(group);
  for_each_field<DecodeProblem>([&](const auto& field) {
    if (field.doc != nullptr) add_field_option(app, group, field, named);
  });
  for (const char* const name : {"--splits", "--seqlen-new", "--rotary"}) app.get_option(name)->needs(only);
  app.get_option("--page-size")->check(positive_number());
  app.add_flag("--lengths-on-device", lengths_on_device,
               "Sequences have up to --seqlen-k keys, how many is known on the GPU alone")
      ->group(group)
      ->needs(only);
}

Problem DecodeOptions::prefill(const ProblemOptions& sizes) const {
  ProblemOptions paged = sizes;
  paged.named.page_size = named.page_size;
  return paged.problem();
}

DecodeProblem DecodeOptions::problem(const ProblemOptions& sizes, const CLI::App& app) const {
  const Problem given = sizes.problem();
  DecodeProblem result = named;
  result.dtype = given.dtype;
  result.batch = given.batch;
  if (app.count("--seqlen-q") > 0) result.seqlen_q = given.seqlen_q;
  result.heads_q = given.heads_q;
  result.heads_kv = given.heads_kv;
  result.head_dim = given.head_dim;
  if (sizes.named.seqlen_k != left_out) result.max_seqlen_k = given.seqlen_k;
  result.equal_lengths = !lengths_on_device && named.seqlen_new == 0;
  result.softcap = given.softcap;
  result.window_left = sizes.named.window_left;
  result.window_right = sizes.named.causal ? 0 : sizes.named.window_right;
  if (result.page_size >= result.max_seqlen_k) result.page_size = left_out;  // one page is as a contiguous cache
  result.complete();
  return result;
}

void throw_problems(const std::vector<std::string>& problems) {
  std::vector<Diagnostic> found;
  for (const std::string& text : problems) found.push_back({.where = {}, .what = text, .fix = {}});
  throw_any(std::move(found));
}

}  // namespace attune::cli
