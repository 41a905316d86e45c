#include "runtime/cli/build.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>

#include "generator/check.hpp"
#include "generator/parallel.hpp"
#include "runtime/base/error.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/lab/fixed_kernels.hpp"
#include "runtime/registry/emulated_kernels.hpp"

namespace attune::cli {

namespace {

/// Every source with each of the architectures that it fits.
std::vector<Built> to_build(std::span<const Source> sources, const std::vector<Arch>& archs) {
  std::vector<Built> built;
  for (const Source& source : sources) {
    for (const Arch& arch : archs) {
      if (check_arch(source.variant, arch).empty()) {
        built.push_back({.source = &source, .arch = arch, .compiled = {}, .instructions = {}, .error = {}});
      }
    }
  }
  return built;
}

void compile_all(std::vector<Built>& built, int jobs, const std::function<Compiled(const Built&)>& compile,
                 const OnBuilt& on_built) {
  std::mutex telling;
  std::vector<bool> tried(built.size());
  std::size_t told = 0;
  parallel_for(static_cast<long long>(built.size()), jobs, [&](long long i) {
    const auto index = static_cast<std::size_t>(i);
    try {
      built[index].compiled = compile(built[index]);
    } catch (const Error& error) {
      built[index].error = error.what();
    }
    const std::lock_guard lock(telling);
    tried[index] = true;
    for (; told < built.size() && tried[told]; ++told) {
      if (on_built) on_built(built[told]);
    }
  });
}

/// Cells of resource_cells() that stand before those of instructions, if there are any.
constexpr std::ptrdiff_t cells_before_instructions = 5;

std::vector<Column> resource_columns(bool with_instructions) {
  std::vector<Column> columns{
      {"variant"}, {"arch"}, {"registers", Align::right}, {"shared", Align::right}, {"spills", Align::right}};
  if (with_instructions) {
    for (const char* title : {"HGMMA", "HMMA", "LDL + STL"}) columns.push_back({title, Align::right});
  }
  for (const char* title : {"code", "compiled in"}) columns.push_back({title, Align::right});
  return columns;
}

}  // namespace

std::vector<Built> build(const Compiler& compiler, std::span<const Source> sources, const std::vector<Arch>& archs,
                         int jobs, const OnBuilt& on_built) {
  std::vector<Built> built = to_build(sources, archs);
  compile_all(
      built, jobs, [&](const Built& one) { return compiler.compile(*one.source, one.arch.capability); }, on_built);
  return built;
}

std::vector<Built> build(const emulator::HostCompiler& compiler, std::span<const Source> sources, int jobs,
                         const OnBuilt& on_built) {
  const Cache cache(default_cache_root());
  std::vector<Built> built = to_build(sources, {emulated_arch()});
  compile_all(
      built, jobs, [&](const Built& one) { return compile_cached(compiler, *one.source, cache); }, on_built);
  return built;
}

long long kernels_to_build(std::span<const Source> sources, const std::vector<Arch>& archs) {
  return static_cast<long long>(to_build(sources, archs).size());
}

void disassemble(const Disassembler& disassembler, std::vector<Built>& built, int jobs) {
  parallel_for(static_cast<long long>(built.size()), jobs, [&](long long i) {
    Built& one = built[static_cast<std::size_t>(i)];
    if (one.ok()) one.instructions = disassembler.count(one.compiled.image);
  });
}

RowWriter resource_rows(std::span<const Source> sources, const std::vector<Arch>& archs) {
  const auto wider = [](std::string& widest, const std::string& cell) {
    if (cell.size() > widest.size()) widest = cell;
  };
  std::vector<std::string> widest{"", "", "", "", "", "10.0 KB", ""};
  for (const Source& source : sources) {
    wider(widest[0], source.name);
    wider(widest[3], bytes_text(resources(source.variant).shared_bytes));
  }
  for (const Arch& arch : archs) wider(widest[1], std::string(arch.name));
  return {resource_columns(false), widest};
}

std::vector<std::string> resource_cells(const Built& one) {
  if (!one.ok()) return {one.source->name, std::string(one.arch.name), "failed"};
  const ResourceUsage& usage = one.compiled.usage;
  const Resources asked = resources(one.source->variant);
  return {one.source->name,
          std::string(one.arch.name),
          std::to_string(usage.registers),
          bytes_text(asked.shared_bytes + usage.static_shared_bytes),
          bytes_text(usage.spill_stores + usage.spill_loads),
          bytes_text(static_cast<double>(usage.code_bytes)),
          seconds_text(one.compiled.seconds)};
}

std::string resource_table(const std::vector<Built>& built) {
  const bool counted = std::ranges::any_of(built, [](const Built& one) { return one.instructions.has_value(); });
  Table table(resource_columns(counted));
  for (const Built& one : built) {
    std::vector<std::string> cells = resource_cells(one);
    if (const auto& counts = one.instructions) {
      const std::vector<std::string> of_instructions{std::to_string(counts->HGMMA), std::to_string(counts->HMMA),
                                                     std::to_string(counts->LDL + counts->STL)};
      cells.insert(cells.begin() + cells_before_instructions, of_instructions.begin(), of_instructions.end());
    }
    table.add(std::move(cells));
  }
  std::string text = table.text();
  for (const Built& one : built) {
    if (!one.ok() || !one.compiled.usage.serialized) continue;
    text += fmt::format(
        "{} for {}: ptxas lets each wgmma wait for the one before, at half the speed and less; smaller "
        "tiles or fewer columns of Q in registers leave it room\n",
        one.source->name, one.arch.name);
  }
  return text;
}

nlohmann::ordered_json resource_json(const std::vector<Built>& built) {
  auto rows = nlohmann::ordered_json::array();
  for (const Built& one : built) {
    const ResourceUsage& usage = one.compiled.usage;
    const Resources asked = resources(one.source->variant);
    nlohmann::ordered_json row{{"variant", one.source->name}, {"arch", one.arch.name}, {"ok", one.ok()}};
    if (one.ok()) {
      row["threads"] = asked.threads;
      row["registers"] = usage.registers;
      row["shared_bytes"] = asked.shared_bytes + usage.static_shared_bytes;
      row["stack_bytes"] = usage.stack_bytes;
      row["spill_store_bytes"] = usage.spill_stores;
      row["spill_load_bytes"] = usage.spill_loads;
      row["code_bytes"] = usage.code_bytes;
      row["serialized"] = usage.serialized;
      row["seconds"] = one.compiled.seconds;
      if (const auto& counts = one.instructions) {
        row["instructions"] = {
            {"HGMMA", counts->HGMMA}, {"HMMA", counts->HMMA}, {"LDL", counts->LDL}, {"STL", counts->STL}};
      }
    } else {
      row["error"] = one.error;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<Diagnostic> failures_of(const std::vector<Built>& built) {
  std::vector<Diagnostic> failures;
  for (const Built& one : built) {
    if (one.ok()) continue;
    failures.push_back(
        {.where = {},
         .what = fmt::format("{} for {} did not compile: {}", one.source->name, one.arch.name, one.error),
         .fix = {}});
  }
  return failures;
}

bool report(const std::vector<Diagnostic>& failures) {
  for (const Diagnostic& failure : failures) fmt::print(stderr, "{}\n", failure.what);
  return failures.empty();
}

bool report_failures(const std::vector<Built>& built) { return report(failures_of(built)); }

}  // namespace attune::cli
