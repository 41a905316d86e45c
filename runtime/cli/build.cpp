#include "runtime/cli/build.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "generator/check.hpp"
#include "generator/parallel.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/emulated/emulated.hpp"
#include "runtime/error.hpp"

namespace attune::cli {

namespace {

/// Every source with each of the architectures that it fits.
std::vector<Built> to_build(const std::vector<Source>& sources, const std::vector<Arch>& archs) {
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

void compile_all(std::vector<Built>& built, int jobs, const std::function<Compiled(const Built&)>& compile) {
  parallel_for(static_cast<long long>(built.size()), jobs, [&](long long i) {
    try {
      built[i].compiled = compile(built[i]);
    } catch (const Error& error) {
      built[i].error = error.what();
    }
  });
}

}  // namespace

std::vector<Built> build(const Compiler& compiler, const std::vector<Source>& sources, const std::vector<Arch>& archs,
                         int jobs) {
  std::vector<Built> built = to_build(sources, archs);
  compile_all(built, jobs, [&](const Built& one) { return compiler.compile(*one.source, one.arch.capability); });
  return built;
}

std::vector<Built> build(const emulator::HostCompiler& compiler, const std::vector<Source>& sources, int jobs) {
  const Cache cache(default_cache_root());
  std::vector<Built> built = to_build(sources, {emulated_arch()});
  compile_all(built, jobs, [&](const Built& one) { return compile_cached(compiler, *one.source, cache); });
  return built;
}

void disassemble(const Disassembler& disassembler, std::vector<Built>& built, int jobs) {
  parallel_for(static_cast<long long>(built.size()), jobs, [&](long long i) {
    Built& one = built[static_cast<std::size_t>(i)];
    if (one.ok()) one.instructions = disassembler.count(one.compiled.image);
  });
}

std::string resource_table(const std::vector<Built>& built) {
  const bool counted = std::ranges::any_of(built, [](const Built& one) { return one.instructions.has_value(); });
  std::vector<Column> columns{
      {"variant"}, {"arch"}, {"registers", Align::right}, {"shared", Align::right}, {"spills", Align::right}};
  if (counted) {
    for (const char* title : {"HGMMA", "HMMA", "LDL + STL"}) columns.push_back({title, Align::right});
  }
  for (const char* title : {"code", "compiled in"}) columns.push_back({title, Align::right});
  Table table(columns);
  for (const Built& one : built) {
    if (!one.ok()) {
      table.add({one.source->name, std::string(one.arch.name), "failed"});
      continue;
    }
    const ResourceUsage& usage = one.compiled.usage;
    const Resources asked = resources(one.source->variant);
    std::vector<std::string> cells{one.source->name, std::string(one.arch.name), std::to_string(usage.registers),
                                   bytes_text(asked.shared_bytes + usage.static_shared_bytes),
                                   bytes_text(usage.spill_stores + usage.spill_loads)};
    if (const auto& counts = one.instructions) {
      for (const int count : {counts->HGMMA, counts->HMMA, counts->LDL + counts->STL}) {
        cells.push_back(std::to_string(count));
      }
    }
    cells.push_back(bytes_text(static_cast<double>(usage.code_bytes)));
    cells.push_back(seconds_text(one.compiled.seconds));
    table.add(std::move(cells));
  }
  return table.text();
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

bool report_failures(const std::vector<Built>& built) {
  const std::vector<Diagnostic> failures = failures_of(built);
  for (const Diagnostic& failure : failures) fmt::print(stderr, "{}\n", failure.what);
  return failures.empty();
}

}  // namespace attune::cli
