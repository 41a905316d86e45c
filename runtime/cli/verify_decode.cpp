#include "runtime/cli/verify_decode.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "generator/check.hpp"
#include "runtime/choice.hpp"
#include "runtime/cli/banks.hpp"
#include "runtime/decode_arguments.hpp"
#include "runtime/decode_emulated.hpp"

namespace attune::cli {
namespace {

using Launch = std::function<Outcome(const DecodeTrial&, CacheInputs&, const DecodePlan&)>;

std::vector<float> poisoned_workspace(const DecodePlan& planned) {
  return std::vector<float>(planned.workspace_bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
}

Verdict try_kernel(const Source& source, const Variant& variant, const Device& device,
                   const std::vector<DecodeTrial>& trials, std::uint64_t seed, const Launch& launch) {
  Verdict verdict{.variant = source.name, .problems = 0, .worst = 0, .disagreements = {}, .banks = {}};
  for (const DecodeTrial& trial : trials) {
    const std::vector<std::string> reasons = refusals(variant, trial.problem, device);
    if (!reasons.empty()) {
      verdict.disagreements.push_back(
          {trial.problem.text(), fmt::format("cannot be served: {}", fmt::join(reasons, "; "))});
      continue;
    }
    CacheInputs inputs(trial, seed);
    const Outcome outcome = launch(trial, inputs, plan(variant, trial.problem, device));
    add_outcome(verdict, trial.problem.text(), outputs_of(trial.problem), outcome,
                [&] { return expected_output(trial, inputs); });
  }
  return verdict;
}

CombineProblem merging_problem(const Variant& decode) {
  return {.dtype = static_cast<Dtype>(decode.dtype), .head_dim = decode.head_dim};
}

/// A trial in device memory; O and LSE start poisoned.
class DeviceTrial {
 public:
  DeviceTrial(const Gpu& gpu, const DecodeTrial& trial, const CacheInputs& inputs, const DecodePlan& planned)
      : gpu_(&gpu),
        problem_(trial.problem),
        planned_(planned),
        q_(gpu.driver, inputs.q.size() * sizeof(std::uint16_t)),
        k_(gpu.driver, inputs.k.size() * sizeof(std::uint16_t)),
        v_(gpu.driver, inputs.v.size() * sizeof(std::uint16_t)),
        lengths_(gpu.driver, inputs.lengths.size() * sizeof(std::int32_t)),
        table_(gpu.driver, inputs.table.size() * sizeof(std::int32_t)),
        workspace_(gpu.driver, planned.workspace_bytes),
        poisoned_(outputs_of(trial.problem)),
        o_(gpu.driver, poisoned_.o.size() * sizeof(std::uint16_t)),
        lse_(gpu.driver, poisoned_.lse.size() * sizeof(float)) {
    q_.upload(inputs.q);
    k_.upload(inputs.k);
    v_.upload(inputs.v);
    lengths_.upload(inputs.lengths);
    table_.upload(inputs.table);
    workspace_.upload(poisoned_workspace(planned));
    o_.upload(poisoned_.o);
    lse_.upload(poisoned_.lse);
  }

  Outputs run(const LoadedKernel& decode, const LoadedKernel& merge) const {
    const attune_decode_args args = decode_args(problem_, {.q = q_.data(),
                                                           .k = k_.data(),
                                                           .v = v_.data(),
                                                           .lengths = lengths_.data(),
                                                           .table = table_.data(),
                                                           .o = o_.data(),
                                                           .lse = lse_.data(),
                                                           .workspace = workspace_.data(),
                                                           .workspace_bytes = planned_.workspace_bytes});
    const AttuneDecodeParams params = make_params(args, check_arguments(args), planned_);
    const Driver& driver = gpu_->driver;
    driver.launch(decode.handle(), planned_.grid, planned_.threads, planned_.shared_bytes, nullptr, &params);
    if (planned_.combines()) {
      const Resources needs = resources(merge.variant());
      driver.launch(merge.handle(), planned_.combine_grid, needs.threads, needs.shared_bytes, nullptr, &params);
    }
    driver.synchronize();
    Outputs outputs = poisoned_;
    o_.download(outputs.o);
    lse_.download(outputs.lse);
    return outputs;
  }

 private:
  const Gpu* gpu_;
  DecodeProblem problem_;
  DecodePlan planned_;
  DeviceBuffer q_;
  DeviceBuffer k_;
  DeviceBuffer v_;
  DeviceBuffer lengths_;
  DeviceBuffer table_;
  DeviceBuffer workspace_;
  Outputs poisoned_;
  DeviceBuffer o_;
  DeviceBuffer lse_;
};

}  // namespace

std::vector<Source> merging_sources(const std::vector<Source>& sources, const Device& device) {
  std::vector<Source> result;
  for (const Source& source : sources) {
    if (family_of(source.variant).operation != Operation::decode) continue;
    const Variant merge = own_variant(merging_problem(source.variant), device);
    const bool known = std::ranges::any_of(result, [&](const Source& one) { return one.variant == merge; });
    if (!known) result.push_back(generate(merge));
  }
  return result;
}

const Built* merging_kernel(const std::vector<Built>& merging, const Variant& decode) {
  const auto serves = [&](const Built& one) {
    const Variant& variant = one.source->variant;
    return one.ok() && variant.dtype == decode.dtype && variant.head_dim >= decode.head_dim;
  };
  const auto found = std::ranges::find_if(merging, serves);
  return found == merging.end() ? nullptr : &*found;
}

Verdict verify(const Gpu& gpu, const Built& decode, const Built& merge, const std::vector<DecodeTrial>& trials,
               std::uint64_t seed) {
  const LoadedKernel kernel(gpu, decode.compiled.image, decode.source->variant, decode.source->name);
  const LoadedKernel merging(gpu, merge.compiled.image, merge.source->variant, merge.source->name);
  return try_kernel(*decode.source, kernel.variant(), gpu.device, trials, seed,
                    [&](const DecodeTrial& trial, CacheInputs& inputs, const DecodePlan& planned) {
                      const DeviceTrial on_device(gpu, trial, inputs, planned);
                      return Outcome{.outputs = on_device.run(kernel, merging), .fault = {}};
                    });
}

Verdict verify(const Built& decode, const Built& merge, const std::vector<DecodeTrial>& trials,
               const EmulatedRun& how) {
  const emulator::Kernel kernel(decode.compiled.image, decode.source->name);
  const emulator::Kernel merging(merge.compiled.image, merge.source->name);
  // A set of GPUs is about machine code, and here is none.
  Variant variant = decode.source->variant;
  variant.arch = 0;
  std::vector<emulator::BankSite> banks;
  Verdict verdict = try_kernel(
      *decode.source, variant, emulator::device(), trials, how.seed,
      [&](const DecodeTrial& trial, CacheInputs& inputs, const DecodePlan& planned) {
        Outcome outcome{.outputs = Outputs(outputs_of(trial.problem)), .fault = {}};
        std::vector<float> workspace = poisoned_workspace(planned);
        const attune_decode_args args = decode_args(trial.problem, {.q = inputs.q.data(),
                                                                    .k = inputs.k.data(),
                                                                    .v = inputs.v.data(),
                                                                    .lengths = inputs.lengths.data(),
                                                                    .table = inputs.table.data(),
                                                                    .o = outcome.outputs.o.data(),
                                                                    .lse = outcome.outputs.lse.data(),
                                                                    .workspace = workspace.data(),
                                                                    .workspace_bytes = planned.workspace_bytes});
        // Of the decode kernel alone: another source's lines would be counted among its own.
        EmulatedRun once = how;
        once.count_banks = how.count_banks && !planned.combines();
        DecodeKernels kernels;
        kernels.decode = &kernel;
        kernels.combine = &merging;
        kernels.combine_variant = merge.source->variant;
        emulator::Report report = run_emulated(kernels, args, check_arguments(args), planned, once);
        outcome.fault = std::move(report.fault);
        add_sites(banks, report.sites);
        return outcome;
      });
  verdict.banks = std::move(banks);
  return verdict;
}

}  // namespace attune::cli
