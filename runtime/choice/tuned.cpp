#include "runtime/choice/tuned.hpp"
#include "runtime/call/field_checks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "generator/json_fields.hpp"
#include "generator/problem_list.hpp"
#include "runtime/base/error.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/prefill/plan.hpp"

namespace attune {
namespace {

constexpr int rotary_dim_step = 16;

int pages_for(int seqlen_k, int page_size) { return std::max(1, (seqlen_k + page_size - 1) / page_size); }

/// What the rows of one operation are sorted by: first what a kernel must have, then sizes from the model's to the
/// batch's.
auto order_of(const Problem& problem) {
  return std::tuple(problem.dtype, problem.head_dim, problem.head_dim_v, problem.causal, problem.has_window(),
                    problem.softcap, problem.ragged, problem.paged, problem.heads_q, problem.heads_kv, problem.seqlen_q,
                    problem.seqlen_k, problem.batch, problem);
}

auto order_of(const DecodeProblem& problem) {
  return std::tuple(problem.dtype, problem.head_dim, problem.window_left >= 0, problem.softcap, problem.rotary,
                    problem.paged(), problem.equal_lengths, problem.ragged, problem.splits, problem.heads_q,
                    problem.heads_kv, problem.seqlen_q, problem.max_seqlen_k, problem.batch, problem);
}

bool comes_before(const TunedProblem& a, const TunedProblem& b) {
  if (a.index() != b.index()) return a.index() < b.index();
  return std::visit(
      [&](const auto& left) { return order_of(left) < order_of(std::get<std::decay_t<decltype(left)>>(b)); }, a);
}

constexpr const char* name_of(const Problem&) { return "prefill"; }
constexpr const char* name_of(const DecodeProblem&) { return "decode"; }

/// What both operations have, under the names of the C structs.
template <class AnyProblem>
Json sizes_of(const AnyProblem& problem, int seqlen_k) {
  Json object{{"operation", name_of(problem)}};
  object["dtype"] = json_value(*find_field("dtype"), static_cast<int>(problem.dtype));
  object["head_dim"] = problem.head_dim;
  object["batch"] = problem.batch;
  object["heads_q"] = problem.heads_q;
  object["heads_kv"] = problem.heads_kv;
  object["seqlen_q"] = problem.seqlen_q;
  object["seqlen_k"] = seqlen_k;
  return object;
}

Json json_of(const Problem& problem) {
  Json object = sizes_of(problem, problem.seqlen_k);
  if (problem.head_dim_v != 0) object["head_dim_v"] = problem.head_dim_v;
  if (problem.causal) object["causal"] = true;
  if (problem.window_left >= 0) object["window_left"] = problem.window_left;
  if (problem.window_right >= 0) object["window_right"] = problem.window_right;
  if (problem.softcap > 0) object["softcap"] = true;
  if (problem.paged) object["page_size"] = problem.page_size;
  if (!problem.ragged) return object;
  object["ragged"] = true;
  object["total_q"] = problem.total_q;
  if (!problem.paged) object["total_k"] = problem.total_k;
  return object;
}

Json json_of(const DecodeProblem& problem) {
  Json object = sizes_of(problem, problem.max_seqlen_k);
  if (problem.window_left >= 0) object["window_left"] = problem.window_left;
  if (problem.softcap > 0) object["softcap"] = true;
  if (problem.paged()) object["page_size"] = problem.page_size;
  if (problem.equal_lengths) object["equal_lengths"] = true;
  if (problem.splits > 0) object["splits"] = problem.splits;
  if (problem.rotates()) object["rotary"] = json_value(*find_field("rotary"), static_cast<int>(problem.rotary));
  if (!problem.ragged) return object;
  object["ragged"] = true;
  object["total_q"] = problem.total_q;
  if (problem.packed_keys) object["total_k"] = problem.total_k;
  return object;
}

template <class AnyProblem>
void read_sizes(AnyProblem& problem, int& seqlen_k, JsonFields& fields) {
  constexpr int most_head_dim = 256;
  problem.dtype = static_cast<Dtype>(fields.value_of(*find_field("dtype")));
  problem.head_dim = fields.integer("head_dim", 1, most_head_dim);
  problem.batch = fields.integer("batch", 1, most_rows);
  problem.heads_q = fields.integer("heads_q", 1, most_rows);
  problem.heads_kv = fields.integer("heads_kv", 1, most_rows);
  problem.seqlen_q = fields.integer("seqlen_q", 1, most_rows);
  seqlen_k = fields.integer("seqlen_k", 1, most_rows);
  problem.softcap = fields.flag("softcap") ? 1 : 0;
  problem.window_left = fields.integer("window_left", 0, most_rows - 1, -1);
  problem.page_size = fields.integer("page_size", 1, most_rows, 0);
}

TunedProblem read_prefill(JsonFields& fields) {
  constexpr int most_head_dim = 256;
  Problem problem;
  read_sizes(problem, problem.seqlen_k, fields);
  problem.head_dim_v = fields.integer("head_dim_v", 1, most_head_dim, 0);
  problem.causal = fields.flag("causal");
  problem.window_right = fields.integer("window_right", 0, most_rows - 1, -1);
  problem.ragged = fields.flag("ragged");
  problem.total_q = fields.integer("total_q", 1, most_rows, longest_total(problem.batch, problem.seqlen_q));
  problem.total_k = fields.integer("total_k", 1, most_rows, longest_total(problem.batch, problem.seqlen_k));
  problem.paged = problem.page_size > 0;
  return tuned_problem(problem);
}

TunedProblem read_decode(JsonFields& fields) {
  DecodeProblem problem;
  read_sizes(problem, problem.max_seqlen_k, fields);
  problem.table_width = problem.page_size > 0 ? 2 : 1;  // paged or not; tuned_problem() knows how many pages
  problem.equal_lengths = fields.flag("equal_lengths");
  constexpr int most_splits = 256;
  problem.splits = fields.integer("splits", 1, most_splits, 0);
  problem.rotary = static_cast<Rotary>(fields.value_of(*find_field("rotary"), 0));
  problem.seqlen_new = problem.rotates() ? 1 : 0;
  problem.ragged = fields.flag("ragged");
  problem.total_q = fields.integer("total_q", 1, most_rows, longest_total(problem.batch, problem.seqlen_q));
  problem.total_k = fields.integer("total_k", 1, most_rows, 0);
  problem.packed_keys = problem.total_k > 0;
  return tuned_problem(problem);
}

/// Reads the problem of a row; nothing, and diagnostics, where it is none that a kernel could serve.
std::optional<TunedProblem> read_problem(const TunedLine& line, std::vector<Diagnostic>& problems) {
  const std::size_t before = problems.size();
  const std::optional<Json> object = parse_json_object(line.problem, line.where, problems);
  if (!object) return std::nullopt;
  JsonFields fields(*object, "problem", line.where, problems);
  const std::string operation = fields.word("operation");
  if (operation != "prefill" && operation != "decode") {
    if (!operation.empty()) fields.problem(fmt::format("operation of problem is '{}'", operation), "prefill or decode");
    return std::nullopt;
  }
  const TunedProblem problem = operation == "prefill" ? read_prefill(fields) : read_decode(fields);
  fields.finish();
  if (problems.size() > before) return std::nullopt;
  for (const std::string& reason : std::visit([](const auto& one) { return problems_of(one); }, problem)) {
    fields.problem("problem: " + reason);
  }
  if (problems.size() > before) return std::nullopt;
  return problem;
}

}  // namespace

Problem tuned_problem(const Problem& problem) {
  Problem result = problem;
  result.set_window(problem.window_left, problem.window_right);
  if (result.head_dim_v == result.head_dim) result.head_dim_v = 0;
  result.softcap = problem.softcap > 0 ? 1 : 0;
  const bool has_totals = problem.ragged;
  if (!has_totals) result.total_q = 0;
  if (!has_totals || problem.paged) result.total_k = 0;
  result.page_size = problem.paged ? problem.page_size : 0;
  result.table_width = problem.paged ? pages_for(problem.seqlen_k, problem.page_size) : 0;
  result.pages = problem.paged ? longest_total(problem.batch, result.table_width) : 0;
  result.mappable_strides = true;
  return result;
}

DecodeProblem tuned_problem(const DecodeProblem& problem) {
  DecodeProblem result = problem;
  result.page_size = problem.paged() ? problem.page_size : std::max(1, problem.max_seqlen_k);
  result.table_width = problem.paged() ? std::max(2, pages_for(problem.max_seqlen_k, problem.page_size)) : 1;
  result.pages = longest_total(problem.batch, result.table_width);
  result.window_left = problem.window_left < problem.max_seqlen_k - 1 ? problem.window_left : -1;
  result.window_right = -1;
  result.softcap = problem.softcap > 0 ? 1 : 0;
  if (!problem.ragged) result.total_q = 0;
  if (problem.packed_keys) {
    result.total_k = std::max(1, problem.total_k);
    result.page_size = result.pages = result.table_width = 1;
  }
  result.seqlen_new = problem.rotates() ? 1 : 0;
  result.rotary_dim = problem.rotates() ? problem.head_dim / rotary_dim_step * rotary_dim_step : 0;
  result.rotations = problem.rotates() ? std::max(1, problem.max_seqlen_k) : 0;
  return result;
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

int longest_total(int batch, int seqlen) {
  return static_cast<int>(std::clamp<long long>(static_cast<long long>(batch) * seqlen, 0, most_rows));
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
  const Variant& own = row.result.variant;
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
    const Json problem = std::visit([](const auto& one) { return json_of(one); }, row.problem);
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
