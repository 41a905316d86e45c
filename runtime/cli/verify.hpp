// Running a kernel on problems whose answers the reference knows.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "runtime/cli/build.hpp"
#include "runtime/cli/gpu.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/lab/host_kernels.hpp"

namespace attune::cli {

/// How one variant did.
struct Verdict {
  struct Disagreement {
    std::string problem;
    std::string what;
  };
  std::string variant;
  int problems = 0;
  double worst = 0;                         ///< largest error as a part of its tolerance
  std::vector<Disagreement> disagreements;  ///< and faults that the emulator found
  std::vector<emulator::BankSite> banks;    ///< where the emulator was asked to count

  [[nodiscard]] bool ok() const { return disagreements.empty(); }
};

/// What one launch left.
struct Outcome {
  Outputs outputs;
  std::string fault;  ///< what was found while it ran; empty: nothing
};

/// Adds to a verdict what came of one problem, whose outputs are as those of `shape`. The expected ones are asked for
/// where there was no fault.
void add_outcome(Verdict& verdict, const std::string& problem, const Problem& shape, const Outcome& outcome,
                 const std::function<Expected()>& expected);

/// Told of each problem that has been tried.
using OnTried = std::function<void()>;

Verdict verify(const Gpu& gpu, const Built& built, const std::vector<Problem>& problems, std::uint64_t seed,
               const OnTried& on_tried = {});

/// The same in the emulator, for what the host's compiler built; the seed is that of the inputs too.
Verdict verify(const Built& built, const std::vector<Problem>& problems, const EmulatedRun& how,
               const OnTried& on_tried = {});

/// A row for each verdict on these kernels.
RowWriter verdict_rows(std::span<const Source> sources);
std::vector<std::string> verdict_cells(const Verdict& verdict);

nlohmann::ordered_json verdict_json(const std::vector<Verdict>& verdicts);

/// Prints every disagreement to stderr.
void report_disagreements(const std::vector<Verdict>& verdicts);

}  // namespace attune::cli
