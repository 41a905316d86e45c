#include "runtime/choice/decision.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/text.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/emulator.hpp"
#include "runtime/operations/prefill/short_sequences.hpp"

namespace attune {
namespace {

std::string compiler_text(Origin origin) { return origin == Origin::host_compiler ? "the host's compiler" : "NVRTC"; }

/// Whose the short sequences are.
std::string short_text(const ShortDecision& few) {
  const std::size_t bytes = few.launch.workspace_bytes;
  std::string text =
      fmt::format("  {}sequences of up to {} are decode's: {}, grid {} x {} x {}",
                  bytes > 0 ? fmt::format("given a workspace of {}, ", bytes_text(static_cast<double>(bytes))) : "",
                  few.problem.seqlen_q == 1 ? "one query" : fmt::format("{} queries", few.problem.seqlen_q),
                  few.serving.variant.name(), few.launch.grid.x, few.launch.grid.y, few.launch.grid.z);
  if (few.launch.combines()) text += fmt::format(", merged by {}", few.merging.variant.name());
  return text + "\n";
}

std::string launch_text(const Decision& decision) {
  const PrefillPlan& launch = *decision.launch;
  std::string text = fmt::format("  {} {}\n",
                                 decision.serving.origin == Origin::ready
                                     ? "served by the ready"
                                     : compiler_text(decision.serving.origin) + " would build at first use",
                                 decision.serving.variant.name());
  text += fmt::format("  grid {} x {} x {}, {} threads a block, {} of shared memory\n", launch.grid.x, launch.grid.y,
                      launch.grid.z, launch.threads, bytes_text(launch.shared_bytes));
  if (launch.workspace_bytes > 0 && decision.serving.variant.stream_k == 0) {
    text += fmt::format("  in a workspace of {}\n", bytes_text(static_cast<double>(launch.workspace_bytes)));
  } else if (launch.workspace_bytes > 0) {
    text +=
        fmt::format("  given a workspace of {}, blocks share the last {} of {} tiles{}\n",
                    bytes_text(static_cast<double>(launch.workspace_bytes)),
                    launch.shares.tiles - launch.shares.whole_tiles, launch.shares.tiles,
                    decision.problem.paged ? ", where their sequences turn out to have as many blocks of keys" : "");
  }
  if (decision.few) text += short_text(*decision.few);
  if (decision.problem.head_dim < decision.serving.variant.head_dim) {
    text += fmt::format("  head_dim {} is padded to {} with zeros\n", decision.problem.head_dim,
                        decision.serving.variant.head_dim);
  }
  if (decision.problem.head_dim_of_v() < decision.serving.variant.head_dim_of_v() &&
      decision.problem.head_dim_of_v() != decision.problem.head_dim) {
    text += fmt::format("  head_dim_v {} is padded to {} with zeros\n", decision.problem.head_dim_of_v(),
                        decision.serving.variant.head_dim_of_v());
  }
  text += decision.serving.tuned.text() + decision.serving.frozen_text();
  if (decision.own.variant.columns() < decision.serving.variant.columns() && !decision.serving.tuned.applies) {
    text += fmt::format("  the compile policies 'exact' and 'background' would have {} build {}\n",
                        compiler_text(decision.serving.origin), decision.own.variant.name());
  }
  return text;
}

/// What newer families lack, where none of theirs serves.
std::string passed_over_text(const Decision& decision) {
  std::string text;
  for (const Considered& one : decision.own.passed_over) {
    if (one.variant.family <= decision.serving.variant.family) continue;
    text += fmt::format("  not by {}: {}\n", family_of(one.variant).name, fmt::join(one.refusals, "; "));
  }
  return text;
}

std::string considered_text(const Decision& decision, std::string_view rest) {
  Table table({{"ready variant"}, {"verdict"}});
  std::size_t left_out = 0;
  for (const Considered& one : decision.considered) {
    if (one.refusals.empty()) {
      table.add({one.variant.name(), one.variant == decision.serving.variant ? "serves" : "could serve"});
    } else if (rest.empty() || one.refusals.size() == 1) {
      table.add({one.variant.name(), fmt::format("{}", fmt::join(one.refusals, "; "))});
    } else {
      ++left_out;
    }
  }
  std::string text = table.empty() ? "" : "\n" + table.text();
  if (left_out > 0) {
    text += fmt::format("and {} refused for more than one reason ({})\n",
                        counted(static_cast<long long>(left_out), "variant"), rest);
  }
  return text;
}

std::optional<ShortDecision> decide_short(const Problem& problem, const Device& device, const ReadyKernels& ready,
                                          std::span<const TunedTable> tables) {
  const std::optional<DecodeProblem> part = short_sequences(problem);
  if (!part) return std::nullopt;
  const Served serving = serve(ready, tables, *part, device);
  if (!refusals(serving.variant, *part, device).empty()) return std::nullopt;
  return ShortDecision{*part, serving, plan(serving.variant, *part, device),
                       serve(ready, tables, part->merge(), device)};
}

}  // namespace

Decision decide(const Problem& problem, const Device& device, const ReadyKernels& ready,
                std::span<const TunedTable> tables) {
  const std::span<const Variant> candidates = ready.heuristic_variants(Operation::prefill);
  Decision decision{.problem = problem,
                    .device = device,
                    .considered = consider(candidates, problem, device),
                    .own = choose_own(problem, device),
                    .serving = serve(ready, tables, problem, device),
                    .launch = {},
                    .few = {},
                    .refusals = {}};
  decision.refusals = refusals(decision.serving.variant, problem, device);
  if (!decision.refusals.empty()) return decision;
  decision.launch = plan(decision.serving.variant, problem, device);
  decision.few = decide_short(problem, device, ready, tables);
  return decision;
}

Decision decide_emulated(const Problem& problem) {
  Decision decision = decide(problem, emulator::device());
  decision.serving.tuned = {};  // nobody times its kernels
  decision.serving.origin = Origin::host_compiler;
  decision.serving.frozen.reset();
  return decision;
}

std::string decision_text(const Decision& decision, std::string_view rest) {
  const std::string verdict = decision.served()
                                  ? launch_text(decision) + passed_over_text(decision)
                                  : fmt::format("  no kernel can serve it: {}\n", fmt::join(decision.refusals, "; "));
  return fmt::format("{} on {}\n{}{}", decision.problem.text(), decision.device.name, verdict,
                     considered_text(decision, rest));
}

}  // namespace attune
