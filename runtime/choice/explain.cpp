#include "runtime/choice/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "runtime/base/text.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/operations/backward/plan.hpp"
#include "runtime/operations/decode/arguments.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "runtime/operations/prefill/short_sequences.hpp"
#include "runtime/operations/store/arguments.hpp"

namespace attune {
namespace {

/// Adds the launch of a part of the call, which `plan_of(variant)` gives. Where no kernel serves that, none serves the
/// call.
template <class PlanOf>
void add(Explanation& whole, const ProblemView& part, const Surroundings& around, OtherLaunch other,
         const PlanOf& plan_of) {
  other.serving = serve(around.ready, around.tables, part, around.device, around.policy);
  const std::vector<std::string> reasons = refusals(other.serving.variant, part, around.device);
  if (!reasons.empty()) {
    throw Error(ATTUNE_UNSUPPORTED, fmt::format("{}, which {} it: {}", other.serving.variant.name(), other.place,
                                                fmt::join(reasons, "; ")));
  }
  other.launch = plan_of(other.serving.variant);
  whole.others.push_back(std::move(other));
}

/// The same of a part whose launch depends on nothing else.
template <class Part>
void add(Explanation& whole, const Part& part, const Surroundings& around, OtherLaunch other) {
  add(whole, part, around, std::move(other), [&](const Variant& variant) { return plan(variant, part); });
}

/// The main launch, as a plan has it.
void set_launch(Explanation& explanation, const auto& plan) {
  explanation.launch = {.grid = plan.grid, .threads = plan.threads, .shared_bytes = plan.shared_bytes};
  explanation.workspace_bytes = plan.workspace_bytes;
}

std::string workspace_text(std::size_t bytes) { return bytes_text(static_cast<double>(bytes)); }

/// Notes on head dimensions that the kernel's are larger than.
template <class AnyProblem>
void note_padding(Explanation& explanation, const AnyProblem& problem) {
  const auto note = [&](std::string_view what, int has, int padded) {
    explanation.notes.push_back(fmt::format("{} {} is padded to {} with zeros", what, has, padded));
  };
  const Variant& variant = explanation.serving.variant;
  if (problem.head_dim < variant.head_dim) note("head_dim", problem.head_dim, variant.head_dim);
  if constexpr (requires { problem.head_dim_of_v(); }) {
    const int has = problem.head_dim_of_v();
    if (has < variant.head_dim_of_v() && has != problem.head_dim) note("head_dim_v", has, variant.head_dim_of_v());
  }
}

std::string workspace_text(const Problem& problem, const PrefillPlan& launch) {
  const std::string bytes = workspace_text(launch.workspace_bytes);
  if (launch.variant.stream_k == 0) return fmt::format("in a workspace of {}", bytes);
  return fmt::format("given a workspace of {}, blocks share the last {} of {} tiles{}", bytes,
                     launch.shares.tiles - launch.shares.whole_tiles, launch.shares.tiles,
                     problem.paged ? ", where their sequences turn out to have as many blocks of keys" : "");
}

/// Into how many parts the keys fall, and on whose word.
std::string parts_text(const DecodeProblem& problem, const DecodePlan& launch) {
  if (launch.splits > 0) {
    return fmt::format("{} of each sequence{}{}", counted(launch.splits, "part"),
                       problem.splits > 0 ? ", as asked for" : "",
                       launch.grid.cluster > 1 ? ", a cluster of thread blocks that merges them itself"
                       : problem.splits == 0 && !problem.one_length() ? ", which has too few keys for more"
                                                                      : "");
  }
  return fmt::format("{} of the whole batch's keys, equally long {}", counted(launch.parts, "part"),
                     problem.one_length() ? "so that the GPU is full to the end"
                                          : "whatever the sequences' lengths, which are known on the GPU alone");
}

/// What a GPU holds, which automatic parts are to fill.
std::string room_text(const DecodeProblem& problem, const DecodePlan& launch, const Device& device) {
  const int each = blocks_per_multiprocessor(launch.variant, device);
  return fmt::format("{} for each sequence ({} of {}, {} to a tile); the GPU holds {} at a time, {} on each of {}",
                     counted(launch.grid.x, "tile"), counted(problem.heads_kv, "K/V head"),
                     counted(problem.rows(), "row"), launch.variant.B_r,
                     counted(1LL * each * device.multiprocessors, "thread block"), each,
                     counted(device.multiprocessors, "multiprocessor"));
}

}  // namespace

Explanation explain_choice(const ProblemView& problem, const Surroundings& around) {
  Explanation result;
  result.problem = problem.text();
  result.device = around.device;
  result.considered = consider(around.ready.heuristic_variants(problem.operation()), problem, around.device);
  result.own = choose_own(problem, around.device);
  result.serving = serve(around.ready, around.tables, problem, around.device, around.policy);
  result.refusals = refusals(result.serving.variant, problem, around.device);
  const bool among =
      std::ranges::find(result.considered, result.serving.variant, &Considered::variant) != result.considered.end();
  if (result.serving.origin == Origin::ready && !among) {  // what only a tuned row asks for
    result.considered.insert(result.considered.begin(), {result.serving.variant, {}});
  }
  return result;
}

void add_launches(Explanation& explanation, const Problem& problem, const Surroundings& around) {
  const PrefillPlan launch = plan(explanation.serving.variant, problem, around.device);
  set_launch(explanation, launch);
  if (launch.workspace_bytes > 0) explanation.notes.push_back(workspace_text(problem, launch));
  note_padding(explanation, problem);
  if (const auto blocks = static_cast<unsigned>(launch.mask_blocks.pairs()); blocks > 0) {
    const OtherLaunch other{
        .role = "mask_blocks", .place = "after", .remark = "which tells what the mask leaves, given that workspace"};
    add(explanation, MaskBlocksProblem{problem.expressions.mask}, around, other,
        [&](const Variant& variant) { return launch_of(variant, {.x = blocks, .y = 1, .z = 1}); });
  }
  const std::optional<DecodeProblem> part = short_sequences(problem);
  if (!part) return;
  Explanation few = explain(*part, around.device, around.ready, around.tables, around.policy);
  if (!few.served()) return;
  few.part = fmt::format("sequences of up to {}",
                         part->seqlen_q == 1 ? "one query" : fmt::format("{} queries", part->seqlen_q));
  few.counts.insert(few.counts.begin(), {"most_queries", part->seqlen_q});
  explanation.short_sequences.push_back(std::move(few));
}

void add_launches(Explanation& explanation, const DecodeProblem& problem, const Surroundings& around) {
  const Device& device = around.device;
  const DecodePlan launch = plan(explanation.serving.variant, launched_of(problem, 0), device);
  set_launch(explanation, launch);
  explanation.notes = {room_text(problem, launch, device), parts_text(problem, launch)};
  note_padding(explanation, problem);
  explanation.counts = {{"splits", launch.splits},
                        {"cluster", launch.grid.cluster},
                        {"parts", launch.parts},
                        {"blocks_at_once", blocks_per_multiprocessor(launch.variant, device) * device.multiprocessors}};
  if (problem.appends()) {
    add(explanation, problem.store(), around,
        {.role = "store", .place = "after", .remark = "which stores the new keys"});
  }
  if (!launch.combines()) return;
  const std::string remark = fmt::format("a {} for each row, through {} of workspace",
                                         launch.warp_rows ? "warp" : "block", workspace_text(launch.workspace_bytes));
  add(explanation, problem.merge(), around, {.role = "combine", .place = "merged by", .remark = remark},
      [&](const Variant& variant) { return launch_of(variant, combine_grid(launch, variant)); });
}

void add_launches(Explanation& explanation, const BackwardProblem& problem, const Surroundings& around) {
  const BackwardWorkspace workspace = workspace_of(explanation.serving.variant, problem, around.device);
  explanation.part = "dk and dv";
  explanation.launch = plan(explanation.serving.variant, problem, around.device);
  explanation.workspace_bytes = workspace.bytes();
  explanation.notes = {fmt::format("in a workspace of {}", workspace_text(workspace.bytes()))};
  note_padding(explanation, problem);
  add(explanation, problem.rows(), around, {.role = "rows", .place = "after"});
  if (workspace.dq_bytes > 0) {
    add(explanation, problem.conversion(), around,
        {.role = "last", .place = "before", .remark = "which makes dq of its sums"});
  } else {
    add(explanation, problem.queries(), around, {.role = "last", .place = "before", .remark = "which gives dq"},
        [&](const Variant& variant) { return plan(variant, problem.queries(), around.device); });
  }
}

void add_launches(Explanation& explanation, const CheckProblem& /*problem*/, const Surroundings& /*around*/) {
  explanation.launch = launch_of(explanation.serving.variant, {});
}

Explanation emulated(Explanation explanation) {
  const auto made_by_host = [](Served& serving) {
    serving.tuned = {};
    serving.origin = Origin::host_compiler;
    serving.frozen.reset();
  };
  made_by_host(explanation.serving);
  for (OtherLaunch& other : explanation.others) made_by_host(other.serving);
  for (Explanation& part : explanation.short_sequences) part = emulated(std::move(part));
  return explanation;
}

}  // namespace attune
