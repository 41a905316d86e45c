#include "runtime/cli/explain_decode.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "generator/check.hpp"
#include "runtime/base/text.hpp"
#include "runtime/choice/tuned_devices.hpp"
#include "runtime/cli/explain_tuned.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/cli/problem_options.hpp"
#include "runtime/operations/decode/plan.hpp"
#include "runtime/operations/decode/problem_fields.hpp"
#include "runtime/operations/store/arguments.hpp"

namespace attune::cli {
namespace {

/// A kernel and where it comes from.
std::string kernel_text(const Served& kernel) {
  return fmt::format("{} {}", kernel.ready ? "the ready" : "NVRTC, at first use:", kernel.variant.name());
}

/// For what no table has rows of.
template <class AnyProblem>
Served untuned(const AnyProblem& problem, const Device& device) {
  return serve(ReadyKernels(), {}, problem, device);
}

std::string grid_text(const Grid& grid) { return fmt::format("grid {} x {} x {}", grid.x, grid.y, grid.z); }

/// Into how many parts the keys fall, and on whose word.
std::string parts_text(const DecodeProblem& problem, const DecodePlan& launch) {
  if (launch.splits > 0) {
    return fmt::format("{} of each sequence{}{}", counted(launch.splits, "part"),
                       problem.splits > 0 ? ", as asked for" : "",
                       launch.grid.cluster > 1 ? ", a cluster of thread blocks that merges them itself"
                       : problem.splits == 0 && !problem.one_length() ? ", which has too few keys for more"
                                                                      : "");
  }
  return fmt::format("{} of the whole batch's keys, equally long whatever the sequences' lengths; {}",
                     counted(launch.parts, "part"),
                     problem.one_length() ? "whole sequences would leave the last round of thread blocks too empty"
                                          : "the lengths are known on the GPU alone");
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

std::string text_of(const DecodeProblem& problem, const Device& device, const Served& kernel,
                    const DecodePlan& launch) {
  std::string text = fmt::format("{} on {}\n  served by {}\n", problem.text(), device.name, kernel_text(kernel));
  text += kernel.tuned.text();
  text += fmt::format("  {}, {} threads a block, {} of shared memory\n", grid_text(launch.grid), launch.threads,
                      bytes_text(launch.shared_bytes));
  text += fmt::format("  {}\n  {}\n", room_text(problem, launch, device), parts_text(problem, launch));
  if (launch.combines()) {
    text += fmt::format("  merged by {}, {}, through {} of workspace\n", kernel_text(untuned(problem.merge(), device)),
                        grid_text(launch.combine_grid), bytes_text(static_cast<double>(launch.workspace_bytes)));
  }
  if (problem.appends()) {
    const Served store = untuned(problem.store(), device);
    text += fmt::format("  behind {}, {}, which stores the new keys\n", kernel_text(store),
                        grid_text(plan(store.variant, problem.store()).grid));
  }
  if (problem.head_dim < launch.variant.head_dim) {
    text += fmt::format("  head_dim {} is padded to {} with zeros\n", problem.head_dim, launch.variant.head_dim);
  }
  return text;
}

nlohmann::ordered_json json_of(const DecodeProblem& problem, const Device& device, const Served& kernel,
                               const DecodePlan& launch) {
  const auto grid = [](const Grid& one) { return nlohmann::ordered_json{one.x, one.y, one.z}; };
  nlohmann::ordered_json json{
      {"problem", problem.text()},
      {"device", device.name},
      {"served", true},
      {"variant", kernel.variant.name()},
      {"source", kernel.ready ? "ready" : "nvrtc"},
      {"grid", grid(launch.grid)},
      {"threads", launch.threads},
      {"shared_bytes", launch.shared_bytes},
      {"splits", launch.splits},
      {"cluster", launch.grid.cluster},
      {"parts", launch.parts},
      {"blocks_at_once", blocks_per_multiprocessor(launch.variant, device) * device.multiprocessors},
      {"workspace_bytes", launch.workspace_bytes},
      {"tuned", tuned_json(kernel.tuned)}};
  if (launch.combines()) {
    json["combine"] = untuned(problem.merge(), device).variant.name();
    json["combine_grid"] = grid(launch.combine_grid);
  }
  if (problem.appends()) json["store"] = untuned(problem.store(), device).variant.name();
  return json;
}

}  // namespace

DecodeOptions::DecodeOptions() : named(DecodeProblem::usual()) {
  constexpr int usual_seqlen_k = 4096;
  named.max_seqlen_k = usual_seqlen_k;
  named.seqlen_new = 0;
}

void DecodeOptions::add(CLI::App& app) {
  constexpr const char* group = "Decoding";
  app.add_flag("--decode", decode,
               "Attention of few queries to a cache; --seqlen-q is then 1 by default, --seqlen-k 4096")
      ->group(group);
  for_each_field<DecodeProblem>([&](const auto& field) {
    if (field.doc != nullptr) add_field_option(app, group, field, named);
  });
  app.get_option("--page-size")->check(CLI::PositiveNumber);
  app.add_flag("--lengths-on-device", lengths_on_device,
               "Sequences have up to --seqlen-k keys, how many is known on the GPU alone")
      ->group(group);
}

DecodeProblem DecodeOptions::problem(const ProblemOptions& sizes, const CLI::App& app) const {
  const Problem given = sizes.problem();
  DecodeProblem result = named;
  result.dtype = given.dtype;
  result.batch = given.batch;
  if (app.count("--seqlen-q") > 0) result.seqlen_q = given.seqlen_q;
  result.heads_q = given.heads_q;
  result.heads_kv = given.heads_kv;
  result.head_dim = given.head_dim;
  if (sizes.named.seqlen_k != left_out) result.max_seqlen_k = given.seqlen_k;
  result.equal_lengths = !lengths_on_device && named.seqlen_new == 0;
  result.softcap = given.softcap;
  result.window_left = sizes.named.window_left;
  result.window_right = sizes.named.causal ? 0 : sizes.named.window_right;
  if (result.page_size >= result.max_seqlen_k) result.page_size = left_out;  // one page is as a contiguous cache
  result.complete();
  return result;
}

Exit explain_decode(const DecodeProblem& problem, const Device& device, bool json) {
  require_sound(problem);
  const ReadyKernels ready;
  const Served kernel = serve(ready, default_tuned_tables(ready), problem, device);
  if (const std::vector<std::string> reasons = refusals(kernel.variant, problem, device); !reasons.empty()) {
    if (json) {
      print_json({{"problem", problem.text()}, {"device", device.name}, {"served", false}, {"refusals", reasons}});
    } else {
      fmt::print("{} on {}\n  no kernel can serve it: {}\n", problem.text(), device.name, fmt::join(reasons, "; "));
    }
    return Exit::check_failed;
  }
  const DecodePlan launch = plan(kernel.variant, problem, device);
  if (json) {
    print_json(json_of(problem, device, kernel, launch));
  } else {
    fmt::print("{}", text_of(problem, device, kernel, launch));
  }
  return Exit::done;
}

}  // namespace attune::cli
