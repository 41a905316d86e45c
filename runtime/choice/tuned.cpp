#include "runtime/choice/tuned.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "generator/condition.hpp"
#include "generator/problem_list.hpp"
#include "runtime/base/error.hpp"
#include "runtime/choice/tuned_row.hpp"
#include "runtime/operations/backward/problem_fields.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/decode/problem_fields.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "runtime/operations/prefill/problem_fields.hpp"

namespace attune {
namespace {

/// What the rows of one operation are sorted by: first what a kernel must have, then sizes from the model's to the
/// batch's.
template <class P>
auto order_of(const P& problem) {
  return std::tuple_cat(kind_of(problem), std::tuple(problem.heads_q, problem.heads_kv, problem.seqlen_q,
                                                     most_keys(problem), problem.batch, problem));
}

bool comes_before(const TunedProblem& a, const TunedProblem& b) {
  if (a.index() != b.index()) return a.index() < b.index();
  return std::visit(
      [&](const auto& left) { return order_of(left) < order_of(std::get<std::decay_t<decltype(left)>>(b)); }, a);
}

/// Reads the problem of a row; nothing, and diagnostics, where it is none that a kernel could serve.
std::optional<TunedProblem> read_problem(const TunedLine& line, std::vector<Diagnostic>& problems) {
  const std::size_t before = problems.size();
  const std::optional<Json> object = parse_json_object(line.problem, line.where, problems);
  if (!object) return std::nullopt;
  JsonFields fields(*object, "problem", line.where, problems);
  const std::string operation = fields.word("operation");
  const std::vector<TunedProblem> each = each_operation(TunedProblem());
  const TunedProblem* const known = find_operation(each, operation);
  if (known == nullptr) {
    if (!operation.empty()) {
      fields.problem(fmt::format("operation of problem is '{}'", operation), operations_text(each));
    }
    return std::nullopt;
  }
  const auto read = [&]<class P>(const P& /*type*/) {
    P problem = P::usual();
    read_row(fields, problem);
    problem.complete();
    return tuned_problem(TunedProblem(problem));
  };
  const TunedProblem problem = std::visit(read, *known);
  fields.finish();
  if (problems.size() > before) return std::nullopt;
  for (const std::string& reason : std::visit([](const auto& one) { return problems_of(one); }, problem)) {
    fields.problem("problem: " + reason);
  }
  if (problems.size() > before) return std::nullopt;
  return problem;
}

/// As its row, with no more pages than there may be: tables may name the same ones again and again.
template <class P>
P in_table(const P& problem) {
  P result = as_row(problem);
  if constexpr (requires { result.pages; }) result.pages = std::min(result.pages, most_rows);
  return result;
}

}  // namespace

std::string text_of(const TunedProblem& problem) {
  return std::visit([](const auto& one) { return one.text(); }, problem);
}

TunedProblem tuned_problem(const TunedProblem& problem) {
  return std::visit([](const auto& one) { return TunedProblem(in_table(without_idle_bounds(one))); }, problem);
}

void TunedTable::put(TunedRow row) {
  const auto place = std::ranges::lower_bound(rows, row.problem, comes_before, &TunedRow::problem);
  if (place != rows.end() && place->problem == row.problem) {
    *place = std::move(row);
  } else {
    rows.insert(place, std::move(row));
  }
}

const TunedRow* TunedTable::find(const TunedProblem& problem) const {
  const auto place = std::ranges::lower_bound(rows, problem, comes_before, &TunedRow::problem);
  return place != rows.end() && place->problem == problem ? &*place : nullptr;
}

TunedGpu tuned_gpu(const Device& device) {
  return {.name = device.name, .capability = device.capability, .multiprocessors = device.multiprocessors};
}

Device device_of(const TunedGpu& gpu) {
  const auto arch = std::ranges::find(all_archs(), gpu.capability, &Arch::capability);
  if (arch == all_archs().end()) {
    throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{}: compute capability {}.{} is not known", gpu.name,
                                                     gpu.capability / 10, gpu.capability % 10));
  }
  Device device = device_of(*arch);
  device.name = gpu.name;
  device.multiprocessors = gpu.multiprocessors;
  return device;
}

Variant variant_for(const TunedRow& row, const Need& need) {
  Variant own = row.result.variant;
  const CallExpressions expressions = CallExpressions::of(need);
  if (expressions.any()) {  // a row's tile serves with them, as tables name none
    own = expressions.given_to(own);
    own.stream_k = 0;
    if (need.mask != 0) own.tile_list = 0;
    Variant apart = own;
    apart.P_residual_keys = 0;
    if (first_keys_apart(apart) > 0) own = apart;
  }
  return meets(own, need) ? own : relaxed(own);
}

std::string tuned_file_name(const TunedGpu& gpu) {
  constexpr std::string_view maker = "NVIDIA ";
  std::string_view name = gpu.name;
  if (name.starts_with(maker)) name.remove_prefix(maker.size());
  std::string result;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    result += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '_';
  }
  return result + ".yaml";
}

Result<TunedTable> parse_tuned(std::string_view text, const std::string& file) {
  Result<TunedFile> parsed = parse_tuned_file(text, file);
  Result<TunedTable> result{.value = {.gpu = parsed.value.gpu, .rows = {}}, .problems = std::move(parsed.problems)};
  if (result.value.gpu.capability == 0) return result;
  const Device device = device_of(result.value.gpu);
  std::map<TunedProblem, int, decltype(&comes_before)> lines(comes_before);
  for (TunedLine& line : parsed.value.rows) {
    if (is_full(result.problems)) break;
    const std::optional<TunedProblem> problem = read_problem(line, result.problems);
    if (!problem) continue;
    const auto [first, is_new] = lines.emplace(*problem, line.where.line);
    if (!is_new) {
      add_problem(result.problems,
                  {line.where, fmt::format("the problem has a row already, on line {}", first->second), "keep one"});
      continue;
    }
    const Variant& variant = line.result.variant;
    const auto reasons = std::visit([&](const auto& one) { return refusals(variant, one, device); }, *problem);
    if (!reasons.empty()) {
      add_problem(result.problems,
                  {line.where, fmt::format("the variant cannot serve the problem: {}", fmt::join(reasons, "; ")), ""});
      continue;
    }
    result.value.rows.push_back({*problem, std::move(line.result)});
  }
  std::ranges::stable_sort(result.value.rows, comes_before, &TunedRow::problem);
  std::ranges::stable_sort(result.problems, {}, [](const Diagnostic& one) { return one.where.line; });
  return result;
}

Result<TunedTable> read_tuned(const std::filesystem::path& path) {
  Result<std::string> text = read_tuned_text(path);
  if (!text.ok()) return {.value = {}, .problems = std::move(text.problems)};
  return parse_tuned(text.value, path.string());
}

std::string tuned_text(const TunedTable& table) {
  TunedFile file{.gpu = table.gpu, .rows = {}};
  for (const TunedRow& row : table.rows) {
    const Json problem = std::visit([](const auto& one) { return row_of(one); }, row.problem);
    file.rows.push_back({.problem = json_line(problem), .result = row.result, .where = {}});
  }
  std::string text = tuned_file_text(file);
  const Result<TunedTable> again = parse_tuned(text, table.gpu.name);
  if (again.ok() && again.value == table) return text;
  throw Error(ATTUNE_INVALID_ARGUMENT,
              again.ok() ? fmt::format("the table for {} is not sorted by tuned problems", table.gpu.name)
                         : again.problems.front().text());
}

}  // namespace attune
