#include "runtime/cli/verify_decode.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "runtime/choice/choice.hpp"
#include "runtime/cli/banks.hpp"
#include "runtime/cli/device_trial.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"
#include "runtime/operations/decode/arguments.hpp"

namespace attune::cli {
namespace {

using Launch = std::function<Outcome(const DecodeTrial&, CacheInputs&, const DecodePlan&)>;

std::vector<float> poisoned_workspace(const DecodePlan& planned) {
  return std::vector<float>(planned.workspace_bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
}

Verdict try_kernel(const Source& source, const Variant& variant, const Device& device,
                   const std::vector<DecodeTrial>& trials, std::uint64_t seed, const OnTried& on_tried,
                   const Launch& launch) {
  Verdict verdict{.variant = source.name, .problems = 0, .worst = 0, .disagreements = {}, .banks = {}};
  for (const DecodeTrial& trial : trials) {
    const std::vector<std::string> reasons = refusals(variant, trial.problem, device);
    if (reasons.empty()) {
      CacheInputs inputs(trial, seed);
      const Outcome outcome = launch(trial, inputs, plan(variant, trial.problem, device));
      add_outcome(verdict, trial.problem.text(), outputs_of(trial.problem), outcome,
                  [&] { return expected_output(trial, inputs); });
    } else {
      verdict.disagreements.push_back(
          {trial.problem.text(), fmt::format("cannot be served: {}", fmt::join(reasons, "; "))});
    }
    if (on_tried) on_tried();
  }
  return verdict;
}

CombineProblem merging_problem(const Variant& decode) {
  return {.dtype = static_cast<Dtype>(decode.dtype), .head_dim = decode.head_dim, .ragged = decode.ragged != 0};
}

}  // namespace

std::vector<Source> merging_sources(const std::vector<Source>& sources, const Device& device) {
  std::vector<Source> result;
  for (const Source& source : sources) {
    if (family_of(source.variant).operation != Operation::decode) continue;
    const Variant merge = choose_own(merging_problem(source.variant), device).variant;
    const bool known = std::ranges::any_of(result, [&](const Source& one) { return one.variant == merge; });
    if (!known) result.push_back(generate(merge));
  }
  return result;
}

const Built* merging_kernel(const std::vector<Built>& merging, const Variant& decode) {
  const auto serves = [&](const Built& one) {
    const Variant& variant = one.source->variant;
    return one.ok() && variant.dtype == decode.dtype && variant.head_dim >= decode.head_dim &&
           variant.ragged == decode.ragged;
  };
  const auto found = std::ranges::find_if(merging, serves);
  return found == merging.end() ? nullptr : &*found;
}

Verdict verify(const Gpu& gpu, const Built& decode, const Built& merge, const std::vector<DecodeTrial>& trials,
               std::uint64_t seed, const OnTried& on_tried) {
  const LoadedKernel kernel(gpu.driver, decode.source->variant, gpu.device, decode.compiled.image, decode.source->name);
  const LoadedKernel merging(gpu.driver, merge.source->variant, gpu.device, merge.compiled.image, merge.source->name);
  return try_kernel(*decode.source, kernel.variant, gpu.device, trials, seed, on_tried,
                    [&](const DecodeTrial& trial, CacheInputs& inputs, const DecodePlan& planned) {
                      const DeviceTrial on_device(gpu, trial, inputs, planned.workspace_bytes);
                      on_device.launch(kernel, merging, planned);
                      return Outcome{.outputs = on_device.fetch(), .fault = {}};
                    });
}

Verdict verify(const Built& decode, const Built& merge, const std::vector<DecodeTrial>& trials, const EmulatedRun& how,
               const OnTried& on_tried) {
  // A set of GPUs is about machine code, and here is none.
  Variant variant = decode.source->variant;
  variant.arch = 0;
  const EmulatedKernel kernel = emulated_kernel(variant, decode.compiled.image, decode.source->name);
  const EmulatedKernel merging = emulated_kernel(merge.source->variant, merge.compiled.image, merge.source->name);
  std::vector<emulator::BankSite> banks;
  Verdict verdict = try_kernel(*decode.source, variant, emulator::device(), trials, how.seed, on_tried,
                               [&](const DecodeTrial& trial, CacheInputs& inputs, const DecodePlan& planned) {
                                 Outcome outcome{.outputs = Outputs(outputs_of(trial.problem)), .fault = {}};
                                 std::vector<float> workspace = poisoned_workspace(planned);
                                 const attune_decode_args args =
                                     decode_args(trial.problem, {.q = inputs.q.data(),
                                                                 .k = inputs.k.data(),
                                                                 .v = inputs.v.data(),
                                                                 .lengths = inputs.lengths.data(),
                                                                 .table = inputs.table.data(),
                                                                 .cu_seqlens_q = inputs.cu_seqlens_q.data(),
                                                                 .cu_seqlens_k = inputs.cu_seqlens_k.data(),
                                                                 .cos = inputs.angles.cos.data(),
                                                                 .sin = inputs.angles.sin.data(),
                                                                 .o = outcome.outputs.o.data(),
                                                                 .lse = outcome.outputs.lse.data(),
                                                                 .workspace = workspace.data(),
                                                                 .workspace_bytes = planned.workspace_bytes});
                                 // Of the decode kernel alone: another source's lines would be counted among its own.
                                 EmulatedRun once = how;
                                 once.count_banks = how.count_banks && !planned.combines();
                                 FixedKernels kernels{&kernel, &merging};
                                 emulator::Report report = emulate(kernels, once, [&](const Backend& backend) {
                                   run(args, check_arguments(args), kernel, planned, backend, NewKeys::already_there);
                                 });
                                 outcome.fault = std::move(report.fault);
                                 add_sites(banks, report.sites);
                                 return outcome;
                               });
  verdict.banks = std::move(banks);
  return verdict;
}

}  // namespace attune::cli
