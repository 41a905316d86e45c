#include "runtime/cli/tune_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "generator/parallel.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/cli/verify.hpp"

namespace attune::cli {
namespace {

bool rows_agree(Dtype dtype, const std::uint16_t* row, const std::uint16_t* trusted, std::size_t columns) {
  constexpr double of_rms = 0.05;
  constexpr double of_value = 0x1p-6;  // two ulps of bf16
  double squares = 0;
  for (std::size_t i = 0; i < columns; ++i) squares += std::pow(from_storage(dtype, trusted[i]), 2);
  const double rms = std::sqrt(squares / static_cast<double>(columns));
  for (std::size_t i = 0; i < columns; ++i) {
    const double a = from_storage(dtype, row[i]);
    const double b = from_storage(dtype, trusted[i]);
    if (!(std::abs(a - b) <= of_rms * rms + of_value * std::abs(b))) return false;
  }
  return true;
}

bool lse_agrees(float lse, float trusted) {
  constexpr float allowed = 1e-3F;
  return lse == trusted || std::abs(lse - trusted) <= allowed * std::max(1.0F, std::abs(trusted));
}

}  // namespace

Variant merging_variant(const Variant& decode, const Device& device) {
  return choose_own(
             CombineProblem{
                 .dtype = static_cast<Dtype>(decode.dtype), .head_dim = decode.head_dim, .ragged = decode.ragged != 0},
             device)
      .variant;
}

std::string differences(const Problem& shape, const Outputs& outputs, const Outputs& trusted) {
  const std::size_t rows = query_rows(shape);
  const auto columns = static_cast<std::size_t>(shape.head_dim_of_v());
  constexpr std::size_t piece = 4096;  // rows
  // Of a ragged batch no sequence may have a row, and then no kernel writes it.
  const Outputs poisoned(shape);
  const auto o_untouched = [&](std::size_t row) {
    const std::span untouched = std::span(poisoned.o).subspan(row * columns, columns);
    return shape.ragged && std::ranges::equal(std::span(outputs.o).subspan(row * columns, columns), untouched) &&
           std::ranges::equal(std::span(trusted.o).subspan(row * columns, columns), untouched);
  };
  const auto lse_untouched = [&](std::size_t row) {
    return shape.ragged && std::isnan(outputs.lse[row]) && std::isnan(trusted.lse[row]);
  };
  std::atomic<std::size_t> wrong{0};
  parallel_for(static_cast<long long>((rows + piece - 1) / piece), 0, [&](long long which) {
    const std::size_t first = static_cast<std::size_t>(which) * piece;
    for (std::size_t row = first; row < std::min(rows, first + piece); ++row) {
      const bool o_agrees =
          o_untouched(row) || rows_agree(shape.dtype, &outputs.o[row * columns], &trusted.o[row * columns], columns);
      if (!o_agrees || !(lse_untouched(row) || lse_agrees(outputs.lse[row], trusted.lse[row]))) ++wrong;
    }
  });
  std::string text;
  if (wrong > 0) text = fmt::format("{} of {} rows differ from those of the heuristic's choice", wrong.load(), rows);
  if (!outputs.guards_intact()) text += fmt::format("{}it wrote past the end of an output", text.empty() ? "" : "; ");
  return text;
}

GpuBench::GpuBench(GpuLab& lab, int ordinal) : lab_(&lab) {
  gpu_.device = gpu_.driver.device(ordinal);
  gpu_.driver.make_current(ordinal);
}

LoadedKernel GpuBench::load(const Variant& variant) const {
  return {gpu_.driver, variant, gpu_.device, lab_->image(variant), variant.name()};
}

std::string GpuBench::check(const Variant& variant) {
  Verdict verdict{.variant = variant.name(), .problems = 0, .worst = 0, .disagreements = {}, .banks = {}};
  const LoadedKernel kernel = load(variant);
  if (family_of(variant).operation == Operation::decode) {
    const LoadedKernel merge = load(merging_variant(variant, gpu_.device));
    for (const DecodeTrial& trial : small_trials(variant)) {
      const KnownTrial& known = lab_->known(trial);
      const DecodePlan planned = plan(variant, trial.problem, gpu_.device);
      const DeviceTrial on_device(gpu_, trial, known.inputs, planned.workspace_bytes);
      on_device.launch(kernel, merge, planned);
      add_outcome(verdict, trial.problem.text(), outputs_of(trial.problem), {.outputs = on_device.fetch(), .fault = {}},
                  [&] { return known.expected; });
    }
  } else {
    for (const Problem& problem : small_problems(variant)) {
      const KnownProblem& known = lab_->known(problem);
      DeviceProblem& on_device = small_.try_emplace(problem.text(), gpu_, problem, known.inputs).first->second;
      on_device.poison();
      on_device.launch(kernel);
      add_outcome(verdict, problem.text(), problem, {.outputs = on_device.fetch(), .fault = {}},
                  [&] { return known.expected; });
    }
  }
  if (verdict.ok()) return {};
  const Verdict::Disagreement& first = verdict.disagreements.front();
  return fmt::format("wrong on {}: {}", first.problem, first.what);
}

void GpuBench::open(const tune::AnyProblem& problem, std::span<const Variant> candidates) {
  contest_.reset();
  kernels_.clear();
  merge_.reset();
  const auto* const decode = std::get_if<DecodeProblem>(&problem);
  shape_ = decode != nullptr ? outputs_of(*decode) : std::get<Problem>(problem);
  for (const Variant& variant : candidates) kernels_.push_back(load(variant));
  if (decode != nullptr) merge_.emplace(load(merging_variant(candidates.front(), gpu_.device)));
  std::vector<const LoadedKernel*> contestants;
  for (const LoadedKernel& kernel : kernels_) contestants.push_back(&kernel);
  contest_.emplace(gpu_, problem, contestants, merge_ ? &*merge_ : nullptr, lab_->seed());
}

std::vector<double> GpuBench::time(int /*round*/, std::span<const int> order) { return contest_->time(order); }

std::string GpuBench::compare(int candidate, int trusted) {
  return differences(shape_, contest_->result_of(candidate), contest_->result_of(trusted));
}

}  // namespace attune::cli
