// Running kernels on problems whose answers the reference knows.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "runtime/cli/build.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/lab/trial.hpp"

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

/// Adds to a verdict how what came of one trial compares.
void add_outcome(Verdict& verdict, const Trial& trial, const Outputs& outputs, const Expected& expected);

/// Told of each trial that is done.
using OnTried = std::function<void()>;

/// The kernels that calls of those among these sources launch besides.
std::vector<Source> companion_sources(const std::vector<Source>& sources, const Device& device);

/// A kernel and, after it, those of `companions` that go with it; nothing where one of these did not compile.
std::vector<const Built*> with_companions(const Built& built, const std::vector<Built>& companions,
                                          const Device& device);

/// Runs the first of these kernels, which with_companions() has brought together, on trials.
Verdict verify(const Gpu& gpu, std::span<const Built* const> kernels, const Trials& trials,
               const OnTried& on_tried = {});

/// The same in the emulator, for what the host's compiler built.
Verdict verify(std::span<const Built* const> kernels, const Trials& trials, const EmulatedRun& how,
               const OnTried& on_tried = {});

/// A row for each verdict on these kernels.
RowWriter verdict_rows(std::span<const Source> sources);
std::vector<std::string> verdict_cells(const Verdict& verdict);

nlohmann::ordered_json verdict_json(const std::vector<Verdict>& verdicts);

/// Prints every disagreement to stderr.
void report_disagreements(const std::vector<Verdict>& verdicts);

}  // namespace attune::cli
