#include "runtime/choice/explanation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "runtime/base/text.hpp"

namespace attune {
namespace {

std::string compiler_text(Origin origin) { return origin == Origin::host_compiler ? "the host's compiler" : "NVRTC"; }

/// A kernel and where it comes from.
std::string kernel_text(const Served& kernel) {
  const std::string source =
      kernel.origin == Origin::ready ? "the ready" : compiler_text(kernel.origin) + ", at first use:";
  return fmt::format("{} {}", source, kernel.variant.name());
}

std::string grid_text(const Launch& launch) {
  return fmt::format("grid {} x {} x {}", launch.grid.x, launch.grid.y, launch.grid.z);
}

std::string other_text(const OtherLaunch& other) {
  return fmt::format("{} {}, {}{}{}", other.place, kernel_text(other.serving), grid_text(other.launch),
                     other.remark.empty() ? "" : ", ", other.remark);
}

/// A part of a call that has launches of its own.
std::string part_text(const Explanation& part) {
  std::string text = fmt::format("{} by {}, {}", part.part, kernel_text(part.serving), grid_text(*part.launch));
  for (const OtherLaunch& other : part.others) text += fmt::format(", {} {}", other.place, kernel_text(other.serving));
  if (part.workspace_bytes == 0) return text;
  return fmt::format("given a workspace of {}, {}", bytes_text(static_cast<double>(part.workspace_bytes)), text);
}

/// What the compile policies do that is not the default's, where they differ.
std::string policies_text(const Explanation& all) {
  std::string text;
  std::vector<std::string> lacking;
  if (!all.serving.frozen) lacking.push_back(all.serving.variant.name());
  for (const OtherLaunch& other : all.others) {
    if (!other.serving.frozen) lacking.push_back(other.serving.variant.name());
  }
  if (!lacking.empty()) {
    text += fmt::format("  the compile policy 'frozen' would refuse the call, unless the cache has {}\n",
                        fmt::join(lacking, " and "));
  } else if (all.serving.origin != Origin::ready) {
    text += fmt::format("  the compile policy 'frozen' would take the ready {}\n", all.serving.frozen->name());
  }
  if (all.own.variant.columns() < all.serving.variant.columns() && !all.serving.tuned.applies) {
    text += fmt::format("  the compile policies 'exact' and 'background' would have {} build {}\n",
                        compiler_text(all.serving.origin), all.own.variant.name());
  }
  return text;
}

std::string launches_text(const Explanation& all) {
  std::string text =
      fmt::format("  {} by {}\n  {}, {} threads a block, {} of shared memory\n", all.part, kernel_text(all.serving),
                  grid_text(*all.launch), all.launch->threads, bytes_text(all.launch->shared_bytes));
  for (const std::string& note : all.notes) text += fmt::format("  {}\n", note);
  for (const OtherLaunch& other : all.others) text += fmt::format("  {}\n", other_text(other));
  for (const Explanation& part : all.short_sequences) text += fmt::format("  {}\n", part_text(part));
  return text + all.serving.tuned.text() + policies_text(all);
}

/// What newer families lack, where none of theirs serves.
std::string passed_over_text(const Explanation& all) {
  std::string text;
  for (const Considered& one : all.own.passed_over) {
    if (one.variant.family <= all.serving.variant.family) continue;
    text += fmt::format("  not by {}: {}\n", family_of(one.variant).name, fmt::join(one.refusals, "; "));
  }
  return text;
}

std::string considered_text(const Explanation& all, std::string_view rest) {
  Table table({{"ready variant"}, {"verdict"}});
  std::size_t left_out = 0;
  for (const Considered& one : all.considered) {
    if (one.refusals.empty()) {
      const bool serves = all.served() && one.variant == all.serving.variant;
      table.add({one.variant.name(), serves ? "serves" : "could serve"});
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

}  // namespace

void Explanation::refuse(std::vector<std::string> reasons) {
  refusals = std::move(reasons);
  launch.reset();
  others.clear();
  short_sequences.clear();
}

std::vector<std::pair<std::string_view, std::optional<Variant>>> Explanation::frozen() const {
  std::vector<std::pair<std::string_view, std::optional<Variant>>> kernels{{"variant", serving.frozen}};
  for (const OtherLaunch& other : others) kernels.emplace_back(other.role, other.serving.frozen);
  return kernels;
}

std::string Explanation::text(std::string_view rest) const {
  const std::string verdict = served() ? launches_text(*this) + passed_over_text(*this)
                                       : fmt::format("  no kernel can serve it: {}\n", fmt::join(refusals, "; "));
  return fmt::format("{} on {}\n{}{}", problem, device.name, verdict, considered_text(*this, rest));
}

}  // namespace attune
