#include "runtime/operations/store/problem.hpp"

#include <fmt/format.h>

#include "runtime/call/field_checks.hpp"

namespace attune {
namespace {

std::string word_of(const char* key, int value) { return value_text(*find_field(key), value); }

}  // namespace

const ProblemFacts StoreProblem::facts = usual_facts<StoreProblem>();

std::string StoreProblem::text() const {
  std::string text =
      fmt::format("store_kv {} d{} b{} hk{} t{} pages{} page{}", word_of("dtype", static_cast<int>(dtype)), head_dim,
                  batch, heads_kv, tokens, pages, page_size);
  if (rotates()) text += fmt::format(" {}{}", word_of("rotary", static_cast<int>(rotary)), rotary_dim);
  return text;
}

std::vector<std::string> problems_of(const StoreProblem& problem) {
  FieldChecks checks;
  checks.dtype(problem.dtype);
  checks.at_least("batch", problem.batch, 0);
  checks.in_range("tokens", problem.tokens, 0, most_rows);
  checks.at_least("heads_kv", problem.heads_kv, 1);
  checks.head_dim("head_dim", problem.head_dim);
  checks.in_range("page_size", problem.page_size, 1, most_rows);
  checks.in_range("pages", problem.pages, 0, most_rows);
  checks.in_range("table_width", problem.table_width, 1, most_rows);
  checks.rotation(problem.rotary, problem.rotary_dim, problem.rotations, problem.head_dim);
  return std::move(checks).take();
}

bool is_empty(const StoreProblem& problem) { return problem.batch == 0 || problem.tokens == 0 || problem.pages == 0; }

}  // namespace attune
