#include "runtime/cli/tune_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <utility>
#include <variant>

#include "generator/parallel.hpp"
#include "runtime/cli/verify.hpp"

namespace attune::cli {
namespace {

bool rows_agree(Dtype dtype, std::span<const std::uint16_t> row, std::span<const std::uint16_t> trusted) {
  constexpr double of_rms = 0.05;
  constexpr double of_value = 0x1p-6;  // two ulps of bf16
  double squares = 0;
  for (const std::uint16_t bits : trusted) squares += std::pow(from_storage(dtype, bits), 2);
  const double rms = std::sqrt(squares / static_cast<double>(trusted.size()));
  for (std::size_t i = 0; i < row.size(); ++i) {
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

std::string differences(const Trial& trial, const Outputs& outputs, const Outputs& trusted) {
  const Problem& shape = trial.attention();
  constexpr std::size_t piece = 4096;  // rows
  // Of a ragged batch no sequence may have a row, and then no kernel writes it.
  const auto is_poison = [](std::span<const std::uint16_t> row) {
    return std::ranges::all_of(row, [](std::uint16_t bits) { return bits == poison; });
  };
  const auto same_row = [&](std::span<const std::uint16_t> row, std::span<const std::uint16_t> other) {
    return (shape.ragged && is_poison(row) && is_poison(other)) || rows_agree(shape.dtype, row, other);
  };
  const auto same_lse = [&](float lse, float other) {
    return (shape.ragged && std::isnan(lse) && std::isnan(other)) || lse_agrees(lse, other);
  };
  std::atomic<std::size_t> wrong{0};
  std::size_t total = 0;
  std::size_t begin = 0;
  for (const auto& [rows, columns] : trial.result_rows()) {
    const auto agrees = [&, begin, width = static_cast<std::size_t>(columns)](std::size_t row) {
      const std::size_t place = begin + row * width;
      const bool has_lse = begin == 0 && row < outputs.lse.size();
      return same_row(std::span(outputs.o).subspan(place, width), std::span(trusted.o).subspan(place, width)) &&
             (!has_lse || same_lse(outputs.lse[row], trusted.lse[row]));
    };
    parallel_for(static_cast<long long>((rows + piece - 1) / piece), 0, [&, rows = rows](long long which) {
      const std::size_t first = static_cast<std::size_t>(which) * piece;
      for (std::size_t row = first; row < std::min(rows, first + piece); ++row) {
        if (!agrees(row)) ++wrong;
      }
    });
    begin += rows * columns;
    total += rows;
  }
  std::string text;
  if (wrong > 0) text = fmt::format("{} of {} rows differ from those of the heuristic's choice", wrong.load(), total);
  if (!outputs.guards_intact) text += fmt::format("{}it wrote past the end of an output", text.empty() ? "" : "; ");
  return text;
}

GpuBench::GpuBench(GpuLab& lab, int ordinal) : lab_(&lab) {
  gpu_.device = gpu_.driver.device(ordinal);
  gpu_.driver.make_current(ordinal);
}

LoadedKernel GpuBench::load(const Variant& variant) const {
  return {gpu_.driver, variant, gpu_.device, lab_->image(variant), variant.name()};
}

std::vector<LoadedKernel> GpuBench::load_companions(std::span<const Variant> variants) const {
  std::set<Variant> seen;
  std::vector<LoadedKernel> loaded;
  for (const Variant& variant : variants) {
    for (const Variant& companion : companions_of(variant, gpu_.device)) {
      if (seen.insert(companion).second) loaded.push_back(load(companion));
    }
  }
  return loaded;
}

std::string GpuBench::check(const Variant& variant) {
  Verdict verdict{.variant = variant.name(), .problems = 0, .worst = 0, .disagreements = {}, .banks = {}};
  const LoadedKernel kernel = load(variant);
  const std::vector<LoadedKernel> companions = load_companions({&variant, 1});
  FixedKernels kernels(companions);
  kernels.add(kernel);
  for (const auto& trial : small_trials(variant, lab_->seed())) {
    const KnownTrial& known = lab_->known(*trial);
    const TrialPlan planned = trial->plan_with(kernels);
    DeviceTrial on_device(gpu_.driver, *trial, known.inputs, planned.workspace_bytes);
    on_device.launch(planned);
    add_outcome(verdict, *trial, on_device.fetch(), known.expected);
  }
  if (verdict.ok()) return {};
  const Verdict::Disagreement& first = verdict.disagreements.front();
  return fmt::format("wrong on {}: {}", first.problem, first.what);
}

void GpuBench::open(const tune::AnyProblem& problem, std::span<const Variant> candidates) {
  contest_.reset();
  kernels_.clear();
  companions_.clear();
  for (const Variant& variant : candidates) kernels_.push_back(load(variant));
  companions_ = load_companions(candidates);
  std::vector<FixedKernels> contestants;
  for (const LoadedKernel& kernel : kernels_) contestants.emplace_back(companions_).add(kernel);
  contest_.emplace(gpu_, std::visit([&](const auto& one) { return make_trial(one, lab_->seed()); }, problem),
                   contestants);
}

std::vector<double> GpuBench::time(int /*round*/, std::span<const int> order) { return contest_->time(order); }

std::string GpuBench::compare(int candidate, int trusted) {
  return differences(contest_->trial(), contest_->result_of(candidate), contest_->result_of(trusted));
}

}  // namespace attune::cli
